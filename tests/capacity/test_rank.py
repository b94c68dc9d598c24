import pytest
import torch
from torch import Tensor

from urnn.capacity import jacobian_rank
from urnn.linalg import skew_from_reals

ZERO = torch.zeros(3, dtype=torch.float64)


def torus(theta: Tensor) -> Tensor:
    """Diagonal phases, of which the third is the sum of the others: rank 2."""
    phases = torch.stack((theta[0], theta[1], theta[0] + theta[1]))
    return torch.diag_embed(torch.polar(torch.ones_like(phases), phases))


def test_rank_counts_the_independent_directions() -> None:
    found = jacobian_rank(torus, ZERO)
    assert found.rank == 2
    assert found.smallest_kept > 0.1
    assert found.largest_dropped < 1e-15


def test_rank_is_that_of_the_lie_algebra_at_a_regular_point() -> None:
    found = jacobian_rank(lambda t: torch.linalg.matrix_exp(skew_from_reals(t.view(3, 3))), torch.zeros(9).double())
    assert found == (9, pytest.approx(1.0), 0.0)  # an isometry: all singular values are equal, and none is dropped


@pytest.mark.parametrize("parameters", [0, 3])
def test_a_constant_has_rank_zero(parameters: int) -> None:
    eye = torch.eye(2, dtype=torch.complex128)
    assert jacobian_rank(lambda t: eye + 0 * t.sum(), torch.zeros(parameters).double()) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda t: t, TypeError, r"family: expected complex64 or complex128, got torch.float64"),
        (lambda t: t.cdouble(), ValueError, r"family: expected shape \(\.\.\., n, n\) with n >= 1, got \(3,\)"),
        (
            lambda t: 2 * torus(t),
            ValueError,
            r"family: expected a callable that gives unitary matrices, got .* = 3.0e\+00",
        ),
        (lambda t: torus(t) / 0, ValueError, r"family: expected a callable that gives unitary matrices, got .* = nan"),
    ],
)
def test_what_is_no_map_to_unitary_matrices(function: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        jacobian_rank(function, ZERO)  # type: ignore[arg-type]
