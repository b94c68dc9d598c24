"""The nonlinearities and their hand-written gradients, from zero through subnormals to the largest numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from urnn.ops import BACKEND_NAMES, NONLINEARITIES, recurrence
from urnn.ops.nonlinearity import PAPER_EPSILON

modrelu = NONLINEARITIES["modrelu"]
PRECISIONS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
MAGNITUDES = {  # subnormal, at the ends of the range, and where the note draws its lines
    torch.complex64: (1e-45, 1e-41, 1e-38, 1e-30, 1e-19, 2e-19, 1e-6, 1.0, 1e6, 1e18, 1e20, 1e30, 1e38, 3.4e38),
    torch.complex128: (5e-324, 1e-310, 1e-300, 1e-160, 1e-153, 1e-6, 1.0, 1e6, 1e150, 1e160, 1e300, 1.7e308),
}
DIRECTIONS = (1, -1, 1j, -1j, 0.6 + 0.8j, -0.8 + 0.6j, 1 - 1j, 1e-3 - 1j)
BIASES = (-2.0, -0.5, -1e-20, 0.0, 1e-20, 0.5, 2.0)


def grid(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every magnitude in every direction with every bias, and z = 0."""
    values = [0j] + [
        complex(size * complex(d).real, size * complex(d).imag) for size in MAGNITUDES[dtype] for d in DIRECTIONS
    ]
    z = torch.tensor(values, dtype=dtype)
    b = torch.tensor(BIASES, dtype=PRECISIONS[dtype])
    return z.repeat_interleave(len(b)), b.repeat(len(z))


def eq_2(z: Tensor, b: Tensor) -> Tensor:
    """Eq. 2 as the paper prints it, safe in double precision for numbers of single precision."""
    z, b = z.to(torch.complex128), b.double()
    r = z.abs()
    return torch.where((r + b >= 0) & (r > 0), (r + b) * z / r.where(r > 0, 1.0), 0.0)


