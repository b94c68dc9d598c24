"""Each factor of Eq. 3 against its matrix, written out entry by entry."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from urnn.linalg.factors import dense, fourier, inverse_fourier, phase_diagonal, reflection

SIZES = (1, 2, 3, 5, 8)
CPU = torch.device("cpu")


def dft(n: int) -> Tensor:
    k = torch.arange(n, dtype=torch.float64)
    return torch.exp(-2j * math.pi * torch.outer(k, k) / n) / math.sqrt(n)


def reflector(v: Tensor, factor: complex) -> Tensor:
    return torch.eye(len(v), dtype=v.dtype) - factor * torch.outer(v, v.conj()) / v.abs().square().sum()


def twins(n: int) -> dict[str, tuple[Callable[[Tensor], Tensor], Tensor]]:
    """Name of a factor: how it is applied, and its matrix."""
    angles = torch.randn(n, dtype=torch.float64)
    v = torch.randn(n, dtype=torch.complex128)
    turn = 1 - torch.exp(torch.tensor(0.7j))
    return {
        "diagonal": (lambda x: phase_diagonal(angles, x), torch.diag(torch.exp(1j * angles))),
        "reflection": (lambda x: reflection(v, x), reflector(v, 2.0)),
        "complex reflection": (lambda x: reflection(v, x, turn), reflector(v, complex(turn))),
        "fourier": (fourier, dft(n)),
        "inverse fourier": (inverse_fourier, dft(n).mH),
    }


FACTORS = sorted(twins(1))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", FACTORS)
def test_dense_and_applied_are_the_matrix(name: str, n: int) -> None:
    apply, matrix = twins(n)[name]
    x = torch.randn(4, n, dtype=torch.complex128)
    torch.testing.assert_close(dense(apply, n, torch.complex128, CPU), matrix)
    torch.testing.assert_close(apply(x), x @ matrix.T)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", FACTORS)
def test_every_factor_is_unitary(name: str, n: int) -> None:
    F = dense(twins(n)[name][0], n, torch.complex128, CPU)
    torch.testing.assert_close(F.mH @ F, torch.eye(n, dtype=torch.complex128))


def test_a_reflection_is_blind_to_scale_and_phase_of_its_vector() -> None:
    v, x = torch.randn(2, 5, dtype=torch.complex128)
    torch.testing.assert_close(reflection((3 - 2j) * v, x), reflection(v, x))


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_a_reflection_does_not_see_the_length_of_its_vector(scale):
    v, x = torch.randn(2, 5, dtype=torch.complex64)
    torch.testing.assert_close(reflection(v * scale, x), reflection(v, x))
