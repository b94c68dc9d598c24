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


def learning(runs: list[dict[str, Any]], path: Path) -> None:
    """Figure 3: validation accuracy over epochs, a panel for each order of the pixels; and confusions beside it."""
    orders = list(dict.fromkeys(row["config"]["order"] for row in runs))
    models = list(dict.fromkeys(row["preset"].partition("/")[2] for row in runs))
    figure = _figure(5.2 * len(orders), 3.8)
    for axes, order in zip(figure.subplots(1, len(orders), squeeze=False)[0], orders, strict=True):
        labelled = set()
        for row in (row for row in runs if row["config"]["order"] == order):
            model, result = row["preset"].partition("/")[2], row["result"]
            epochs = [i / result["iterations_per_epoch"] for i in result["learning"]["iteration"]]
            axes.plot(
                epochs,
                [100 * share for share in result["learning"]["accuracy"]],
                color=COLORS[models.index(model) % len(COLORS)],
                linewidth=1.2,
                label=None if model in labelled else model,
            )
            labelled.add(model)
        axes.set(xlabel="epoch", ylabel="validation accuracy, %", title=f"pixels: {order}")
        axes.xaxis.get_major_locator().set_params(integer=True)
        _finish(axes)
        axes.legend(frameon=False, fontsize=8)
    _save(figure, path)
    _confusions(runs, orders, path.with_stem(f"{path.stem}-confusion"))


def _confusions(runs: list[dict[str, Any]], orders: list[str], path: Path) -> None:
    """Which class was taken for which on the test set, by the most accurate run for each order of the pixels."""
    figure = _figure(4.6 * len(orders), 4.4)
    for axes, order in zip(figure.subplots(1, len(orders), squeeze=False)[0], orders, strict=True):
        rows = [row for row in runs if row["config"]["order"] == order]
        best = max(rows, key=lambda row: float(row["result"]["validation_accuracy"]))
        counts = best["result"]["confusion"]
        largest = max(max((n for j, n in enumerate(row) if j != i), default=0) for i, row in enumerate(counts))
        axes.imshow(counts, cmap="Blues", vmax=max(2 * largest, 1))
        for i, row in enumerate(counts):
            for j, n in enumerate(row):
                axes.text(j, i, n or "", ha="center", va="center", fontsize=7, color="w" if n > largest else "k")
        axes.set(xlabel="taken for", ylabel="class", xticks=range(len(counts)), yticks=range(len(counts)))
        axes.set_title(f"pixels: {order}; {best['preset'].partition('/')[2]}, seed {best['seed']}", fontsize=9)
    _save(figure, path)


def accuracies(runs: list[dict[str, Any]], path: Path) -> None:
    """Test accuracy over the parameters of W, a line for each family."""
    figure = _figure(5.6, 3.8)
    axes = figure.subplots()
    for model, color, style in zip(("householder", "givens", "restricted", "full"), COLORS, "os^D", strict=False):
        points = sorted(
            (row["result"]["recurrence_parameters"], 100 * row["result"]["test_accuracy"])
            for row in runs
            if row["config"]["model"] == model
        )
        if points:
            axes.plot(*zip(*points, strict=True), f"{style}-", color=color, markersize=5, linewidth=1, label=model)
    axes.set(xlabel="real parameters of W", ylabel="test accuracy, %", xscale="log")
    _finish(axes)
    axes.legend(frameon=False)
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
