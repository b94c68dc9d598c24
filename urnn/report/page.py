"""The page: everything that was gathered, in the templates, with plotly's own script inside."""

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import urnn
from urnn.bench import tables as bench_tables
from urnn.bench.registry import BASE
from urnn.capacity.report import CURVES, shares
from urnn.experiments.files import write_atomic
from urnn.report import charts, curves, tables
from urnn.report.gather import Found, gather, unique
from urnn.report.media import embedded

NEEDED = ("jinja2", "plotly")


def write(paths: Iterable[Path], out: Path, sizes: Sequence[int]) -> Path:
    """Write the page about all that lies in ``paths``; ``sizes`` are those of the section on capacity.

    Raises:
        NotImplementedError: jinja2 or plotly is not installed.
        ValueError: there is nothing to show in one of ``paths``.
        OSError: ``out`` cannot be written.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise NotImplementedError(
            f"urnn report: expected {' and '.join(NEEDED)}, found no {' and no '.join(missing)}. "
            "`pip install 'urnn[report]'` installs them."
        )
    page = render(gather(paths), sizes)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page.encode())
    return out


def render(found: Found, sizes: Sequence[int]) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    figures = {name: figure.to_plotly_json() for name, figure in _figures(found, sizes).items() if figure is not None}
    shown, left_out = embedded([{**one, "run": run["name"]} for run in found.runs for one in run["recordings"]])
    environment = Environment(
        loader=PackageLoader("urnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        version=urnn.__version__,
        sources=found.sources,
        compared=tables.compared(found.grids),
        pages=tables.pages(found.grids),
        controls=_controls(found),
        figures=_json({name: _plain(figure) for name, figure in figures.items()}),
        names=list(figures),
        recordings=shown,
        left_out=left_out,
        speed=_speed(found),
        bases=", ".join(f"{name} on the {device.upper()}" for device, name in BASE.items()),
        runs=found.runs,
        notes=[(run["name"], run["note"]) for run in found.runs if run["note"]],
        plotly=_plotly(),
    )


def _figures(found: Found, sizes: Sequence[int]) -> dict[str, Any]:
    """All figures by the names that the template knows; None where there is nothing to draw."""
    rows = [row for recipe in ("paper", "best") for row in found.grids.get(("capacity", recipe), [])]
    families = [(label, shares(sizes, family, options)) for label, family, options in CURVES]
    return {
        "curves": curves.learning(found.runs),
        "capacity": charts.capacity([curve for curve in families if curve[1]]) if sizes else None,
        "rank": charts.error_over_rank(rows),
        "eigenvalues": charts.eigenvalues(found.runs),
        "defects": charts.defects(found.runs),
        "soak": charts.soak(found.soak),
        "speed": charts.speed(found.benchmarks),
    }


def _controls(found: Found) -> dict[str, list[dict[str, Any]]]:
    """The selects of each figure: what they are for, their values, and whether one of these may be "all"."""
    timed = [row for row in bench_tables.timed(found.benchmarks) if not row["series"]]
    rank = [
        f"N = {row['config']['hidden']}" for key, rows in found.grids.items() if key[0] == "capacity" for row in rows
    ]
    drawn = [run for run in found.runs if run["iterations"]]
    return {
        "curves": [
            {"key": key, "label": key, "values": unique(drawn, key), "all": key in curves.FILTERS[2:]}
            for key in curves.FILTERS
        ],
        "rank": [{"key": "size", "label": "size", "values": list(dict.fromkeys(rank)), "all": False}],
        "eigenvalues": [
            {
                "key": "run",
                "label": "run",
                "values": [run["name"] for run in found.runs if run["eigenvalues"]],
                "all": False,
            }
        ],
        "speed": [
            {
                "key": "machine",
                "label": "machine",
                "values": list(dict.fromkeys(charts.machine(row) for row in timed)),
                "all": False,
            },
            {"key": "shape", "label": "shape", "values": charts.shapes(found.benchmarks), "all": False},
        ],
    }


def _speed(found: Found) -> list[dict[str, Any]]:
    """A table for each machine and precision: medians in ms, and the ratio to the base."""
    figure = bench_tables.figure
    return [
        {
            "title": name,
            "table": tables.grid(
                bench_tables.comparison(rows, lambda row: f"{figure(row, 'ms_50')} ({figure(row, 'ratio')})")
            ),
        }
        for name, rows in charts.machines([row for row in found.benchmarks if not row["series"]]).items()
        if bench_tables.timed(rows)
    ]


def _plain(figure: dict[str, Any]) -> dict[str, Any]:
    """Data and layout, without the template that plotly adds to every figure."""
    traces = [trace.to_plotly_json() if hasattr(trace, "to_plotly_json") else trace for trace in figure["data"]]
    return {"data": traces, "layout": {k: v for k, v in figure["layout"].items() if k != "template"}}


def _json(value: Any) -> str:
    """JSON that can stand within a script element; what is not finite becomes null."""
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _plotly() -> str:
    """plotly.js, as plotly.py brings it, compressed; the page unpacks it."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
