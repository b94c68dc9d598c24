"""The command line, as a user types it."""

import json
import re
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


TINY_COPY = ["--T", "4", "--hidden", "6", "--set", "max_iterations=20", "--set", "symbols=2", "--set", "threads=1"]


def test_train_says_where_the_run_is_and_how_fast_an_lstm_is(tmp_path):
    words = ["train", "copy", *TINY_COPY, "--out", str(tmp_path / "run")]
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    assert f"Run: {tmp_path / 'run'}" in result.output
    assert "ms/iteration" in result.output
    assert "lstm, N = " in result.output
    again = runner.invoke(app, ["train", "--resume", str(tmp_path / "run")])
    assert again.exit_code == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["iterations"] == 20


def test_train_on_a_terminal_shows_loss_baseline_and_speed(tmp_path, monkeypatch):
    import urnn.cli as cli

    console = cli.Console(force_terminal=True, width=200, record=True)
    monkeypatch.setattr(cli, "Console", lambda **_: console)
    runner.invoke(app, ["train", "copy", *TINY_COPY, "--out", str(tmp_path / "run")])
    text = console.export_text()
    assert re.search(r"loss [\d.]+ \(baseline 0\.\d+\)  [\d.]+ it/s .* 20/20", text)


def test_train_elsewhere_prints_json_lines(tmp_path, monkeypatch):
    from urnn.experiments import progress

    monkeypatch.setattr(progress, "QUIET", 0.0)
    output = runner.invoke(app, ["train", "copy", *TINY_COPY, "--out", str(tmp_path / "run")]).output
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [row["iteration"] for row in rows] == [10, 20]
    assert rows[0].keys() == {"iteration", "of", "loss", "baseline", "per_second", "seconds_left"}


def test_train_lists_its_settings():
    output = runner.invoke(app, ["train", "--preset", "copy-T2000/lstm-68", "--recipe", "paper", "--list"]).output
    assert "time_steps = 2000    T, the steps between" in output
    assert "clip_value = 1.0" in output


TINY_MNIST = ["checksums=false", "train_images=8", "validation_images=2", "test_images=2", "epochs=2", "threads=1"]


def test_train_mnist_says_what_came_out(tmp_path, toy_mnist, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "mnist", "--permuted", "--data", str(toy_mnist), "--hidden", "4"]
    result = runner.invoke(app, [*words, *(word for pair in TINY_MNIST for word in ("--set", pair))])
    assert result.exit_code == 0, result.output
    assert re.search(r"full, N = 4 +\d+ +2 +[\d.]+% +[\d.]+% +[\d.]+", result.output)
    folder = Path("runs/mnist-permuted-full-4-best-seed-0")
    assert json.loads((folder / "config.json").read_text())["order"] == "permuted"
    assert json.loads((folder / "result.json").read_text())["iterations"] == 2


def test_figure3_is_made_by_the_runs_of_table3(tmp_path, toy_mnist, monkeypatch):
    from urnn.experiments.presets import GRIDS

    monkeypatch.setitem(GRIDS["table3"], "cells", ["mnist-permuted/restricted-512"])
    pairs = [word for pair in [*TINY_MNIST, "hidden=4"] for word in ("--set", pair)]
    folders = ["--out", str(tmp_path), "--results", str(tmp_path / "results"), "--docs", str(tmp_path / "docs")]
    for target, done in (("table3", "done: "), ("figure3", "done before: ")):
        result = runner.invoke(app, ["reproduce", target, "--data", str(toy_mnist), *folders, *pairs])
        assert result.exit_code == 0, result.output
        assert result.output.count(done) == 1
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "| permuted | restricted-512 | 4 | the paper | 16k | 94.2 | 93.3 | - | - |" in page
    pictures = sorted(p.name for p in (tmp_path / "docs" / "images").iterdir())
    assert pictures == ["table3-best-confusion.png", "table3-best.png"]
    assert str(toy_mnist) not in (tmp_path / "results" / "table3-best.json").read_text()


def test_reproduce_runs_a_grid_and_makes_the_page(tmp_path, monkeypatch):
    """Two cells at toy size; the page is that of the real run."""
    from urnn.experiments.presets import GRIDS

    monkeypatch.setitem(GRIDS["table1"], "cells", ["sysid-N4", "sysid-N16"])
    small = ["starts=2", "time_steps=5", "train_sequences=60", "validation_sequences=3", "test_sequences=3"]
    pairs = [word for pair in [*small, "max_iterations=20", "eval_every=20"] for word in ("--set", pair)]
    folders = ["--out", str(tmp_path), "--results", str(tmp_path / "results"), "--docs", str(tmp_path / "docs")]
    result = runner.invoke(app, ["reproduce", "table1", "--jobs", "2", *folders, *pairs])
    assert result.exit_code == 0, result.output
    assert result.output.count("done: ") == 2
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "N = 4 | N = 16" in page
    assert len(json.loads((tmp_path / "results" / "table1-best.json").read_text())["runs"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "task: expected a task, or --preset NAME, or --resume DIR, got none"),
        (["train", "coppy"], "task: expected a known name, got 'coppy'. The nearest are copy."),
        (["train", "--preset", "sysid-N5"], "--preset: expected a known name, got 'sysid-N5'. The nearest are sysid-N"),
        (["train", "copy", "--T", "0"], "time_steps: expected an int in [1, 10000000], got 0"),
        (["train", "copy", "--model", "lstmm"], "Did you mean 'lstm'?"),
        (["train", "copy", "--set", "hiddden=3"], "The nearest are hidden"),
        (["train", "copy", "--recipe", "good"], "--recipe: expected one of ['best', 'paper'], got 'good'"),
        (["train", "copy", "--resume", "x"], "--resume: expected it alone"),
        (["train", "--resume", "nowhere"], "--resume: expected the folder of a run, got nowhere"),
        (["train", "copy", "--out", "pyproject.toml"], "--out: expected a new or empty folder"),
        (["reproduce", "tables"], "target: expected a known name, got 'tables'"),
        (["train", "mnist", "--data", "nowhere"], "data: expected a folder with MNIST's four files, got 'nowhere'"),
        (
            ["train", "mnist", "--data", "tests"],
            "expected train-images-idx3-ubyte or train-images-idx3-ubyte.gz in tests",
        ),
        (["train", "sysid", "--permuted"], "--set: expected a known name, got 'order'"),
        (["reproduce", "figure4"], "target: expected a known name, got 'figure4'. The nearest are figure"),
        (["reproduce", "table1", "--jobs", "0"], "--jobs: expected an int >= 1, got 0"),
        (["reproduce", "table1", "--set", "symbols=3"], "--set: expected a known name, got 'symbols'"),
    ],
)
def test_bad_words_of_train_and_reproduce_are_named(words, message):
    with pytest.raises((ValueError, TypeError)) as found:
        app(words, standalone_mode=False)
    assert message in str(found.value)


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
        (["demo", "--T", "0"], "time_steps: expected an int in [1, 10000000], got 0"),
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
