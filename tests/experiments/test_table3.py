"""Table 3 on the page: made from runs, and nothing else."""

import copy
from typing import Any

import pytest

from urnn.experiments import results, table3
from urnn.experiments.grid import Cell, gather
from urnn.experiments.presets import GRIDS


@pytest.fixture
def row(run) -> dict[str, Any]:
    """A run as ``gather`` reports it."""
    folder, _ = run("mnist", epochs=3, hidden=4)
    (found,) = gather([Cell("mnist/full-116", folder.config(), folder.path)])
    return found


def changed(
    row: dict[str, Any], preset: str, seed: int = 0, config: dict[str, Any] | None = None, **result: Any
) -> Any:
    new = copy.deepcopy(row)
    new["preset"], new["seed"] = preset, seed
    new["config"].update(config or {})
    new["result"].update(result)
    return new


def test_the_paper_is_quoted_as_it_is_printed():
    """Table 3, from the paper's source, in its order."""
    printed = """98.1 97.8 98.5 98.2 97.9 97.5 92.7 92.8 97.5 96.9 91.7 91.3 92.1 91.7 94.2 93.3 92.2 92.1 94.7 94.1"""
    assert " ".join(f"{v} {t}" for _, v, t in table3.PAPER.values()) == printed
    assert list(table3.PAPER) == GRIDS["table3"]["cells"]


def test_rows_show_their_runs_beside_the_papers(row):
    page = results.page({("table3", "best"): [row]})
    result = row["result"]
    best = result["best_at"] / 8
    assert "| in rows | full-116 | 4 | the paper | 16k | 92.7 | 92.8 | - | - |" in page
    assert (
        f"| in rows | full-116 | 4 | `best` | {result['parameters']} | {100 * result['validation_accuracy']:.2f} "
        f"| {100 * result['test_accuracy']:.2f} | 3 (all, best {best:g}) | {8 * result['seconds_per_iteration']:.3g} |"
    ) in page
    assert "the first 10 are for validation and the next 40 for training" in page
    assert page.count("the paper |") == 1  # models that were not run are not shown


def test_seeds_are_a_mean_with_its_ends(row):
    rows = [
        changed(row, "mnist-permuted/full-512", seed, {"order": "permuted"}, test_accuracy=share, stopped=stopped)
        for seed, (share, stopped) in enumerate([(0.972, None), (0.9745, None), (0.9705, "patience")])
    ]
    page = results.page({("table3", "best"): rows})
    assert "97.23 (97.05 to 97.45, 3 seeds)" in page
    best = f"best {row['result']['best_at'] / 8:g}"
    assert f"3 (all, {best}); 3 (all, {best}); 3 (patience, {best})" in page


def test_recipes_stand_beside_one_another(row):
    page = results.page({("table3", "best"): [row], ("table3", "paper"): [changed(row, "mnist/full-116")]})
    assert page.count("| `best` |") == page.count("| `paper` |") == page.count("| the paper |") == 1


def test_capacity_is_in_the_order_of_its_parameters(row):
    sizes = {"householder-16": 16400, "givens-8": 4600, "full-512": 262144}
    rows = [
        changed(
            row, f"mnist-permuted/{name}", 0, {"hidden": 512, "model": name.split("-")[0]}, recurrence_parameters=size
        )
        for name, size in sizes.items()
    ]
    page = results.page({("table3-capacity", "best"): rows})
    places = [page.index(name) for name in ("givens-8 |", "householder-16 |", "full-512 |")]
    assert places == sorted(places)
    assert "| full-512 | `best` | 262144 | 100.0% |" in page


def test_a_search_shows_validation_alone(row):
    rows = [
        changed(row, f"mnist-search/{name}", validation_accuracy=share, test_accuracy=0.123)
        for name, share in (("base", 0.9), ("lr-0.003", 0.92), ("dropout-0.1", 0.85))
    ]
    page = results.page({("table3-search", "best"): rows})
    places = [
        page.index(name) for name in ("lr-0.003 | `best` | 92.00", "base | `best` | 90.00", "dropout-0.1 | `best` | 85")
    ]
    assert places == sorted(places)
    assert "12.3" not in page


@pytest.mark.parametrize("grid", [name for name in GRIDS if name.startswith("table3")])
def test_every_picture_that_the_page_shows_is_drawn(row, grid, tmp_path):
    rows = [
        changed(row, preset, 0, {"order": "permuted" if "permuted" in preset else "rows", "model": model})
        for preset in GRIDS[grid]["cells"]
        for model in [preset.partition("/")[2].partition("-")[0]]
    ]
    (tmp_path / "images").mkdir()
    text = results.page({(grid, "best"): rows})
    if grid in results.PICTURES:
        results.PICTURES[grid](rows, tmp_path / "images" / f"{grid}-best.png")
    shown = {line.rpartition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")}
    assert shown == {f"images/{path.name}" for path in (tmp_path / "images").iterdir()}
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in shown)


def test_a_run_that_learned_nothing_can_be_drawn(row, tmp_path):
    confusion = [[1] + [0] * 9] * 10
    rows = [changed(row, "mnist/full-116", confusion=confusion), changed(row, "mnist/lstm-128", confusion=confusion)]
    results.PICTURES["table3"](rows, tmp_path / "picture.png")
    assert (tmp_path / "picture-confusion.png").exists()
