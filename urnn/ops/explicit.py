"""The same time loop with a hand-written backward that needs the states alone: the blueprint of the fused kernels.

The pre-activations of a block of steps come back as one large product, z = W h_{t-1} + V x_t, just before the backward
loop passes them. All shapes as in ``layout.py``.
"""

import torch
from torch import Tensor

from urnn._typing import Biases, Inputs, Lengths, Matrices, Projections, States, Steps
from urnn.ops.layout import previous_states, product, project, project_backward, recurrent_matrix_gradient
from urnn.ops.nonlinearity import NONLINEARITIES

_BLOCK = 64
"""Steps whose pre-activations are held at once in the backward pass."""


def forward(
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    h_0: States,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
) -> Steps:
    """States of all steps; zero beyond the lengths."""
    u = x.clone(memory_format=torch.contiguous_format) if V is None else project(x, V)  # the states are written over it
    sigma = NONLINEARITIES[nonlinearity].forward
    WT = W.mT.contiguous()
    b = b.unsqueeze(-2)  # (E, 1, n)
    h = h_0
    T = u.shape[0]
    for t in reversed(range(T)) if reverse else range(T):
        new = sigma(torch.baddbmm(u[t], h, WT), b)
        if lengths is None:
            h = new
            u[t] = h
        else:
            valid = (t < lengths).unsqueeze(-1)  # (E, B, 1)
            h = torch.where(valid, new, h)
            u[t] = torch.where(valid, h, 0.0)
    return u


def backward(
    grad_h: Steps | None,
    grad_h_n: States | None,
    h: Steps,
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    h_0: States,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
    half_gradient: bool,
    need_dx: bool,
) -> tuple[Tensor | None, Projections | None, Matrices, Biases, States]:
    """Gradients with respect to x (where asked for), V, W, b and h_0."""
    sigma_backward = NONLINEARITIES[nonlinearity].backward
    WT, W_conj = W.mT, W.conj().resolve_conj()
    b = b.unsqueeze(-2)  # (E, 1, n)
    T = h.shape[0]
    dz = torch.empty_like(h)
    db = torch.zeros_like(b)
    carry = torch.zeros_like(h_0) if grad_h_n is None else grad_h_n
    starts = range(0, T, _BLOCK)
    for start in starts if reverse else reversed(starts):
        stop = min(start + _BLOCK, T)
        z = _pre_activations(h, x[start:stop], V, WT, h_0, lengths, reverse, start, stop)
        for t in range(start, stop) if reverse else reversed(range(start, stop)):
            total = carry if grad_h is None else carry + grad_h[t]
            step, step_b = sigma_backward(total, z[t - start], b)
            if lengths is None:
                carry = step @ W_conj
            else:
                valid = (t < lengths).unsqueeze(-1)  # (E, B, 1)
                step, step_b = torch.where(valid, step, 0.0), torch.where(valid, step_b, 0.0)
                carry = torch.where(valid, step @ W_conj, carry)
            dz[t] = step
            db += step_b.sum(-2, keepdim=True)
    dW = recurrent_matrix_gradient(dz, h, h_0, lengths, reverse, half_gradient)
    dx, dV = project_backward(dz, x, V, need_dx)
    return dx, dV, dW, db.squeeze(-2), carry


def _pre_activations(
    h: Tensor,
    x: Tensor,
    V: Tensor | None,
    WT: Tensor,
    h_0: Tensor,
    lengths: Tensor | None,
    reverse: bool,
    start: int,
    stop: int,
) -> Tensor:
    before = previous_states(h, h_0, lengths, reverse, start, stop)
    return product(before, WT) + project(x, V)
