"""Spectrograms."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from urnn.experiments.speech.stft import Frames

RANGE = 70.0
"""dB from the brightest to the darkest."""


def spectrograms(panels: Mapping[str, NDArray[Any]], frames: Frames, path: Path) -> None:
    """Features (T, F), one panel over the other, in one scale; the longest is the last frame's time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 1.9 * len(panels) + 0.4), layout="constrained")
    top = max(float(np.quantile(values, 0.999)) for values in panels.values())
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, values) in zip(all_axes, panels.items(), strict=True):
        seconds = len(values) * frames.hop / frames.rate
        image = axes.imshow(
            np.asarray(values).T,
            origin="lower",
            aspect="auto",
            interpolation="nearest",
            cmap="magma",
            vmin=top - RANGE,
            vmax=top,
            extent=(0, seconds, 0, frames.rate / 2000),
        )
        axes.set_title(title, fontsize=9)
        axes.set_ylabel("kHz")
    all_axes[-1].set_xlabel("seconds")
    figure.colorbar(image, ax=list(all_axes), label="dB")
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": "urnn"})
