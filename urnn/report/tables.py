"""What is to be read: the paper's figures beside ours, and the pages of results as tables."""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from urnn.experiments import results, table3

_LINK = re.compile(r"\[([^]]*)]\([^)]*\)")

Lines = list[list[str]]
By = Mapping[str, results.Rows]
"""The runs of a grid by recipe."""


def compared(grids: Mapping[tuple[str, str], results.Rows]) -> list[dict[str, Any]]:
    """For each grid with figures of the paper: what is compared, and rows with ``better`` "paper", "ours" or ""."""
    found = []
    for grid, (title, text, rows_of) in COMPARED.items():
        runs = {recipe: grids[grid, recipe] for recipe in ("paper", "best") if grids.get((grid, recipe))}
        if runs and (rows := rows_of(runs)):
            found.append({"title": title, "text": text, "rows": rows})
    return found


def row(
    what: str, recipe: str, paper: str, ours: str, count: str, figures: tuple[float, float] | None
) -> dict[str, str]:
    """One comparison; ``figures`` are the paper's and ours, lower is better, None where they cannot be compared."""
    better = "" if figures is None or figures[0] == figures[1] else "ours" if figures[1] < figures[0] else "paper"
    return {"what": what, "recipe": recipe, "paper": paper, "ours": ours, "count": count, "better": better}


def _table1(runs: By) -> list[dict[str, str]]:
    """By the paper's own rule, the lowest test figure over all evaluations and initialisations."""
    found = []
    for (system, learner), printed in results.PAPER_TABLE1.items():
        for n, paper in printed.items():
            for recipe, rows in runs.items():
                for one in rows:
                    spread = one["result"]["normalized_mse"].get(f"{system}/{learner}")
                    if one["config"]["hidden"] == n and spread:
                        ours = spread["lowest test"]["best"]
                        what = f"{system[0]}_{system[1:]}, {learner}, N = {n}"
                        starts = f"{len(spread['lowest test']['all'])} starts"
                        found.append(row(what, recipe, f"{paper:.2e}", f"{ours:.2e}", starts, (paper, ours)))
    return found


def _figure1(runs: By) -> list[dict[str, str]]:
    """Iterations to a solution; the paper describes them in words."""
    found = []
    for (model, T), paper in results.PAPER_FIGURE1.items():
        for recipe, rows in runs.items():
            mine = [one["result"] for one in rows if one["preset"] == f"copy-T{T}/{model}"]
            if not mine:
                continue
            solved = [result["solved_at"] or float("inf") for result in mine]
            median = statistics.median_low(solved)
            ours = f"{median:.0f}" if median < float("inf") else "not solved"
            number = float("".join(filter(str.isdigit, paper)))
            what, seeds = f"T = {T}, {model}", f"{len(mine)} seed{'s' * (len(mine) > 1)}"
            found.append(row(what, recipe, paper, ours, seeds, (number, median)))
    return found


def _table3(runs: By) -> list[dict[str, str]]:
    """Test accuracies in percent, ours the mean over the seeds."""
    found = []
    for preset, (_, _, paper) in table3.PAPER.items():
        for recipe, rows in runs.items():
            mine = [100 * one["result"]["test_accuracy"] for one in rows if one["preset"] == preset]
            if mine:
                ours, seeds = statistics.mean(mine), f"{len(mine)} seed{'s' * (len(mine) > 1)}"
                found.append(row(preset, recipe, f"{paper:.1f}", f"{ours:.2f}", seeds, (-paper, -ours)))
    return found


COMPARED: dict[str, tuple[str, str, Callable[[By], list[dict[str, str]]]]] = {
    "table1": (
        "Table 1: system identification",
        "System, learner and size. Normalized MSE, lower is better, both by the paper's rule: the lowest test figure "
        "over all evaluations and initialisations. What validation chooses is under All tables.",
        _table1,
    ),
    "figure1": (
        "Figure 1: the copy problem",
        "Iterations to a solution, fewer is better; ours is the median over the seeds.",
        _figure1,
    ),
    "table3": (
        "Table 3: pixel-by-pixel MNIST",
        "Test accuracy in percent, higher is better; ours is the mean over the seeds.",
        _table3,
    ),
}
"""What has figures in the paper: title, text, and the comparison."""


def pages(grids: Mapping[tuple[str, str], results.Rows]) -> list[dict[str, Any]]:
    """The sections of ``docs/results.md``: title and blocks, each a text or a table."""
    found = []
    for grid, title, section in results.SECTIONS:
        runs = {recipe: grids[grid, recipe] for recipe in ("paper", "best") if grids.get((grid, recipe))}
        if runs:
            found.append({"title": title, "blocks": blocks(section(grid, runs))})
    return found


def blocks(markdown: Sequence[str]) -> list[dict[str, Any]]:
    """Markdown as ``results`` writes it, as data: its texts and tables. Pictures are left out, the page has its own."""
    found: list[dict[str, Any]] = []
    for block in markdown:
        if block.startswith("!["):
            continue
        if block.startswith("| "):
            header, _, *lines = (
                [cell.strip().replace("`", "") for cell in line[1:-1].split("|")] for line in block.splitlines()
            )
            found.append({"header": header, "lines": lines})
        else:
            plain = _LINK.sub(r"\1", block).replace("`", "").removeprefix("- ")
            found.append({"text": plain.replace("\n- ", " ")})
    return found


def grid(lines: Lines) -> dict[str, Any]:
    """A grid of ``urnn.bench`` as a table."""
    header, *rest = lines
    return {"header": header, "lines": [[cell.replace("*", "") for cell in line] for line in rest]}
