"""Steps along U(n): what Eq. 6 promises, as theorems."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from urnn.linalg import (
    cayley_step,
    exponential,
    exponential_step,
    haar_unitary,
    is_unitary_matrix,
    lie_gradient,
    newton_schulz,
    reals_from_skew,
    skew,
    skew_from_reals,
    tangent_projection,
    unitarity_defect,
)

STEPS = (cayley_step, exponential_step)
Step = Callable[[Tensor, Tensor, float | Tensor], Tensor]


def random_matrices(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex128)


class Problem:
    """f(W) = ||W X - Y||^2 for many random problems at once, at a random W, with autograd's gradient there."""

    def __init__(self, problems: int, n: int = 6, columns: int = 9) -> None:
        self.W = haar_unitary(n, (problems,), dtype=torch.complex128)
        self.X, self.Y = random_matrices(2, problems, n, columns)
        leaf = self.W.clone().requires_grad_()
        self.f(leaf).sum().backward()
        assert leaf.grad is not None
        self.G = leaf.grad

    def f(self, W: Tensor) -> Tensor:
        return (W @ self.X - self.Y).abs().square().sum((-2, -1))


def printed_A(W: Tensor, G: Tensor) -> Tensor:
    """What the paper prints under Eq. 6; right for a product from the other side."""
    return G.mH @ W - W.mH @ G


def test_skew_coordinates_are_an_isometry_onto_the_skew_hermitian_matrices() -> None:
    S = torch.randn(3, 5, 5, dtype=torch.float64)
    A = skew_from_reals(S)
    assert torch.equal(A, -A.mH)
    torch.testing.assert_close(reals_from_skew(A), S)
    torch.testing.assert_close(torch.linalg.matrix_norm(A), torch.linalg.matrix_norm(S))


def test_skew_splits_off_the_hermitian_part() -> None:
    X = random_matrices(4, 4)
    assert torch.equal(skew(X), -skew(X).mH)
    rest = X - skew(X)
    torch.testing.assert_close(rest, rest.mH)


def test_lie_gradient_is_skew_and_zero_at_a_minimum() -> None:
    W = haar_unitary(5, dtype=torch.complex128)
    A = lie_gradient(W, random_matrices(5, 5))
    assert torch.equal(A, -A.mH)
    assert lie_gradient(W, 3 * W).abs().max() < 1e-14  # G = c W: f = ||W - c W||^2 cannot fall


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("step", STEPS)
def test_steps_stay_unitary(step: Step, n: int, dtype: torch.dtype) -> None:
    W = haar_unitary(n, (2, 3), dtype=dtype)
    A = skew(torch.randn(2, 3, n, n, dtype=dtype))
    assert is_unitary_matrix(step(W, A, 0.7))
    torch.testing.assert_close(step(W, A, torch.tensor(0.7))[1, 2], step(W[1, 2], A[1, 2], 0.7))


def test_cayley_and_exponential_differ_by_the_third_order() -> None:
    W = haar_unitary(6, dtype=torch.complex128)
    A = skew(random_matrices(6, 6))
    A = A / torch.linalg.matrix_norm(A, 2)
    lrs = 0.2 * 2.0 ** -torch.arange(6, dtype=torch.float64)  # the distance, lr^3 / 12, stays above 1e-8
    log_distance = torch.stack([(cayley_step(W, A, lr) - exponential_step(W, A, lr)).norm().log() for lr in lrs])
    design = torch.stack((lrs.log(), torch.ones_like(lrs)), -1)
    slope = float(torch.linalg.lstsq(design, log_distance.unsqueeze(-1)).solution[0])
    assert abs(slope - 3) < 0.02


@pytest.mark.parametrize("step", STEPS)
def test_the_loss_starts_to_fall_at_half_the_squared_norm_of_A(step: Step) -> None:
    problem = Problem(20)
    A = lie_gradient(problem.W, problem.G)
    lr = torch.zeros(20, 1, 1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(problem.f(step(problem.W, A, lr)).sum(), lr)
    torch.testing.assert_close(slope.flatten(), -A.abs().square().sum((-2, -1)) / 2)


def lowered(step: Step, direction: Callable[[Tensor, Tensor], Tensor]) -> int:
    problem = Problem(1000)
    A = direction(problem.W, problem.G)
    lr = 1e-3 / torch.linalg.matrix_norm(A)[:, None, None]  # small against the curvature
    return int((problem.f(step(problem.W, A, lr)) < problem.f(problem.W)).sum())


@pytest.mark.parametrize("step", STEPS)
def test_a_small_step_lowers_the_loss_on_all_of_1000_problems(step: Step) -> None:
    assert lowered(step, lie_gradient) == 1000


def test_the_printed_A_lowers_it_on_about_half() -> None:
    assert 400 < lowered(cayley_step, printed_A) < 600  # a coin would leave this at six standard deviations


def test_tangent_projection_is_the_orthogonal_projection_on_the_tangent_space() -> None:
    W = haar_unitary(5, (3,), dtype=torch.complex128)
    Z = random_matrices(3, 5, 5)
    P = tangent_projection(W, Z)
    assert (P.mH @ W + W.mH @ P).abs().max() < 1e-14
    torch.testing.assert_close(tangent_projection(W, P), P)
    other_tangent = W @ skew(random_matrices(3, 5, 5))
    inner = ((Z - P).conj() * other_tangent).real.sum((-2, -1))
    torch.testing.assert_close(inner, torch.zeros_like(inner))


def test_newton_schulz_turns_a_defect_d_into_three_quarters_of_its_square() -> None:
    U = haar_unitary(6, (2,), dtype=torch.complex128)
    d = 1e-3
    W = newton_schulz(U * math.sqrt(1 + d))  # W^H W = (1 + d) I
    expected = torch.full((2,), (3 * d**2 - d**3) / 4, dtype=torch.float64)
    torch.testing.assert_close(unitarity_defect(W), expected, rtol=1e-9, atol=0)
    assert is_unitary_matrix(newton_schulz(newton_schulz(W)))


@pytest.mark.parametrize("size", [0.01, 0.045, 0.05, 0.5, 3.0])
def test_exponential_of_one_matrix_is_as_exact_as_of_a_batch(size):
    A = skew(torch.randn(4, 4, dtype=torch.complex128))
    A = A * size / torch.linalg.matrix_norm(A, 1)
    phases, Q = torch.linalg.eigh(A / 1j)
    expected = (Q * torch.exp(1j * phases)) @ Q.mH
    for batch in ((), (1,), (3,)):
        shape = (*batch, 4, 4)
        torch.testing.assert_close(exponential(A.expand(shape)), expected.expand(shape), rtol=0, atol=1e-14)
