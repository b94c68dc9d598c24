"""The copy problem (section 5.1.2): recall symbols after T steps of blanks."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from urnn._checks import check_choice, check_int
from urnn.experiments import models
from urnn.experiments.settings import setting
from urnn.experiments.tasks.base import Problem, Task

if TYPE_CHECKING:
    from urnn.experiments.config import Config

DATA = ("online", "fixed")
LONGEST = 10_000_000
"""Beyond it not even the one-hot inputs of a batch fit into any memory."""


@dataclass(frozen=True)
class Copy(Task):
    """Ten symbols out of eight, T - 1 blanks, a delimiter, ten blanks; the answer is T + 10 blanks and the symbols.

    >>> Copy(time_steps=100).length
    120
    """

    time_steps: int = setting(500, "T, the steps between the last symbol and the first answer")
    symbols: int = setting(10, "how many symbols to recall")
    alphabet: int = setting(8, "how many different symbols there are")
    data: str = setting("online", "online: new sequences in each iteration; fixed: epochs over train_sequences")
    train_sequences: int = setting(100_000, "sequences of the fixed set")
    test_sequences: int = setting(1000, "fresh sequences of the final test")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("time_steps", self.time_steps, 1, LONGEST)
        check_int("symbols", self.symbols, 1)
        check_int("alphabet", self.alphabet, 2)
        check_choice("data", self.data, DATA)
        check_int("train_sequences", self.train_sequences, 1)
        check_int("test_sequences", self.test_sequences, 1)

    @property
    def inputs(self) -> int:
        """Categories of the input: the symbols, the blank, the delimiter."""
        return self.alphabet + 2

    @property
    def outputs(self) -> int:
        """Categories of the output: the symbols, the blank."""
        return self.alphabet + 1

    @property
    def length(self) -> int:
        """Steps of a sequence, T + 20 for ten symbols."""
        return self.time_steps + 2 * self.symbols

    @property
    def baseline(self) -> float:
        """Mean cross-entropy of the best answer without memory: blanks, then a guess. 10 ln 8 / (T + 20)."""
        return self.symbols * math.log(self.alphabet) / self.length

    def draw(self, rows: int, generator: Generator) -> Tensor:
        """Symbols to recall, (symbols, rows)."""
        return torch.randint(0, self.alphabet, (self.symbols, rows), generator=generator, device=generator.device)

    def encode(self, symbols: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (T + 20, rows, 10), one-hot, and answers (T + 20, rows)."""
        blank, delimiter = self.alphabet, self.alphabet + 1
        x = symbols.new_full((self.length, symbols.shape[1]), blank)
        x[: self.symbols] = symbols
        x[self.time_steps + self.symbols - 1] = delimiter
        y = symbols.new_full((self.length, symbols.shape[1]), blank)
        y[-self.symbols :] = symbols
        hot = torch.nn.functional.one_hot(x, self.inputs)
        return hot.to(torch.get_default_dtype() if dtype is None else dtype), y

    def batch(self, rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """New sequences: inputs and answers."""
        return self.encode(self.draw(rows, generator))

    def recall(self, logits: Tensor, y: Tensor) -> float:
        """Share of the symbols recalled."""
        hits = logits[-self.symbols :].argmax(-1) == y[-self.symbols :]
        return float(hits.float().mean())

    def widths(self) -> tuple[int, int]:
        return self.inputs, self.outputs

    def start(self, config: "Config") -> "CopyProblem":
        return CopyProblem(self, config)


class CopyProblem(Problem):
    """The copy problem in a run."""

    def __init__(self, task: Copy, config: "Config") -> None:
        super().__init__(config)
        self.task = task
        self.baseline = task.baseline
        self.set = None if task.data == "online" else task.draw(task.train_sequences, self.generator("train"))

    def model(self) -> nn.Module:
        return models.build(self.config, self.task.inputs, self.task.outputs)

    def batch(self, iteration: int) -> tuple[Tensor, ...]:
        rows = self.config.batch_size
        if self.set is None:
            symbols = self.task.draw(rows, self.generator("batch", iteration))
        else:
            symbols = self.set[:, self.rows_of_epoch(iteration, self.task.train_sequences)]
        return self.task.encode(symbols, self.dtype)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def test(self, model: nn.Module, evaluations: list[dict[str, Any]]) -> dict[str, Any]:
        """Loss and recall on fresh sequences."""
        symbols = self.task.draw(self.task.test_sequences, self.generator("test"))
        loss = recall = 0.0
        for part in symbols.split(self.config.batch_size, 1):
            x, y = self.task.encode(part, self.dtype)
            logits = model(x)
            share = part.shape[1] / symbols.shape[1]
            loss += share * float(nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()))
            recall += share * self.task.recall(logits, y)
        return {"test_loss": loss, "test_loss_over_baseline": loss / self.task.baseline, "test_recall": recall}
