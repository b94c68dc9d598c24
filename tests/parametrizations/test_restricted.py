"""Eq. 3 written out with matrices, and the seven directions in which it does not move."""

import math

import pytest
import torch
from torch import Tensor

from urnn.parametrizations import Restricted


def dft(n: int) -> Tensor:
    k = torch.arange(n, dtype=torch.float64)
    return torch.exp(-2j * math.pi * torch.outer(k, k) / n) / math.sqrt(n)


def reflector(v: Tensor) -> Tensor:
    return torch.eye(len(v), dtype=v.dtype) - 2 * torch.outer(v, v.conj()) / v.abs().square().sum()


def factors(family: Restricted) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 3 as D3 R2 . K . R1 F D1, with K = F^-1 D2 P what lies between the reflections."""
    F = dft(family.n)
    D1, D2, D3 = (torch.diag(torch.exp(1j * angles)) for angles in family.angles.detach())
    R1, R2 = (reflector(v) for v in family.vectors.detach())
    P = torch.zeros(family.n, family.n, dtype=torch.complex128)
    P[torch.arange(family.n), family.permutation] = 1
    return D3 @ R2, F.mH @ D2 @ P, R1 @ F @ D1


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_W_is_the_dense_product_of_eq_3(n: int) -> None:
    family = Restricted(n, dtype=torch.complex128)
    left, K, right = factors(family)
    torch.testing.assert_close(family().detach(), left @ K @ right)
    x = torch.randn(4, n, dtype=torch.complex128)
    torch.testing.assert_close(family.apply_to(x).detach(), x @ (left @ K @ right).T)


def test_the_permutation_is_drawn_shared_and_saved() -> None:
    family = Restricted(50, (2,))
    assert family.permutation.sort().values.tolist() == list(range(50))
    assert family.permutation.tolist() != list(range(50))
    assert "permutation" in family.state_dict()
    before = family.permutation.clone()
    family.reset_parameters()
    assert not torch.equal(family.permutation, before)


def test_seven_n_parameters_of_the_released_code() -> None:
    family = Restricted(20)
    assert family.num_real_params == 140
    bound = math.sqrt(6 / 42)
    reals = torch.view_as_real(family.vectors)
    assert 0.8 * bound < reals.abs().max() <= bound
    assert 0.8 * math.pi < family.angles.abs().max() <= math.pi


def flat(angles: Tensor, vectors: Tensor) -> Tensor:
    """A direction in the coordinates of ``Restricted.chart``."""
    return torch.cat((angles.reshape(-1), torch.view_as_real(vectors.resolve_conj()).reshape(-1)))


def redundant_directions(family: Restricted) -> dict[str, Tensor]:
    """The seven directions that leave W where it is."""
    angles, vectors = torch.zeros_like(family.angles), torch.zeros_like(family.vectors)
    _, K, _ = factors(family)
    v1, v2 = family.vectors.detach()

    def of_vectors(dv1: Tensor, dv2: Tensor) -> Tensor:
        return flat(angles, torch.stack((dv1, dv2)))

    def of_angles(*rates: float) -> Tensor:
        rate = torch.tensor(rates, dtype=torch.float64).unsqueeze(-1)
        return flat(rate.expand_as(angles), vectors)

    # R2 K R1 = K R(w) R1 with w = K^H v2. Turn both vectors together in the real plane that they span, after the free
    # phase of w has made <v1, w> real: two plane reflections make a rotation by twice the angle between them.
    w = K.mH @ v2
    w = w / w.norm()
    phase = torch.vdot(v1, w).sgn()
    e1 = v1 / v1.norm()
    e2 = w / phase - torch.vdot(e1, w / phase) * e1
    e2 = e2 / e2.norm()

    def turn(v: Tensor) -> Tensor:
        return torch.vdot(e1, v) * e2 - torch.vdot(e2, v) * e1

    zero = torch.zeros_like(v1)
    return {
        "scale of v1": of_vectors(v1, zero),
        "phase of v1": of_vectors(1j * v1, zero),
        "scale of v2": of_vectors(zero, v2),
        "phase of v2": of_vectors(zero, 1j * v2),
        "phase from D1 to D2": of_angles(1, -1, 0),
        "phase from D2 to D3": of_angles(0, 1, -1),
        "both vectors in their plane": of_vectors(turn(e1) * v1.norm(), K @ (phase * turn(w / phase)) * v2.norm()),
    }


def test_seven_redundant_directions_are_all_there_are() -> None:
    family = Restricted(8, dtype=torch.complex128)
    theta, to_matrix = family.chart()
    J = torch.func.jacrev(lambda t: torch.view_as_real(to_matrix(t)).reshape(-1))(theta)
    directions = redundant_directions(family)
    for name, direction in directions.items():
        assert direction.norm() > 0.1, name
        assert (J @ direction).norm() < 1e-12 * J.norm() * direction.norm(), name
    assert int(torch.linalg.matrix_rank(torch.stack(list(directions.values())))) == 7
    assert theta.numel() - int(torch.linalg.matrix_rank(J)) == 7


def test_a_finite_turn_in_the_plane_keeps_W() -> None:
    """The seventh direction is no accident of the first order: following it keeps W."""
    family = Restricted(8, dtype=torch.complex128)
    W = family().detach().clone()
    before = family.vectors.detach().clone()
    for _ in range(100):
        step = redundant_directions(family)["both vectors in their plane"][24:].view(2, 8, 2)
        with torch.no_grad():
            family.vectors += 0.01 * torch.view_as_complex(step.contiguous())
    assert (family.vectors - before).norm() > 0.3 * before.norm()
    torch.testing.assert_close(family().detach(), W, rtol=0, atol=2e-2)
