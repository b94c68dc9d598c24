"""Pixel-by-pixel MNIST on the page of results: Table 3, and what goes beyond it."""

import statistics
from typing import Any

from urnn.experiments.markdown import table
from urnn.experiments.presets import GRIDS

Rows = list[dict[str, Any]]

PAPER: dict[str, tuple[str, float, float]] = {
    "mnist/lstm-128": ("68k", 98.1, 97.8),
    "mnist/lstm-256": ("270k", 98.5, 98.2),
    "mnist/restricted-512": ("16k", 97.9, 97.5),
    "mnist/full-116": ("16k", 92.7, 92.8),
    "mnist/full-512": ("270k", 97.5, 96.9),
    "mnist-permuted/lstm-128": ("68k", 91.7, 91.3),
    "mnist-permuted/lstm-256": ("270k", 92.1, 91.7),
    "mnist-permuted/restricted-512": ("16k", 94.2, 93.3),
    "mnist-permuted/full-116": ("16k", 92.2, 92.1),
    "mnist-permuted/full-512": ("270k", 94.7, 94.1),
}
"""Table 3 as the paper prints it: parameters, accuracy on validation and evaluation data in percent."""
SUBSET = (
    "This is to see the task work without a GPU. The recipe was tuned at this size for neither model, and there is one "
    "seed: the distance between the rows is no comparison of the models."
)
PIXELS = {"rows": "in rows", "permuted": "permuted", "bits": "bit-reversed"}


def section(grid: str, runs: dict[str, Rows]) -> list[str]:
    """Rows: models, for each the paper's figures and those of the recipes; then the pictures."""
    lines = []
    for preset in GRIDS[grid]["cells"]:
        mine = {recipe: [row for row in rows if row["preset"] == preset] for recipe, rows in runs.items()}
        mine = {recipe: rows for recipe, rows in mine.items() if rows}
        if preset in PAPER and mine:
            first = next(iter(mine.values()))[0]
            parameters, validation, test = PAPER[preset]
            lines.append([*_model(first), "the paper", parameters, f"{validation:.1f}", f"{test:.1f}", "-", "-"])
        lines += [_line(recipe, rows) for recipe, rows in mine.items()]
    header = ["pixels", "model", "N", "", "parameters", "validation, %", "test, %", "epochs", "seconds per epoch"]
    held, images = (
        {row["config"][name] for rows in runs.values() for row in rows}
        for name in ("validation_images", "train_images")
    )
    text = (
        "Accuracies of the weights with the lowest validation loss. Of MNIST's 60000 training images the first "
        f"{_listed(held)} are for validation and the next {_listed(images)} for training; the test set is looked at "
        "once, at the end of a run. "
        "Of several seeds, the mean with the lowest and the highest."
    )
    pictures = [
        line
        for recipe in runs
        for line in (
            f"![Validation accuracy over epochs](images/{grid}-{recipe}.png)",
            f"![Classes taken for one another](images/{grid}-{recipe}-confusion.png)",
        )
    ]
    aside = [SUBSET] if grid == "table3-subset" else []
    return [text, *aside, table(header, lines), *pictures]


def capacity(grid: str, runs: dict[str, Rows]) -> list[str]:
    """Rows: families in the order of their size; a table for each recipe."""
    parts = [
        "Permuted pixels, N = 512, families between the restricted one and all of U(N). *Parameters of W* are those of "
        "the family; the other parameters of the model are the same everywhere."
    ]
    for recipe, rows in runs.items():
        lines = []
        for preset in sorted({row["preset"] for row in rows}, key=lambda p: _size(_of(rows, p)[0])):
            mine = _of(rows, preset)
            size, N = _size(mine[0]), mine[0]["config"]["hidden"]
            shown = [_percent([row["result"][f"{part}_accuracy"] for row in mine]) for part in ("validation", "test")]
            lines.append([preset.partition("/")[2], f"`{recipe}`", str(size), f"{size / N**2:.1%}", *shown])
        header = ["model", "recipe", "parameters of W", "of N^2", "validation, %", "test, %"]
        parts += [table(header, lines), f"![Accuracy over parameters of W](images/{grid}-{recipe}.png)"]
    return parts


def search(grid: str, runs: dict[str, Rows]) -> list[str]:
    """Rows: steps away from a recipe, by what they came to on the validation set."""
    parts = [
        "Permuted pixels, N = 128, a few epochs: the recipe, for the full uRNN (*base*) and the LSTM, and steps away "
        "from it by one setting each, in the order of their accuracy on the validation set. The test set has no part "
        "in a search, and its figures are not shown."
    ]
    for recipe, rows in runs.items():
        lines = [
            [
                row["preset"].partition("/")[2],
                f"`{recipe}`",
                _percent([row["result"]["validation_accuracy"]]),
                f"{row['result']['validation_loss']:.4f}",
                _epochs(row["result"], row["result"]["iterations_per_epoch"]),
                str(row["seed"]),
            ]
            for row in sorted(rows, key=lambda row: -float(row["result"]["validation_accuracy"]))
        ]
        header = ["setting", "recipe", "validation, %", "validation loss", "epochs", "seed"]
        parts.append(table(header, lines))
    return parts


def _of(rows: Rows, preset: str) -> Rows:
    return [row for row in rows if row["preset"] == preset]


def _size(row: dict[str, Any]) -> int:
    size: int = row["result"]["recurrence_parameters"]
    return size


def _model(row: dict[str, Any]) -> list[str]:
    return [PIXELS[row["config"]["order"]], row["preset"].partition("/")[2], str(row["config"]["hidden"])]


def _line(recipe: str, rows: Rows) -> list[str]:
    results = [row["result"] for row in rows]
    epoch = results[0]["iterations_per_epoch"]
    return [
        *_model(rows[0]),
        f"`{recipe}`",
        str(results[0]["parameters"]),
        _percent([r["validation_accuracy"] for r in results]),
        _percent([r["test_accuracy"] for r in results]),
        "; ".join(_epochs(r, epoch) for r in results),
        f"{epoch * statistics.median(r['seconds_per_iteration'] for r in results):.3g}",
    ]


def _epochs(result: dict[str, Any], epoch: int) -> str:
    """How many there were, what ended them, and which was best."""
    ended = "patience" if result["stopped"] == "patience" else "all"
    best = f", best {result['best_at'] / epoch:g}" if result["best_at"] else ""
    return f"{result['iterations'] / epoch:g} ({ended}{best})"


def _percent(shares: list[float]) -> str:
    mean = f"{100 * statistics.mean(shares):.2f}"
    if len(shares) == 1:
        return mean
    return f"{mean} ({100 * min(shares):.2f} to {100 * max(shares):.2f}, {len(shares)} seeds)"


def _listed(numbers: set[int]) -> str:
    return " or ".join(f"{n}" for n in sorted(numbers))
