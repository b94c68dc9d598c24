"""Moving along U(n): the Lie-algebra gradient, the Cayley and exponential steps, and the Newton-Schulz polish.

Note [The A of Eq. 6]
Eq. 6 multiplies W from the left, so its matrix must be A = G W^H - W G^H. The paper prints G^H W - W^H G, which belongs
to a product from the right: with the left product it is no descent direction (docs/equations.md has the measurement).
G is the gradient as autograd returns it, dL/dRe W + i dL/dIm W. Along the step the loss starts to fall at the rate
||A||_F^2 / 2. A lives in the Lie algebra at the identity, so moments of it need no transport from point to point.
"""

import torch
from torch import Tensor

from urnn._typing import RealSquare, Square


def skew(X: Square) -> Square:
    """The skew-Hermitian part, (X - X^H) / 2."""
    return (X - X.mH) / 2


def skew_from_reals(S: RealSquare) -> Square:
    """The skew-Hermitian matrix ``(S - S^T)/2 + i (S + S^T)/2`` of n^2 real numbers: a linear isometry onto u(n).

    >>> A = skew_from_reals(torch.eye(2))
    >>> bool((A == -A.mH).all())
    True
    """
    return torch.complex(S - S.mT, S + S.mT) / 2


def reals_from_skew(A: Square) -> RealSquare:
    """The inverse of ``skew_from_reals``: coordinates of ``A`` in the Lie algebra."""
    return A.real + A.imag


def lie_gradient(W: Square, G: Square) -> Square:
    """A = G W^H - W G^H, see Note [The A of Eq. 6]; skew-Hermitian, and zero at a stationary point.

    Args: ``W`` unitary; ``G`` the gradient as autograd returns it.
    """
    P = G @ W.mH
    return P - P.mH


def tangent_projection(W: Square, Z: Square) -> Square:
    """The part of ``Z`` tangent to U(n) at ``W``; it satisfies Z^H W + W^H Z = 0 (the paper prints a minus)."""
    return W @ skew(W.mH @ Z)


def cayley_step(W: Square, A: Square, lr: float | Tensor) -> Square:
    r"""Move ``W`` along the Cayley curve of ``-A`` (Eq. 6): ``(I + lr/2 A)^{-1} (I - lr/2 A) W``.

    Args: ``W`` unitary; ``A`` skew-Hermitian, ``lie_gradient(W, G)`` or a mean of such; ``lr`` the step length, the
    paper's lambda.

    >>> from urnn.linalg import haar_unitary, unitarity_defect
    >>> W, A = haar_unitary(3), skew(torch.randn(3, 3, dtype=torch.complex64))
    >>> bool(unitarity_defect(cayley_step(W, A, 0.1)) < 1e-5)
    True
    """
    half = A * (lr / 2)
    eye = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)
    # I + half is never singular (half has imaginary eigenvalues), so the check that would wait for the device is off.
    return torch.linalg.solve_ex(eye + half, W - half @ W, check_errors=False)[0]


def exponential(A: Square) -> Square:
    """``exp(A)``. PyTorch's own loses digits on a single matrix (1e-11 in complex128, torch 2.13), and none on a batch.

    >>> bool((exponential(torch.zeros(2, 2)) == torch.eye(2)).all())
    True
    """
    if A.shape[:-2].numel() > 1:
        return torch.linalg.matrix_exp(A)
    return torch.linalg.matrix_exp(torch.stack((A, A)))[0]


def exponential_step(W: Square, A: Square, lr: float | Tensor) -> Square:
    """Move ``W`` along the geodesic of ``-A``: ``exp(-lr A) W``. Agrees with ``cayley_step`` to second order in lr."""
    return exponential(A * -lr) @ W


def newton_schulz(W: Square) -> Square:
    """One step towards the nearest unitary matrix, ``W (3 I - W^H W) / 2``: a defect d becomes about 3/4 d^2."""
    matrices = W.reshape(-1, *W.shape[-2:])
    return torch.baddbmm(matrices, matrices, matrices.mH @ matrices, beta=1.5, alpha=-0.5).view_as(W)
