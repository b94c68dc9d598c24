"""What the analyser finds, against the dimensions that theory gives."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from urnn.capacity import SETTINGS, Capacity, analyze, smallest_full
from urnn.linalg import skew_from_reals
from urnn.parametrizations import PARAMETRIZATIONS, Householder


def assert_gap(found: Capacity) -> None:
    """What is kept stands far above the cut, what is dropped far below."""
    assert found.smallest_kept > 1e-7
    assert found.largest_dropped < 1e-10 * found.smallest_kept


# Ranks


@pytest.mark.parametrize(("n", "rank"), [*enumerate((4, 9, 16, 25, 35, 42, 49, 56, 63), start=2)])
def test_restricted_has_seven_redundant_directions(n: int, rank: int) -> None:
    found = analyze("restricted", n, points=2)
    assert found.rank == rank == min(n * n, 7 * n - 7)
    assert found.full == ("locally" if n <= 5 else False)
    assert found.full_by_counting == (False if n > 7 else None)
    assert found.redundant == 7 * n - rank
    assert_gap(found)


@pytest.mark.parametrize("k", range(1, 6))
def test_householder_is_the_matrices_that_differ_from_I_by_rank_k(k: int) -> None:
    found = analyze("householder", 5, reflections=k, points=1)
    assert found.rank == 25 - (5 - k) ** 2
    assert found.parameters == k * 11
    assert found.full == ("yes" if k == 5 else False)
    assert_gap(found)


def test_householder_with_fixed_phase_is_never_full() -> None:
    found = analyze("householder", 4, phase="pi", points=1)
    assert found.rank == 15  # the determinant is fixed
    assert found.full is False


@pytest.mark.parametrize(("n", "layers"), [(1, 1), (2, 1), (3, 3), (4, 4), (5, 5), (6, 6)])
def test_bricks_are_full_at_n_layers_and_not_before(n: int, layers: int) -> None:
    """At n = 2 the second layer has no pair, and one layer is enough."""
    found = analyze("givens", n, layers=layers, points=1)
    assert (found.parameters, found.rank, found.full) == (n * n, n * n, "yes")
    assert smallest_full("givens", n) == layers
    assert_gap(found)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("family", ["full", "exponential", "cayley"])
def test_families_of_full_capacity(family: str, n: int) -> None:
    found = analyze(family, n, points=1)
    assert (found.parameters, found.rank, found.dimension, found.full) == (n * n, n * n, n * n, "yes")
    assert found.full_by_counting is None
    assert_gap(found)


@pytest.mark.parametrize("family", PARAMETRIZATIONS)
def test_every_family_of_the_table_can_be_analysed(family: str) -> None:
    found = analyze(family, 3, points=1)
    assert 0 < found.rank <= min(found.parameters, found.dimension)
    assert_gap(found)


# Settings


def test_smallest_full() -> None:
    assert smallest_full("householder", 4) == 4
    assert smallest_full("givens", 4) == 4
    assert smallest_full("givens", 4, limit=3) is None
    assert smallest_full("householder", 3, phase="pi") is None
    assert smallest_full("givens", 4, limit=8, layout="fft") == 3  # 3 layers of 2 rotations and 4 phases: 16


def test_settings_are_options_of_their_family() -> None:
    for family, option in SETTINGS.items():
        assert analyze(family, 2, points=1, **{option: 1}).options[option] == 1


def test_seed_and_record() -> None:
    first, second, other = (analyze("givens", 3, seed=seed, layers=2) for seed in (1, 1, 2))
    assert first == second
    assert first.smallest_kept != other.smallest_kept
    assert (first.family, first.n, first.options) == ("givens", 3, {"layers": 2, "layout": "brick"})
    assert first.reached is None
    assert repr(first) == "Capacity(parameters=7, rank=7, dimension=9, full=False)"


def test_the_random_state_of_the_program_is_left_alone() -> None:
    before = torch.get_rng_state()
    analyze("restricted", 3)
    assert torch.equal(torch.get_rng_state(), before)


# Callables


def exponential(theta: Tensor, n: int = 2) -> Tensor:
    return torch.linalg.matrix_exp(skew_from_reals(theta.view(n, n)))


def test_a_plain_function_is_full_locally_at_most() -> None:
    found = analyze(exponential, 2, parameters=4)
    assert (found.parameters, found.rank, found.full, found.family) == (4, 4, "locally", "exponential")


def test_a_plain_function_short_of_dimensions() -> None:
    found = analyze(lambda t: torch.diag_embed(torch.polar(torch.ones_like(t), t)), 3, parameters=3)
    assert (found.rank, found.full, found.full_by_counting) == (3, False, False)


@pytest.mark.parametrize("family", [Householder, partial(Householder)])
def test_a_class_or_partial(family: Any) -> None:
    found = analyze(family, 3, points=1)
    assert (found.family, found.rank, found.full) == ("Householder", 9, "yes")


def test_targets_are_fitted_where_asked_for() -> None:
    assert analyze("givens", 2, points=1, targets=2).reached == 1.0
    assert analyze("householder", 3, points=1, targets=1, reflections=1).reached == 0.0


# Bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"family": "restricte", "n": 3},
            ValueError,
            r"family: expected one of .* Did you mean 'restricted'\?",
        ),
        ({"family": "restricted", "n": 0}, ValueError, r"n: expected an int >= 1, got 0"),
        ({"family": "restricted", "n": 3.0}, TypeError, r"n: expected an int, got float"),
        ({"family": "full", "n": 3, "points": 0}, ValueError, r"points: expected an int >= 1, got 0"),
        ({"family": "full", "n": 3, "targets": -1}, ValueError, r"targets: expected an int >= 0, got -1"),
        ({"family": "full", "n": 3, "layers": 1}, TypeError, r"layers: expected an option of 'full', one of \[\]"),
        ({"family": exponential, "n": 2, "parameters": -1}, ValueError, r"parameters: expected an int >= 0, got -1"),
        (
            {"family": "full", "n": 2, "parameters": 4},
            TypeError,
            r"family: expected a callable of a real vector, as parameters=4 is given, got 'full'",
        ),
        (
            {"family": exponential, "n": 2, "parameters": 4, "targets": 1},
            ValueError,
            r"targets: expected 0 for a plain function, got 1",
        ),
        ({"family": lambda t: [t], "n": 2, "parameters": 4}, TypeError, r"family: expected a torch.Tensor, got list"),
        (
            {"family": exponential, "n": 3, "parameters": 4},
            ValueError,
            r"family: expected shape \(3, 3\), got \(2, 2\)",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        analyze(**arguments)


def test_smallest_full_takes_tunable_families() -> None:
    with pytest.raises(ValueError, match=r"family: expected one of \['givens', 'householder'\], got 'full'"):
        smallest_full("full", 3)


@pytest.mark.parametrize("n", [13, 16, 24])
def test_givens_is_full_where_its_jacobian_is_badly_conditioned(n):
    assert analyze("givens", n).full == "yes"


def test_the_setting_that_is_searched_for_cannot_be_given():
    with pytest.raises(ValueError, match="reflections: expected none, as that is what is searched for, got 2"):
        smallest_full("householder", 4, reflections=2)


def test_options_that_the_analysis_sets_are_refused():
    with pytest.raises(TypeError, match="batch_shape: expected an option of the family"):
        analyze("restricted", 4, batch_shape=(2,))
