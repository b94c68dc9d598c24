"""Learning curves: one line for each run, and median and range over the seeds of a setting."""

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Runs = Sequence[dict[str, Any]]
PALETTE = ("#2a7fc0", "#d1601f", "#2f9150", "#a366cc", "#d64577", "#9a7d0a", "#1a9090", "#808080")
"""Each at least 3:1 against the light and the dark ground of the page."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""Beside the colour, so that lines can be told apart without it."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross", "hexagon")
FILTERS = ("task", "size", "model", "recipe")
"""What a reader can filter by; the first two begin with one value, the others with all."""


def learning(runs: Runs) -> "Figure | None":
    """Loss over iterations. What a trace is for stands in its ``meta``; the page's controls show and hide by it."""
    from plotly.graph_objects import Figure, Scatter

    runs = [run for run in runs if run["iterations"]]
    if not runs:
        return None
    styles = _styles(runs)
    figure = Figure()
    for run in runs:
        color, dash, _ = styles[run["model"]]
        meta = {**_meta(run), "kind": "seed"}
        figure.add_trace(_line(run["iterations"], run["losses"], run["name"], run["model"], color, dash, meta))
    for group in dict.fromkeys(run["group"] for run in runs):
        members = [run for run in runs if run["group"] == group]
        color, dash, _ = styles[members[0]["model"]]
        x, low, middle, high = band(members)
        meta, model = {**_meta(members[0]), "kind": "band"}, members[0]["model"]
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": escape(model)}
        shade = {**meta, "edge": True}
        figure.add_trace(Scatter(x=x, y=low, **edge, meta=shade, showlegend=False))
        figure.add_trace(
            Scatter(x=x, y=high, **edge, meta=shade, showlegend=False, fill="tonexty", fillcolor=_pale(color))
        )
        name = f"{group}: median of {len(members)} seed{'s' * (len(members) > 1)}"
        figure.add_trace(_line(x, middle, name, model, color, dash, meta))
    for task, size in dict.fromkeys((run["task"], run["size"]) for run in runs):
        alike = [run for run in runs if (run["task"], run["size"]) == (task, size) and run["baseline"]]
        if alike:
            ends = [1, max(run["iterations"][-1] for run in alike)]
            meta = {"task": task, "size": size, "kind": "both"}
            level = [alike[0]["baseline"]] * 2
            name = "baseline: no memory"
            figure.add_trace(_line(ends, level, name, name, "#808080", "dot", meta))
    figure.update_layout(
        xaxis_title="training iteration", yaxis={"title": "training loss", "type": "log", "exponentformat": "power"}
    )
    return figure


def band(runs: Runs) -> tuple[list[float], list[float], list[float], list[float]]:
    """Iterations, lowest, median and highest loss; each run is interpolated, and counts as far as it went."""
    grid = sorted({x for run in runs for x in run["iterations"]})
    columns = [[y for run in runs if (y := _at(run["iterations"], run["losses"], x)) is not None] for x in grid]
    kept = [(x, ys) for x, ys in zip(grid, columns, strict=True) if ys]
    return (
        [x for x, _ in kept],
        [min(ys) for _, ys in kept],
        [float(f"{statistics.median(ys):.4g}") for _, ys in kept],
        [max(ys) for _, ys in kept],
    )


def _at(xs: Sequence[float], ys: Sequence[float], x: float) -> float | None:
    """Linear between the points, None beyond them."""
    if not xs[0] <= x <= xs[-1]:
        return None
    right = bisect_left(xs, x)
    if xs[right] == x:
        return ys[right]
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return float(f"{ys[right - 1] + share * (ys[right] - ys[right - 1]):.4g}")


def _styles(runs: Runs) -> dict[str, tuple[str, str, str]]:
    """Colour, dash and symbol of each model: those that share a task and size differ, as far as styles go."""
    where: dict[str, set[tuple[str, str]]] = {}
    for run in runs:
        where.setdefault(run["model"], set()).add((run["task"], run["size"]))
    places: dict[str, int] = {}
    for model, spots in where.items():
        taken = {place for other, place in places.items() if where[other] & spots}
        places[model] = next(place for place in range(len(where)) if place not in taken)
    return {model: style(place) for model, place in places.items()}


def style(place: int) -> tuple[str, str, str]:
    """Colour, dash and symbol number ``place``."""
    return PALETTE[place % len(PALETTE)], DASHES[place % len(DASHES)], SYMBOLS[place % len(SYMBOLS)]


def _meta(run: dict[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in FILTERS} | {"name": run["name"]}


def _line(x: Any, y: Any, name: str, group: str, color: str, dash: str, meta: dict[str, Any]) -> Any:
    """A line; plotly reads a few tags in texts, so names are escaped."""
    from plotly.graph_objects import Scatter

    return Scatter(
        x=list(x),
        y=list(y),
        name=escape(group),
        legendgroup=escape(group),
        mode="lines",
        line={"color": color, "dash": dash, "width": 1.8},
        meta=meta,
        hovertemplate=f"{escape(name)}<br>iteration %{{x}}: %{{y:.3g}}<extra></extra>",
    )


def _pale(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.22)"
