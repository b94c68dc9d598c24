"""The command line, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import urnn
from urnn.cli import app

runner = CliRunner()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "urnn", *words], capture_output=True, text=True, check=False)


def test_version():
    assert runner.invoke(app, ["--version"]).output.strip() == urnn.__version__


def test_capacity_table_and_json_agree():
    table = runner.invoke(app, ["capacity", "--family", "restricted", "--n", "6..7"]).output
    assert "restricted" in table
    assert "86%" in table
    rows = json.loads(runner.invoke(app, ["capacity", "--family", "restricted", "--n", "6..7", "--json"]).output)
    assert [(row["n"], row["rank"], row["dimension"], row["full"]) for row in rows] == [
        (6, 35, 36, False),
        (7, 42, 49, False),
    ]


def test_capacity_takes_options_of_a_family():
    words = ["capacity", "--family", "householder", "--n", "5", "--option", "reflections=2", "--json"]
    (row,) = json.loads(runner.invoke(app, words).output)
    assert (row["rank"], row["options"]) == (5 * 5 - 3 * 3, {"reflections": 2})


def test_capacity_finds_the_smallest_full_setting():
    output = runner.invoke(app, ["capacity", "--family", "givens", "--n", "4", "--smallest"]).output
    assert output.strip() == "givens, N = 4: full from layers = 4"


def test_capacity_draws(tmp_path):
    path = tmp_path / "new" / "capacity.png"
    assert runner.invoke(app, ["capacity", "--family", "full", "--n", "2..3", "--plot", str(path)]).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_demo_leaves_a_folder_that_explains_itself(tmp_path):
    out = tmp_path / "demo"
    words = ["demo", "--T", "5", "--hidden", "8", "--iterations", "25", "--out", str(out)]
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    found = json.loads((out / "result.json").read_text())
    unitary, lstm = found["outcomes"]
    assert unitary["iterations"] == lstm["iterations"] == 25
    assert abs(unitary["parameters"] - lstm["parameters"]) < 0.1 * unitary["parameters"]
    assert unitary["unitarity_defect"] < 2e-6
    assert (out / "copy.png").read_bytes().startswith(b"\x89PNG")
    assert "loss/base" in result.output


def test_demo_is_repeatable(tmp_path):
    words = ["demo", "--T", "5", "--hidden", "8", "--iterations", "10", "--out"]
    losses = []
    for name in ("first", "second"):
        runner.invoke(app, [*words, str(tmp_path / name)])
        losses.append(json.loads((tmp_path / name / "result.json").read_text())["losses"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["capacity", "--family", "ful"], "expected one of [.*], got 'ful'. Did you mean 'full'?"),
        (["capacity", "--n", "0..3"], "--n: expected sizes >= 1 such as 7, 2..16 or 4,6,8, got '0..3'"),
        (["capacity", "--n", "x"], "--n: expected sizes >= 1"),
        (["capacity", "--option", "reflections"], "--option: expected NAME=VALUE, got 'reflections'"),
        (["capacity", "--family", "full", "--option", "k=3"], "k: expected an option of 'full'"),
        (["capacity", "--family", "restricted", "--smallest"], "family: expected one of ['givens', 'householder']"),
        (["demo", "--T", "0"], "time_steps: expected an int >= 1, got 0"),
        (["demo", "--iterations", "0"], "--iterations: expected an int >= 1, got 0"),
        (["demo", "--hidden", "-1"], "hidden_size: expected an int >= 1, got -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_named_in_one_line(words, message):
    done = run(*words)
    assert done.returncode == 2
    head = message.split("[.*]")[0]
    assert done.stderr.startswith("urnn: ")
    assert head in done.stderr
    assert "Traceback" not in done.stderr


def test_an_output_folder_that_is_a_file_is_an_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run("demo", "--T", "5", "--hidden", "4", "--iterations", "1", "--out", str(blocked))
    assert done.returncode == 2
    assert str(blocked) in done.stderr


def test_errata_writes_what_the_docs_quote(tmp_path, monkeypatch):
    from urnn.experiments import errata

    monkeypatch.setattr(errata, "measure", lambda seed: {"seed": seed})
    path = tmp_path / "results" / "errata.json"
    assert runner.invoke(app, ["errata", "--seed", "3", "--out", str(path)]).exit_code == 0
    assert json.loads(Path(path).read_text()) == {"seed": 3}


def test_soak_prints_a_row_for_each_run(tmp_path):
    path = tmp_path / "soak.json"
    result = runner.invoke(app, ["soak", "--n", "6", "--steps", "30", "--tf32", "--out", str(path)])
    assert result.exit_code == 0, result.output
    found = json.loads(path.read_text())
    assert len(found["runs"]) == len(result.output.splitlines()) > 4
    assert all(run["worst_defect"] < 2e-6 for run in found["runs"])
