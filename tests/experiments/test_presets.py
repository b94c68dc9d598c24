"""Every preset and recipe makes a run."""

import pytest
import torch

from urnn.experiments import models, optimizers, presets
from urnn.experiments.presets import GRIDS, PRESETS, RECIPES, configure
from urnn.experiments.tasks import TASKS
from urnn.experiments.train import prepare, training_step

SHORT = {
    "copy": {"time_steps": 2, "batch_size": 2, "train_sequences": 4, "hidden": 8, "parameters": 0},
    "sysid": {"time_steps": 3, "starts": 1, "train_sequences": 60, "validation_sequences": 2, "test_sequences": 2}
    | {"hidden": 4, "reflections": 2},
    "mnist": {"checksums": False, "train_images": 4, "validation_images": 1, "test_images": 1, "hidden": 4}
    | {"reflections": 2, "readout_states": 2, "epochs": 1, "parameters": 0},
}


@pytest.mark.parametrize("recipe", ["best", "paper"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_takes_a_step(preset, recipe, toy_mnist, speech_features):
    task = PRESETS[preset]["task"]
    data = {"mnist": {"data": str(toy_mnist)}, "speech": {"data": str(speech_features)}}
    config = prepare(configure(recipe, preset, own={"threads": 1, **SHORT.get(task, {}), **data.get(task, {})}))
    problem = config.problem.start(config)
    model = problem.model()
    step = training_step(config, problem, model, optimizers.build(config, model))
    before = [p.detach().clone() for p in model.parameters()]
    assert torch.isfinite(step(*problem.batch(0)))
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("preset", "hidden", "parameters"),
    [
        ("copy-T1000/full-128", 128, 21641),
        ("copy-T1000/restricted-470", 470, 22569),
        ("copy-T2000/lstm-68", 68, 22381),  # 8 N biases; the paper's 22245 has 4 N, and 2 N learned first states
        ("copy-T1000/exponential", 128, 21641),
        ("copy-T1000/cayley", 128, 21641),
    ],
)
def test_sizes_are_the_papers_or_match_them(preset, hidden, parameters):
    config = prepare(configure("best", preset))
    assert config.hidden == hidden
    model = models.build(config, *config.problem.widths())
    assert models.count_parameters(model) == parameters


@pytest.mark.parametrize("model", ["householder", "givens", "rnn"])
def test_tunable_families_come_near_to_the_size(model):
    config = prepare(configure("best", f"copy-T1000/{model}"))
    found = models.count_parameters(models.build(config, *config.problem.widths()))
    assert abs(found - 21641) < 0.01 * 21641


def test_grids_name_presets():
    assert all(cell in PRESETS for grid in GRIDS.values() for cell in grid["cells"])
    assert RECIPES.keys() == TASKS.keys() == presets.OF_MODEL.keys()


def test_the_users_own_settings_win():
    config = configure("paper", "copy-T1000/lstm-68", own={"clip_value": 0.5, "lr": 0.1})
    assert (config.clip_value, config.lr, config.problem.time_steps) == (0.5, 0.1, 1000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("best", "copy-T1000/full-129"), "--preset: .* The nearest are copy-T1000/full-128"),
        (("worst", "sysid-N4"), "--recipe: expected one of"),
        (("best", "sysid-N4", "copy"), "--preset: expected one of the task 'copy', got 'sysid-N4'"),
        (("best", None, "song"), "task: expected a known name, got 'song'"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(words, message):
    with pytest.raises(ValueError, match=message):
        configure(*words)
