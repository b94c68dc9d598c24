"""What the cell and the layer share: parameter counts, initial values, printing, ``load_unitary``, bad options."""

import functools
import math

import pytest
import torch

import urnn
from urnn import UnitaryRNN, UnitaryRNNCell
from urnn.linalg import haar_unitary, unitarity_defect, unitarity_tol
from urnn.parametrizations import Givens, Householder

FAMILIES = list(urnn.PARAMETRIZATIONS)
HAVE_RIGHT_INVERSE = ("full", "householder", "givens", "exponential", "cayley")
BOTH = [UnitaryRNN, UnitaryRNNCell]


def real_parameters(*modules):
    """Real parameters as the paper counts them: W as its family counts it, a complex entry as two."""
    count = 0
    for module in modules:
        for name, p in module.named_parameters():
            if "parametrization_hh" not in name and not name.startswith("weight_hh"):
                count += p.numel() * (2 if p.is_complex() else 1)
        if isinstance(module, UnitaryRNN):
            W = module.weight_hh_l0
            family = getattr(module, "parametrization_hh_l0", None)
            count += W.shape[-1] ** 2 if family is None else family.num_real_params
    return count


@pytest.mark.parametrize(
    ("family", "hidden_size", "n_in", "n_out", "expected"),
    [
        ("full", 128, 10, 9, 21641),  # copy
        ("restricted", 470, 10, 9, 22569),
        ("full", 128, 129, 129, 82945),  # speech
        ("full", 192, 129, 129, 136641),
        ("full", 256, 129, 129, 198529),
        ("full", 116, 1, 10, 16366),  # pixel MNIST
        ("full", 512, 1, 10, 274954),
        ("restricted", 512, 1, 10, 16394),
    ],
)
def test_parameter_counts_are_those_of_the_paper(family, hidden_size, n_in, n_out, expected):
    rnn = UnitaryRNN(n_in, hidden_size, parametrization=family)
    assert real_parameters(rnn, urnn.ComplexToReal(hidden_size, n_out)) == expected


# Initial values


def bounds(suffix, m, n, complex_input):
    """What the docstring of reset_parameters promises, for each of Re and Im."""
    columns = (2 if complex_input else 1) * m
    return {
        f"weight_ih{suffix}": math.sqrt(6 / (columns + 2 * n)),
        f"bias{suffix}": 0.01,
        f"initial_state{suffix}": math.sqrt(3 / (2 * n)),
    }


def check_uniform(value, bound):
    """Within the bound, and with the standard deviation of a uniform distribution: bound / sqrt(3), to 5 sigma."""
    flat = torch.view_as_real(value).flatten() if value.is_complex() else value.flatten()
    assert float(flat.abs().max()) <= bound
    assert float(flat.abs().max()) > 0.9 * bound  # of 100 or more values; the seed is fixed
    # the variance of x^2 for x uniform on (-1, 1) is 4/45
    assert abs(float(flat.square().mean()) / bound**2 - 1 / 3) < 5 * math.sqrt(4 / 45 / flat.numel())


@pytest.mark.parametrize("m", [10, 100], ids=["narrow", "as_wide_as_the_state"])
def test_initial_values_are_uniform_within_their_bounds(m):
    n = 100
    rnn = UnitaryRNN(m, n, num_layers=2, bidirectional=True)
    for direction in ("", "_reverse"):
        layers = {**bounds(f"_l0{direction}", m, n, False), **bounds(f"_l1{direction}", 2 * n, n, True)}
        for name, bound in layers.items():
            check_uniform(getattr(rnn, name).detach(), bound)
    cell = UnitaryRNNCell(m, n)
    for name, bound in bounds("", m, n, False).items():
        check_uniform(getattr(cell, name).detach(), bound)


def test_a_full_weight_starts_from_the_haar_measure():
    """E |tr W|^2 = 1 for Haar; plain QR without the phases would give another law. Mean of 200, to 5 sigma."""
    traces = torch.stack([UnitaryRNN(1, 3).weight_hh_l0.detach().diagonal().sum() for _ in range(200)])
    assert abs(float(traces.abs().square().mean()) - 1) < 5 / math.sqrt(200)  # |tr W|^2 is near exponential: sigma 1
    assert abs(complex(traces.mean())) < 5 / math.sqrt(200)


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("family", FAMILIES)
def test_initial_values_follow_the_seed_and_reset_changes_all(family, make):
    torch.manual_seed(3)
    first = make(3, 4, parametrization=family)
    torch.manual_seed(3)
    second = make(3, 4, parametrization=family)
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    before = {name: p.detach().clone() for name, p in first.named_parameters()}
    W = "weight_hh_l0" if make is UnitaryRNN else "weight_hh"
    before_W = getattr(first, W).detach().clone()
    first.reset_parameters()
    for name, p in first.named_parameters():
        if not name.endswith("coordinates"):  # zero around a new base
            assert not bool((p == before[name]).any()), name
    assert not torch.equal(getattr(first, W), before_W)
    urnn.check_unitary(first)


