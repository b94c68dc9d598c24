"""What an optimizer of ``urnn.optim`` or ``torch.optim`` needs so that its step can be captured in a CUDA graph."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from urnn._module import is_unitary
from urnn.optim.base import UnitaryOptimizer


def make_capturable(optimizer: Optimizer) -> None:
    """Switch ``capturable`` on, and move the counts of steps to where it wants them, beside the parameters."""
    for group in optimizer.param_groups:
        if group.get("unitary_step", "cayley") != "cayley" and any(is_unitary(p) for p in group["params"]):
            raise ValueError(
                "unitary_step: expected 'cayley' in a CUDA graph, as torch's matrix_exp waits for the device, "
                f"got {group['unitary_step']!r}. capture=False takes plain steps."
            )
        if "capturable" in group:
            group["capturable"] = True
            for p in group["params"]:
                state = optimizer.state.get(p, {})
                if isinstance(state.get("step"), Tensor):
                    state["step"] = state["step"].to(p.device)
        elif not isinstance(optimizer, SGD):
            raise ValueError(
                "optimizer: expected SGD or one with the option capturable, without which no CUDA graph can hold it, "
                f"got {type(optimizer).__name__}. capture=False takes plain steps."
            )


class Rates:
    """Learning rates as tensors on a device, for graphs, while the groups keep the numbers that schedulers change."""

    def __init__(self, optimizer: Optimizer, device: torch.device) -> None:
        self._optimizer, self._device = optimizer, device
        self._tensors: dict[int, Tensor] = {}
        self._numbers: dict[int, float] = {}

    def handed_over(self, group: dict[str, Any]) -> bool:
        """Whether a graph gets the rate of ``group`` this way: no tensor on the device, nor of an SGD that reads it."""
        on_device = isinstance(group["lr"], Tensor) and group["lr"].device == self._device
        return not on_device and ("capturable" in group or isinstance(self._optimizer, UnitaryOptimizer))

    @contextmanager
    def as_tensors(self) -> Iterator[None]:
        """Inside, the groups have tensors for rates."""
        groups = {i: group for i, group in enumerate(self._optimizer.param_groups) if self.handed_over(group)}
        rates = {i: group["lr"] for i, group in groups.items()}
        for i, group in groups.items():
            if i not in self._tensors:
                double = any(torch.finfo(p.dtype).bits == 64 for p in group["params"])
                dtype = torch.float64 if double else torch.float32
                self._tensors[i] = torch.zeros((), dtype=dtype, device=self._device)
        self.refresh()
        for i, group in groups.items():
            group["lr"] = self._tensors[i]
        try:
            yield
        finally:
            for i, group in groups.items():
                group["lr"] = rates[i]

    def refresh(self) -> None:
        """Let the tensors follow the numbers."""
        for i, tensor in self._tensors.items():
            group = self._optimizer.param_groups[i]
            number = float(group["lr"]) if self.handed_over(group) else None
            if number is not None and self._numbers.get(i) != number:
                self._numbers[i] = number
                tensor.fill_(number)


class FailureWatch:
    """Says when ``failed_steps`` of an optimizer grows, without ever waiting for the device."""

    def __init__(self, optimizer: Optimizer, every: int) -> None:
        self._optimizer, self._every = optimizer, every
        self._calls = self._reported = 0
        self._count = torch.zeros((), dtype=torch.int64, pin_memory=torch.cuda.is_available())
        self._fetched = torch.cuda.Event()

    def look(self, stacklevel: int) -> None:
        """Count a call; at some of them report what was fetched last time, and fetch anew."""
        self._calls += 1
        if self._calls % self._every or not isinstance(self._optimizer, UnitaryOptimizer):
            return
        if self._calls > self._every and self._fetched.query():
            fresh, self._reported = int(self._count) - self._reported, int(self._count)
            if fresh > 0:
                warnings.warn(
                    f"{fresh} Cayley steps were too long for a CUDA graph and left their matrix where it was. "
                    "Lower unitary_lr (or lr), or take plain steps.",
                    stacklevel=stacklevel + 1,
                )
        self._count.copy_(self._optimizer.failed_steps(), non_blocking=True)
        self._fetched.record()
