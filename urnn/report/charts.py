"""The other figures: capacity, error over rank, speed, eigenvalues and the distance from U(N)."""

from collections.abc import Sequence
from html import escape
from math import cos, floor, log10, sin
from typing import TYPE_CHECKING, Any

from urnn.bench.tables import Row, timed, unique
from urnn.report.curves import style

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Curve = tuple[str, Sequence[tuple[int, float]]]


def capacity(curves: Sequence[Curve]) -> "Figure":
    """Rank over N^2 by N, one line for each family."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for place, (label, points) in enumerate(curves):
        color, dash, symbol = style(place)
        figure.add_trace(
            Scatter(
                x=[n for n, _ in points],
                y=[share for _, share in points],
                name=escape(label),
                mode="lines+markers",
                line={"color": color, "dash": dash},
                marker={"symbol": symbol, "size": 8},
                hovertemplate=f"{escape(label)}<br>N = %{{x}}: %{{y:.1%}} of U(N)<extra></extra>",
            )
        )
    return figure.update_layout(
        xaxis_title="N", yaxis={"title": "rank of the Jacobian / N²", "tickformat": ".0%", "range": [0, 1.05]}
    )


def error_over_rank(rows: Sequence[dict[str, Any]]) -> "Figure | None":
    """Normalized MSE against random systems over rank / N^2: the median start, with the best and the worst."""
    from plotly.graph_objects import Figure, Scatter

    points: dict[tuple[int, str], list[tuple[float, dict[str, Any], str]]] = {}
    for row in rows:
        n, model = row["config"]["hidden"], row["config"]["model"]
        spread = row["result"]["normalized_mse"][f"haar/{model}"]["best validation"]
        share = row["result"]["rank"][model] / n**2
        points.setdefault((n, model), []).append((share, spread, row["preset"].partition("/")[2]))
    families = list(dict.fromkeys(model for _, model in points))
    figure = Figure()
    for (n, model), found in sorted(points.items()):
        color, dash, symbol = style(families.index(model))
        found = sorted(found, key=lambda point: point[0])
        middle = [spread["median"] for _, spread, _ in found]
        figure.add_trace(
            Scatter(
                x=[share for share, _, _ in found],
                y=middle,
                error_y={
                    "array": [spread["worst"] - spread["median"] for _, spread, _ in found],
                    "arrayminus": [spread["median"] - spread["best"] for _, spread, _ in found],
                    "thickness": 1,
                },
                text=[escape(label) for _, _, label in found],
                name=escape(model),
                mode="lines+markers",
                line={"color": color, "dash": dash},
                marker={"symbol": symbol, "size": 8},
                meta={"size": f"N = {n}"},
                hovertemplate="%{text}: %{x:.0%} of U(N)<br>median error %{y:.2g}<extra></extra>",
            )
        )
    figure.update_layout(
        xaxis={"title": "rank / N²", "tickformat": ".0%"},
        yaxis={"title": "normalized MSE, test", "type": "log", "exponentformat": "power"},
    )
    return figure if points else None


def speed(rows: Sequence[Row]) -> "Figure | None":
    """Ratio of each model to the base, as bars from 1, one trace for each machine, precision and shape."""
    from plotly.graph_objects import Bar, Figure

    figure = Figure()
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in timed(rows):
        if not row["series"] and row["ratio"] != "":
            parts.setdefault((machine(row), row["shape"]), []).append(row)
    for (where, shape), found in parts.items():
        found = sorted(found, key=lambda row: -float(row["ratio"]))
        ours = [row["model"].startswith("UnitaryRNN") for row in found]
        figure.add_trace(
            Bar(
                base=1,
                x=[float(row["ratio"]) - 1 for row in found],
                y=[escape(row["model"]) for row in found],
                orientation="h",
                name=escape(shape),
                text=[f"{float(row['ms_50']):.3g} ms" for row in found],
                textposition="outside",
                cliponaxis=False,
                customdata=[(float(row["ratio"]), float(row["ms_50"])) for row in found],
                marker={
                    "color": [style(0 if own else 7)[0] for own in ours],
                    "pattern": {"shape": ["" if own else "/" for own in ours]},
                },
                meta={"machine": where, "shape": shape, "range": _with_room([float(row["ratio"]) for row in found])},
                hovertemplate="%{y}<br>%{customdata[1]:.4g} ms, %{customdata[0]:.2f} of the base<extra></extra>",
            )
        )
    figure.update_layout(
        xaxis={
            "title": "time / time of the base, logarithmic",
            "type": "log",
            "tickvals": [digit * 10.0**power for power in range(-2, 4) for digit in (1, 2, 5)],
        },
        yaxis={"automargin": True},
        showlegend=False,
    )
    return figure if parts else None


def _with_room(ratios: Sequence[float]) -> list[float]:
    """Ends of a logarithmic axis, with a quarter of its length on either side for the figures."""
    low, high = log10(min(1.0, *ratios)), log10(max(1.0, *ratios))
    room = (high - low + 0.1) / 4
    return [low - room, high + room]


def machine(row: Row) -> str:
    """Where a row was measured, and in which precision."""
    threads = f", {row['threads']} thread{'s' * (row['threads'] != '1')}" if row["device"] == "cpu" else ""
    return f"{row['machine']}{threads}, {row['precision']}"


def machines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by machine and precision."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(machine(row), []).append(row)
    return found


def shapes(rows: Sequence[Row]) -> list[str]:
    """Names of the shapes that were timed."""
    return unique([row for row in timed(rows) if not row["series"]], "shape")


def eigenvalues(runs: Sequence[dict[str, Any]]) -> "Figure | None":
    """Eigenvalues of W after training where they are, and those before it on a circle of 0.8 times their moduli."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for run in runs:
        if not (found := run["eigenvalues"]):
            continue
        for when, scale, place, symbol in (("before", 0.8, 1, "x-thin-open"), ("after", 1.0, 0, "circle-open")):
            if not (polar := found[when]):
                continue
            name = "first W (drawn at 0.8)" if when == "before" else f"W after {found['iteration']} iterations"
            figure.add_trace(
                Scatter(
                    x=[scale * r * cos(a) for a, r in polar],
                    y=[scale * r * sin(a) for a, r in polar],
                    customdata=polar,
                    mode="markers",
                    name=name,
                    marker={"symbol": symbol, "size": 7, "color": style(place)[0], "line": {"width": 1.4}},
                    meta={"run": run["name"]},
                    hovertemplate="phase %{customdata[0]:.3f}<br>modulus %{customdata[1]:.6f}<extra></extra>",
                )
            )
    figure.update_layout(
        xaxis={"title": "Re", "range": [-1.15, 1.15], "constrain": "domain"},
        yaxis={"title": "Im", "range": [-1.15, 1.15], "scaleanchor": "x", "constrain": "domain"},
    )
    return figure if figure.data else None


