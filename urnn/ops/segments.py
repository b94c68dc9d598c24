"""The recurrence in segments, where the last state alone is wanted: O(sqrt T) states are kept instead of T.

The forward pass keeps the state that enters each segment. The backward pass goes from the segment worked last to the
one worked first: it computes the states of one segment anew and hands them to the backend's own backward, whose
gradient of h_0 goes on to the segment before. So every backend serves as it is; the forward pass is computed twice.

There are sqrt(T) / 2 segments of 2 sqrt(T) steps, 2.5 sqrt(T) states at once. As many segments as steps in each would
hold 2 sqrt(T), but call the backend twice as often, and at small sizes it is the calls that cost.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from urnn._checks import check_choice
from urnn._typing import Biases, Entering, Inputs, Lengths, Matrices, Projections, States
from urnn.ops.backends import Kernels
from urnn.ops.layout import final_state

CHECKPOINTS = ("sqrt",)
"""What ``checkpoint`` may be besides None."""


def check_checkpoint(checkpoint: str | None, backend: str) -> str | None:
    """``checkpoint`` must be None or in the list, and autograd on a time loop has no segments."""
    if checkpoint is None:
        return None
    check_choice("checkpoint", checkpoint, CHECKPOINTS)
    if backend == "reference":
        raise ValueError(
            f"checkpoint: expected None with backend='reference', whose backward is autograd's, got {checkpoint!r}. "
            "Every other backend has it."
        )
    return checkpoint


def segment_count(T: int | torch.SymInt) -> int | torch.SymInt:
    """How many segments T steps make: sqrt(T) / 2, rounded up.

    ``T`` may be symbolic. Such a T counts as above 1, and the 3 makes it plain that then there are two segments or
    more: a dimension that might be 1 would hold a compiled program to one length.
    """
    return math.ceil(torch.sym_sqrt(T + 3) / 2)


def forward(
    kernels: Kernels,
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    h_0: States,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Entering, States]:
    """The state that enters each segment, in the order of time, and the state after the last step."""
    entering = W.new_empty(segment_count(x.shape[0]), *h_0.shape)  # (S, E, B, n)
    h = h_0
    for i, steps, valid in _segments(x.shape[0], lengths, reverse):
        entering[i] = h
        states = kernels.forward(x[steps], V, W, b, h, valid, nonlinearity, reverse)
        h = final_state(states, h, valid, reverse)
        del states  # before the next segment's are there
    return entering, h


def backward(
    kernels: Kernels,
    grad_h_n: States | None,
    entering: Entering,
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
    half_gradient: bool,
    need_dx: bool,
) -> tuple[Tensor | None, Projections | None, Matrices, Biases, States]:
    """Gradients with respect to x (where asked for), V, W, b and h_0."""
    dx = x.new_empty(x.shape) if need_dx else None
    dV = None if V is None else V.new_zeros(V.shape)
    dW, db, carry = W.new_zeros(W.shape), b.new_zeros(b.shape), grad_h_n
    for i, steps, valid in reversed(_segments(x.shape[0], lengths, reverse)):
        inputs = (x[steps], V, W, b, entering[i], valid)
        states = kernels.forward(*inputs, nonlinearity, reverse)
        gradients = kernels.backward(None, carry, states, *inputs, nonlinearity, reverse, half_gradient, need_dx)
        dx_part, dV_part, dW_part, db_part, carry = gradients
        if dx is not None and dx_part is not None:
            dx[steps] = dx_part
        if dV is not None and dV_part is not None:
            dV += dV_part
        dW += dW_part
        db += db_part
        del states, gradients, dx_part  # before the next segment's are there
    assert carry is not None  # T >= 1
    return dx, dV, dW, db, carry


def _segments(T: int, lengths: Tensor | None, reverse: bool) -> list[tuple[int, slice, Tensor | None]]:
    """Index, steps and each row's valid steps of all segments, in the order of work."""
    count = segment_count(T)
    edges = [T * i // count for i in range(count + 1)]
    parts = [
        (i, slice(start, stop), None if lengths is None else (lengths - start).clamp(0, stop - start))
        for i, (start, stop) in enumerate(pairwise(edges))
    ]
    return parts[::-1] if reverse else parts
