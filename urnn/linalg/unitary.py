"""Unitary matrices: sampling them, measuring how unitary one is, and finding the nearest one."""

import torch
from torch import Generator, Tensor

from urnn._checks import PRECISIONS, check_complex, check_int, check_precision, check_square, check_tensor
from urnn._typing import Reals, Scalars, Square
from urnn.linalg.precision import full_precision


def unitarity_tol(n: int, dtype: torch.dtype) -> float:
    """Largest ``unitarity_defect`` at which an (n, n) matrix of ``dtype`` counts as unitary: 10 n eps.

    >>> unitarity_tol(100, torch.complex64) < 2e-4
    True
    """
    return 10 * n * torch.finfo(PRECISIONS[dtype][0]).eps


def unitarity_defect(W: Square) -> Scalars:
    """Largest entry of |W^H W - I|, one number for each matrix of the batch; NaN if W has a NaN. Without gradient.

    >>> float(unitarity_defect(torch.eye(3, dtype=torch.complex64)))
    0.0
    """
    W = W.detach()
    eye = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)
    with full_precision():
        return (W.mH @ W - eye).abs().amax(dim=(-2, -1))


def is_unitary_matrix(W: Square) -> bool:
    """Whether every matrix of the batch is unitary to ``unitarity_tol``."""
    return bool((unitarity_defect(W) <= unitarity_tol(W.shape[-1], W.dtype)).all())


def check_unitary_matrix(name: str, W: object, dtype: torch.dtype | None = None) -> Tensor:
    """Return ``W`` in ``dtype``, or raise if it is not a finite unitary matrix to the precision it came in.

    A matrix that moves to a finer precision is polished there: unitary to single precision is not unitary to double.
    """
    W = check_tensor(name, W)
    check_complex(name, W)
    n = check_square(name, W)
    defect = float(unitarity_defect(W.detach()).max()) if W.numel() else 0.0
    if defect != defect:
        raise ValueError(f"{name}: expected finite entries, got NaN or inf.")
    if not defect <= (tol := unitarity_tol(n, W.dtype)):
        raise ValueError(
            f"{name}: expected a unitary matrix, max|W^H W - I| <= {tol:.1e}, got {defect:.1e}. "
            "urnn.linalg.nearest_unitary(W) projects it."
        )
    if dtype is None or dtype == W.dtype:
        return W
    finer = torch.finfo(dtype).eps < torch.finfo(W.dtype).eps
    W = W.to(dtype)
    return nearest_unitary(W) if finer else W


def haar_unitary(
    n: int,
    batch_shape: tuple[int, ...] = (),
    *,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Square:
    """Draw unitary matrices from the Haar measure, the uniform distribution on U(n).

    QR of a complex Gaussian matrix, with the phases of R's diagonal moved into Q (Mezzadri 2007); without that Q is
    not uniform.

    Args:
        n: size of the matrices.
        batch_shape: leading dimensions.
        generator: source of randomness; its device decides where the numbers are drawn.
        dtype: float32/complex64 or float64/complex128; None means PyTorch's default precision.
        device: where the result lies.

    >>> W = haar_unitary(4, (2,))
    >>> W.shape, is_unitary_matrix(W)
    (torch.Size([2, 4, 4]), True)
    """
    check_int("n", n, 1)
    _, dtype = check_precision("dtype", dtype)
    source = generator.device if generator is not None else device
    Z = torch.randn(*batch_shape, n, n, dtype=dtype, device=source, generator=generator)
    Q, R = torch.linalg.qr(Z)
    diagonal = R.diagonal(dim1=-2, dim2=-1)
    return (Q * diagonal.sgn().unsqueeze(-2)).to(device)


def nearest_unitary(W: Tensor) -> Tensor:
    """The unitary matrix nearest to ``W`` in the Frobenius norm: the unitary factor of the polar decomposition.

    >>> W = haar_unitary(3)
    >>> bool(torch.dist(nearest_unitary(2.5 * W), W) < 1e-5)
    True
    """
    W = check_tensor("W", W)
    check_complex("W", W)
    check_square("W", W)
    if not bool(torch.isfinite(torch.view_as_real(W.resolve_conj())).all()):
        raise ValueError("W: expected finite entries, got NaN or inf.")
    U, _, Vh = torch.linalg.svd(W)
    return U @ Vh


def unitary_eig(W: Square) -> tuple[Reals, Square]:
    """Eigenphases in [-pi, pi], ascending, and an orthonormal eigenbasis: ``W = Q diag(e^{i phase}) Q^H``.

    Works in complex128. A unitary matrix is normal, so eigenvectors sorted by phase and orthonormalised by QR stay
    eigenvectors, in clusters of equal phases too.

    >>> phases, Q = unitary_eig(torch.diag(torch.tensor([1j, -1.0])))
    >>> phases.div(torch.pi).tolist()
    [0.5, 1.0]
    """
    W = check_unitary_matrix("W", W).to(torch.complex128)
    eigenvalues, vectors = torch.linalg.eig(W)
    order = eigenvalues.angle().argsort(-1)
    Q = torch.linalg.qr(vectors.gather(-1, order.unsqueeze(-2).expand_as(vectors)))[0]
    with full_precision():
        phases = (Q.conj() * (W @ Q)).sum(-2).angle()
    phases, order = phases.sort(-1)  # once more: within a cluster QR moved them
    return phases, Q.gather(-1, order.unsqueeze(-2).expand_as(Q))
