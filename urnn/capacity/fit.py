"""Does a family reach a given unitary matrix? By its right inverse, or by fitting its parameters."""

import torch
from torch import Generator, Tensor

from urnn.linalg import haar_unitary
from urnn.parametrizations import Parametrization

EXACT = 1e-10
"""A target counts as hit by a right inverse at this largest entry of the difference, times n."""
REACHED = 1e-4
"""A target counts as reached by a fit at this root mean square of the difference's entries."""


def inverts(family: Parametrization, targets: int, generator: Generator) -> bool:
    """Whether the right inverse of ``family`` hits every one of ``targets`` matrices from the Haar measure."""
    for _ in range(targets):
        W = haar_unitary(family.n, generator=generator, dtype=torch.complex128)
        try:
            family.load_unitary(W)
        except (NotImplementedError, ValueError):
            return False
        with torch.no_grad():
            if float((family() - W).abs().max()) > EXACT * family.n:
                return False
    return True


def share_reached(
    family: Parametrization, targets: int, generator: Generator, starts: int = 3, iterations: int = 500
) -> float:
    """Share of Haar targets that L-BFGS reaches from the best of ``starts`` random points."""
    hits = 0
    for _ in range(targets):
        W = haar_unitary(family.n, generator=generator, dtype=torch.complex128)
        hits += any(_fit(family, W, generator, iterations) < REACHED for _ in range(starts))
    return hits / targets


def _fit(family: Parametrization, W: Tensor, generator: Generator, iterations: int) -> float:
    """Root mean square of the difference's entries after a fit from a random start."""
    family.reset_parameters(generator)
    start, to_matrix = family.chart()
    theta = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([theta], max_iter=iterations, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = (to_matrix(theta) - W).abs().square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        return float((to_matrix(theta) - W).abs().square().mean().sqrt())
