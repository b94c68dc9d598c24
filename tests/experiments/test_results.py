"""The page of results: made from the files, and nothing else."""

import json
from pathlib import Path

import pytest

from urnn.experiments import results
from urnn.experiments.grid import Cell, gather
from urnn.experiments.presets import GRIDS

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_what_the_files_make():
    assert (ROOT / "docs" / "results.md").read_text() == results.page(results.load(ROOT / "results"))


def test_every_committed_run_says_what_made_it():
    for (grid, recipe), runs in results.load(ROOT / "results").items():
        for row in runs:
            assert row["preset"] in GRIDS[grid]["cells"]
            assert row["config"]["recipe"] == recipe
            assert row["environment"]["torch"]


@pytest.fixture
def rows(run, tiny):
    """Runs of both tasks as ``gather`` reports them, under names of the grids."""
    found = {}
    for grid, preset, task, own in (
        ("figure1", "copy-T1000/full-128", "copy", {}),
        ("table1", "sysid-N4", "sysid", {"model": "full,restricted"}),
        ("capacity", "capacity-N8/givens-2", "sysid", {"model": "givens", "rotations": 2, "systems": "haar"}),
    ):
        folder, _ = run(task, name=grid, **own)
        found[grid, "best"] = gather([Cell(preset, folder.config(), folder.path)])
    return found


def test_a_page_shows_the_figures_of_its_runs(rows):
    page = results.page(rows)
    (row,) = rows["table1", "best"]
    for spread in row["result"]["normalized_mse"].values():
        for name in ("best", "median", "worst"):
            assert f"{spread['best validation'][name]:.1e}" in page
    (row,) = rows["capacity", "best"]
    assert row["result"]["rank"] == {"givens": 7}  # 2 layers of a pair each, with angle and phase, and 3 phases
    assert "| givens-2 | `best` | 7 | 78% |" in page
    (row,) = rows["figure1", "best"]
    assert f"| none within 12 | - | {row['result']['test_recall']:.1%} |" in page
    assert "results/table1-best.json" in page


def test_the_paper_is_quoted_as_it_is_printed():
    """Table 1, from the paper's source."""
    printed = {
        ("Wu", "restricted"): (4.81e-1, 6.75e-3, 3.53e-1, 3.51e-1, 7.30e-1),
        ("Wu", "full"): (1.28e-1, 3.03e-1, 2.16e-1, 5.04e-2, 1.28e-1),
        ("Wg", "restricted"): (3.21e-4, 3.36e-1, 3.36e-1, 2.69e-1, 7.60e-1),
        ("Wg", "full"): (8.72e-2, 3.86e-1, 2.62e-1, 7.22e-2, 1.00e-6),
    }
    assert {key: tuple(cells.values()) for key, cells in results.PAPER_TABLE1.items()} == printed


def test_iterations_to_solve_are_a_median_over_all_seeds(rows):
    (row,) = rows["figure1", "best"]

    def solved(at: int | None) -> dict:
        share = None if at is None else 0.09
        return {**row, "result": {**row["result"], "solved_at": at, "worst_loss_over_baseline_after_solved": share}}

    three = results.page({("figure1", "best"): [solved(300), solved(None), solved(200)]})
    assert "| 2 of 3 | 300 (200, 300) | 9% |" in three
    most_failed = results.page({("figure1", "best"): [solved(None), solved(None), solved(200)]})
    assert "| 1 of 3 | none for the median (200) |" in most_failed


def test_files_and_figures_are_written(rows, tmp_path):
    for (grid, recipe), runs in rows.items():
        text = json.dumps({"grid": grid, "recipe": recipe, "runs": runs})
        (tmp_path / f"{grid}-{recipe}.json").write_text(text)
    page = results.write_page(tmp_path, tmp_path / "docs")
    assert page.read_text() == results.page(rows)
    for grid in ("figure1", "table1", "capacity"):
        assert (tmp_path / "docs" / "images" / f"{grid}-best.png").read_bytes().startswith(b"\x89PNG")
        assert f"images/{grid}-best.png" in page.read_text()


def test_a_grid_of_which_nothing_is_done_has_no_section(tmp_path):
    results.write_results("table1", "best", [], tmp_path)
    assert "Table 1" not in results.write_page(tmp_path, tmp_path / "docs").read_text()


def test_what_is_written_comes_back(run, tmp_path):
    folder, _ = run("sysid", model="full,restricted")
    cell = Cell("sysid-N4", folder.config(), folder.path)
    path = results.write_results("table1", "best", [cell], tmp_path)
    assert results.load(tmp_path) == {("table1", "best"): json.loads(json.dumps(gather([cell])))}
    assert len(path.read_text().splitlines()) == 3  # one line for each run
