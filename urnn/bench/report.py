"""The page of benchmarks, from the CSV files alone."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from urnn.bench import figures
from urnn.bench.registry import BASE
from urnn.bench.tables import ALL, Row, absences, comparison, figure, markdown, read_csv, scaling, timed, unique

HEAD = """\
# Benchmarks

`urnn bench report` makes this page from the files in [benchmarks/results]({results}); nothing here is typed by hand.
`urnn bench cpu` and `urnn bench gpu` make those files (`--quick` for a first look, `--shape NAME` for one shape).

A pass is forward and backward of one layer over the whole sequence, with the input projection and the gradients of the
input and of all parameters; the gradient from above is given. The models of a shape are timed in one run and in turn,
so that a busy machine is busy for all. Figures are medians in ms; the files hold the quantiles at 20 and 80 % as well.
The ratio in brackets is to the base of the section at the same shape and precision: below 1 is faster.

- `UnitaryRNN, <backend>` is a full-capacity layer on that backend; `UnitaryRNN, <family>` one whose W a family makes
  from its parameters in each pass, on the first backend that serves. A state is N complex numbers, where the peers' are
  N real ones.
- `UnitaryRNN, time loop` is the loop that one writes in complex PyTorch; `real time loop` the same in real arithmetic,
  the only form that `torch.compile` makes code for.
- "equal parameters": of the hidden size at which the layer has as many real parameters as the full-capacity layer.
- T steps, B rows, N hidden units, M inputs.
"""
GPU = """
Times are those of the device: events around passes that the host has queued ahead. In float32, cuBLAS and cuDNN
multiply with TF32 off, in TF32 both with it on. Memory is the most that a pass takes beside what lies there before it.
"""
PRECISIONS = {"float32": "float32", "tf32": "TF32"}


def write(results: Path, page: Path) -> list[Path]:
    """Write the page and its pictures, and say what was written."""
    rows = [row for path in sorted(results.glob("*.csv")) for row in read_csv(path)]
    if not rows:
        raise ValueError(f"--results: expected a folder with files of `urnn bench cpu --csv FILE`, got {results}")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text(rows, os.path.relpath(results, page.parent)))
    drawn = {page.parent / "images" / name: draw for name, draw in pictures(rows).items()}
    for path, draw in drawn.items():
        draw(path)
    return [page, *drawn]


def text(rows: list[Row], results: str) -> str:
    """The page; ``results`` is where it links to."""
    return "\n".join([HEAD.format(results=results), *map(_section, _sections(rows).values())])


def pictures(rows: list[Row]) -> dict[str, Callable[[Path], None]]:
    """Names of the pictures, and what draws each."""
    found: dict[str, Callable[[Path], None]] = {}
    for slug, section in _sections(rows).items():
        for precision, part in _by_precision(section).items():
            found[f"bench-{slug}-{precision}.png"] = partial(figures.ratios, rows=part, base=BASE[part[0]["device"]])
        if series := [row for row in section if row["series"]]:
            found[f"bench-{slug}-scaling.png"] = partial(figures.scaling, rows=series)
    return found


def _sections(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each device, by a name that can stand in that of a file."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        slug = re.sub(r"[^a-z0-9]+", "-", _title(row).lower()).strip("-")
        found.setdefault(slug, []).append(row)
    return found


def _by_precision(section: list[Row]) -> dict[str, list[Row]]:
    """The rows of shapes, apart from series, in each precision."""
    rows = [row for row in section if not row["series"]]
    return {
        p: [row for row in rows if row["precision"] == p] for p in PRECISIONS if p in unique(timed(rows), "precision")
    }


def _title(row: Row) -> str:
    threads = f", {row['threads']} thread{'s' * (row['threads'] != '1')}" if row["device"] == "cpu" else ""
    return f"{row['device'].upper()}: {row['machine']}{threads}"


def _section(section: list[Row]) -> str:
    device, slug = section[0]["device"], next(iter(_sections(section)))
    columns = ("torch", "numba", "triton", "complextorch", "cuda", "cudnn", "commit", "date")
    facts = {column: [value for value in unique(section, column) if value not in ("", "-")] for column in columns}
    lines = [f"## {_title(section[0])}", ""]
    lines += ["; ".join(f"{column} {', '.join(values)}" for column, values in facts.items() if values) + ".", ""]
    lines += [f"Base: `{BASE[device]}` of equal N.", *([GPU] if device == "gpu" else [""])]
    for precision, rows in _by_precision(section).items():
        if device == "gpu":
            lines += [f"### {PRECISIONS[precision]}", ""]
        lines += [f"![Ratios to {BASE[device]}](images/bench-{slug}-{precision}.png)", ""]
        lines += [markdown(comparison(rows, lambda row: f"{figure(row, 'ms_50')} ({figure(row, 'ratio')})"))]
        if any(row["peak_mib"] for row in rows):
            lines += ["Memory of a pass, MiB:", "", markdown(comparison(rows, lambda row: figure(row, "peak_mib", 1)))]
    shapes = [row for row in section if not row["series"]]
    lines += [f"- {line}" for line in _notes(shapes)]
    if any(row["series"] for row in section):
        lines += [
            "",
            "### Over T, B and N",
            "",
            "Time grows as the size to the power of the exponent: the slope of a line",
        ]
        lines += ["through the logarithms of all points.", "", f"![Scaling](images/bench-{slug}-scaling.png)", ""]
        lines += [markdown(scaling(section))]
    return "\n".join(lines)


def _notes(rows: list[Row]) -> list[str]:
    """What is to be said about a model, and what was not timed and why."""
    remarks: dict[str, list[str]] = {}
    for row in timed(rows):
        if row["note"]:
            remarks.setdefault(row["note"], []).append(f"`{row['model']}`")
    found = [f"{', '.join(dict.fromkeys(models))}: {note}" for note, models in remarks.items()]
    tried = unique([row for row in rows if row["model"] != ALL], "shape")
    for model, note, shapes in absences(rows):
        name = "all models" if model == ALL else f"`{model}`"
        where = "" if shapes == tried else f" ({'; '.join(shapes)})"
        found.append(f"not timed: {name}{where}: {note}")
    return found
