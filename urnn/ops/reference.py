"""The definition of the recurrence: a time loop in plain PyTorch, differentiated by autograd as often as one likes."""

import torch

from urnn._typing import Biases, Inputs, Lengths, Matrices, Projections, States, Steps
from urnn.ops.layout import project
from urnn.ops.nonlinearity import NONLINEARITIES


def recurrence(
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    h_0: States,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Steps, States]:
    """h_t = sigma_b(W h_{t-1} + V x_t) for each row while t < its length; then the state stands and the output is 0."""
    sigma = NONLINEARITIES[nonlinearity].forward
    u = project(x, V)  # (T, E, B, n)
    T, steps = u.shape[0], u.unbind()
    b = b.unsqueeze(-2)  # (E, 1, n)
    h = h_0
    outputs = []
    for t in reversed(range(T)) if reverse else range(T):
        new = sigma(h @ W.mT + steps[t], b)
        if lengths is None:
            h = new
            outputs.append(h)
        else:
            valid = (t < lengths).unsqueeze(-1)  # (E, B, 1)
            h = torch.where(valid, new, h)
            outputs.append(torch.where(valid, h, 0.0))
    if reverse:
        outputs.reverse()
    return torch.stack(outputs), h