def defects(runs: Sequence[dict[str, Any]]) -> "Figure | None":
    """max|W^H W - I| over the iterations of run folders."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for place, run in enumerate(run for run in runs if run["defects"]):
        color, dash, symbol = style(place)
        figure.add_trace(
            Scatter(
                x=[iteration for iteration, _ in run["defects"]],
                y=[defect or None for _, defect in run["defects"]],
                name=escape(run["name"]),
                mode="lines+markers",
                line={"color": color, "dash": dash},
                marker={"symbol": symbol},
                hovertemplate=f"{escape(run['name'])}<br>iteration %{{x}}: %{{y:.1e}}<extra></extra>",
            )
        )
    figure.update_layout(
        xaxis_title="training iteration",
        yaxis={"title": "max|WᴴW − I|", **_decades([d for run in runs for _, d in run["defects"]])},
    )
    return figure if figure.data else None


def soak(rows: Sequence[dict[str, Any]]) -> "Figure | None":
    """The worst defect over a whole soak run of every optimizer, by size and device."""
    from plotly.graph_objects import Figure, Scatter

    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        where = f"{row['device']}{', TF32' if row['tf32'] else ''}, N = {row['n']}, {row['steps']} steps"
        parts.setdefault(where, []).append(row)
    figure = Figure()
    for place, (where, found) in enumerate(parts.items()):
        color, _, symbol = style(place)
        figure.add_trace(
            Scatter(
                x=[row["worst_defect"] for row in found],
                y=[escape(row["optimizer"]) for row in found],
                mode="markers",
                name=escape(where),
                marker={"color": color, "symbol": symbol, "size": 10},
                hovertemplate=f"%{{y}}<br>{escape(where)}: %{{x:.1e}}<extra></extra>",
            )
        )
    figure.update_layout(
        xaxis={"title": "worst max|WᴴW − I| of the run", **_decades([row["worst_defect"] for row in rows])},
        yaxis={"automargin": True},
    )
    return figure if parts else None


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of whole decades around the values."""
    there = [log10(value) for value in values if value > 0] or [-7.0]
    ends = [floor(min(there)), floor(max(there)) + 1]
    return {"type": "log", "exponentformat": "power", "range": ends, "dtick": "D2"}
