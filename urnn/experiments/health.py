"""Is what a run computes finite: losses, gradients, parameters.

Note [Looking at gradients]
After each step the largest modulus in each gradient is kept on the device, one number for each parameter, and read
together with the losses when a chunk of ``log_every`` iterations is over. So the iteration and the parameter are known
without a wait, and no later checkpoint holds what came of it.
"""

from typing import cast

import torch
from torch import Tensor, nn


class Health:
    """Watches the gradients of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._named = list(model.named_parameters())
        self._seen: list[tuple[list[str], Tensor]] = []

    def look(self) -> None:
        """After a step."""
        named = [(name, p.grad) for name, p in self._named if p.grad is not None and p.grad.numel()]
        planes = [torch.view_as_real(g.resolve_conj()) if g.is_complex() else g for _, g in named]
        if planes:
            largest = cast(list[Tensor], list(torch._foreach_norm(planes, float("inf"))))
            self._seen.append(([name for name, _ in named], torch.stack(largest)))
        else:
            self._seen.append(([], torch.empty(0)))

    def fault(self, losses: list[float]) -> tuple[int, str] | None:
        """The first step since the last call, counted from 0, with a loss or gradient that is not finite; and what."""
        seen, self._seen = self._seen, []
        for step, (loss, (names, largest)) in enumerate(zip(losses, seen, strict=True)):
            bad = next((n for n, ok in zip(names, torch.isfinite(largest).tolist(), strict=True) if not ok), None)
            if loss != loss or abs(loss) == float("inf"):
                return step, f"a finite loss, got {loss}" + (f" and no finite gradient of {bad} either" if bad else "")
            if bad:
                return step, f"a finite gradient of {bad}, got NaN or inf, though the loss was {loss:.4g}"
        return None


def values_fault(model: nn.Module) -> str | None:
    """Which parameter is not finite."""
    bad = next((name for name, p in model.named_parameters() if not bool(torch.isfinite(p).all())), None)
    return bad and f"finite values of {bad} after the step, got NaN or inf"