@pytest.mark.parametrize("family", FAMILIES)
def test_reset_keeps_type_and_identity(family):
    rnn = UnitaryRNN(3, 4, parametrization=family, dtype=torch.float64)
    before = {name: (id(p), p.dtype) for name, p in rnn.named_parameters()}
    rnn.reset_parameters()
    assert {name: (id(p), p.dtype) for name, p in rnn.named_parameters()} == before
    assert float(unitarity_defect(rnn.weight_hh_l0)) <= unitarity_tol(4, torch.complex128)


# Printing


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: UnitaryRNN(3, 4), "3, 4"),
        (lambda: UnitaryRNN(3, 4, 2), "3, 4, num_layers=2"),
        (
            lambda: UnitaryRNN(3, 4, 2, False, True, 0.5, True),
            "3, 4, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True, bias=False",
        ),
        (
            lambda: UnitaryRNN(
                3,
                4,
                parametrization="restricted",
                nonlinearity="hard",
                initial_state="zero",
                bias_constraint="nonpositive",
                backend="reference",
            ),
            "3, 4, parametrization='restricted', nonlinearity='hard', initial_state='zero', "
            "bias_constraint='nonpositive', backend='reference'",
        ),
        (
            lambda: UnitaryRNN(3, 4, return_sequence=False, checkpoint="sqrt"),
            "3, 4, return_sequence=False, checkpoint='sqrt'",
        ),
        (lambda: UnitaryRNNCell(3, 4), "3, 4"),
        (
            lambda: UnitaryRNNCell(3, 4, bias=False, parametrization="givens"),
            "3, 4, bias=False, parametrization='givens'",
        ),
    ],
)
def test_extra_repr_prints_what_is_not_the_default(made, text):
    assert made().extra_repr() == text


# load_unitary


@pytest.mark.parametrize("family", FAMILIES)
def test_load_unitary_sets_one_layer_and_direction(family):
    rnn = UnitaryRNN(3, 4, num_layers=2, bidirectional=True, parametrization=family)
    W = haar_unitary(4)
    before = {name: p.detach().clone() for name, p in rnn.state_dict().items()}
    if family not in HAVE_RIGHT_INVERSE:
        with pytest.raises(
            NotImplementedError, match=r"^Restricted has no right inverse: .*parametrization='full' takes any W"
        ):
            rnn.load_unitary(W, layer=1, reverse=True)
        assert all(torch.equal(p, before[name]) for name, p in rnn.state_dict().items())
        return
    rnn.load_unitary(W, layer=1, reverse=True)
    torch.testing.assert_close(rnn.weight_hh_l1_reverse, W, rtol=0, atol=10 * unitarity_tol(4, W.dtype))
    changed = {name for name, p in rnn.state_dict().items() if not torch.equal(p, before[name])}
    assert changed
    assert all("_hh_l1_reverse" in name for name in changed)


@pytest.mark.parametrize("family", HAVE_RIGHT_INVERSE)
def test_load_unitary_moves_to_the_precision_of_the_cell(family):
    cell = UnitaryRNNCell(3, 4, parametrization=family, dtype=torch.float64)
    W = haar_unitary(4, dtype=torch.complex64)
    cell.load_unitary(W)
    assert float(unitarity_defect(cell.weight_hh)) <= unitarity_tol(4, torch.complex128)
    torch.testing.assert_close(cell.weight_hh.to(W.dtype), W)


@pytest.mark.parametrize(
    ("W", "error", "message"),
    [
        (torch.eye(4), TypeError, r"^W: expected complex64 or complex128, got torch.float32$"),
        (None, TypeError, r"^W: expected a torch.Tensor, got NoneType$"),
        (
            2 * torch.eye(4).cfloat(),
            ValueError,
            r"^W: expected a unitary matrix, max\|W\^H W - I\| <= .*, got 3.0e\+00\.",
        ),
        (torch.full((4, 4), math.nan).cfloat(), ValueError, r"^W: expected finite entries, got NaN or inf"),
        (torch.eye(3).cfloat(), ValueError, r"^W: expected shape \(4, 4\), got \(3, 3\)$"),
        (torch.eye(4).cfloat()[:3], ValueError, r"^W: expected shape \(\.\.\., n, n\) with n >= 1, got \(3, 4\)$"),
        (torch.eye(4).cfloat().expand(1, 4, 4), ValueError, r"^W: expected shape \(4, 4\), got \(1, 4, 4\)$"),
    ],
)
@pytest.mark.parametrize("family", HAVE_RIGHT_INVERSE)
def test_load_unitary_refuses_and_changes_nothing(family, W, error, message):
    cell = UnitaryRNNCell(3, 4, parametrization=family)
    before = {name: p.clone() for name, p in cell.state_dict().items()}
    with pytest.raises(error, match=message):
        cell.load_unitary(W)
    assert all(torch.equal(p, before[name]) for name, p in cell.state_dict().items())


