"""A command line makes the run it stands beside."""

import json
import shlex

import pytest

from urnn.experiments.config import from_text
from urnn.experiments.presets import PRESETS, configure
from urnn.experiments.train import prepare
from urnn.report.commands import FLAGS, command


def read(text: str) -> dict[str, object]:
    """The settings that a command line asks for."""
    words = shlex.split(text)
    assert words[:2] == ["urnn", "train"]
    given = list(zip(words, words[1:], strict=False))
    values = dict(given)
    task = None if "--preset" in values else words[2]
    pairs = [value for flag, value in given if flag == "--set"]
    names = {flag: name for name, flag in FLAGS.items()}
    pairs += [f"{names[flag]}={value}" for flag, value in given if flag in names]
    preset = values.get("--preset")
    kind = task or PRESETS[preset]["task"]
    return prepare(configure(values.get("--recipe", "best"), preset, task, from_text(kind, pairs))).flat()


@pytest.mark.parametrize(
    ("recipe", "preset", "task", "own"),
    [
        ("best", None, "copy", {"seed": 3, "time_steps": 77, "lr": 3.25e-4, "unitary_betas": (0.8, 0.95)}),
        ("paper", None, "sysid", {"model": "full,restricted", "hidden": 6, "bias_constraint": "nonpositive"}),
        ("paper", "copy-T2000/lstm-68", None, {"seed": 4, "warmup": 20}),
        ("best", "copy-T1000/householder", None, {"reflections": 4}),
        ("best", "capacity-N16/givens-8", None, {"polish": False, "unitary_betas": None}),
        ("best", "sysid-N8", None, {"device": "cpu", "threads": 1}),
    ],
)
def test_it_comes_back(recipe, preset, task, own):
    config = prepare(configure(recipe, preset, task, own)).flat()
    written = json.loads(json.dumps(config))  # as config.json holds it
    assert read(command(written, preset)) == config


def test_only_what_differs_is_said():
    config = configure("paper", "sysid-N16", None, {"seed": 5}).flat()
    assert command(config, "sysid-N16") == "urnn train --preset sysid-N16 --recipe paper --seed 5"


def test_a_hostile_value_is_quoted():
    config = {**configure(task="copy").flat(), "data": "x; rm -rf ~"}
    assert command(config) == "urnn train copy --set 'data=x; rm -rf ~'"
