"""Rows of results: as CSV and back, and laid out for a reader."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table

Row = dict[str, Any]
"""What is not there is absent or ''; figures are numbers, or text where a CSV file was read."""
Grid = list[list[str]]
"""Lines of cells; the first line is the header."""
ALL = "all"
"""Stands for the models of a shape that is left out."""
COLUMNS = (
    *("device", "machine", "threads", "torch", "numba", "triton", "complextorch", "cuda", "cudnn", "commit", "date"),
    *("series", "shape", "T", "B", "N", "M", "model", "dtype", "precision"),
    *("repetitions", "ms_20", "ms_50", "ms_80", "ratio", "peak_mib", "note"),
)


@contextmanager
def csv_file(path: Path) -> Iterator[Callable[[list[Row]], None]]:
    """A function that adds rows to a new file, on the disk when it returns: a run that is stopped keeps its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()

        def add(rows: list[Row]) -> None:
            writer.writerows(rows)
            file.flush()

        add([])
        yield add


def read_csv(path: Path) -> list[Row]:
    """The rows of a file of these columns; none from a file of other columns, which is of another measurement."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        return list(reader) if tuple(reader.fieldnames or ()) == COLUMNS else []


def figure(row: Row, column: str, digits: int = 2) -> str:
    """A figure of a row to some digits, three at least before the point; '' where there is none."""
    value = row.get(column, "")
    if value == "":
        return ""
    return f"{float(value):.{digits if float(value) < 100 else 0}f}"


def timed(rows: Sequence[Row]) -> list[Row]:
    """The rows that hold a time."""
    return [row for row in rows if row.get("ms_50", "") != ""]


def unique(rows: Sequence[Row], column: str) -> list[str]:
    """The values of a column in the order of their first occurrence."""
    return list(dict.fromkeys(str(row[column]) for row in rows))


def one_shape(rows: Sequence[Row]) -> Grid:
    """Models of one shape: median, spread, ratio and memory."""
    found = timed(rows)
    columns: dict[str, Callable[[Row], str]] = {
        "model": lambda row: row["model"],
        "precision": lambda row: row["precision"],
        "ms": lambda row: figure(row, "ms_50"),
        "20 to 80 %": lambda row: f"{figure(row, 'ms_20')} to {figure(row, 'ms_80')}",
        "ratio": lambda row: figure(row, "ratio"),
        "MiB": lambda row: figure(row, "peak_mib", 1),
    }
    if len({row["precision"] for row in found}) < 2:
        del columns["precision"]
    if not any(figure(row, "peak_mib") for row in found):
        del columns["MiB"]
    return [list(columns), *([cell(row) for cell in columns.values()] for row in found)]


def comparison(rows: Sequence[Row], cell: Callable[[Row], str]) -> Grid:
    """Models against shapes, with ``cell`` of each timed row; ``-`` where there is none."""
    rows = [row for row in timed(rows) if cell(row)]
    found = {(row["model"], row["shape"]): cell(row) for row in rows}
    sizes = {row["shape"]: ", ".join(str(row[key]) for key in "TBNM") for row in rows}
    lines = [[model, *(found.get((model, shape), "-") for shape in sizes)] for model in unique(rows, "model")]
    return [["", *sizes], ["*T, B, N, M*", *sizes.values()], *lines]


def absences(rows: Sequence[Row]) -> list[tuple[str, str, list[str]]]:
    """Model, reason and shapes of all that was not timed."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row.get("ms_50", "") == "":
            found.setdefault((row["model"], row["note"]), {})[row["shape"]] = None
    return [(model, note, list(shapes)) for (model, note), shapes in found.items()]


def exponents(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """For each series and model p in time ~ size^p: the slope of a line through (log size, log median)."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in timed(rows):
        if letter := row["series"]:
            point = log(float(row[letter])), log(float(row["ms_50"]))
            points.setdefault((letter, row["model"]), []).append(point)
    lines = {key: found for key, found in points.items() if len({x for x, _ in found}) > 1}
    return {key: linear_regression(*zip(*found, strict=True)).slope for key, found in lines.items()}


def scaling(rows: Sequence[Row]) -> Grid:
    """Series of models: exponent, and medians at the smallest and the largest size."""
    grid = [["series", "beside", "model", "exponent", "ms, first", "ms, last"]]
    for (letter, model), slope in exponents(rows).items():
        found = [row for row in timed(rows) if row["series"] == letter and row["model"] == model]
        others = ", ".join(f"{key} = {found[0][key]}" for key in "TBNM" if key != letter)
        span = f"{letter} = {found[0][letter]} to {found[-1][letter]}"
        grid.append([span, others, model, f"{slope:.2f}", figure(found[0], "ms_50"), figure(found[-1], "ms_50")])
    return grid


def terminal(grid: Grid, title: str, remarks: Sequence[str] = ()) -> Group:
    """A grid for the terminal, between a title and remarks."""
    view = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(grid[0]):
        numeric = all(line[i][:1].isdigit() or not line[i] for line in grid[1:])
        view.add_column(name, justify="right" if numeric else "left")
    for line in grid[1:]:
        view.add_row(*line)
    return Group(f"[bold]{title}[/]", *([view] if grid[1:] else []), *map(escape, remarks), "")


def for_terminal(rows: Sequence[Row]) -> Group:
    """The rows of one shape for the terminal, and the reasons for what was not timed."""
    size = ", ".join(f"{key} = {rows[0][key]}" for key in "TBNM")
    remarks = [f"{model}: {note}" for model, note, _ in absences(rows)]
    return terminal(one_shape(rows), f"{rows[0]['shape']} ({size}), ms", remarks)


def markdown(grid: Grid) -> str:
    """A grid as a Markdown table."""
    rule = ["---", *("---:" for _ in grid[0][1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (grid[0], rule, *grid[1:])) + "\n"
