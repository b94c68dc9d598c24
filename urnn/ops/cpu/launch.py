"""From tensors to kernels: layouts, packing, and blocks of rows on threads."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from urnn._typing import Biases, Inputs, Lengths, Matrices, Projections, States, Steps
from urnn.ops.cpu import kernels, pool
from urnn.ops.cpu.tile import panel_reals

KINDS = {"modrelu": kernels.MODRELU, "hard": kernels.HARD}
SMALL_WORK = 10_000_000
"""Complex multiplications in a pass below which a second thread costs more than it saves."""


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
    T, E, B, n = x.shape[0], *h_0.shape
    h = W.new_empty(T, E, B, n)
    MT = W.mT if V is None else torch.cat((W.mT, V.mT), 1)  # (E, n + m, n)
    inputs = (
        _array(x),
        0 if V is None else V.shape[-1],
        _array(_panels(MT)),
        _array(b),
        _array(h_0),
        _filled(lengths, h),
    )
    settings = KINDS[nonlinearity], reverse, _limits(b.dtype)
    out = _array(h)
    with pool.patience("forward", b.dtype):
        pool.run(kernels.forward, [(*inputs, *settings, *block, out) for block in _blocks(h)])
    return h


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
    E, n, m = h.shape[1], h.shape[3], 0 if V is None else V.shape[-1]
    blocks = _blocks(h)
    none = b.new_empty(0, 0, 0, 0)
    packed_W, packed_V = _panels(W), b.new_empty(E, 0, n, 0)
    if V is not None:
        packed_V = _panels(V if x.is_complex() else torch.stack((V.real, V.imag), 2).flatten(1, 2))
    (PW, p), PX = packed_W.shape[1::2], packed_V.shape[1]
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if need_dx else None
    dW, db = b.new_empty(len(blocks), n, PW * p), b.new_empty(len(blocks), n)
    dV = b.new_empty(len(blocks), 1 if x.is_complex() else 2, n, PX * p)
    dh_0 = torch.empty_like(h_0, memory_format=torch.contiguous_format)
    inputs = (
        none if grad_h is None else grad_h,
        torch.zeros_like(h_0) if grad_h_n is None else grad_h_n,
        h,
        x,
        b.new_empty(E, n, 0) if V is None else V,
        W,
        packed_W,
        packed_V,
        b,
        h_0,
    )
    inputs = (*map(_array, inputs), _filled(lengths, h))
    settings = KINDS[nonlinearity], reverse, half_gradient, _limits(b.dtype)
    d_x, d_W, d_V, d_b, d_h_0 = map(_array, (none if dx is None else dx, dW, dV, db, dh_0))
    tasks = [(*inputs, *settings, *block, d_x, d_W[i], d_V[i], d_b[i], d_h_0) for i, block in enumerate(blocks)]
    with pool.patience("backward", b.dtype):
        pool.run(kernels.backward, tasks)
    parts = len(blocks) // max(E, 1)
    dW, dV, db = (part.view(E, parts, *part.shape[1:]).sum(1) for part in (dW, dV, db))
    if V is None:
        return dx, None, _complex(dW[..., : 2 * n]), db, dh_0
    dV = _complex(dV[:, 0, :, : 2 * m]) if x.is_complex() else torch.complex(dV[:, 0, :, :m], dV[:, 1, :, :m])
    return dx, dV, _complex(dW[..., : 2 * n]), db, dh_0


def _blocks(h: Tensor) -> list[tuple[int, int, int]]:
    """(member, first row, last row) of each task: the rows of a member in as many equal parts as threads need."""
    T, E, B, n = h.shape
    parts = 1 if T * E * B * n * n < SMALL_WORK else max(1, min(B, -(-pool.threads() // E)))
    edges = [B * i // parts for i in range(parts + 1)]
    return [(e, first, last) for e in range(E) for first, last in zip(edges, edges[1:], strict=False)]


def _limits(dtype: torch.dtype) -> tuple[Any, Any, float]:
    """Bounds of |z|^2 within which plain arithmetic is exact to working precision; where a phase counts as constant."""
    tiny = torch.finfo(dtype).tiny
    real = np.float32 if dtype == torch.float32 else np.float64
    return real(tiny * 1e3), real(1e-3 / tiny), float(tiny**0.5)


def _panels(A: Tensor) -> Tensor:
    """Rows of (E, k, l), complex ones as reals, cut into panels of p reals: (E, P, k, p), zero beyond the end."""
    reals = torch.view_as_real(A.resolve_conj().contiguous()).flatten(-2) if A.is_complex() else A
    E, k, width = reals.shape
    p = panel_reals(reals.itemsize)
    P = -(-width // p)
    return pad(reals, (0, P * p - width)).view(E, k, P, p).transpose(1, 2).contiguous()


def _filled(lengths: Tensor | None, h: Tensor) -> Any:
    """Lengths as int64 (E, B); T where none are given."""
    return np.full(h.shape[1:3], h.shape[0]) if lengths is None else _array(lengths.to(torch.int64))


def _complex(reals: Tensor) -> Tensor:
    """Real (..., 2 n) as complex (..., n), a copy."""
    return torch.view_as_complex(reals.unflatten(-1, (-1, 2)).contiguous())


def _array(x: Tensor) -> Any:
    """``x`` as a NumPy array, a complex one as reals; shares memory where ``x`` is contiguous."""
    x = x.detach().contiguous()
    return (torch.view_as_real(x).flatten(-2) if x.is_complex() else x).numpy()
