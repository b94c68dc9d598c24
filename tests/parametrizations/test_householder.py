"""Note [Members of the Householder family], as tests."""

import math

import pytest
import torch
from torch import Tensor

from urnn.linalg import haar_unitary
from urnn.linalg.factors import dense, reflection
from urnn.parametrizations import Householder

CPU = torch.device("cpu")
eye = torch.eye(6, dtype=torch.complex128)
EVERY_K = range(1, 7)


def double(k: int, **options: str) -> Householder:
    return Householder(6, reflections=k, dtype=torch.complex128, **options)


def product_of_reflections(made: Householder) -> Tensor:
    """H_1 ... H_k, one matrix after the other."""
    W = eye
    phases = made._parameters.get("phases", torch.full((made.reflections,), math.pi, dtype=torch.float64))
    assert phases is not None
    for v, phase in zip(made.vectors, phases, strict=True):
        factor = 1 - torch.exp(1j * phase)
        W = W @ dense(lambda x, v=v, factor=factor: reflection(v, x, factor), 6, eye.dtype, CPU)
    return W


@pytest.mark.parametrize("phase", ["learned", "pi"])
@pytest.mark.parametrize("k", EVERY_K)
def test_compact_form_is_the_product_of_the_reflections(k: int, phase: str) -> None:
    made = double(k, phase=phase)
    torch.testing.assert_close(made(), product_of_reflections(made))


@pytest.mark.parametrize("k", EVERY_K)
def test_with_phase_pi_the_determinant_is_the_sign_of_k(k: int) -> None:
    W = Householder(6, (3,), reflections=k, phase="pi", dtype=torch.complex128)()
    expected = torch.full((3,), float((-1) ** k), dtype=torch.complex128)
    torch.testing.assert_close(torch.linalg.det(W), expected)


@pytest.mark.parametrize("k", EVERY_K)
def test_k_reflections_move_k_dimensions(k: int) -> None:
    assert int(torch.linalg.matrix_rank(double(k)() - eye)) == k


@pytest.mark.parametrize("k", EVERY_K)
def test_members_are_the_matrices_with_k_eigenvalues_other_than_one(k: int) -> None:
    phases = torch.zeros(6, dtype=torch.float64)
    phases[:k] = torch.linspace(-3, 2.5, k)
    Q = haar_unitary(6, dtype=torch.complex128)
    W = Q @ torch.diag(torch.exp(1j * phases)) @ Q.mH
    made = double(k)
    made.load_unitary(W)
    torch.testing.assert_close(made(), W)
    if k > 1:
        with pytest.raises(
            ValueError, match=rf"W: expected rank\(W - I\) <= {k - 1}, the number of reflections, got .*takes any W"
        ):
            double(k - 1).load_unitary(W)


SPECIAL = {
    "identity": eye,
    "minus identity": -eye,
    "phase times identity": 1j * eye,
    "one reflection": eye - 2 * torch.diag(torch.tensor([1.0, 0, 0, 0, 0, 0])),
    "permutation": eye[[1, 2, 0, 4, 3, 5]],
    "DFT": torch.fft.fft(eye, norm="ortho"),
    "near the identity": torch.diag(torch.exp(1e-9j * torch.arange(6, dtype=torch.float64))),
}


@pytest.mark.parametrize("W", SPECIAL.values(), ids=SPECIAL)
def test_all_reflections_hit_degenerate_spectra(W: Tensor) -> None:
    made = double(6)
    made.load_unitary(W)
    torch.testing.assert_close(made(), W, rtol=0, atol=1e-13)


def test_a_batch_of_different_ranks() -> None:
    made = Householder(6, (2,), reflections=2, dtype=torch.complex128)
    W = torch.stack((SPECIAL["identity"], SPECIAL["one reflection"]))
    made.load_unitary(W)
    torch.testing.assert_close(made(), W)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reflections": 0}, ValueError, r"reflections: expected an int in \[1, 6\], got 0"),
        ({"reflections": 7}, ValueError, r"reflections: expected an int in \[1, 6\], got 7"),
        ({"reflections": 2.0}, TypeError, r"reflections: expected an int, got float \(2.0\)"),
        ({"phase": "tau"}, ValueError, r"phase: expected one of \['learned', 'pi'\], got 'tau'"),
    ],
)
def test_bad_options(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Householder(6, **options)  # type: ignore[arg-type]
