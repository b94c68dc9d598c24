"""The elementary unitary factors of Eq. 3 and of the tunable families, each applied to the last dimension of ``x``.

All take row vectors: ``x`` (..., n) becomes ``F x`` for each vector along the last dimension. The dense matrix of any
product of factors is ``dense(apply, ...)``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from urnn._typing import Reals, Square, Vectors


def phase_diagonal(angles: Reals, x: Vectors) -> Vectors:
    """``D x`` with ``D = diag(e^{i angle})``."""
    return torch.polar(torch.ones_like(angles), angles) * x


def unit_vectors(v: Vectors) -> Vectors:
    """``v / ||v||``; the norm is taken at a safe scale, so tiny and huge vectors have a direction too."""
    v = v / v.detach().abs().amax(-1, keepdim=True)
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)


def reflection(v: Vectors, x: Vectors, factor: Tensor | float = 2.0) -> Vectors:
    """``R x`` with ``R = I - factor v v^H / ||v||^2``: unitary for factor 2 (Eq. 3) or ``1 - e^{i phi}``."""
    unit = unit_vectors(v)
    return x - factor * unit * (unit.conj() * x).sum(-1, keepdim=True)


def fourier(x: Vectors) -> Vectors:
    """``F x`` with the unitary DFT."""
    return torch.fft.fft(x, norm="ortho") if x.numel() else x  # MKL refuses an empty batch


def inverse_fourier(x: Vectors) -> Vectors:
    """``F^{-1} x`` with the unitary DFT."""
    return torch.fft.ifft(x, norm="ortho") if x.numel() else x


def dense(apply: Callable[[Tensor], Tensor], n: int, dtype: torch.dtype, device: torch.device) -> Square:
    """The matrix of the linear map ``apply``, which takes (n, n) row vectors to (..., n, n)."""
    columns: Tensor = apply(torch.eye(n, dtype=dtype, device=device))  # row j is the image of e_j
    return columns.mT  # a plain transpose: the images are the columns
