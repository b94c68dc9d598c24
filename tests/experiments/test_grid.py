"""Grids: what is done is skipped, what fails fails alone."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import time

import pytest
from rich.console import Console

from urnn.experiments import checkpoint, presets
from urnn.experiments.folder import RunFolder
from urnn.experiments.grid import Cell, cells_of, decimated, gather, run_grid
from urnn.experiments.train import train


@pytest.fixture
def cells(tmp_path, tiny):
    return [Cell(f"cell-{i}", tiny("copy", seed=i), tmp_path / f"cell-{i}") for i in range(3)]


def test_a_grid_survives_a_failing_cell_and_skips_what_is_done(cells, capsys):
    """The second cell has metrics shorter than its checkpoint says; the third is done before."""
    console = Console(width=500)
    train(RunFolder.create(cells[2].path, cells[2].config), Console(quiet=True))
    train(RunFolder.create(cells[1].path, cells[1].config), Console(quiet=True))
    (cells[1].path / "result.json").unlink()
    (cells[1].path / "metrics.jsonl").write_text("")
    failed = run_grid(cells, jobs=2, console=console)
    output = capsys.readouterr().out
    assert (output.count("done before: "), output.count("started: ")) == (1, 2)
    assert list(failed) == ["cell-1, seed 1"]
    assert re.search(r"metrics.jsonl: expected at least \d+ bytes, as at the last checkpoint", failed["cell-1, seed 1"])
    assert "failed: cell-1, seed 1:" in output
    assert RunFolder.open(cells[0].path).result() is not None
    assert [row["preset"] for row in gather(cells)] == ["cell-0", "cell-2"]

    shutil.rmtree(cells[1].path / "checkpoint")
    assert run_grid(cells, jobs=1, console=console) == {}
    output = capsys.readouterr().out
    assert output.count("done before: ") == 2
    assert output.count("started: ") == 1
    assert len(gather(cells)) == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
def test_a_signal_saves_the_cells_and_the_same_command_goes_on(tmp_path, tiny, quiet, timeless):
    """The real thing: SIGTERM to a grid whose first cell is at work and whose second waits."""
    cells = [
        Cell(f"cell-{i}", tiny("copy", seed=i, max_iterations=1500, time_steps=20), tmp_path / f"cell-{i}")
        for i in range(2)
    ]
    process = multiprocessing.get_context("fork").Process(target=run_grid, args=(cells, 1, Console(width=500)))
    process.start()
    while not checkpoint.found(cells[0].path / "checkpoint"):
        time.sleep(0.01)
        assert process.is_alive()
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    assert process.exitcode == 143
    assert "SIGTERM at iteration" in (cells[0].path / "output.txt").read_text()
    assert [RunFolder.open(cell.path).result() for cell in cells] == [None, None]
    assert not (cells[1].path / "metrics.jsonl").exists()
    unbroken = train(RunFolder.create(tmp_path / "unbroken", cells[0].config), quiet)
    assert timeless(train(RunFolder.open(cells[0].path), quiet)) == timeless(unbroken)


def test_a_folder_with_another_run_fails_that_cell_alone(cells, tiny, quiet):
    RunFolder.create(cells[0].path, tiny("copy", lr=0.5))
    failed = run_grid(cells[:1], 1, quiet)
    assert "holds another run" in failed["cell-0, seed 0"]
    assert gather(cells[:1]) == []


def test_a_worker_that_was_killed_is_reported_with_its_signal(cells, quiet, monkeypatch):
    import signal
    import subprocess
    import sys

    from urnn.experiments import grid

    words = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"]

    def killed(cell):
        (cell.path / grid.OUTPUT).write_text("")
        return subprocess.Popen(words)

    monkeypatch.setattr(grid, "_start", killed)
    assert run_grid(cells[:1], 1, quiet)["cell-0, seed 0"].startswith("ended by signal 9")


@pytest.mark.parametrize("grid", presets.GRIDS)
@pytest.mark.parametrize("recipe", ["best", "paper"])
def test_every_grid_has_its_cells_in_folders_of_their_own(grid, recipe, tmp_path):
    cells = cells_of(grid, recipe, tmp_path)
    seeds = [presets.seeds_of(grid, recipe, preset) for preset in presets.GRIDS[grid]["cells"]]
    assert len({cell.path for cell in cells}) == len(cells) == sum(seeds)
    assert {cell.config.recipe for cell in cells} == {recipe}


def test_settings_reach_every_cell(tmp_path):
    cells = cells_of("table1", "best", tmp_path, pairs=["starts=2", "seed=7"])
    assert [(c.config.problem.starts, c.config.seed) for c in cells] == [(2, 7)] * 5


def test_an_unknown_target_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="target: expected a known name, got 'tabel1'. The nearest are table1"):
        cells_of("tabel1", "best", tmp_path)


def test_decimated_curves_keep_means_and_the_end():
    curve = decimated(list(range(1, 251)), [float(i) for i in range(250)], points=100)
    assert len(curve["loss"]) == 84
    assert (curve["iteration"][0], curve["iteration"][-1]) == (3, 250)
    assert (curve["loss"][0], curve["loss"][-1]) == (1.0, 249.0)
    assert decimated([], []) == {"iteration": [], "loss": []}
    assert json.dumps(curve)
