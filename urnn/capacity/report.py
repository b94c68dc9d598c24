"""The analyser's findings as a table, as JSON and as a picture."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from urnn.capacity.analyze import Capacity, analyze

CURVES: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("full, exponential, cayley", "full", {}),
    ("restricted (Eq. 3)", "restricted", {}),
    *((f"householder, {k} reflection{'s' * (k > 1)}", "householder", {"reflections": k}) for k in (1, 2, 4, 8)),
    *((f"givens, {layers} brick layers", "givens", {"layers": layers}) for layers in (2, 4, 8)),
    ("givens, one FFT sweep", "givens", {"layout": "fft"}),
)
"""Curves of the picture: label, family, options."""


def table(results: Iterable[Capacity]) -> Table:
    """One row for each analysis."""
    results = list(results)
    columns: dict[str, Callable[[Capacity], str]] = {
        "family": lambda c: c.family,
        "N": lambda c: str(c.n),
        "params": lambda c: str(c.parameters),
        "rank": lambda c: str(c.rank),
        "N²": lambda c: str(c.dimension),
        "share": lambda c: f"{c.rank / c.dimension:.0%}",
        "counting": lambda c: "short" if c.full_by_counting is False else "-",
        "full": lambda c: "no" if c.full is False else c.full,
        "gap": lambda c: f"{c.smallest_kept / c.largest_dropped:.0e}" if c.largest_dropped else "-",
    }
    if any(c.reached is not None for c in results):
        columns["reached"] = lambda c: f"{c.reached:.0%}"
    view = Table(title="How much of U(N) a family represents", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    if any(c.options for c in results):
        columns["options"] = lambda c: " ".join(f"{k}={v}" for k, v in c.options.items())
    for name in columns:
        left = name in ("family", "options")
        view.add_column(name, justify="left" if left else "right", no_wrap=name != "options")
    for result in results:
        view.add_row(*(cell(result) for cell in columns.values()))
    return view


LEGEND = """\
counting  short: P < N², so not full (Theorem 3.2); -: counting cannot tell
full      yes: hits every unitary matrix; locally: an open set of them, by rank
gap       of the Jacobian's singular values, smallest kept / largest dropped"""


def to_json(results: Iterable[Capacity]) -> str:
    """A list of objects, one for each analysis."""
    return json.dumps([asdict(c) for c in results], indent=1)


def shares(sizes: Iterable[int], family: str, options: Mapping[str, Any]) -> list[tuple[int, float]]:
    """(N, rank / N^2) of a family at each size that its options allow."""
    allowed = [n for n in sizes if options.get("reflections", 1) <= n]
    found = [analyze(family, n, points=2, **options) for n in allowed]
    return [(c.n, c.rank / c.dimension) for c in found]


def picture(path: Path, sizes: Iterable[int]) -> None:
    """Draw rank / N^2 over N for the curves of ``CURVES``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sizes = list(sizes)
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    styles = {
        "full": ("black", "-"),
        "restricted": ("#c2571a", "-"),
        "householder": ("#0b6e99", "--"),
        "givens": ("#4a7c2f", ":"),
    }
    markers = iter("s*o^vDo^vP")
    for label, family, options in CURVES:
        points = shares(sizes, family, options)
        color, style = styles[family]
        axes.plot(
            *zip(*points, strict=True),
            style,
            color=color,
            marker=next(markers),
            markersize=4,
            linewidth=1.3,
            label=label,
        )
    axes.set(
        xlabel="N",
        ylabel="rank of the Jacobian / dim U(N)",
        ylim=(0, 1.04),
        title="How much of U(N) a family represents",
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": "urnn"})
