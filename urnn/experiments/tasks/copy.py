"""The copy problem (section 5.1.2): recall ten symbols after T steps of blanks."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from urnn._checks import check_int

BLANK, DELIMITER = 8, 9


@dataclass(frozen=True)
class Copy:
    """Ten symbols out of eight, T - 1 blanks, a delimiter, ten blanks; the answer is T + 10 blanks and the symbols.

    >>> Copy(time_steps=100).length
    120
    """

    time_steps: int
    """T, the steps between the last symbol and the first answer."""
    symbols: int = 10
    """How many symbols to recall."""

    inputs = 10
    """Categories of the input: eight symbols, the blank, the delimiter."""
    outputs = 9
    """Categories of the output: eight symbols, the blank."""

    def __post_init__(self) -> None:
        check_int("time_steps", self.time_steps, 1)
        check_int("symbols", self.symbols, 1)

    @property
    def length(self) -> int:
        """Steps of a sequence, T + 20 for ten symbols."""
        return self.time_steps + 2 * self.symbols

    @property
    def baseline(self) -> float:
        """Mean cross-entropy of the best answer without memory: blanks, then a guess. 10 ln 8 / (T + 20)."""
        return self.symbols * math.log(BLANK) / self.length

    def batch(self, rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Inputs (T + 20, rows, 10), one-hot, and answers (T + 20, rows)."""
        symbols = torch.randint(0, BLANK, (self.symbols, rows), generator=generator)
        x = torch.full((self.length, rows), BLANK)
        x[: self.symbols] = symbols
        x[self.time_steps + self.symbols - 1] = DELIMITER
        y = torch.full((self.length, rows), BLANK)
        y[-self.symbols :] = symbols
        return torch.nn.functional.one_hot(x, self.inputs).to(torch.get_default_dtype()), y

    def recall(self, logits: Tensor, y: Tensor) -> float:
        """Share of the symbols recalled."""
        hits = logits[-self.symbols :].argmax(-1) == y[-self.symbols :]
        return float(hits.float().mean())
