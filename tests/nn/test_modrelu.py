"""``ModReLU`` against Eq. 2, and what ``bias_constraint="nonpositive"`` promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import urnn
from urnn import ModReLU, UnitaryRNN, UnitaryRNNCell

NAMES = list(urnn.ops.NONLINEARITIES)


def with_bias(values, **options):
    module = ModReLU(len(values), dtype=torch.float64, **options)
    with torch.no_grad():
        module.bias.copy_(torch.tensor(values, dtype=torch.float64))
    return module


def by_hand(name, z, b):
    r = z.abs()
    if name == "modrelu":
        return torch.where(r + b > 0, (r + b) * z / r, 0)
    if name == "hard":
        return torch.where(r + b > 0, z, 0)
    m = torch.sqrt(1e-5 + r**2)
    return z * torch.relu(m + b) / (m + 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_the_formula(name):
    module = with_bias([-0.5, 0.0, 0.3, -5.0], nonlinearity=name)
    z = torch.randn(50, 4, dtype=torch.complex128)
    h = module(z)
    torch.testing.assert_close(h, by_hand(name, z, module.bias.detach()), rtol=1e-13, atol=1e-13)
    assert bool((h[:, 3] == 0).all())
    assert bool((h[:, 1] != 0).all())


@pytest.mark.parametrize("constraint", [None, "nonpositive"])
@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_derivatives(name, constraint):
    module = ModReLU(3, nonlinearity=name, bias_constraint=constraint, dtype=torch.float64)
    z = torch.randn(2, 3, dtype=torch.complex128, requires_grad=True)
    b = torch.tensor([-0.2, 0.3, 0.1], dtype=torch.float64, requires_grad=True)

    def f(z, b):
        return torch.func.functional_call(module, {"bias": b}, z)

    assert torch.autograd.gradcheck(f, (z, b))
    assert torch.autograd.gradgradcheck(f, (z, b))


@pytest.mark.parametrize("z", [0.0, 1e-45, 1e-30, 1e-19, 1e19, 1e38, -1e-45j, 1e-40 + 1e-45j, 3e38 + 1j])
@pytest.mark.parametrize("bias", [-0.1, 0.0, 0.1])
def test_value_and_gradient_are_finite_for_every_finite_z(bias, z):
    module = ModReLU(1)
    torch.nn.init.constant_(module.bias, bias)
    z = torch.tensor([z], dtype=torch.complex64, requires_grad=True)
    h = module(z)
    torch.view_as_real(h).sum().backward()
    for tensor in (h, z.grad, module.bias.grad):
        assert bool(torch.isfinite(tensor).all())
    if z.item() == 0:
        assert h.item() == z.grad.item() == module.bias.grad.item() == 0


def test_initial_bias_is_uniform_on_a_hundredth():
    module = ModReLU(2000)
    assert 0.0099 < float(module.bias.detach().abs().max()) <= 0.01
    assert abs(float(module.bias.detach().mean())) < 5 * 0.01 / (3 * 2000) ** 0.5
    before = module.bias.detach().clone()
    module.reset_parameters()
    assert not torch.equal(module.bias, before)


def test_printing():
    assert ModReLU(4).extra_repr() == "4"
    module = ModReLU(4, nonlinearity="hard", bias_constraint="nonpositive")
    assert module.extra_repr() == "4, nonlinearity='hard', bias_constraint='nonpositive'"


@pytest.mark.parametrize(
    ("z", "error", "message"),
    [
        (1.0, TypeError, r"^z: expected a torch.Tensor, got float$"),
        (torch.zeros(2, 4), TypeError, r"^z: expected torch.complex64, got torch.float32$"),
        (torch.zeros(2, 4).cdouble(), TypeError, r"^z: expected torch.complex64, got torch.complex128$"),
        (torch.zeros(4, 2).cfloat(), ValueError, r"^z: expected shape \(\.\.\., 4\), got \(4, 2\)$"),
        (torch.zeros(()).cfloat(), ValueError, r"^z: expected shape \(\.\.\., 4\), got \(\)$"),
        (torch.zeros(4, device="meta").cfloat(), ValueError, r"^z: expected the device of the bias, cpu, got meta$"),
    ],
)
def test_bad_input_says_what_was_expected(z, error, message):
    with pytest.raises(error, match=message):
        ModReLU(4)(z)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_features": 0}, ValueError, r"^num_features: expected an int >= 1, got 0$"),
        ({"num_features": False}, TypeError, r"^num_features: expected an int, got bool"),
        ({"nonlinearity": "relu"}, ValueError, r"^nonlinearity: expected one of .*, got 'relu'"),
        (
            {"bias_constraint": "negative"},
            ValueError,
            r"^bias_constraint: expected one of \['nonpositive'\], got 'negative'",
        ),
        ({"dtype": torch.float16}, TypeError, r"^dtype: expected float32"),
    ],
)
def test_bad_options_say_what_was_expected(options, error, message):
    with pytest.raises(error, match=message):
        ModReLU(**{"num_features": 4, **options})


# The constraint


def test_a_positive_bias_is_folded_over_and_keeps_a_gradient():
    module = with_bias([-0.5, 0.2, 0.5, 0.0], bias_constraint="nonpositive")
    z = torch.full((4,), 2.0, dtype=torch.complex128)
    h = module(z)
    torch.testing.assert_close(h, torch.tensor([1.5, 1.8, 1.5, 2.0]).to(h))
    h.real.sum().backward()
    assert module.bias.grad.tolist() == [1.0, -1.0, -1.0, 1.0]


@pytest.mark.parametrize("family", list(urnn.PARAMETRIZATIONS))
@pytest.mark.parametrize("nonlinearity", ["modrelu", "hard"])
def test_with_the_constraint_the_norm_never_grows_without_input(nonlinearity, family):
    rnn = UnitaryRNN(
        1, 8, parametrization=family, nonlinearity=nonlinearity, bias_constraint="nonpositive", dtype=torch.float64
    )
    torch.nn.init.uniform_(rnn.bias_l0, -0.05, 0.05)
    with torch.no_grad():
        h, _ = rnn(torch.zeros(60, 3, 1, dtype=torch.float64), torch.randn(1, 3, 8, dtype=torch.complex128))
    norms = torch.linalg.vector_norm(h, dim=-1)
    assert bool((norms[1:] <= norms[:-1] * (1 + 1e-14)).all())
    assert nonlinearity == "hard" or bool((norms[-1] < 0.9 * norms[0]).all())  # Eq. 2 shortens, thresholding need not


@pytest.mark.parametrize("family", list(urnn.PARAMETRIZATIONS))
def test_with_zero_bias_the_norm_stays(family):
    """Eq. 2 has no epsilon: 500 steps in double keep the norm to rounding."""
    rnn = UnitaryRNN(1, 8, parametrization=family, bias=False, dtype=torch.float64)
    h_0 = 1e-3 * torch.randn(1, 3, 8, dtype=torch.complex128)
    with torch.no_grad():
        _, h_n = rnn(torch.zeros(500, 3, 1, dtype=torch.float64), h_0)
    torch.testing.assert_close(h_n.norm(dim=-1), h_0.norm(dim=-1), rtol=500 * 1e-15, atol=0)


FLOATS = st.floats(-4, 4, allow_subnormal=True)
ENTRIES = st.lists(st.complex_numbers(max_magnitude=4), min_size=3, max_size=3)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    h=ENTRIES,
    other=ENTRIES,
    x=FLOATS,
    biases=st.lists(FLOATS, min_size=3, max_size=3),
    seed=st.integers(0, 20),
    nonlinearity=st.sampled_from(["modrelu", "modrelu_epsilon"]),
)
def test_with_the_constraint_a_step_is_1_lipschitz(h, other, x, biases, seed, nonlinearity):
    """|step(h) - step(h')| <= |h - h'|, to the rounding of products of numbers below 10."""
    torch.manual_seed(seed)
    cell = UnitaryRNNCell(1, 3, nonlinearity=nonlinearity, bias_constraint="nonpositive", dtype=torch.float64)
    with torch.no_grad():
        cell.bias.copy_(torch.tensor(biases))
        states = torch.tensor([h, other], dtype=torch.complex128)
        after = cell(torch.full((2, 1), x, dtype=torch.float64), states)
    before = float(torch.linalg.vector_norm(states[0] - states[1]))
    assert float(torch.linalg.vector_norm(after[0] - after[1])) <= before + 1e-13


@pytest.mark.parametrize(
    ("options", "bias", "states"),
    [
        ({}, 1.0, (1e-6, -1e-6)),
        ({"nonlinearity": "hard", "bias_constraint": "nonpositive"}, -1.0, (1 - 1e-6, 1 + 1e-6)),
    ],
    ids=["positive_bias", "hard_thresholding"],
)
def test_what_is_not_1_lipschitz(options, bias, states):
    """The theorem above is about the sign of b and about Eq. 2: these two tear close states apart."""
    after = with_bias([bias], **options)(torch.tensor(states, dtype=torch.complex128).unsqueeze(-1))
    assert (after[0] - after[1]).abs().item() > 0.9
