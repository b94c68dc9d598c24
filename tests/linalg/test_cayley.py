"""The Cayley step by products alone: as exact as a solve, and it knows when it is not."""

import math

import numpy as np
import pytest
import torch

from urnn.linalg import (
    captured_cayley_step,
    cayley_step,
    cayley_step_by_products,
    haar_unitary,
    skew,
    unitarity_defect,
)
from urnn.linalg.cayley import LONGEST, LONGEST_CAPTURED, _factors, _norm_bound

WAYS = {"read": cayley_step_by_products, "captured": lambda W, A, lr: captured_cayley_step(W, A, lr)[0]}
KINDS = ("gaussian", "rank 2", "two phases")


def directions(kind, n, radius, count=2):
    """Skew-Hermitian A (count, n, n) in complex128 whose A/2 has this spectral norm, with spectra of all shapes."""
    if kind == "gaussian":
        A = skew(torch.randn(count, n, n, dtype=torch.complex128))
    elif kind == "rank 2":
        A = skew(torch.randn(count, n, 1, dtype=torch.complex128) @ torch.randn(count, 1, n, dtype=torch.complex128))
    else:  # every eigenvalue at the end of the spectrum
        Q = haar_unitary(n, (count,), dtype=torch.complex128)
        A = skew((Q * (1j * torch.ones(n).double().index_fill(0, torch.arange(0, n, 2), -1.0))) @ Q.mH)
    return 2 * radius * A / torch.linalg.matrix_norm(A, 2)[:, None, None]


def exact(W, A):
    """Eq. 6 at lr = 1 in extended precision, its inverse by Newton's iteration."""
    result = []
    for w, a in zip(W.to(torch.complex128).numpy(), A.to(torch.complex128).numpy(), strict=True):
        eye = np.eye(len(w), dtype=np.clongdouble)
        X = a.astype(np.clongdouble) / 2
        inverse = np.linalg.inv((eye + X).astype(np.complex128)).astype(np.clongdouble)
        for _ in range(2):
            inverse = inverse @ (2 * eye - (eye + X) @ inverse)
        result.append(inverse @ (eye - X) @ w.astype(np.clongdouble))
    return np.stack(result)


def error(found, expected):
    return float(np.abs(found.numpy().astype(np.clongdouble) - expected).max())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 24])
@pytest.mark.parametrize("way", WAYS)
def test_products_err_no_more_than_twice_the_solve(way, n, kind, dtype):
    W = haar_unitary(n, (2,), dtype=dtype)
    for radius in (1e-6, 1e-3, 0.02, 0.1, 0.3, 0.5 if way == "captured" or n < 4 else 0.3):
        A = directions(kind, n, radius).to(dtype)
        expected = exact(W, A)
        found = WAYS[way](W, A, 1.0)
        assert found is not None
        assert error(found, expected) <= 2 * error(cayley_step(W, A, 1.0), expected) + torch.finfo(dtype).eps


@pytest.mark.parametrize("way", WAYS)
def test_a_step_of_zero_changes_nothing(way):
    W = haar_unitary(5, (2,))
    assert torch.equal(WAYS[way](W, torch.zeros_like(W), 1.0), W)
    assert torch.equal(WAYS[way](W, directions("gaussian", 5, 1.0).to(W.dtype), 0.0), W)


@pytest.mark.parametrize("way", WAYS)
def test_rates_may_be_tensors_and_matrices_strided(way):
    W, A = haar_unitary(5, (3,)), directions("gaussian", 5, 1.0, 3).to(torch.complex64)
    expected = WAYS[way](W, A, 0.1)
    torch.testing.assert_close(WAYS[way](W, A, torch.tensor(0.1)), expected, rtol=0, atol=1e-7)
    strided = W.mT.contiguous().mT
    assert not strided.is_contiguous()
    torch.testing.assert_close(WAYS[way](strided, A, 0.1), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("way", WAYS)
def test_they_drift_no_more_than_the_solve(way):
    """Without a polish; the products round the correction only, the solve all of W."""
    drifts = []
    for step in (WAYS[way], cayley_step):
        torch.manual_seed(1)
        W = haar_unitary(12, (4,))
        for _ in range(500):
            W = step(W, directions("gaussian", 12, 0.02, 4).to(W.dtype), 1.0)
        drifts.append(float(unitarity_defect(W).max()))
    assert drifts[0] <= drifts[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 6, 64])
def test_row_sums_bound_the_spectral_norm(n, kind):
    X = directions(kind, n, 0.7) / 2
    bounds, squares = _norm_bound(X @ X), torch.linalg.matrix_norm(X, 2) ** 2
    assert (bounds >= squares * (1 - 1e-12)).all()
    assert (bounds <= squares * math.sqrt(n) * (1 + 1e-12)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_are_as_few_as_the_precision_allows(dtype):
    eps = torch.finfo(dtype).eps
    counts = []
    for radius in (0.0, 1e-4, 1e-3, 1e-2, 0.05, 0.2, LONGEST_CAPTURED, LONGEST):
        e, k = radius**2 / (2 + radius**2), _factors(radius**2, eps)
        assert 2 * radius * e ** (2**k) <= eps / 2
        assert k == 0 or 2 * radius * e ** (2 ** (k - 1)) > eps / 2
        counts.append(k)
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-2:] == ([3, 4] if dtype == torch.float32 else [5, 6])


@pytest.mark.parametrize("value", [1.5, 1e3, 1e30, math.inf, math.nan])
def test_a_long_step_and_one_that_is_no_number_are_left_to_the_solve(value):
    W, A = haar_unitary(4, (2,)), directions("rank 2", 4, 1.0).to(torch.complex64)
    A[1] *= value
    assert cayley_step_by_products(W, A, 1.0) is None
    assert cayley_step_by_products(W[:1], A[:1], 0.5) is not None


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 24, 128])
def test_what_is_too_long_for_a_graph_is_known(n, kind, dtype):
    """Half a unit of R is not, one is, and what lies between is flagged before it errs."""
    W = haar_unitary(n, (2,), dtype=dtype)
    for radius in (0.0, 0.1, 0.5, 0.53, 0.56, 0.6, 0.65, 0.7, 0.75, 0.8, 1.0, 3.0, 1e3, 1e10, 1e30):
        A = directions(kind, n, radius) if radius else torch.zeros(2, n, n, dtype=torch.complex128)
        A = A.to(dtype)
        moved, failed = captured_cayley_step(W, A, 1.0)
        if radius <= 0.5:
            assert not failed.any()
        if radius >= 0.8:
            assert failed.all()
        if not failed.any():
            solved = cayley_step(W.to(torch.complex128), A.to(torch.complex128), 1.0)
            assert float((moved - solved).abs().max()) < 20 * torch.finfo(dtype).eps


def test_each_matrix_of_a_batch_is_flagged_for_itself():
    W, A = haar_unitary(6, (5,)), directions("gaussian", 6, 0.1, 5).to(torch.complex64)
    A[1] *= 100
    A[3] *= 1e20
    A[4] *= math.nan
    moved, failed = captured_cayley_step(W, A, 1.0)
    assert failed.tolist() == [False, True, False, True, False]
    for i in (0, 2):
        torch.testing.assert_close(moved[i], cayley_step(W[i], A[i], 1.0), rtol=0, atol=1e-6)
    assert moved[4].isnan().all()  # not hidden


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_batch(way):
    empty = torch.zeros(0, 3, 3, dtype=torch.complex64)
    assert WAYS[way](empty, empty, 1.0).shape == (0, 3, 3)
