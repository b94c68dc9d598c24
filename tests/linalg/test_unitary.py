import math

import pytest
import torch
from torch import Tensor

from urnn.linalg import (
    check_unitary_matrix,
    haar_unitary,
    is_unitary_matrix,
    nearest_unitary,
    unitarity_defect,
    unitarity_tol,
    unitary_eig,
)

COMPLEX = (torch.complex64, torch.complex128)


def with_phases(phases: Tensor) -> Tensor:
    """A random unitary matrix with these eigenphases."""
    Q = haar_unitary(len(phases), dtype=torch.complex128)
    return Q @ torch.diag(torch.exp(1j * phases.double())) @ Q.mH


SPECTRA = {  # eigenphases that make eigenvectors ambiguous, or nearly so
    "all one": torch.zeros(8),
    "all minus one": torch.full((8,), math.pi),
    "one reflection": torch.tensor([math.pi, *[0.0] * 15]),
    "two values": torch.tensor([0.0, math.pi] * 8),
    "at the cut": math.pi + 1e-12 * torch.linspace(-1, 1, 8, dtype=torch.float64),
    "cluster": torch.tensor([0.3] * 7 + [-2.0], dtype=torch.float64) + 1e-9 * torch.linspace(-1, 1, 8),
    "generic": torch.linspace(-3, 3, 16),
}


# Sampling


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.complex128])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 64])
def test_haar_is_unitary(n: int, dtype: torch.dtype) -> None:
    W = haar_unitary(n, (2, 3), dtype=dtype)
    assert W.shape == (2, 3, n, n)
    assert W.dtype == (torch.complex64 if dtype in (torch.float32, torch.complex64) else torch.complex128)
    assert is_unitary_matrix(W)


def test_haar_takes_the_default_precision_and_an_empty_batch() -> None:
    assert haar_unitary(2).dtype == torch.complex64
    assert haar_unitary(3, (0,)).shape == (0, 3, 3)


