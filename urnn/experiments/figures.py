"""Figures, from the rows of ``results/*.json`` alone."""

from math import log
from pathlib import Path
from typing import Any

COLORS = ("#0b6e99", "#c2571a", "#4a7c2a", "#7a4fa3", "#a8325e", "#7d6b00", "#00796b", "#5d5d5d")


def curves(runs: list[dict[str, Any]], path: Path) -> None:
    """Figure 1: loss over iterations, one panel for each T, one color for each model, one line for each seed."""
    lengths = sorted({row["config"]["time_steps"] for row in runs})
    models = list(dict.fromkeys(row["preset"].partition("/")[2] for row in runs))
    figure = _figure(5.2 * len(lengths), 3.8)
    for axes, T in zip(figure.subplots(1, len(lengths), squeeze=False)[0], lengths, strict=True):
        rows = [row for row in runs if row["config"]["time_steps"] == T]
        for row in rows:
            model = row["preset"].partition("/")[2]
            label = model if row["seed"] == min(r["seed"] for r in rows) else None
            color = COLORS[models.index(model) % len(COLORS)]
            axes.plot(row["curve"]["iteration"], row["curve"]["loss"], color=color, linewidth=1, label=label)
        symbols = rows[0]["config"]["symbols"]
        baseline = symbols * log(rows[0]["config"]["alphabet"]) / (T + 2 * symbols)
        axes.axhline(baseline, color="0.35", linewidth=1, linestyle=":", label="baseline: no memory")
        axes.set(xlabel="training iteration", ylabel="mean cross-entropy", yscale="log", title=f"T = {T}")
        axes.set_ylim(bottom=baseline / 1000, top=30 * baseline)
        _finish(axes)
    figure.axes[0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def starts(runs: list[dict[str, Any]], path: Path) -> None:
    """Table 1: the normalized MSE of every initialisation, by size, one panel for each kind of system."""
    systems = list(dict.fromkeys(cell.split("/")[0] for row in runs for cell in row["result"]["normalized_mse"]))
    sizes = sorted({row["config"]["hidden"] for row in runs})
    figure = _figure(4.6 * len(systems), 3.6)
    for axes, system in zip(figure.subplots(1, len(systems), squeeze=False, sharey=True)[0], systems, strict=True):
        for place, (learner, color, marker) in enumerate((("full", "#0b6e99", "o"), ("restricted", "#c2571a", "x"))):
            x: list[float] = []
            y: list[float] = []
            for row in runs:
                cell = row["result"]["normalized_mse"].get(f"{system}/{learner}")
                found = cell["best validation"]["all"] if cell else []
                x += [sizes.index(row["config"]["hidden"]) + 0.2 * place - 0.1] * len(found)
                y += found
            axes.plot(x, y, marker, color=color, markersize=5, label=learner)
        axes.set_xticks(range(len(sizes)), [f"N = {n}" for n in sizes])
        axes.set(yscale="log", title={"Wu": "system from W_u", "Wg": "system from W_g"}.get(system, system))
        _finish(axes)
    figure.axes[0].set_ylabel("normalized MSE, test set")
    figure.axes[0].legend(frameon=False, title="learner")
    _save(figure, path)


def capacity(runs: list[dict[str, Any]], path: Path) -> None:
    """Error against a random unitary system over the rank of the family, one panel for each size."""
    sizes = sorted({row["config"]["hidden"] for row in runs})
    figure = _figure(4.2 * len(sizes), 3.6)
    for axes, n in zip(figure.subplots(1, len(sizes), squeeze=False, sharey=True)[0], sizes, strict=True):
        for model, color, style in zip(("householder", "givens", "restricted", "full"), COLORS, "os^D", strict=False):
            rows = [row for row in runs if row["config"]["hidden"] == n and row["config"]["model"] == model]
            points = sorted((row["result"]["rank"][model] / n**2, *_best_and_worst(row, model)) for row in rows)
            if points:
                rank, best, worst = zip(*points, strict=True)
                axes.plot(rank, best, f"{style}-", color=color, markersize=4, linewidth=1, label=model)
                axes.fill_between(rank, best, worst, color=color, alpha=0.15, linewidth=0)
        axes.set(xlabel="rank / N²", yscale="log", title=f"N = {n}")
        _finish(axes)
    figure.axes[0].set_ylabel("normalized MSE: best and worst start")
    figure.axes[0].legend(frameon=False)
    _save(figure, path)


def errors(runs: list[dict[str, Any]], path: Path) -> None:
    """Table 2: training error over epochs, one color for each preset, one line for each seed."""
    presets = list(dict.fromkeys(row["preset"].partition("/")[2] for row in runs))
    figure = _figure(6.4, 4.2)
    axes = figure.subplots()
    for row in runs:
        name = row["preset"].partition("/")[2]
        label = name if row["seed"] == min(r["seed"] for r in runs if r["preset"] == row["preset"]) else None
        epochs = [i / row["result"]["iterations_per_epoch"] for i in row["curve"]["iteration"]]
        style = ("-", "--")[presets.index(name) // len(COLORS) % 2]
        color = COLORS[presets.index(name) % len(COLORS)]
        axes.plot(epochs, row["curve"]["loss"], style, color=color, linewidth=1, label=label)
    baseline = runs[0]["result"]["baselines"]["previous frame"]["valid_mse"]
    axes.set(xlabel="epoch", ylabel="training error, dB²")
    axes.set_ylim(top=1.1 * baseline, bottom=0.9 * min(min(row["curve"]["loss"]) for row in runs))
    _finish(axes)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _best_and_worst(row: dict[str, Any], model: str) -> tuple[float, float]:
    spread = row["result"]["normalized_mse"][f"haar/{model}"]["best validation"]
    return spread["best"], spread["worst"]


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _finish(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": "urnn"})