def by_autograd(name: str, g: Tensor, z: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    z, b = z.clone().requires_grad_(), b.clone().requires_grad_()
    gradients = torch.autograd.grad(
        NONLINEARITIES[name].forward(z, b), (z, b), g, allow_unused=True, materialize_grads=True
    )
    return gradients[0], gradients[1]


def rounding(g: Tensor, z: Tensor, b: Tensor) -> Tensor:
    """What rounding may do to a gradient: the part across the radius is a difference stretched by 1 + b/|z|."""
    info = torch.finfo(z.dtype)
    return 16 * info.eps * g.abs() * (1 + b.abs() / z.abs().clamp(min=info.tiny**0.5))


# Eq. 2


@pytest.mark.parametrize(
    ("z", "b", "h"),
    [
        (3 + 4j, 0.0, 3 + 4j),
        (3 + 4j, -1.0, 2.4 + 3.2j),
        (3 + 4j, -5.0, 0j),
        (3 + 4j, -6.0, 0j),
        (3 + 4j, 5.0, 6 + 8j),
        (-2.0, -0.5, -1.5),
        (0j, 0.5, 0j),
        (0j, 0.0, 0j),
        (0j, -0.5, 0j),
    ],
)
def test_modrelu_by_hand(z: complex, b: float, h: complex) -> None:
    value = modrelu.forward(torch.tensor(z, dtype=torch.complex128), torch.tensor(b, dtype=torch.float64))
    torch.testing.assert_close(value, torch.tensor(h, dtype=torch.complex128))


def test_modrelu_is_eq_2_over_the_whole_range() -> None:
    z, b = grid(torch.complex64)
    error = (modrelu.forward(z, b).to(torch.complex128) - eq_2(z, b)).abs()
    # A few roundings of numbers of the size of |z| and b, and half a subnormal.
    size = z.to(torch.complex128).abs() + b.abs()
    assert (error <= 4 * torch.finfo(torch.float32).eps * size + 1e-45).all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_modrelu_keeps_z_bit_by_bit_where_b_is_zero(dtype: torch.dtype) -> None:
    z, _ = grid(dtype)
    assert torch.equal(modrelu.forward(z, torch.zeros_like(z.real)), z)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_modrelu_and_its_gradients_are_finite_for_every_finite_z(dtype: torch.dtype) -> None:
    z, b = grid(dtype)
    g = torch.full_like(z, 1 - 2j)
    results = (modrelu.forward(z, b), *modrelu.backward(g, z, b), *by_autograd("modrelu", g, z, b))
    assert all(bool(torch.isfinite(r).all()) for r in results)


def test_modrelu_has_value_and_gradient_zero_at_zero() -> None:
    z, b = torch.zeros(7, dtype=torch.complex64), torch.tensor(BIASES)
    g = torch.ones_like(z)
    for result in (modrelu.forward(z, b), *modrelu.backward(g, z, b), *by_autograd("modrelu", g, z, b)):
        assert torch.equal(result, torch.zeros_like(result))


def test_modrelu_gradient_has_the_closed_form() -> None:
    """Along the radius the gradient passes; across it it is stretched by 1 + b/|z|."""
    z = torch.randn(50, dtype=torch.complex128)
    b = torch.full((50,), -0.3, dtype=torch.float64)
    e, r = z / z.abs(), z.abs()
    active = r > 0.3
    radial, tangential = modrelu.backward(e, z, b), modrelu.backward(1j * e, z, b)
    torch.testing.assert_close(radial[0], torch.where(active, e, 0))
    torch.testing.assert_close(tangential[0], torch.where(active, (1 + b / r) * 1j * e, 0))
    torch.testing.assert_close(radial[1], active.double())
    torch.testing.assert_close(tangential[1], torch.zeros_like(r), rtol=0, atol=1e-15)


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(re=finite, im=finite, b=st.floats(-1e3, 1e3, width=32))
def test_modrelu_on_any_finite_number(re: float, im: float, b: float) -> None:
    z, bias = torch.tensor(complex(re, im), dtype=torch.complex64), torch.tensor(b)
    h = modrelu.forward(z, bias)
    size = math.hypot(re, im) + abs(b)
    assert abs(complex(h) - complex(eq_2(z, bias))) <= 4 * torch.finfo(torch.float32).eps * size + 1e-45
    g = torch.tensor(1 + 1j, dtype=torch.complex64)
    for explicit, automatic in zip(modrelu.backward(g, z, bias), by_autograd("modrelu", g, z, bias), strict=True):
        assert bool(torch.isfinite(explicit))
        assert (explicit - automatic).abs() <= rounding(g, z, bias)


# The two other forms


def test_epsilon_form_is_the_released_code() -> None:
    z, b = torch.randn(2, 40, dtype=torch.complex128)
    b = b.real
    m = torch.sqrt(PAPER_EPSILON + z.abs() ** 2)
    torch.testing.assert_close(
        NONLINEARITIES["modrelu_epsilon"].forward(z, b), z * torch.relu(m + b) / (m + PAPER_EPSILON)
    )


@pytest.mark.parametrize(("name", "kept"), [("modrelu", 1.0), ("modrelu_epsilon", 0.344), ("hard", 1.0)])
def test_what_2000_steps_at_zero_bias_keep_of_a_small_state(name: str, kept: float) -> None:
    z, b = torch.tensor([0.03 + 0j], dtype=torch.complex128), torch.zeros(1, dtype=torch.float64)
    for _ in range(2000):
        z = NONLINEARITIES[name].forward(z, b)
    assert abs(float(z.abs()) / 0.03 - kept) < 1e-3


@pytest.mark.parametrize(
    ("z", "b", "h"), [(3 + 4j, -4.9, 3 + 4j), (3 + 4j, -5.0, 0j), (3 + 4j, 1.0, 3 + 4j), (0j, 1.0, 0j)]
)
def test_hard_threshold_by_hand(z: complex, b: float, h: complex) -> None:
    value = NONLINEARITIES["hard"].forward(
        torch.tensor(z, dtype=torch.complex128), torch.tensor(b, dtype=torch.float64)
    )
    assert complex(value) == h


# All of them


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", NONLINEARITIES)
def test_backward_is_what_autograd_finds(name: str, dtype: torch.dtype) -> None:
    z, b = grid(dtype)
    # The epsilon form squares in its gradient: that of the released code leaves the range, where Eq. 2 does not.
    usual = (z.real.abs() < 1e18) & (z.imag.abs() < 1e18) if name == "modrelu_epsilon" else torch.ones_like(b).bool()
    z, b = z[usual], b[usual]
    g = torch.randn(z.shape, dtype=dtype)
    for explicit, automatic in zip(NONLINEARITIES[name].backward(g, z, b), by_autograd(name, g, z, b), strict=True):
        assert ((explicit - automatic).abs() <= rounding(g, z, b)).all()


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_gradcheck(name: str) -> None:
    sigma = NONLINEARITIES[name].forward
    z = torch.randn(6, 5, dtype=torch.complex128, requires_grad=True)
    b = torch.tensor([-0.4, -0.1, 0.0, 0.1, 0.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sigma, (z, b))
    assert torch.autograd.gradgradcheck(sigma, (z, b))


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize("nonlinearity", ["modrelu", "hard"])
@pytest.mark.parametrize("where", ["x", "weight_ih", "weight_hh", "bias", "h_0"])
def test_a_nan_is_not_swallowed(backend, nonlinearity, where):
    tensors = {
        "x": torch.ones(3, 2, 2),
        "weight_ih": torch.ones(4, 2, dtype=torch.complex64),
        "weight_hh": torch.eye(4, dtype=torch.complex64),
        "bias": torch.zeros(4),
        "h_0": torch.ones(2, 4, dtype=torch.complex64),
    }
    if where == "bias" and nonlinearity == "hard":
        pytest.skip("a threshold that is NaN is never undercut: hard lets everything through")
    tensors[where] = torch.full_like(tensors[where], torch.nan).requires_grad_()
    h, _ = recurrence(**tensors, nonlinearity=nonlinearity, backend=backend)
    assert bool(h.isnan().any())
    (gradient,) = torch.autograd.grad(h.abs().sum(), tensors[where])
    assert bool(gradient.isnan().any())
