"""Long training with every optimizer, to see whether W stays on U(N)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from urnn import check_unitary, optim, unitary
from urnn.linalg import haar_unitary

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD, momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD, exponential step": lambda p: optim.SGD(p, lr=0.1, unitary_step="exponential"),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-2),
    "RMSprop, elementwise": lambda p: optim.RMSprop(p, lr=1e-2, unitary_scaling="elementwise"),
    "Adam": lambda p: optim.Adam(p, lr=1e-2),
}
CHECKS = 20
"""How often in a run the defect is read."""


def soak(sizes: tuple[int, ...], steps: int, device: str, tf32: bool, seed: int) -> Iterator[dict[str, Any]]:
    """Fit random unitary matrices from noisy batches, one run for each optimizer and size; yields a row for each."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        for n in sizes:
            for name, make in OPTIMIZERS.items():
                yield {"optimizer": name, "n": n, "steps": steps, **_run(n, make, steps, device, seed)}
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _run(n: int, make: Callable[..., torch.optim.Optimizer], steps: int, device: str, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    layer = unitary(nn.Linear(n, n, bias=False, dtype=torch.complex64, device=device))
    target = haar_unitary(n, device=device)
    optimizer = make(layer.parameters())
    worst, start = 0.0, time.perf_counter()
    for step in range(1, steps + 1):
        x = torch.randn(16, n, dtype=torch.complex64, device=device)
        optimizer.zero_grad()
        loss = (layer(x) - x @ target.mT).abs().square().mean()
        loss.backward()
        optimizer.step()
        if step % max(steps // CHECKS, 1) == 0:
            worst = max(worst, check_unitary(layer))
    seconds = time.perf_counter() - start
    return {
        "defect": check_unitary(layer),
        "worst_defect": worst,
        "loss": loss.item(),
        "ms_per_step": 1e3 * seconds / steps,
    }
