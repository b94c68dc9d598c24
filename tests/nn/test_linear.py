"""``ComplexToReal`` and ``ComplexLinear`` against their formulas."""

import math

import pytest
import torch

from urnn import ComplexLinear, ComplexToReal

READOUTS = [ComplexToReal, ComplexLinear]
EXACT = {"rtol": 1e-13, "atol": 1e-13}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64], ids=["complex", "real"])
@pytest.mark.parametrize("make", READOUTS)
def test_values_are_u_h_plus_c(make, dtype, shape, bias):
    readout = make(4, 3, bias=bias, dtype=torch.float64)
    if bias:
        with torch.no_grad():
            readout.bias.copy_(torch.randn_like(readout.bias))
    h = torch.randn(*shape, 4, dtype=dtype)
    y = readout(h)
    expected = (readout.weight * h.unsqueeze(-2)).sum(-1)
    expected = expected.real if make is ComplexToReal else expected
    expected = expected + readout.bias if bias else expected
    assert y.shape == (*shape, 3)
    torch.testing.assert_close(y, expected, **EXACT)


@pytest.mark.parametrize("lazy", [lambda h: h.conj(), lambda h: h.mT.contiguous().mT], ids=["conjugate", "strided"])
@pytest.mark.parametrize("make", READOUTS)
def test_views_of_a_state_are_read_rightly(make, lazy):
    readout = make(4, 3, dtype=torch.float64)
    h = lazy(torch.randn(2, 4, dtype=torch.complex128))
    torch.testing.assert_close(readout(h), readout(h.resolve_conj().clone()), **EXACT)


@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64], ids=["complex", "real"])
@pytest.mark.parametrize("make", READOUTS)
def test_first_and_second_derivatives(make, dtype):
    readout = make(3, 2, dtype=torch.float64)
    h = torch.randn(2, 3, dtype=dtype, requires_grad=True)

    def f(h, weight, bias):
        return torch.func.functional_call(readout, {"weight": weight, "bias": bias}, h)

    args = (h, *(p.detach().clone().requires_grad_() for p in (readout.weight, readout.bias)))
    assert torch.autograd.gradcheck(f, args)
    assert torch.autograd.gradgradcheck(f, args)


@pytest.mark.parametrize(("make", "columns"), [(ComplexToReal, 50), (ComplexLinear, 100)])
def test_initial_values(make, columns):
    """U uniform on +-sqrt(6 / (n_in + n_out)) counting real columns, c = 0; five sigma on the second moment."""
    readout = make(200, 50)
    bound = math.sqrt(6 / (400 + columns))
    u = torch.view_as_real(readout.weight.detach())
    assert 0.9 * bound < float(u.abs().max()) <= bound
    assert abs(float(u.square().mean()) / bound**2 - 1 / 3) < 5 * math.sqrt(4 / 45 / u.numel())
    assert torch.equal(readout.bias, torch.zeros_like(readout.bias))
    assert readout.bias.is_complex() == (make is ComplexLinear)
    before = readout.weight.detach().clone()
    readout.reset_parameters()
    assert not bool((readout.weight == before).any())


@pytest.mark.parametrize("make", READOUTS)
def test_printing(make):
    assert make(4, 3).extra_repr() == "4, 3"
    assert make(4, 3, bias=False).extra_repr() == "4, 3, bias=False"


@pytest.mark.parametrize(
    ("h", "error", "message"),
    [
        ([1.0], TypeError, r"^h: expected a torch.Tensor, got list$"),
        (torch.zeros(2, 5).cfloat(), ValueError, r"^h: expected shape \(\.\.\., 4\), got \(2, 5\)$"),
        (torch.zeros(()).cfloat(), ValueError, r"^h: expected shape \(\.\.\., 4\), got \(\)$"),
        (torch.zeros(4).cdouble(), TypeError, r"^h: expected torch.complex64, as the weight, got torch.complex128\."),
        (torch.zeros(4).double(), TypeError, r"^h: expected torch.complex64, as the weight, got torch.float64\."),
        (torch.zeros(4).long(), TypeError, r"^h: expected torch.complex64 or its real type, got torch.int64$"),
        (torch.zeros(4).half(), TypeError, r"^h: expected torch.complex64 or its real type, got torch.float16$"),
        (torch.zeros(4, device="meta"), ValueError, r"^h: expected the device of the weight, cpu, got meta$"),
    ],
)
@pytest.mark.parametrize("make", READOUTS)
def test_bad_input_says_what_was_expected(make, h, error, message):
    with pytest.raises(error, match=message):
        make(4, 3)(h)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"in_features": 0}, ValueError, r"^in_features: expected an int >= 1, got 0$"),
        ({"out_features": -1}, ValueError, r"^out_features: expected an int >= 1, got -1$"),
        ({"in_features": True}, TypeError, r"^in_features: expected an int, got bool"),
        ({"dtype": torch.bfloat16}, TypeError, r"^dtype: expected float32, .* got torch.bfloat16"),
    ],
)
@pytest.mark.parametrize("make", READOUTS)
def test_bad_options_say_what_was_expected(make, options, error, message):
    with pytest.raises(error, match=message):
        make(**{"in_features": 4, "out_features": 3, **options})
