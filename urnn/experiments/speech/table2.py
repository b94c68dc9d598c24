"""Table 2 as text, from the rows of ``results/*.json``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from urnn.experiments.markdown import table
from urnn.experiments.speech.metrics import interval

Rows = list[dict[str, Any]]
PAPER: dict[str, tuple[float, float, float, float, float]] = {
    "lstm-84": (18.02, 18.32, 1.95, 0.77, 1.99),
    "restricted-128": (15.03, 15.78, 3.30, 0.83, 2.36),
    "restricted-158": (15.06, 14.87, 3.32, 0.83, 2.33),
    "full-128": (14.78, 15.24, 3.57, 0.84, 2.40),
    "lstm-120": (16.59, 16.98, 2.32, 0.79, 2.14),
    "restricted-192": (15.20, 15.17, 3.31, 0.83, 2.35),
    "restricted-256": (15.27, 15.63, 3.31, 0.83, 2.36),
    "full-192": (14.56, 14.66, 3.76, 0.84, 2.42),
    "lstm-158": (15.49, 15.80, 2.92, 0.81, 2.24),
    "restricted-378": (15.78, 16.14, 3.16, 0.83, 2.35),
    "full-256": (14.41, 14.45, 3.75, 0.84, 2.38),
}
"""Table 2 as the paper prints it, on TIMIT: validation and evaluation MSE, SegSNR, STOI, PESQ."""
CLASSES = {
    "full-128": ("restricted-158", "lstm-84"),
    "full-192": ("restricted-256", "lstm-120"),
    "full-256": ("restricted-378", "lstm-158"),
}
"""Models of about as many parameters as each of the full-capacity ones."""
MEASURES = ("segsnr", "stoi", "pesq_raw", "pesq")
TEXT = (
    "Squared error in dB^2 of the log-magnitudes, the mean over all frames and bins that exist; in the column "
    "*released code* by that code's definition, which divides by padding too and hangs on the longest utterance of the "
    "set. Of several trials the one with the lowest validation error is shown. SegSNR, STOI and PESQ (raw P.862, and "
    "MOS-LQO) are of the evaluation utterances with predicted magnitudes and their own phases. In brackets 95 % "
    "bootstrap intervals over utterances. The paper's figures are of TIMIT, and by the released code's definition."
)


def chosen(rows: Rows) -> dict[str, dict[str, Any]]:
    """Of each preset the trial with the lowest validation error, by the part of its name after the stroke."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row["preset"].partition("/")[2]
        if name not in best or row["result"]["valid_mse"] < best[name]["result"]["valid_mse"]:
            best[name] = row
    return best


def section(grid: str, runs: Mapping[str, Rows]) -> list[str]:
    """The table of every recipe, and what its figures say."""
    parts = [TEXT]
    for recipe, rows in runs.items():
        best = chosen(rows)
        trials = {name: sum(row["preset"].endswith(f"/{name}") for row in rows) for name in best}
        lines = [_baseline(name, found) for name, found in next(iter(best.values()))["result"]["baselines"].items()]
        order = (*PAPER, *(name for name in best if name not in PAPER))
        lines += [_line(name, best[name], trials[name]) for name in order if name in best]
        header = [
            *(f"`{recipe}`", "parameters", "trials", "validation", "evaluation", "released code", "SegSNR", "STOI"),
            *("PESQ", "MOS-LQO", "s per epoch", "the paper: valid., eval., SegSNR, STOI, PESQ"),
        ]
        parts += [table(header, lines), *judgement(best), f"![Loss over epochs](images/{grid}-{recipe}.png)"]
    return parts


def judgement(best: Mapping[str, dict[str, Any]]) -> list[str]:
    """Full against restricted and LSTM in each size class, and all against the baselines, on evaluation data."""
    said = []
    for full, others in CLASSES.items():
        for other in others:
            if full in best and other in best:
                low, high = _difference(best[full], best[other])
                verdict = "better" if high < 0 else "worse" if low > 0 else "not told apart"
                said.append(f"{full} against {other}: {low:+.2f} to {high:+.2f} dB^2 ({verdict})")
    beaten = _not_beaten(best)
    against = (
        "Every model beats both baselines on validation and evaluation data."
        if not beaten
        else f"Not better than both baselines on validation and evaluation data: {', '.join(beaten)}."
    )
    if not said:
        return [against]
    return [
        "Difference in the mean squared error of an evaluation utterance, paired, 95 % bootstrap interval: "
        + "; ".join(said)
        + ".",
        against,
    ]


def _difference(first: dict[str, Any], second: dict[str, Any]) -> tuple[float, float]:
    a, b = (np.asarray(row["result"]["eval_mse_of_utterances"]) for row in (first, second))
    return interval((a - b).tolist())


def _not_beaten(best: Mapping[str, dict[str, Any]]) -> list[str]:
    return [
        name
        for name, row in best.items()
        if any(
            row["result"][figure] >= found[figure]
            for found in row["result"]["baselines"].values()
            for figure in ("valid_mse", "eval_mse")
        )
    ]


def _line(name: str, row: dict[str, Any], trials: int) -> list[str]:
    result = row["result"]
    low, high = result["eval_mse_interval"]
    seconds = result["seconds_per_iteration"] * result["iterations_per_epoch"]
    paper = ", ".join(f"{figure:.2f}" for figure in PAPER[name]) if name in PAPER else "-"
    return [
        name,
        str(result["parameters"]),
        str(trials),
        f"{result['valid_mse']:.2f}",
        f"{result['eval_mse']:.2f} ({low:.2f} to {high:.2f})",
        f"{result['eval_mse_released_code']:.2f}",
        *_scores(result.get("scores")),
        f"{seconds:.2g}",
        paper,
    ]


def _baseline(name: str, found: dict[str, Any]) -> list[str]:
    figures = [f"{found['valid_mse']:.2f}", f"{found['eval_mse']:.2f}", "-"]
    return [name, "-", "-", *figures, *_scores(found.get("scores")), "-", "-"]


def _scores(scores: dict[str, Any] | None) -> list[str]:
    if scores is None:
        return ["-"] * len(MEASURES)
    shown = []
    for name in MEASURES:
        mean = scores["means"][name]
        without = len(scores["left_out"].get(name, ()))
        note = f", {without} left out" if without else ""
        figures = f"{mean['mean']:.2f} ({mean['low']:.2f} to {mean['high']:.2f}{note})"
        shown.append(figures if mean["utterances"] else f"-{note}")
    return shown
