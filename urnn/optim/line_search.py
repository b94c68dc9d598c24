"""A step length that lowers the loss enough and goes far enough: Tagare (2011), Armijo-Wolfe along the Cayley curve."""

import math

import torch
from torch import Tensor

from urnn.linalg import cayley_step, full_precision, lie_gradient, newton_schulz
from urnn.optim.base import Closure

LINE_SEARCHES = ("armijo_wolfe",)
SUFFICIENT_DECREASE = 1e-4
CURVATURE = 0.9
MAX_EVALUATIONS = 20


def search(starts: list[tuple[Tensor, float | Tensor]], loss: float, closure: Closure) -> None:
    """Move each W of ``starts`` along its Cayley curve by its rate times one common factor tau.

    tau starts at 1, doubles while the curve still falls steeply and is bisected where the loss did not fall enough.
    After ``MAX_EVALUATIONS`` the last point with sufficient decrease stands, or the start where there was none. The
    parameters' gradients are those at the point where W is left.
    """
    moves = []
    for W, rate in starts:
        assert W.grad is not None
        with full_precision():
            moves.append((W, W.detach().clone(), lie_gradient(W, W.grad) * rate))
    first_slope = -sum(
        float(A.abs().square().sum() / (2 * rate)) for (_, _, A), (_, rate) in zip(moves, starts, strict=True)
    )
    if first_slope == 0 or not math.isfinite(first_slope):
        return
    first_loss, low, high, tau, accepted = _number(loss), 0.0, math.inf, 1.0, 0.0
    for _ in range(MAX_EVALUATIONS):
        new_loss, slope = _evaluate(moves, tau, closure)
        if not new_loss <= first_loss + SUFFICIENT_DECREASE * tau * first_slope:
            high = tau
        else:
            accepted = tau
            if slope >= CURVATURE * first_slope:
                return
            low = tau
        tau = 2 * low if high == math.inf else (low + high) / 2
    _evaluate(moves, accepted, closure)


def _evaluate(moves: list[tuple[Tensor, Tensor, Tensor]], tau: float, closure: Closure) -> tuple[float, float]:
    """Loss and slope at tau, with every W moved there: Y'(tau) = -(I + tau/2 A)^{-1} A (W + Y) / 2."""
    for W, start, A in moves:
        with full_precision():
            W.copy_(newton_schulz(cayley_step(start, A, tau)) if tau else start)
    with torch.enable_grad():
        loss = _number(closure())
    slope = 0.0
    for W, start, A in moves:
        assert W.grad is not None
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        with full_precision():
            velocity = -torch.linalg.solve_ex(eye + tau / 2 * A, A @ (start + W) / 2, check_errors=False)[0]
        slope += float((W.grad.conj() * velocity).real.sum())
    return loss, slope


def _number(loss: float | Tensor) -> float:
    """The value of a loss; a closure returns it with its graph, of which ``float`` alone would warn."""
    return float(loss.detach()) if isinstance(loss, Tensor) else float(loss)
