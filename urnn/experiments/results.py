"""From run folders to ``results/*.json``, and from those to ``docs/results.md``, which nobody edits by hand."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from urnn.experiments import figures, table3
from urnn.experiments.files import read_json, write_atomic
from urnn.experiments.grid import Cell, gather
from urnn.experiments.markdown import table as _markdown
from urnn.experiments.presets import GRIDS
from urnn.experiments.speech import figure2, table2

Rows = list[dict[str, Any]]

PAPER_TABLE1 = {
    ("Wu", "restricted"): {4: 4.81e-1, 6: 6.75e-3, 7: 3.53e-1, 8: 3.51e-1, 16: 7.30e-1},
    ("Wu", "full"): {4: 1.28e-1, 6: 3.03e-1, 7: 2.16e-1, 8: 5.04e-2, 16: 1.28e-1},
    ("Wg", "restricted"): {4: 3.21e-4, 6: 3.36e-1, 7: 3.36e-1, 8: 2.69e-1, 16: 7.60e-1},
    ("Wg", "full"): {4: 8.72e-2, 6: 3.86e-1, 7: 2.62e-1, 8: 7.22e-2, 16: 1.00e-6},
}
"""Table 1 as the paper prints it: the lowest test figure over 100 epochs and 6 initialisations."""
FOUND = 1e-7
"""A normalized MSE at or below this counts as having found the system."""
PAPER_FIGURE1 = {("full-128", 1000): "about 2000", ("full-128", 2000): "about 5000"}
"""Figure 1 as the paper describes it: iterations to a solution. The others stay at the baseline."""


def write_results(
    grid: str, recipe: str, cells: Sequence[Cell], results: Path, more: Mapping[tuple[str, int], Any] | None = None
) -> Path:
    """Write what a grid found, one run on each line; ``more`` joins the results of a preset and seed."""
    rows = gather(cells)
    for row in rows:
        row["result"] |= (more or {}).get((row["preset"], row["seed"]), {})
    runs = ",\n".join("  " + json.dumps(row) for row in rows)
    head = json.dumps({"grid": grid, "recipe": recipe, "cells": len(cells)})[:-1]
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{grid}-{recipe}.json"
    write_atomic(path, f'{head}, "runs": [\n{runs}\n]}}\n'.encode())
    return path


def write_page(results: Path, docs: Path) -> Path:
    """Write ``results.md`` and its figures."""
    (docs / "images").mkdir(parents=True, exist_ok=True)
    found = load(results)
    for (grid, recipe), runs in found.items():
        if runs and grid in PICTURES:
            PICTURES[grid](runs, docs / "images" / f"{grid}-{recipe}.png")
    path = docs / "results.md"
    write_atomic(path, page(found).encode())
    return path


def load(results: Path) -> dict[tuple[str, str], Rows]:
    """The runs of every grid and recipe that there is a file of."""
    paths = {(grid, recipe): results / f"{grid}-{recipe}.json" for grid in GRIDS for recipe in ("paper", "best")}
    return {key: read_json(path)["runs"] for key, path in paths.items() if path.exists()}


def page(found: dict[tuple[str, str], Rows]) -> str:
    """The page, from the contents of ``results/``."""
    parts = [
        "# Results",
        "Made from the files in `results/` by `urnn reproduce`; not edited by hand. Two recipes: `paper` is what the "
        "paper and its released code did, with the corrected A of Eq. 6; `best` is ours. Every file holds the "
        "settings, a decimated curve, the figures and the environment of every run.",
    ]
    for grid, title, section in SECTIONS:
        runs = {recipe: found[grid, recipe] for recipe in ("paper", "best") if found.get((grid, recipe))}
        if runs:
            parts += [f"## {title}", *section(grid, runs), *_provenance(grid, runs)]
    return "\n\n".join(parts) + "\n"


def _table1(grid: str, runs: dict[str, Rows]) -> list[str]:
    """Rows: systems and learners; columns: sizes."""
    cells = {
        (recipe, cell, row["config"]["hidden"]): figures_of
        for recipe, rows in runs.items()
        for row in rows
        for cell, figures_of in row["result"]["normalized_mse"].items()
    }
    sizes = sorted({n for _, _, n in cells})
    lines = []
    for system, learner in PAPER_TABLE1:
        if grid == "table1":
            printed = [f"{PAPER_TABLE1[system, learner].get(n, float('nan')):.1e}" for n in sizes]
            lines.append([_system(system), learner, "the paper, lowest test", *printed])
        for recipe, rule, figure in _SHOWN:
            found = [cells.get((recipe, f"{system}/{learner}", n)) for n in sizes]
            if any(found):
                shown = [_figures(f[rule], figure) if f else "-" for f in found]
                lines.append([_system(system), learner, f"`{recipe}`, {rule}, {figure} of the starts", *shown])
    text = (
        "Normalized MSE, sum |y - yhat|^2 / sum |y|^2 over the test set. *Lowest test* is the paper's rule: the lowest "
        "test figure over all evaluations. *Best validation* is the test figure of the weights with the lowest "
        "validation loss. Only W is learned; every learner has six initialisations."
    )
    judged = _judgement(cells, sizes) if grid == "table1" and "best" in runs else []
    pictures = [f"![Normalized MSE of all initialisations](images/{grid}-{r}.png)" for r in runs]
    return [text, _markdown(["system", "learner", "", *(f"N = {n}" for n in sizes)], lines), *judged, *pictures]


_SHOWN = (
    ("paper", "lowest test", "best"),
    ("paper", "best validation", "best"),
    ("paper", "best validation", "median"),
    ("best", "best validation", "best"),
    ("best", "best validation", "median"),
    ("best", "best validation", "worst"),
)


def _judgement(cells: dict[tuple[str, str, int], Any], sizes: list[int]) -> list[str]:
    """What the figures of the best recipe say about the two counts of capacity."""

    def best(cell: str, n: int) -> float:
        figure: float = cells["best", cell, n]["best validation"]["best"]
        return figure

    known = [n for n in sizes if all(("best", f"{s}/{c}", n) in cells for s, c in PAPER_TABLE1)]
    short = [n for n in known if best("Wg/restricted", n) > 1e3 * best("Wg/full", n)]
    reached = [n for n in known if best("Wu/restricted", n) <= FOUND]
    lost = [n for n in known if n not in reached]
    return [
        "Counting parameters says that Eq. 3 falls short of U(N) for N > 7, the rank of its Jacobian says from N = 6, "
        "and the paper finds the full learner better from N = 7 or 8. On systems from W_g the best restricted learner "
        "is over a thousand times worse than the best full one at "
        f"N = {_listed(short)}, of N = {_listed(known)}. That is not capacity alone. Systems from W_u are in the "
        f"restricted family at every N, and its best start finds them ({FOUND:.0e} or less) at N = {_listed(reached)} "
        f"but not at N = {_listed(lost)}: there its figures on W_g cannot tell missing capacity from systems that the "
        f"optimizer does not find. At N = {_listed([n for n in reached if n in short])} they can."
    ]


def _figure1(grid: str, runs: dict[str, Rows]) -> list[str]:
    """Rows: lengths and models; columns: recipes."""
    lines = []
    for preset in GRIDS[grid]["cells"]:
        for recipe, rows in runs.items():
            mine = [row for row in rows if row["preset"] == preset]
            if mine:
                lines.append(_copy_line(preset, recipe, mine))
    header = [
        *("T", "model", "recipe", "N", "parameters", "the paper", "solved", "iterations to solve: median (all)"),
        *("loss/baseline after: worst", "test recall: median", "ms per iteration"),
    ]
    text = (
        "Solved: the mean loss of 20 iterations is under 10 % of the baseline 10 ln 8 / (T + 20). *Loss/baseline "
        "after* is the largest such mean from there to the end of the run."
    )
    pictures = [f"![Loss over iterations](images/{grid}-{r}.png)" for r in runs]
    return [text, _markdown(header, lines), *pictures]


def _copy_line(preset: str, recipe: str, rows: Rows) -> list[str]:
    config, results = rows[0]["config"], [row["result"] for row in rows]
    solved = sorted(r["solved_at"] for r in results if r["solved_at"])
    ranked = solved + [float("inf")] * (len(results) - len(solved))
    median = statistics.median_low(ranked)
    worst = [r["worst_loss_over_baseline_after_solved"] for r in results if r["solved_at"]]
    return [
        str(config["time_steps"]),
        preset.partition("/")[2],
        f"`{recipe}`",
        str(config["hidden"]),
        str(results[0]["parameters"]),
        PAPER_FIGURE1.get((preset.partition("/")[2], config["time_steps"]), "-"),
        f"{len(solved)} of {len(results)}",
        _iterations(median, solved, max(r["iterations"] for r in results)),
        f"{max(worst):.0%}" if worst else "-",
        f"{statistics.median(r['test_recall'] for r in results):.1%}",
        f"{1000 * statistics.median(r['seconds_per_iteration'] for r in results):.1f}",
    ]


def _capacity(grid: str, runs: dict[str, Rows]) -> list[str]:
    """Rows: families in the order of their rank; a table for each recipe."""
    parts = [
        "How well a family learns a random member of U(N), by the share of U(N) that it covers: the rank of its "
        "Jacobian over N^2. Normalized MSE over six initialisations, weights by validation."
    ]
    for recipe, rows in runs.items():
        lines = []
        for row in sorted(rows, key=lambda r: (r["config"]["hidden"], *r["result"]["rank"].values())):
            n, model = row["config"]["hidden"], row["config"]["model"]
            spread = row["result"]["normalized_mse"][f"haar/{model}"]["best validation"]
            rank = row["result"]["rank"][model]
            shown = [_figures(spread, figure) for figure in ("best", "median", "worst")]
            lines.append(
                [str(n), row["preset"].partition("/")[2], f"`{recipe}`", str(rank), f"{rank / n**2:.0%}", *shown]
            )
        header = ["N", "family", "recipe", "rank", "of N^2", "best", "median", "worst"]
        parts += [_markdown(header, lines), f"![Error over rank](images/{grid}-{recipe}.png)"]
    return parts


def _figure2(grid: str, runs: dict[str, Rows]) -> list[str]:
    """The picture of each recipe."""
    text = (
        "The first evaluation utterance and what is predicted of it, by the model of each kind with the lowest "
        "validation error. `urnn reproduce figure2` leaves all of them as WAV files beside the runs."
    )
    return [text, *(f"![Spectrograms of the truth and of predictions](images/{grid}-{recipe}.png)" for recipe in runs)]


def _iterations(median: float, solved: list[int], limit: int) -> str:
    if not solved:
        return f"none within {limit}"
    return f"{median if median in solved else 'none for the median'} ({_listed(solved)})"


SECTIONS: list[tuple[str, str, Callable[[str, dict[str, Rows]], list[str]]]] = [
    ("table1", "Table 1: system identification", _table1),
    ("table1-large", "Beyond Table 1: larger systems", _table1),
    ("capacity", "Capacity in practice", _capacity),
    ("figure1", "Figure 1: the copy problem", _figure1),
    ("figure1-long", "Beyond Figure 1: longer delays", _figure1),
    ("table2", "Table 2: speech", table2.section),
    ("table2-large", "Beyond Table 2: larger models of speech", table2.section),
    ("figure2", "Figure 2: predictions of speech", _figure2),
    ("table3", "Table 3 and Figure 3: pixel-by-pixel MNIST", table3.section),
    ("table3-capacity", "Beyond Table 3: accuracy over capacity", table3.capacity),
    ("table3-richer", "Beyond Table 3: two layers and richer readouts", table3.section),
    ("table3-search", "Table 3: what was tried", table3.search),
    ("table3-subset", "Table 3 in minutes: a subset on a CPU", table3.section),
]
PICTURES: dict[str, Callable[[Rows, Path], None]] = {
    "table1": figures.starts,
    "table1-large": figures.starts,
    "capacity": figures.capacity,
    "figure1": figures.curves,
    "figure1-long": figures.curves,
    "table2": figures.errors,
    "table2-large": figures.errors,
    "figure2": figure2.draw,
    "table3": figures.learning,
    "table3-capacity": figures.accuracies,
    "table3-richer": figures.learning,
    "table3-subset": figures.learning,
}


def _provenance(grid: str, runs: dict[str, Rows]) -> list[str]:
    lines = []
    for recipe, rows in runs.items():
        where = {
            f"{row['environment']['gpu'] if row['config']['device'] != 'cpu' else 'CPU'}, "
            f"{row['config']['threads']} thread{'s' * (row['config']['threads'] > 1)}, "
            f"torch {row['environment']['torch']}, {row['config']['dtype']}"
            for row in rows
        }
        seconds = sum(row["result"]["seconds"] for row in rows)
        lines.append(
            f"`urnn reproduce {grid} --recipe {recipe}`: {len(rows)} runs, {seconds / 60:.0f} minutes of training in "
            f"all ({'; '.join(sorted(where))}). [results/{grid}-{recipe}.json](../results/{grid}-{recipe}.json)"
        )
    return ["\n".join(f"- {line}" for line in lines)]


def _figures(spread: dict[str, Any], figure: str) -> str:
    return f"{spread[figure]:.1e}"


def _system(name: str) -> str:
    return {"Wu": "W_u", "Wg": "W_g"}.get(name, name)


def _listed(numbers: Sequence[Any]) -> str:
    return ", ".join(map(str, numbers)) or "none"
