"""What every family promises, tested over the table: a new line in ``PARAMETRIZATIONS`` is enrolled by itself."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import urnn.parametrizations
from urnn.capacity import jacobian_rank
from urnn.linalg import haar_unitary, is_unitary_matrix
from urnn.parametrizations import PARAMETRIZATIONS, Householder, Parametrization, build

SIZES = (1, 2, 3, 5, 8)
BATCHES = ((), (2, 3))
PRECISIONS = (torch.float32, torch.complex64, torch.float64, torch.complex128)


@dataclass(frozen=True)
class Case:
    """A family with its options, and what ``load_unitary`` takes: ``any`` matrix, its ``members``, or ``nothing``."""

    family: str
    takes: str = "nothing"
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, n: int, batch_shape: tuple[int, ...] = (), **settings: Any) -> Parametrization:
        return build(self.family, n, batch_shape, **self.options, **settings)

    def double(self, n: int, batch_shape: tuple[int, ...] = ()) -> Parametrization:
        return self.build(n, batch_shape, dtype=torch.complex128)

    def __str__(self) -> str:
        return "-".join((self.family, *(f"{k}={v}" for k, v in self.options.items())))


KNOWN = [
    Case("full", "any"),
    Case("restricted"),
    Case("householder", "any"),
    Case("householder", "members", {"reflections": 1}),
    Case("householder", "nothing", {"phase": "pi"}),
    Case("givens", "any"),
    Case("givens", "any", {"layers": 9}),
    Case("givens", "nothing", {"layout": "fft"}),
    Case("exponential", "any"),
    Case("cayley", "any"),
]
CASES = KNOWN + [Case(name) for name in PARAMETRIZATIONS if name not in {case.family for case in KNOWN}]


def taking(*what: str) -> list[Case]:
    return [case for case in CASES if case.takes in what]


every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_size = pytest.mark.parametrize("n", SIZES)
every_batch = pytest.mark.parametrize("batch_shape", BATCHES, ids=str)


def state(made: Parametrization) -> dict[str, Tensor]:
    """All parameters and buffers, those that are not saved too."""
    return {name: t.detach().clone() for name, t in (*made.named_parameters(), *made.named_buffers())}


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def moved(made: Parametrization) -> Parametrization:
    """``made`` at a generic point of its chart; families start where some coordinates are special."""
    if not made.direct:
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


# The table


def leaves(cls: type[Parametrization]) -> set[type[Parametrization]]:
    """Classes of the package that none of its own builds on; tests may have made others."""
    below = [sub for sub in cls.__subclasses__() if sub.__module__.startswith("urnn.")]
    return {leaf for sub in below for leaf in leaves(sub)} if below else {cls}


def test_every_family_of_the_package_is_in_the_table() -> None:
    for module in pkgutil.iter_modules(urnn.parametrizations.__path__):
        importlib.import_module(f"urnn.parametrizations.{module.name}")
    inside = leaves(Parametrization)
    assert inside == set(PARAMETRIZATIONS.values())
    assert {cls.__name__ for cls in inside} <= set(urnn.parametrizations.__all__)


# W


@every_batch
@pytest.mark.parametrize("dtype", PRECISIONS)
@every_case
def test_W_is_unitary_in_its_precision(case: Case, dtype: torch.dtype, batch_shape: tuple[int, ...]) -> None:
    for n in SIZES:
        W = moved(case.build(n, batch_shape, dtype=dtype))()
        assert W.shape == (*batch_shape, n, n)
        assert W.dtype == (torch.complex64 if dtype in (torch.float32, torch.complex64) else torch.complex128)
        assert is_unitary_matrix(W)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@every_case
def test_W_of_a_large_matrix_is_unitary(case: Case, dtype: torch.dtype) -> None:
    assert is_unitary_matrix(moved(case.build(100, dtype=dtype))())


@every_batch
@pytest.mark.parametrize("n", [1, 2, 5])
@every_case
def test_apply_to_is_the_product_with_W(case: Case, n: int, batch_shape: tuple[int, ...]) -> None:
    made = moved(case.double(n, batch_shape))
    x = torch.randn(4, *batch_shape, n, dtype=torch.complex128)
    expected = torch.einsum("...ij,...j->...i", made(), x)
    torch.testing.assert_close(made.apply_to(x), expected)
    cotangent = torch.randn_like(x)
    through_apply, through_W = (
        torch.autograd.grad(y, list(made.parameters()), cotangent) for y in (made.apply_to(x), expected)
    )
    torch.testing.assert_close(through_apply, through_W)


@every_case
def test_a_batch_is_each_matrix_alone(case: Case) -> None:
    made, single = moved(case.double(5, (2, 3))), case.double(5)
    ranks = {name: t.dim() for name, t in state(single).items()}
    W = made()
    for i, j in ((0, 0), (1, 2)):
        values = {name: t[i, j] if t.dim() == ranks[name] + 2 else t for name, t in state(made).items()}
        single.load_state_dict({name: values[name] for name in single.state_dict()})
        torch.testing.assert_close(single(), W[i, j])


@every_case
def test_vmap_over_the_map(case: Case) -> None:
    made = moved(case.double(4))
    values = [torch.stack((p.detach(), 2 * p.detach())) for p in made.parameters()]
    mapped = torch.vmap(made.matrix)(*values)
    for i in range(2):
        torch.testing.assert_close(mapped[i], made.matrix(*(v[i] for v in values)))


@every_case
def test_an_empty_ensemble(case: Case) -> None:
    made = case.build(3, (0,))
    assert made().shape == (0, 3, 3)
    assert made.num_real_params == case.build(3).num_real_params


# Parameters


@every_size
@every_case
def test_count_is_that_of_the_stored_reals_and_of_the_chart(case: Case, n: int) -> None:
    made = case.build(n)
    stored = sum(p.numel() * (2 if p.is_complex() else 1) for p in made.parameters())
    assert made.num_real_params == (n * n if made.direct else stored)
    assert made.chart()[0].numel() == made.num_real_params
    assert case.build(n, (2, 3)).num_real_params == made.num_real_params


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@every_case
def test_rank_is_bounded_by_the_count_and_the_dimension(case: Case, n: int) -> None:
    made = moved(case.double(n))
    theta, to_matrix = made.chart()
    assert jacobian_rank(to_matrix, theta).rank <= min(made.num_real_params, n * n)


@every_case
def test_chart_starts_at_W(case: Case) -> None:
    made = moved(case.double(4))
    theta, to_matrix = made.chart()
    assert not theta.is_complex()
    torch.testing.assert_close(to_matrix(theta), made().detach())


@pytest.mark.parametrize("batch_shape", [(), (2,)], ids=str)
@every_case
def test_gradcheck_of_the_map_from_its_reals(case: Case, batch_shape: tuple[int, ...]) -> None:
    theta, to_matrix = moved(case.double(3, batch_shape)).chart()
    theta.requires_grad_()
    assert torch.autograd.gradcheck(to_matrix, theta)
    assert torch.autograd.gradgradcheck(to_matrix, theta, fast_mode=True)  # entry by entry in the next test


@every_case
def test_gradcheck_of_the_map_from_its_parameters(case: Case) -> None:
    made = moved(case.double(2))
    values = tuple(p.detach().requires_grad_() for p in made.parameters())
    assert torch.autograd.gradcheck(made.matrix, values)
    assert torch.autograd.gradgradcheck(made.matrix, values)


# Randomness


@every_case
def test_the_generator_decides(case: Case) -> None:
    first, second, other = (case.build(4, (2,), generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert_same(state(first), state(second))
    assert not torch.equal(first(), other())
    other.reset_parameters(torch.Generator().manual_seed(1))
    assert_same(state(other), state(first))


@every_case
def test_the_generator_alone_decides(case: Case) -> None:
    before = torch.get_rng_state()
    case.build(4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), before)


@every_case
def test_reset_draws_a_new_member(case: Case) -> None:
    made = case.build(4, (2,))
    before = made().detach().clone()
    made.reset_parameters()
    assert is_unitary_matrix(made())
    assert not torch.isclose(made(), before).all(-1).all(-1).any()


# Saving, loading, moving


@every_batch
@every_case
def test_state_dict_round_trip(case: Case, batch_shape: tuple[int, ...]) -> None:
    made, other = moved(case.build(5, batch_shape)), case.build(5, batch_shape)
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(), made())


@every_case
def test_double_is_unitary_to_double_precision_and_back(case: Case) -> None:
    made = moved(case.build(16, (2,)))
    before = made().detach().clone()
    for convert in (nn.Module.double, lambda module: module.float().to(torch.float64)):
        fine = convert(made)
        assert fine().dtype == torch.complex128
        assert is_unitary_matrix(fine())
        torch.testing.assert_close(fine().to(torch.complex64), before, rtol=0, atol=1e-5)
    torch.testing.assert_close(made.float()(), before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_case
def test_half_precision_is_refused(case: Case, dtype: torch.dtype) -> None:
    made = case.build(4)
    before = state(made)
    with pytest.raises(
        TypeError, match=rf"dtype: expected float32 or float64 \(or their complex types\), got {dtype}. PyTorch"
    ):
        made.to(dtype)
    assert_same(state(made), before)


# load_unitary and right_inverse


@every_batch
@every_size
@pytest.mark.parametrize("case", taking("any"), ids=str)
def test_load_unitary_hits_any_matrix(case: Case, n: int, batch_shape: tuple[int, ...]) -> None:
    made, W = case.double(n, batch_shape), haar_unitary(n, batch_shape, dtype=torch.complex128)
    made.load_unitary(W)
    torch.testing.assert_close(made(), W, rtol=0, atol=1e-12)
    torch.testing.assert_close(made.matrix(*made.right_inverse(W)), W, rtol=0, atol=1e-12)


@every_batch
@every_size
@pytest.mark.parametrize("case", taking("any", "members"), ids=str)
def test_load_unitary_hits_its_own_members(case: Case, n: int, batch_shape: tuple[int, ...]) -> None:
    W = moved(case.double(n, batch_shape))().detach()
    made = case.double(n, batch_shape)
    made.load_unitary(W)
    torch.testing.assert_close(made(), W, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "of"), [(torch.complex64, torch.complex128), (torch.complex128, torch.complex64)])
@pytest.mark.parametrize("case", taking("any"), ids=str)
def test_load_unitary_changes_precision(case: Case, dtype: torch.dtype, of: torch.dtype) -> None:
    made, W = case.build(8, dtype=dtype), haar_unitary(8, dtype=of)
    made.load_unitary(W)
    assert made().dtype == dtype
    assert is_unitary_matrix(made())
    torch.testing.assert_close(made(), W.to(dtype), rtol=0, atol=2e-5)


@pytest.mark.parametrize("case", taking("any"), ids=str)
def test_what_was_loaded_is_not_shared(case: Case) -> None:
    made, W = case.double(3), haar_unitary(3, dtype=torch.complex128)
    kept = W.clone()
    made.load_unitary(W)
    W.zero_()
    torch.testing.assert_close(made(), kept)


def assert_refused(made: Parametrization, W: object, error: type[Exception], message: str) -> None:
    before = state(made)
    with pytest.raises(error, match=message):
        made.load_unitary(W)  # type: ignore[arg-type]
    assert_same(state(made), before)


@pytest.mark.parametrize("case", taking("nothing"), ids=str)
def test_a_family_without_a_right_inverse_says_so(case: Case) -> None:
    message = rf"{PARAMETRIZATIONS[case.family].__name__} has no right inverse: .* parametrization='full' takes any W."
    made = case.double(4)
    assert_refused(made, haar_unitary(4, dtype=torch.complex128), NotImplementedError, message)
    assert_refused(made, made().detach(), NotImplementedError, message)


@pytest.mark.parametrize("case", taking("members"), ids=str)
def test_what_is_no_member_is_refused(case: Case) -> None:
    assert_refused(
        case.double(4), haar_unitary(4, dtype=torch.complex128), ValueError, r"W: expected rank\(W - I\) <= 1"
    )


I4 = torch.eye(4, dtype=torch.complex128)


@pytest.mark.parametrize(
    ("W", "error", "message"),
    [
        (1.5 * I4, ValueError, r"W: expected a unitary matrix, max\|W\^H W - I\| <= .* got 1.2e\+00"),
        (I4 * float("nan"), ValueError, r"W: expected finite entries, got NaN or inf"),
        (I4[:3, :3], ValueError, r"W: expected shape \(4, 4\), got \(3, 3\)"),
        (I4.expand(2, 4, 4), ValueError, r"W: expected shape \(4, 4\), got \(2, 4, 4\)"),
        (I4[:3], ValueError, r"W: expected shape \(\.\.\., n, n\) with n >= 1, got \(3, 4\)"),
        (I4.real, TypeError, r"W: expected complex64 or complex128, got torch.float64"),
        (None, TypeError, r"W: expected a torch.Tensor, got NoneType"),
    ],
)
@every_case
def test_bad_matrices_are_refused(case: Case, W: object, error: type[Exception], message: str) -> None:
    assert_refused(case.double(4), W, error, message)


class Wrong(Parametrization):
    """Moves a buffer, and then gives values that do not fit."""

    def _build(self) -> None:
        self._real_parameter("angle", 1)
        self.register_buffer("moved", torch.zeros(1))

    def initial_values(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        return (torch.zeros(1),)

    def matrix(self, *parameters: Tensor) -> Tensor:
        return torch.diag_embed(torch.polar(torch.ones(self.n), parameters[0].expand(self.n)))

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        self.moved = torch.ones(1)
        return (torch.ones(1),)


def test_a_right_inverse_that_misses_is_found_out() -> None:
    assert_refused(
        Wrong(2),
        torch.eye(2).cfloat(),
        ValueError,
        r"W: expected a member of Wrong\(2\), the nearest found is 9.6e-01 away",
    )


# Construction


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 0}, ValueError, r"n: expected an int >= 1, got 0"),
        ({"n": "4"}, TypeError, r"n: expected an int, got str \('4'\)"),
        ({"n": 4, "batch_shape": (-1,)}, ValueError, r"batch_shape: expected an int >= 0, got -1"),
        ({"n": 4, "batch_shape": (2.0,)}, TypeError, r"batch_shape: expected an int, got float"),
        (
            {"n": 4, "dtype": torch.float16},
            TypeError,
            r"dtype: expected float32, .* got torch.float16. PyTorch has no complex",
        ),
        ({"n": 4, "size": 3}, TypeError, r"size: expected an option of '.*', one of \[.*\]"),
    ],
)
@every_case
def test_bad_arguments(case: Case, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        case.build(**arguments)


def test_unknown_family() -> None:
    with pytest.raises(
        ValueError, match=r"parametrization: expected one of \['cayley', .*\], got 'householde'. Did you mean"
    ):
        build("householde", 4)


@pytest.mark.parametrize(
    "family", [Householder, partial(Householder, reflections=2), lambda *a, **k: Householder(*a, **k)]
)
def test_a_family_may_be_a_callable(family: Callable[..., Parametrization]) -> None:
    made = build(family, 4, (2,), dtype=torch.float64)
    assert isinstance(made, Householder)
    assert made.batch_shape == (2,)
    assert made().dtype == torch.complex128


def test_a_callable_must_make_a_family() -> None:
    with pytest.raises(
        TypeError, match=r"parametrization: expected a callable that makes a Parametrization, got Linear"
    ):
        build(lambda n, _: nn.Linear(n, n), 4)  # type: ignore[arg-type,return-value]


@every_case
def test_it_prints_its_options(case: Case) -> None:
    text = repr(case.build(4, (2,)))
    assert text.startswith(f"{PARAMETRIZATIONS[case.family].__name__}(4, batch_shape=(2,)")
    assert all(f"{name}={value!r}" in text for name, value in case.options.items())