def test_load_unitary_refuses_what_is_no_member():
    cell = UnitaryRNNCell(3, 4, parametrization=functools.partial(Householder, reflections=1))
    with pytest.raises(ValueError, match=r"^W: expected rank\(W - I\) <= 1, the number of reflections"):
        cell.load_unitary(haar_unitary(4))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layer": 2}, ValueError, r"^layer: expected an int in \[0, 1\], got 2$"),
        ({"layer": -1}, ValueError, r"^layer: expected an int in \[0, 1\], got -1$"),
        ({"layer": "0"}, TypeError, r"^layer: expected an int, got str"),
        ({"reverse": True}, ValueError, r"^reverse: expected False for a layer with bidirectional=False, got True$"),
    ],
)
def test_load_unitary_checks_where(options, error, message):
    with pytest.raises(error, match=message):
        UnitaryRNN(3, 4, num_layers=2).load_unitary(haar_unitary(4), **options)


# Options


BAD_OPTIONS = [
    ({"input_size": 0}, ValueError, r"^input_size: expected an int >= 1, got 0$"),
    ({"input_size": 3.0}, TypeError, r"^input_size: expected an int, got float \(3.0\)$"),
    ({"hidden_size": 0}, ValueError, r"^hidden_size: expected an int >= 1, got 0$"),
    ({"hidden_size": True}, TypeError, r"^hidden_size: expected an int, got bool \(True\)$"),
    ({"bias": 1}, TypeError, r"^bias: expected a bool, got int$"),
    (
        {"parametrization": "ful"},
        ValueError,
        r"^parametrization: expected one of \['cayley', .* Did you mean 'full'\?$",
    ),
    ({"parametrization": None}, ValueError, r"^parametrization: expected one of .*, got None$"),
    (
        {"parametrization": lambda *_, **__: 1},
        TypeError,
        r"^parametrization: expected a callable that makes a Parametr",
    ),
    ({"nonlinearity": "modRelu"}, ValueError, r"^nonlinearity: expected one of .* Did you mean 'modrelu'\?$"),
    ({"initial_state": "lerned"}, ValueError, r"^initial_state: expected one of .* Did you mean 'learned'\?$"),
    ({"initial_state": 0}, ValueError, r"^initial_state: expected one of \['learned', 'zero'\], got 0$"),
    ({"bias_constraint": "nonpos"}, ValueError, r"^bias_constraint: expected one of \['nonpositive'\], .*Did you mean"),
    ({"backend": "explict"}, ValueError, r"^backend: expected one of .* Did you mean 'explicit'\?$"),
    ({"dtype": torch.float16}, TypeError, r"^dtype: expected float32, .* got torch.float16\. PyTorch has no complex"),
    ({"dtype": torch.int64}, TypeError, r"^dtype: expected float32, .* got torch.int64"),
]


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS, ids=lambda v: str(v)[:40])
def test_bad_options_say_what_was_expected(options, error, message, make):
    with pytest.raises(error, match=message):
        make(**{"input_size": 3, "hidden_size": 4, **options})


@pytest.mark.parametrize("make", BOTH)
def test_a_parametrization_may_be_a_partial(make):
    made = make(3, 6, parametrization=functools.partial(Givens, layers=2, layout="fft"))
    family = made.parametrization_hh_l0 if make is UnitaryRNN else made.parametrization_hh
    assert (family.layers, family.layout) == (2, "fft")


@pytest.mark.parametrize("make", BOTH)
def test_half_gradient_is_the_released_codes_and_off(make):
    """The released code differentiates with Re h_{t-1} alone; the values of the layer stay."""
    x = torch.randn(3, 2, 3, dtype=torch.float64)
    plain, half = make(3, 4, dtype=torch.float64), make(3, 4, dtype=torch.float64)
    half.load_state_dict(plain.state_dict())
    assert plain.half_gradient is False
    half.half_gradient = True
    assert half.extra_repr() == "3, 4, half_gradient=True"
    values, grads = [], []
    for module in (plain, half):
        out = module(x) if make is UnitaryRNN else (module(x[0]),)
        values.append(out[0])
        out[0].real.sum().backward()
        grads.append({name: p.grad for name, p in module.named_parameters()})
    assert torch.equal(*values)
    for name, grad in grads[0].items():
        assert torch.equal(grad, grads[1][name]) != name.startswith("weight_hh")


def test_a_matrix_that_a_family_makes_cannot_be_assigned():
    rnn = urnn.UnitaryRNN(2, 3, parametrization="cayley")
    with pytest.raises(
        AttributeError, match=r"weight_hh_l0: expected no assignment, as 'cayley' makes it .* load_unitary"
    ):
        rnn.weight_hh_l0 = torch.eye(3, dtype=torch.complex64)
