"""The training loop.

Note [Reading losses]
Losses stay on the device until a chunk of ``log_every`` iterations is over, so that the host runs ahead of the device.

Note [Resuming]
A checkpoint holds the model, the optimizer, the best weights, the random number generators and what the loop remembers.
Batches and rates are functions of the iteration. A run that was killed and resumed so goes through the same numbers
as one that was not: on a CPU with the same number of threads to the last bit.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console
from torch import Tensor, nn

from urnn import check_unitary, graphed_step
from urnn._module import unitary_tensors
from urnn.experiments import checkpoint, models, optimizers
from urnn.experiments.config import Config
from urnn.experiments.folder import RunFolder
from urnn.experiments.health import Health, values_fault
from urnn.experiments.progress import Reporter
from urnn.experiments.signals import noted
from urnn.experiments.tasks import Problem
from urnn.linalg import unitarity_defect

SOLVED = 0.1
"""Solved: the mean loss of ``WINDOW`` iterations is under this share of the baseline."""
WINDOW = 20


@dataclass
class Progressed:
    """What the loop remembers beside model and optimizer."""

    iteration: int = 0
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)
    solved_at: int | None = None
    worst_after_solved: float = 0.0
    best: list[float] = field(default_factory=list)
    best_at: int | None = None
    without_better: int = 0
    stopped: str | None = None


def prepare(config: Config) -> Config:
    """``config`` with all that is left open decided: the number of threads, and ``hidden`` where it is to match."""
    _check_device(config.device)
    threads = config.threads or torch.get_num_threads()
    config = config.problem.settled(config)
    if config.parameters:
        config = models.sized(config, *config.problem.widths())
    return replace(config, threads=threads)


def training_step(
    config: Config, problem: Problem, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[..., Tensor]:
    """One training step as a function of the batch; on a GPU one CUDA graph for each kind of batch."""
    waits = config.unitary_step == "exponential" or "exponential" in config.model.split(",")  # for the device
    return cast(
        Callable[..., Tensor],
        graphed_step(model, optimizer, problem.loss, max_graphs=problem.kinds, capture=config.graphs and not waits),
    )


def _check_device(name: str) -> None:
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = "unknown"
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device: expected cpu or cuda, got {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device: expected one that is there, got {name!r}, and this PyTorch sees no CUDA device")


def train(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Run, or go on with, what the folder holds; returns its result.

    Raises:
        SystemExit: SIGTERM or SIGINT came; a checkpoint was written.
        FloatingPointError: a loss, gradient or parameter is not finite.
        OSError: the folder cannot be written, or another process works in it.
    """
    if (done := folder.result()) is not None:
        return done
    with folder.locked():
        try:
            return _train(folder, console)
        finally:
            folder.end_log()


def _train(folder: RunFolder, console: Console) -> dict[str, Any]:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    config = folder.config()
    torch.set_num_threads(config.threads or torch.get_num_threads())
    if config.device.startswith("cuda"):
        torch.backends.cuda.matmul.fp32_precision = "tf32" if config.tf32 else "ieee"
    torch.manual_seed(config.seed)
    problem = config.problem.start(config)
    model = problem.model().to(config.device)
    optimizer = optimizers.build(config, model)
    now, best = Progressed(), dict[str, Tensor]()
    if (loaded := folder.load(say)) is not None:
        now, best = restore(loaded, model, optimizer, folder)
    step, health, saved = training_step(config, problem, model, optimizer), Health(model), now.iteration
    folder.start_log(now.iteration, config.tensorboard)

    with (
        noted() as signals,
        Reporter(console, folder.path.name, now.iteration, config.max_iterations, problem.baseline) as reporter,
    ):
        while now.iteration < config.max_iterations and now.stopped is None:
            started = time.perf_counter()
            losses = []
            chunk = min(config.log_every, config.max_iterations - now.iteration)
            for iteration in range(now.iteration, now.iteration + chunk):
                optimizers.set_rates(optimizer, optimizers.factor(config, iteration))
                losses.append(step(*problem.batch(iteration)))
                health.look()
            values: list[float] = torch.stack(losses).tolist()  # here the host waits, and nowhere else
            if (fault := health.fault(values)) is not None:
                raise _not_finite(now.iteration + 1 + fault[0], fault[1], folder)
            now.iteration += chunk
            now.seconds += time.perf_counter() - started

            _watch(now, values, config, problem.baseline)
            mean = sum(values) / len(values)
            row = {"iteration": now.iteration, "loss": mean, "seconds": round(now.seconds, 3)}
            if now.iteration % config.checkpoint_every == 0 and (defects := _defects(model)):
                row["unitarity_defect"] = max(defects)
            folder.log(row)
            reporter.update(now.iteration, mean)
            if config.eval_every and (now.iteration % config.eval_every == 0):
                found = _evaluate(problem, model, now, best, config)
                folder.log({"iteration": now.iteration, **found})
            over = now.iteration == config.max_iterations or bool(now.stopped)
            if now.iteration % config.checkpoint_every == 0 or over or (signals.signal and saved < now.iteration):
                if (bad := values_fault(model)) is not None:
                    raise _not_finite(now.iteration, bad, folder)
                folder.save(now.iteration, *state(model, optimizer, best, now), config.keep_checkpoints)
                saved = now.iteration
            if signals.signal:
                say(f"{signals.signal.name} at iteration {now.iteration}: saved; `{resume(folder)}` goes on.")
                raise SystemExit(signals.status)

    result = _result(problem, model, now, best, folder)
    folder.finish(result)
    return result