def test_haar_repeats_with_its_generator() -> None:
    first, second, other = (haar_unitary(4, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_haar_has_the_moments_of_the_haar_measure(generator: torch.Generator) -> None:
    """E tr W^k = 0 and E |tr W^k|^2 = min(k, n); the QR factor as LAPACK gives it has neither."""
    n, samples = 3, 20000
    W = haar_unitary(n, (samples,), generator=generator, dtype=torch.complex128)
    for k in (1, 2, 3, 4):
        trace = torch.linalg.matrix_power(W, k).diagonal(dim1=-2, dim2=-1).sum(-1)
        spread = 6 * math.sqrt(min(k, n) / samples)  # six standard errors of the mean
        assert trace.mean().abs() < spread
        assert abs(float(trace.abs().square().mean()) - min(k, n)) < 2 * math.sqrt(min(k, n)) * spread


# Measuring


def test_defect_is_the_largest_entry_of_each_matrix() -> None:
    W = torch.eye(3, dtype=torch.complex128).repeat(3, 1, 1)
    W[1, 0, 1] = 0.25j
    W[2, 2, 2] = float("nan")
    defect = unitarity_defect(W.requires_grad_())
    assert defect[:2].tolist() == [0.0, 0.25]
    assert defect[2].isnan()
    assert not defect.requires_grad
    assert not is_unitary_matrix(W)
    assert is_unitary_matrix(W[:1])
    assert not is_unitary_matrix(W[:2])


@pytest.mark.parametrize(("dtype", "eps"), [(torch.complex64, 2.0**-23), (torch.float64, 2.0**-52)])
def test_tolerance_is_ten_n_eps(dtype: torch.dtype, eps: float) -> None:
    assert unitarity_tol(7, dtype) == 70 * eps


# Projection


@pytest.mark.parametrize("dtype", COMPLEX)
def test_nearest_unitary_is_the_polar_factor(dtype: torch.dtype) -> None:
    Z = torch.randn(2, 5, 5, dtype=dtype)
    U = nearest_unitary(Z)
    assert is_unitary_matrix(U)
    H = U.mH @ Z  # Hermitian and positive, and only for the nearest one
    torch.testing.assert_close(H, H.mH)
    assert (torch.linalg.eigvalsh(H) > 0).all()


def test_nearest_unitary_leaves_a_unitary_matrix_and_takes_a_conjugate_view() -> None:
    W = haar_unitary(4, dtype=torch.complex128)
    torch.testing.assert_close(nearest_unitary(W), W)
    torch.testing.assert_close(nearest_unitary(W.mH), W.mH.resolve_conj())


# Eigenvectors


@pytest.mark.parametrize("name", SPECTRA)
def test_unitary_eig_diagonalises(name: str) -> None:
    W = with_phases(SPECTRA[name])
    phases, Q = unitary_eig(W)
    assert is_unitary_matrix(Q)
    assert (phases.diff() >= 0).all()
    assert phases.abs().max() <= math.pi
    assert (Q @ torch.diag(torch.exp(1j * phases)) @ Q.mH - W).abs().max() < 1e-13


def test_unitary_eig_of_a_batch_in_single_precision() -> None:
    W = haar_unitary(5, (2, 3))
    phases, Q = unitary_eig(W)
    assert phases.shape == (2, 3, 5)
    assert Q.dtype == torch.complex128
    assert is_unitary_matrix(Q)
    torch.testing.assert_close(
        (Q * torch.exp(1j * phases).unsqueeze(-2)) @ Q.mH, W.to(torch.complex128), rtol=0, atol=2e-6
    )


# Checks


def test_check_returns_the_matrix_itself_in_its_own_type() -> None:
    W = haar_unitary(3)
    assert check_unitary_matrix("W", W) is W
    assert check_unitary_matrix("W", W, torch.complex64) is W


def test_check_polishes_on_the_way_to_a_finer_type() -> None:
    W = haar_unitary(16)
    fine = check_unitary_matrix("W", W, torch.complex128)
    assert fine.dtype == torch.complex128
    assert is_unitary_matrix(fine)
    assert not is_unitary_matrix(W.to(torch.complex128))  # so the polish was needed
    torch.testing.assert_close(fine.to(torch.complex64), W)
    assert is_unitary_matrix(check_unitary_matrix("W", fine, torch.complex64))


I3 = torch.eye(3, dtype=torch.complex64)
BAD = [
    ([[1.0]], TypeError, r"W: expected a torch.Tensor, got list"),
    (torch.eye(3), TypeError, r"W: expected complex64 or complex128, got torch.float32"),
    (I3[0], ValueError, r"W: expected shape \(\.\.\., n, n\) with n >= 1, got \(3,\)"),
    (I3[:2], ValueError, r"W: expected shape \(\.\.\., n, n\) with n >= 1, got \(2, 3\)"),
    (I3[:0, :0], ValueError, r"W: expected shape \(\.\.\., n, n\) with n >= 1, got \(0, 0\)"),
    (I3 * float("nan"), ValueError, r"W: expected finite entries, got NaN or inf"),
    (I3 * float("inf"), ValueError, r"W: expected finite entries, got NaN or inf"),
]
NOT_UNITARY = (
    1.1 * I3,
    ValueError,
    r"W: expected a unitary matrix, max\|W\^H W - I\| <= 3.6e-06, got 2.1e-01. urnn.linalg.nearest_unitary\(W\)",
)


@pytest.mark.parametrize(("W", "error", "message"), [*BAD, NOT_UNITARY])
def test_check_says_what_is_wrong(W: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_unitary_matrix("W", W)


@pytest.mark.parametrize(("W", "error", "message"), BAD)
def test_nearest_unitary_says_what_is_wrong(W: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nearest_unitary(W)


@pytest.mark.parametrize(("W", "error", "message"), BAD)
def test_unitary_eig_says_what_is_wrong(W: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        unitary_eig(W)


@pytest.mark.parametrize(
    ("n", "dtype", "error", "message"),
    [
        (0, None, ValueError, r"n: expected an int >= 1, got 0"),
        (2.0, None, TypeError, r"n: expected an int, got float \(2.0\)"),
        (True, None, TypeError, r"n: expected an int, got bool \(True\)"),
        (
            2,
            torch.float16,
            TypeError,
            r"dtype: expected float32, float64, complex64 or complex128, got torch.float16. PyTorch",
        ),
        (2, torch.int64, TypeError, r"dtype: expected float32, float64, complex64 or complex128, got torch.int64"),
    ],
)
def test_haar_says_what_is_wrong(n: int, dtype: torch.dtype | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        haar_unitary(n, dtype=dtype)
