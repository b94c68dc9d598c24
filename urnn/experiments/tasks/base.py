"""The contract of a task.

A ``Task`` is a frozen dataclass with the settings that only this task has. ``start`` binds it to the settings of a run
and gives a ``Problem``: data on the device, the model, the loss, the measures. To add a task: one file with the two
classes, one line in ``TASKS``; the training loop knows nothing else.

Note [Batches are functions of the iteration]
``batch(i)`` depends on the seed and on i alone: a resumed run needs no position in the data and no generator's state.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from urnn.experiments.settings import check_kinds

if TYPE_CHECKING:
    from urnn.experiments.config import Config


@dataclass(frozen=True)
class Task:
    """Base of the settings of a task."""

    families_alone: ClassVar[bool] = False
    """Whether ``model`` names families of unitary matrices, one or several separated by commas, and nothing else."""

    def __post_init__(self) -> None:
        check_kinds(type(self), self.__dict__)

    def widths(self) -> tuple[int, int]:
        """Inputs and outputs of the model at each step."""
        raise ValueError(f"parameters: expected 0 for {type(self).__name__}, whose model has no other size than hidden")

    def settled(self, config: "Config") -> "Config":
        """``config`` with what this task leaves open decided; what is wrong with its data is best said here."""
        return config

    def start(self, config: "Config") -> "Problem":
        """The task with the settings of a run."""
        raise NotImplementedError


class Problem:
    """Base of a task in a run."""

    baseline: float | None = None
    """Loss of a model without memory; with one, a run is solved once its loss is far below it."""

    kinds: int = 1
    """How many shapes batches may have; on a GPU each has a graph of its own."""

    def __init__(self, config: "Config") -> None:
        self.config = config
        self._epoch = -1
        self.device = torch.device(config.device)
        self.dtype = {"float32": torch.float32, "float64": torch.float64}[config.dtype]

    def model(self) -> nn.Module:
        """A new model, on the CPU."""
        raise NotImplementedError

    def batch(self, iteration: int) -> tuple[Tensor, ...]:
        """What the loss of this iteration needs, on the device."""
        raise NotImplementedError

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The scalar that is differentiated."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module) -> dict[str, list[float]]:
        """Losses that choose the weights under ``validation``, one for each member of an ensemble; and what else."""
        return {}

    def test(self, model: nn.Module, evaluations: list[dict[str, Any]]) -> dict[str, Any]:
        """The figures of the run: ``model`` has its best weights, ``evaluations`` are all results of ``evaluate``."""
        raise NotImplementedError

    def keep(self, best: dict[str, Tensor], model: nn.Module, better: list[bool]) -> None:
        """Copy the weights of those members that are ``better`` to ``best``."""
        if better[0]:
            best.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})

    def rows_of_epoch(self, iteration: int, sequences: int) -> Tensor:
        """Which of the sequences of a fixed set this iteration takes: each once in an epoch, in a new order."""
        rows = min(self.config.batch_size, sequences)
        epoch, place = divmod(iteration, sequences // rows)
        if epoch != self._epoch:
            source = self.generator("epoch", epoch)
            self._epoch, self._order = epoch, torch.randperm(sequences, generator=source, device=self.device)
        return self._order[place * rows : (place + 1) * rows]

    def generator(self, *purpose: object) -> Generator:
        """Random numbers for one purpose, on the device; unrelated to those for any other."""
        return generator(self.config.seed, *purpose, device=self.device)


def generator(seed: int, *purpose: object, device: torch.device | str = "cpu") -> Generator:
    """A generator seeded from all of its arguments."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