def resume(folder: RunFolder) -> str:
    """The command that goes on with a run."""
    return f"urnn train --resume {folder.path}"


def _not_finite(iteration: int, expected: str, folder: RunFolder) -> FloatingPointError:
    last = folder.last_checkpoint()
    return FloatingPointError(
        f"iteration {iteration}: expected {expected}. The last good checkpoint is {last or 'not there yet'}; "
        f"a lower lr or unitary_lr is the usual cure: `{resume(folder)} --set lr=VALUE --allow lr`."
    )


def _watch(now: Progressed, values: list[float], config: Config, baseline: float | None) -> None:
    """Whether the problem is solved, and whether that is enough."""
    first = now.iteration - len(values)
    for place, value in enumerate(values, start=1):
        now.recent = [*now.recent[-(WINDOW - 1) :], value]
        if baseline is None or len(now.recent) < WINDOW:
            continue
        mean = sum(now.recent) / WINDOW
        if now.solved_at is None and mean < SOLVED * baseline:
            now.solved_at = first + place
        if now.solved_at is not None:
            now.worst_after_solved = max(now.worst_after_solved, mean / baseline)
    if config.stop_after_solved and now.solved_at and now.iteration >= now.solved_at + config.stop_after_solved:
        now.stopped = "solved"


@torch.no_grad()
def _defects(model: nn.Module) -> list[float]:
    """max|W^H W - I| of each unitary tensor."""
    return [float(unitarity_defect(W).max()) for _, W in unitary_tensors(model)]


@torch.no_grad()
def _evaluate(
    problem: Problem, model: nn.Module, now: Progressed, best: dict[str, Tensor], config: Config
) -> dict[str, list[float]]:
    """Measure on validation data, keep what is better than before, and stop where nothing has been for long."""
    model.eval()
    found = problem.evaluate(model)
    model.train()
    figures = found.get("validation")
    if figures is None:
        return found
    before = now.best or [float("inf")] * len(figures)
    better = [new < old for new, old in zip(figures, before, strict=True)]
    if any(better) or not best:
        problem.keep(best, model, better if best else [True] * len(better))
        now.best = [min(new, old) for new, old in zip(figures, before, strict=True)]
        now.best_at, now.without_better = now.iteration, 0
    else:
        now.without_better += 1
    if config.patience and now.without_better >= config.patience:
        now.stopped = "patience"
    return found


@torch.no_grad()
def _result(
    problem: Problem, model: nn.Module, now: Progressed, best: dict[str, Tensor], folder: RunFolder
) -> dict[str, Any]:
    """Final figures, with the best weights where there are any."""
    evaluations = [row for row in folder.metrics() if "loss" not in row]
    if best:
        model.load_state_dict(best)
    model.eval()
    is_unitary = any(True for _ in unitary_tensors(model))
    return {
        **problem.test(model, evaluations),
        "parameters": models.count_parameters(model),
        "iterations": now.iteration,
        "stopped": now.stopped,
        "solved_at": now.solved_at,
        "worst_loss_over_baseline_after_solved": now.worst_after_solved if now.solved_at else None,
        "best_at": now.best_at,
        "unitarity_defect": check_unitary(model) if is_unitary else None,
        "seconds": round(now.seconds, 3),
        "seconds_per_iteration": now.seconds / max(now.iteration, 1),
    }


def state(
    model: nn.Module, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], now: Progressed
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All that a checkpoint holds, as tensors and JSON."""
    tensors: dict[str, Tensor] = {"random/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    trees = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict(), "best": best}
    meta = {name: checkpoint.flatten(name, tree, tensors) for name, tree in trees.items()}
    return tensors, {**meta, "progress": asdict(now)}


def restore(
    loaded: tuple[dict[str, Tensor], dict[str, Any]],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    folder: RunFolder,
) -> tuple[Progressed, dict[str, Tensor]]:
    """Put a checkpoint back into model, optimizer and generators; returns the rest of it.

    The options of the optimizer are those of the settings, which may have changed since.
    """
    tensors, meta = loaded
    options = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    try:
        model.load_state_dict(checkpoint.unflatten(meta["model"], tensors))
        optimizer.load_state_dict(checkpoint.unflatten(meta["optimizer"], tensors))
        device = next(model.parameters()).device
        best = {name: tensor.to(device) for name, tensor in checkpoint.unflatten(meta["best"], tensors).items()}
        torch.set_rng_state(tensors["random/cpu"])
        now = Progressed(**meta["progress"])
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{folder.last_checkpoint()}: expected a checkpoint of this run, got {error!r}") from error
    for group, own in zip(optimizer.param_groups, options, strict=True):
        group.update(own)
    if torch.cuda.is_available() and "random/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random/cuda"])
    return now, best


def run(config: Config, out: Path, console: Console) -> dict[str, Any]:
    """Train in a new folder, or go on in the one that holds this run."""
    return train(RunFolder.create(out, prepare(config)), console)
