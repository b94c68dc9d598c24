"""Pictures of the results: ratios at each shape, and times over sizes."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from urnn.bench.tables import Row, exponents, timed, unique
from urnn.ops import BACKENDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, PEER, LOOP = "#0b6e99", "0.62", "#d8a47f"
KERNELS = [f"UnitaryRNN, {name}" for name in BACKENDS if name != "explicit"]
LOOPS = ["UnitaryRNN, time loop", "real time loop", "real time loop, torch.compile", "complextorch.UnitaryRNN"]
PEERS = ["nn.RNN", "nn.RNN, orthogonal", "nn.GRU", "nn.LSTM", "nn.LSTM, equal parameters"]
COLORS = dict.fromkeys(KERNELS, OURS) | dict.fromkeys(PEERS, PEER) | dict.fromkeys(LOOPS, LOOP)
"""What is drawn, from the top. The rest is in the tables."""


def digest(rows: Sequence[Row]) -> str:
    """What a picture carries, so that a test can tell whether it is that of these rows."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def ratios(path: Path, rows: Sequence[Row], base: str) -> None:
    """Bars: the median of each model over that of ``base``, one panel for each shape."""
    from matplotlib.figure import Figure

    found = [row for row in timed(rows) if row["model"] in COLORS and row["ratio"] != ""]
    shapes = unique(found, "shape")
    names = [name for name in COLORS if any(row["model"] == name for row in found)]
    lines = -(-len(shapes) // 3)
    figure = Figure(figsize=(9.2, (0.19 * len(names) + 0.55) * lines + 0.3), layout="constrained")
    grid = figure.subplots(lines, min(3, len(shapes)), sharex=True, sharey=True, squeeze=False)
    for place, (axes, shape) in enumerate(zip(grid.flat, shapes, strict=False)):
        values = {row["model"]: float(row["ratio"]) for row in found if row["shape"] == shape}
        _bars(axes, names, values)
        n = next(row["N"] for row in found if row["shape"] == shape)
        axes.set_title(shape if f"N = {n}" in shape else f"{shape}, N = {n}", fontsize=9, loc="left")
        axes.tick_params(axis="x", labelbottom=place + 3 >= len(shapes))
    low, high = (pick(float(row["ratio"]) for row in found) for pick in (min, max))
    grid[0, 0].set_xlim(min(low, 1) / 3, max(high, 1) * 3)  # with room for the figures
    for axes in grid.flat[len(shapes) :]:
        axes.remove()
    figure.supxlabel(f"time of a pass / {base} of equal N, logarithmic; to the left is faster", fontsize=9)
    _save(figure, path, rows)


def _bars(axes: "Axes", names: list[str], values: dict[str, float]) -> None:
    """From 1 to each value: to the left what is faster than the base, to the right what is slower."""
    for place, name in enumerate(names):
        value = values.get(name, 1.0)
        axes.barh(place, value - 1, left=1, color=COLORS[name], height=0.72)
        label = f" {value:.{2 if value < 10 else 0}f} " if name in values else " not timed "
        axes.text(value, place, label, va="center", ha="right" if value < 1 else "left", fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="0.2", linewidth=0.8)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(_nothing())
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(labelsize=8, axis="x")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def scaling(path: Path, rows: Sequence[Row]) -> None:
    """Lines: the median over T, B and N, both logarithmic."""
    from matplotlib.figure import Figure

    found, slopes = timed(rows), exponents(rows)
    letters = unique([row for row in found if row["series"]], "series")
    figure = Figure(figsize=(9.2, 3.2), layout="constrained")
    for axes, letter in zip(figure.subplots(1, len(letters), sharey=True, squeeze=False).flat, letters, strict=True):
        series = [row for row in found if row["series"] == letter]
        for model in unique(series, "model"):
            points = [(float(row[letter]), float(row["ms_50"])) for row in series if row["model"] == model]
            color, marker = (OURS, "o") if model in KERNELS else ("0.25", "s") if model == "nn.LSTM" else ("0.6", "^")
            label = f"{model}: {letter}^{slopes[letter, model]:.2f}"
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=4, linewidth=1.3, label=label)
        fixed = ", ".join(f"{key} = {series[0][key]}" for key in "TBNM" if key != letter)
        axes.set(xscale="log", yscale="log")
        axes.set_xlabel(letter)
        axes.set_title(fixed, fontsize=9, loc="left")
        axes.set_xticks(sorted({float(row[letter]) for row in series}), minor=False)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.xaxis.set_minor_locator(_nothing())
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.axes[0].set_ylabel("ms for a pass")
    _save(figure, path, rows)


def _nothing() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _save(figure: "Figure", path: Path, rows: Sequence[Row]) -> None:
    """A PNG of few colours, which makes it a third of the size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    about = PngInfo()
    about.add_text("Software", "urnn")
    about.add_text("Source", digest(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(buffer).convert("RGB").quantize(64).save(path, optimize=True, pnginfo=about)
