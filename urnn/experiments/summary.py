"""What a run prints when it is over."""

import time
from dataclasses import replace
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from urnn.experiments import models, optimizers
from urnn.experiments.config import Config
from urnn.experiments.folder import RunFolder
from urnn.experiments.train import training_step

TIMED = 5
"""Iterations of the LSTM that are timed."""
WARM_UP = 3
"""Iterations before them; on a GPU the third is captured as a graph."""


def summarize(folder: RunFolder, result: dict[str, Any], console: Console) -> None:
    """The figures of a run as a table; beside those of a unitary RNN, what an LSTM of its size takes per iteration."""
    config = folder.config()
    if "normalized_mse" in result:
        table = _table("cell", "best", "median", "worst", title="Normalized MSE, test data")
        for cell, rules in result["normalized_mse"].items():
            spread = rules["best validation"]
            table.add_row(cell, *(f"{spread[name]:.1e}" for name in ("best", "median", "worst")))
        console.print(table)
    elif "eval_mse" in result:
        table = _table("model", "params", "iters", "valid.", "eval.", "ms/iteration", title="Squared error, dB^2")
        each = f"{1000 * result['seconds_per_iteration']:.1f}"
        figures = (f"{result['valid_mse']:.2f}", f"{result['eval_mse']:.2f}", each)
        table.add_row(
            f"{config.model}, N = {config.hidden}", str(result["parameters"]), str(result["iterations"]), *figures
        )
        for name, found in result["baselines"].items():
            table.add_row(name, "-", "-", f"{found['valid_mse']:.2f}", f"{found['eval_mse']:.2f}", "-")
        console.print(table)
        for line in (*result["notes"], *(f"left out: {bad}" for bad in result["skipped"])):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    elif "test_accuracy" in result:
        table = _table("model", "params", "epochs", "validation", "test", "ms/iteration")
        table.add_row(
            f"{config.model}, N = {config.hidden}",
            str(result["parameters"]),
            f"{result['iterations'] / result['iterations_per_epoch']:.3g}",
            f"{result['validation_accuracy']:.2%}",
            f"{result['test_accuracy']:.2%}",
            f"{1000 * result['seconds_per_iteration']:.1f}",
        )
        console.print(table)
    else:
        table = _table("model", "params", "iters", "solved at", "loss/baseline", "recall", "ms/iteration")
        table.add_row(
            f"{config.model}, N = {config.hidden}",
            str(result["parameters"]),
            str(result["iterations"]),
            str(result["solved_at"] or "-"),
            f"{result['test_loss_over_baseline']:.1%}",
            f"{result['test_recall']:.1%}",
            f"{1000 * result['seconds_per_iteration']:.1f}",
        )
        if config.model not in models.PEERS:
            peer = _lstm(config, result["parameters"])
            parameters, seconds = time_iterations(peer)
            table.add_row(f"lstm, N = {peer.hidden}", str(parameters), f"{TIMED}", *"---", f"{1000 * seconds:.1f}")
        console.print(table)
    console.print(f"Run: {folder.path}", highlight=False, soft_wrap=True)


def _lstm(config: Config, parameters: int) -> Config:
    """The same run with an LSTM of about so many parameters."""
    peer = replace(config, model="lstm", parameters=parameters, num_layers=1)
    return models.sized(peer, *peer.problem.widths())


def time_iterations(config: Config) -> tuple[int, float]:
    """Parameters, and median seconds of a training iteration after some to warm up."""
    problem = config.problem.start(config)
    model = problem.model().to(config.device)
    step = training_step(config, problem, model, optimizers.build(config, model))
    seconds = []
    for iteration in range(WARM_UP + TIMED):
        start = time.perf_counter()
        float(step(*problem.batch(iteration)))
        seconds.append(time.perf_counter() - start)
    return models.count_parameters(model), float(torch.tensor(seconds[WARM_UP:]).median())


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name in ("model", "cell") else "right", no_wrap=True)
    return table
