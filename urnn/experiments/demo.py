"""The three-minute demonstration: a unitary RNN and an LSTM of equal size on the copy problem, side by side."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Generator, nn

from urnn import check_unitary, optim
from urnn.experiments.models import LSTM, Unitary, count_parameters, matching_size
from urnn.experiments.tasks import Copy
from urnn.experiments.train import SOLVED, WINDOW


@dataclass
class Contestant:
    """One model in training, and what is known of it."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    solved_at: int | None = None

    def recent(self) -> float:
        """Mean loss of the last iterations."""
        last = self.losses[-WINDOW:]
        return sum(last) / len(last)

    def train(self, task: Copy, rows: int, generator: Generator) -> None:
        """One iteration."""
        start = time.perf_counter()
        x, y = task.batch(rows, generator)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        loss.backward()
        if isinstance(self.model, LSTM):
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.item())
        self.seconds += time.perf_counter() - start
        if self.solved_at is None and len(self.losses) >= WINDOW and self.recent() < SOLVED * task.baseline:
            self.solved_at = len(self.losses)

    @torch.no_grad()
    def evaluate(self, task: Copy, rows: int, generator: Generator) -> tuple[float, float]:
        """Loss over the baseline and recall accuracy on fresh sequences."""
        x, y = task.batch(rows, generator)
        logits = self.model(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        return float(loss) / task.baseline, task.recall(logits, y)


@dataclass(frozen=True)
class Outcome:
    """A row of the table."""

    model: str
    hidden: int
    parameters: int
    iterations: int
    solved_at: int | None
    loss_over_baseline: float
    recall: float
    unitarity_defect: float | None
    seconds_per_iteration: float


def run_demo(
    time_steps: int, hidden: int, iterations: int, rows: int, seed: int, out: Path, console: Console
) -> list[Outcome]:
    """Train both, draw their curves, print the table, and leave ``result.json`` and ``copy.png`` in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # one step is too small to share; threads would only wait for each other
    task = Copy(time_steps)
    torch.manual_seed(seed)
    unitary = Unitary(task.inputs, hidden, task.outputs)
    size = matching_size(lambda n: LSTM(task.inputs, n, task.outputs), count_parameters(unitary))
    lstm = LSTM(task.inputs, size, task.outputs)
    contestants = [
        _contestant(
            f"uRNN, N = {hidden}",
            unitary,
            optim.RMSprop(unitary.parameters(), lr=1e-3, alpha=0.9, unitary_betas=(0.9, 0.99)),
            iterations,
        ),
        _contestant(f"LSTM, N = {size}", lstm, torch.optim.RMSprop(lstm.parameters(), lr=1e-2, alpha=0.9), iterations),
    ]
    console.print(
        f"Copy problem: recall {task.symbols} symbols after T = {time_steps} steps. "
        f"Without memory the loss stays at the baseline, {task.baseline:.4f}."
    )
    _race(task, contestants, iterations, rows, seed, console)
    test = [c.evaluate(task, 200, Generator().manual_seed(seed + 1)) for c in contestants]
    outcomes = [
        Outcome(
            model=c.name,
            hidden=n,
            parameters=count_parameters(c.model),
            iterations=len(c.losses),
            solved_at=c.solved_at,
            loss_over_baseline=ratio,
            recall=recall,
            unitarity_defect=check_unitary(c.model) if isinstance(c.model, Unitary) else None,
            seconds_per_iteration=c.seconds / max(len(c.losses), 1),
        )
        for c, n, (ratio, recall) in zip(contestants, (hidden, size), test, strict=True)
    ]
    console.print(_table(outcomes))
    _write(out, task, seed, contestants, outcomes)
    _draw(out / "copy.png", task, contestants)
    console.print(f"Curves: {out / 'copy.png'}    Figures: {out / 'result.json'}")
    return outcomes


def _contestant(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, iterations: int) -> Contestant:
    return Contestant(name, model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations))


def _race(task: Copy, contestants: list[Contestant], iterations: int, rows: int, seed: int, console: Console) -> None:
    """Train all in turn, one iteration each, on the same sequences."""
    generators = [Generator().manual_seed(seed) for _ in contestants]
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("starting", total=iterations)
        for _ in range(iterations):
            for contestant, generator in zip(contestants, generators, strict=True):
                contestant.train(task, rows, generator)
            state = "   ".join(f"{c.name.split(',')[0]} {c.recent() / task.baseline:6.1%}" for c in contestants)
            progress.update(bar, advance=1, description=f"loss/baseline: {state}")


def _table(outcomes: list[Outcome]) -> Table:
    columns: dict[str, Callable[[Outcome], str]] = {
        "model": lambda o: o.model,
        "params": lambda o: str(o.parameters),
        "iters": lambda o: str(o.iterations),
        "solved at": lambda o: str(o.solved_at or "-"),
        "loss/baseline": lambda o: f"{o.loss_over_baseline:.1%}",
        "recall": lambda o: f"{o.recall:.1%}",
        "max|WᴴW-I|": lambda o: "-" if o.unitarity_defect is None else f"{o.unitarity_defect:.0e}",
    }
    table = Table(title="On fresh test sequences", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(*(cell(outcome) for cell in columns.values()))
    return table


def _write(out: Path, task: Copy, seed: int, contestants: list[Contestant], outcomes: list[Outcome]) -> None:
    result = {
        "task": {"name": "copy", "time_steps": task.time_steps, "baseline": task.baseline},
        "seed": seed,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "outcomes": [asdict(o) for o in outcomes],
        "losses": {c.name: [float(f"{loss:.4g}") for loss in c.losses] for c in contestants},
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def _draw(path: Path, task: Copy, contestants: list[Contestant]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for contestant, color, style in zip(contestants, ("#0b6e99", "#c2571a"), ("-", "--"), strict=True):
        iterations = range(1, len(contestant.losses) + 1)
        axes.plot(iterations, contestant.losses, style, color=color, linewidth=1.6, label=contestant.name)
    axes.axhline(task.baseline, color="0.35", linewidth=1, linestyle=":", label="baseline: no memory")
    axes.set(
        xlabel="training iteration",
        ylabel="mean cross-entropy",
        yscale="log",
        title=f"Copy problem, T = {task.time_steps}: ten symbols recalled after {task.time_steps} steps",
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": "urnn"})
