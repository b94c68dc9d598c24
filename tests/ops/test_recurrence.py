"""The ladder.

A loop over single rows defines the values and autograd of ``reference`` the gradients; every backend of the table is
held to both.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from urnn.linalg import haar_unitary
from urnn.ops import BACKEND_NAMES, BACKENDS, NONLINEARITIES, Problem, recurrence

Tensors = dict[str, Tensor]
DIFFERENTIABLE = ("x", "weight_ih", "weight_hh", "bias", "h_0")
BIASES = {"both signs": (-0.4, 0.0, 0.3), "positive": (0.5,), "negative": (-0.3,), "zero": (0.0,)}


@dataclass(frozen=True)
class Case:
    T: int = 5
    B: int = 3
    n: int = 4
    m: int = 2
    E: int | None = None
    real: bool = True
    projected: bool = True
    lengths: bool = False
    reverse: bool = False
    bias: str = "both signs"
    x_grad: bool = True

    def inputs(self, seed: int = 0) -> Tensors:
        """Arguments of ``recurrence`` in double precision."""
        generator = torch.Generator().manual_seed(seed)

        def randn(*shape: int, dtype: torch.dtype = torch.complex128) -> Tensor:
            return torch.randn(*shape, dtype=dtype, generator=generator)

        ensemble = () if self.E is None else (self.E,)
        m = self.m if self.projected else self.n
        real = self.real and self.projected
        bias = torch.tensor(BIASES[self.bias], dtype=torch.float64)
        tensors = {
            "x": randn(self.T, *ensemble, self.B, m, dtype=torch.float64 if real else torch.complex128),
            "weight_hh": haar_unitary(self.n, ensemble, generator=generator, dtype=torch.float64),
            "bias": bias.repeat(self.n)[: self.n].repeat(*ensemble, 1),
            "h_0": randn(*ensemble, self.B, self.n),
        }
        if self.projected:
            tensors["weight_ih"] = randn(*ensemble, self.n, m)
        if self.lengths:
            rows = torch.tensor([self.T // 2, 0, self.T, 1]).repeat(math.prod(ensemble) * self.B)
            tensors["lengths"] = rows[: math.prod(ensemble) * self.B].reshape(*ensemble, self.B)
        return tensors


CASES = {
    "plain": Case(),
    "complex input": Case(real=False),
    "no projection": Case(projected=False),
    "one step": Case(T=1),
    "one row": Case(B=1),
    "one unit": Case(n=1),
    "one of each": Case(T=1, B=1, n=1, m=1),
    "odd": Case(T=7, B=5, n=3, m=3),
    "positive bias": Case(bias="positive"),
    "negative bias": Case(bias="negative"),
    "zero bias": Case(bias="zero"),
    "no input gradient": Case(x_grad=False),
    "no input gradient, no projection": Case(x_grad=False, projected=False),
    "reverse": Case(reverse=True),
    "lengths": Case(lengths=True, B=5),
    "lengths, reverse": Case(lengths=True, B=5, reverse=True),
    "lengths, no projection": Case(lengths=True, projected=False, reverse=True),
    "lengths, one step": Case(lengths=True, T=1, B=4),
    "ensemble": Case(E=3),
    "ensemble of one": Case(E=1, real=False),
    "ensemble, complex, reverse": Case(E=2, real=False, reverse=True),
    "ensemble, lengths": Case(E=3, lengths=True, B=3),
    "ensemble, no projection": Case(E=2, projected=False, lengths=True, reverse=True),
    "two blocks": Case(T=65, n=3, bias="negative"),  # blocks of 64 steps in the backward pass
    "two blocks, reverse": Case(T=65, n=3, bias="negative", reverse=True),
    "blocks and a rest": Case(T=130, B=2, n=3, bias="zero", lengths=True),
    "blocks and a rest, reverse": Case(T=130, B=2, n=3, bias="zero", lengths=True, reverse=True),
    "one block": Case(T=64, B=2, n=2, bias="zero", E=2),
}
SMALL = {
    "plain": Case(T=3, B=2, n=2),
    "no projection, lengths": Case(T=3, B=3, n=2, projected=False, lengths=True),
    "ensemble, complex, reverse": Case(T=2, B=1, n=2, E=2, real=False, reverse=True),
}
FUSED = tuple(BACKENDS)


def by_case(cases: dict[str, Case]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in cases.items()])


def single_precision(tensors: Tensors) -> Tensors:
    to = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return {name: t.to(to.get(t.dtype, t.dtype)) for name, t in tensors.items()}


def double_precision(tensors: Tensors) -> Tensors:
    to = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    return {name: t.to(to.get(t.dtype, t.dtype)) for name, t in tensors.items()}


def call(tensors: Tensors, **settings: Any) -> tuple[Tensor, Tensor]:
    return recurrence(**{"weight_ih": None, **tensors}, **settings)  # type: ignore[arg-type]


def values_and_grads(case: Case, tensors: Tensors, through: str = "h, h_n", **settings: Any) -> Tensors:
    """h where returned, h_n, and the gradients of a random real function of the outputs that ``through`` names."""
    leaves = {
        name: t.clone().requires_grad_(name != "x" or case.x_grad)
        for name, t in tensors.items()
        if name in DIFFERENTIABLE
    }
    h, h_n = call({**tensors, **leaves}, reverse=case.reverse, **settings)
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.randn(shape, dtype=torch.complex128, generator=generator) for shape in ((case.T, *h_n.shape), h_n.shape)
    ]
    outputs = {name: out for name, out in (("h", h), ("h_n", h_n)) if out is not None}
    parts = {
        name: (outputs[name] * c.to(h_n.dtype).conj()).real.sum()
        for name, c in zip(("h", "h_n"), cotangents, strict=True)
        if name in outputs
    }
    loss = sum((part for name, part in parts.items() if name in through.split(", ")), torch.zeros(()))
    wanted = {name: t for name, t in leaves.items() if t.requires_grad}
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True, materialize_grads=True)
    values = {name: out.detach() for name, out in outputs.items()}
    return {**values, **{f"d{name}": g for name, g in zip(wanted, gradients, strict=True)}}


def assert_all_close(actual: Tensors, expected: Tensors, rtol: float = 1e-10, atol: float = 1e-11) -> None:
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            actual[name], expected[name], rtol=rtol, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
        )


# The definition


def row_by_row(case: Case, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Eq. 1 with modReLU for one row after the other, in the words of the docstring of ``recurrence``."""
    x, W, b, h_n = tensors["x"], tensors["weight_hh"], tensors["bias"], tensors["h_0"].clone()
    h = torch.zeros(case.T, *h_n.shape, dtype=h_n.dtype)
    for row in torch.cartesian_prod(*(torch.arange(s) for s in h_n.shape[:-1])).reshape(-1, h_n.dim() - 1).tolist():
        at, member = tuple(row), tuple(row[:-1])
        V = tensors["weight_ih"][member].to(h.dtype) if case.projected else torch.eye(case.n, dtype=h.dtype)
        steps = range(int(tensors["lengths"][at])) if case.lengths else range(case.T)
        for t in reversed(steps) if case.reverse else steps:
            z = W[member] @ h_n[at] + V @ x[(t, *at)].to(h.dtype)
            h_n[at] = torch.relu(z.abs() + b[member]) * z / z.abs()
            h[(t, *at)] = h_n[at]
    return h, h_n


@by_case(CASES)
def test_reference_is_the_loop_over_rows(case: Case) -> None:
    tensors = case.inputs()
    h, h_n = call(tensors, reverse=case.reverse, backend="reference")
    expected, expected_n = row_by_row(case, tensors)
    assert_all_close({"h": h, "h_n": h_n}, {"h": expected, "h_n": expected_n})


@by_case(SMALL)
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_reference_passes_gradcheck_twice(nonlinearity: str, case: Case) -> None:
    tensors = case.inputs()
    names = [name for name in DIFFERENTIABLE if name in tensors]

    def f(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        given = {**tensors, **dict(zip(names, leaves, strict=True))}
        return call(given, reverse=case.reverse, nonlinearity=nonlinearity, backend="reference")

    leaves = tuple(tensors[name].requires_grad_() for name in names)
    assert torch.autograd.gradcheck(f, leaves)
    assert torch.autograd.gradgradcheck(f, leaves)


# The backends against it


@by_case(CASES)
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("backend", FUSED)
def test_backend_equals_reference_in_double_precision(backend: str, nonlinearity: str, case: Case) -> None:
    tensors = case.inputs()
    expected = values_and_grads(case, tensors, nonlinearity=nonlinearity, backend="reference")
    assert_all_close(values_and_grads(case, tensors, nonlinearity=nonlinearity, backend=backend), expected)


@by_case({name: CASES[name] for name in ("plain", "lengths, reverse", "ensemble, lengths", "one step")})
@pytest.mark.parametrize("through", ["h", "h_n"])
@pytest.mark.parametrize("backend", FUSED)
def test_backend_equals_reference_through_one_output_alone(backend: str, through: str, case: Case) -> None:
    tensors = case.inputs()
    expected = values_and_grads(case, tensors, through, backend="reference")
    assert_all_close(values_and_grads(case, tensors, through, backend=backend), expected)


@st.composite
def random_case(draw: Callable[..., Any]) -> Case:
    size, yes = st.integers(1, 4), st.booleans()
    return Case(
        *(draw(size) for _ in range(4)), draw(st.sampled_from([None, 1, 2])), *(draw(yes) for _ in range(4)),
        draw(st.sampled_from(sorted(BIASES))), draw(yes),
    )  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(case=random_case(), nonlinearity=st.sampled_from(sorted(NONLINEARITIES)), seed=st.integers(0, 1000))
@pytest.mark.parametrize("backend", FUSED)
def test_backend_equals_reference_at_random_shapes(backend: str, case: Case, nonlinearity: str, seed: int) -> None:
    tensors = case.inputs(seed)
    W = tensors["weight_hh"]
    assume(BACKENDS[backend].why_not(Problem(W.device, W.dtype, W.shape[-1], nonlinearity)) is None)
    expected = values_and_grads(case, tensors, nonlinearity=nonlinearity, backend="reference")
    assert_all_close(values_and_grads(case, tensors, nonlinearity=nonlinearity, backend=backend), expected)


@by_case(CASES)
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("backend", FUSED)
def test_backend_errs_no_more_than_pytorch(backend: str, nonlinearity: str, case: Case) -> None:
    tensors = single_precision(case.inputs())
    exact = values_and_grads(case, double_precision(tensors), nonlinearity=nonlinearity, backend="reference")
    plain = values_and_grads(case, tensors, nonlinearity=nonlinearity, backend="reference")
    fused = values_and_grads(case, tensors, nonlinearity=nonlinearity, backend=backend)
    floor = 4 * torch.finfo(torch.float32).eps  # where PyTorch is right by luck
    for name, value in exact.items():
        scale = float(value.norm())
        error, allowed = float((fused[name] - value).norm()), 2 * float((plain[name] - value).norm())
        assert error <= allowed + floor * scale, name


def test_auto_takes_the_first_that_can() -> None:
    tensors = CASES["lengths"].inputs()
    problem = Problem(torch.device("cpu"), torch.complex128, 4, "modrelu")
    first_that_can = next(name for name, row in BACKENDS.items() if row.why_not(problem) is None)
    first, auto = (values_and_grads(CASES["lengths"], tensors, backend=b) for b in (first_that_can, "auto"))
    assert_all_close(auto, first, rtol=0, atol=0)


@pytest.mark.parametrize("backend", [*FUSED, "reference"])
def test_inputs_and_results_are_tensors_of_their_own(backend: str) -> None:
    """The state of the last step and the pre-activations may be changed in place by the caller."""
    case = CASES["no projection"]
    tensors = case.inputs()
    before = {name: t.clone() for name, t in tensors.items()}
    h, h_n = call(tensors, backend=backend)
    kept = h[-1].clone()
    h_n.zero_()
    assert torch.equal(h[-1], kept)
    h.zero_()
    assert all(torch.equal(tensors[name], t) for name, t in before.items())


# A last state alone

LAST = {"through": "h_n", "return_sequence": False}


@by_case(CASES)
@pytest.mark.parametrize(
    ("backend", "checkpoint"), [*((b, None) for b in BACKEND_NAMES), *((b, "sqrt") for b in ("auto", *FUSED))]
)
def test_a_last_state_alone_is_that_of_the_sequence(backend: str, checkpoint: str | None, case: Case) -> None:
    """To rounding: segments change the order in which gradients are summed, and nothing else."""
    tensors = case.inputs()
    expected = values_and_grads(case, tensors, "h_n", backend=backend)
    del expected["h"]
    found = values_and_grads(case, tensors, **LAST, checkpoint=checkpoint, backend=backend)
    assert_all_close(found, expected, rtol=1e-12, atol=1e-12)


@by_case({name: CASES[name] for name in ("plain", "lengths, reverse", "ensemble, no projection", "blocks and a rest")})
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("backend", FUSED)
def test_segments_take_every_option(backend: str, half: bool, nonlinearity: str, case: Case) -> None:
    tensors, options = case.inputs(), {"backend": backend, "half_gradient": half, "nonlinearity": nonlinearity}
    expected = values_and_grads(case, tensors, **LAST, **options)
    found = values_and_grads(case, tensors, **LAST, checkpoint="sqrt", **options)
    assert_all_close(found, expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(case=random_case(), T=st.integers(1, 40), seed=st.integers(0, 1000))
@pytest.mark.parametrize("backend", FUSED)
def test_segments_at_random_shapes(backend: str, case: Case, T: int, seed: int) -> None:
    case = replace(case, T=T)
    tensors = case.inputs(seed)
    expected = values_and_grads(case, tensors, **LAST, backend="explicit")
    found = values_and_grads(case, tensors, **LAST, checkpoint="sqrt", backend=backend)
    assert_all_close(found, expected)


@by_case({name: CASES[name] for name in ("blocks and a rest", "no projection", "two blocks, reverse")})
@pytest.mark.parametrize("backend", FUSED)
def test_segments_err_no_more_than_pytorch(backend: str, case: Case) -> None:
    tensors = single_precision(case.inputs())
    exact = values_and_grads(case, double_precision(tensors), **LAST, backend="reference")
    plain = values_and_grads(case, tensors, **LAST, backend="reference")
    found = values_and_grads(case, tensors, **LAST, checkpoint="sqrt", backend=backend)
    floor = 4 * torch.finfo(torch.float32).eps  # where PyTorch is right by luck
    for name, value in exact.items():
        error, allowed = float((found[name] - value).norm()), 2 * float((plain[name] - value).norm())
        assert error <= allowed + floor * float(value.norm()), name


@pytest.mark.parametrize("backend", FUSED)
def test_a_checkpoint_beside_the_sequence_changes_nothing(backend: str) -> None:
    case = CASES["blocks and a rest"]
    tensors = case.inputs()
    with_it, without = (
        values_and_grads(case, tensors, checkpoint=checkpoint, backend=backend) for checkpoint in ("sqrt", None)
    )
    assert_all_close(with_it, without, rtol=0, atol=0)


@pytest.mark.parametrize("return_sequence", [False, True])
def test_the_reference_refuses_a_checkpoint(return_sequence: bool) -> None:
    message = r"checkpoint: expected None with backend='reference', whose backward is autograd's, got 'sqrt'"
    with pytest.raises(ValueError, match=message):
        call(GOOD, backend="reference", checkpoint="sqrt", return_sequence=return_sequence)


# Theorems


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("backend", [*FUSED, "reference"])
def test_without_input_and_bias_the_state_keeps_its_norm(backend: str, dtype: torch.dtype) -> None:
    T, n = 500, 8
    W, h_0 = haar_unitary(n, dtype=dtype), torch.randn(3, n, dtype=dtype)
    h, _ = recurrence(
        torch.zeros(T, 3, n, dtype=dtype), None, W, torch.zeros(n, dtype=h_0.real.dtype), h_0, backend=backend
    )
    ratio = h.norm(dim=-1) / h_0.norm(dim=-1)
    assert (ratio - 1).abs().max() < 2 * T * torch.finfo(dtype).eps  # W errs by about eps, once a step


def test_the_gradient_of_the_first_state_keeps_its_norm_too() -> None:
    n, W = 6, haar_unitary(6, dtype=torch.complex128)
    h_0 = torch.randn(1, n, dtype=torch.complex128, requires_grad=True)
    _, h_n = recurrence(torch.zeros(300, 1, n, dtype=W.dtype), None, W, torch.zeros(n, dtype=torch.float64), h_0)
    cotangent = torch.randn_like(h_n)
    (gradient,) = torch.autograd.grad(h_n, h_0, cotangent)
    torch.testing.assert_close(gradient.norm(), cotangent.norm())


def released_code_gradient(tensors: Tensors, cotangent: Tensor) -> Tensor:
    """The recurrence on row vectors [Re h, Im h] with a free real matrix, of whose gradient the upper half is read."""
    W, b, h = tensors["weight_hh"], tensors["bias"], tensors["h_0"]
    n = W.shape[-1]
    M = torch.cat((torch.cat((W.real.T, W.imag.T), 1), torch.cat((-W.imag.T, W.real.T), 1))).requires_grad_()
    u = tensors["x"].to(W.dtype) @ tensors["weight_ih"].T
    row, loss = torch.cat((h.real, h.imag), -1), torch.zeros((), dtype=torch.float64)
    for t in range(len(u)):
        z = row @ M + torch.cat((u[t].real, u[t].imag), -1)
        modulus = torch.hypot(z[:, :n], z[:, n:])
        factor = torch.relu(modulus + b) / modulus
        row = z * torch.cat((factor, factor), -1)
        loss = loss + (row[:, :n] * cotangent[t].real + row[:, n:] * cotangent[t].imag).sum()
    (gradient,) = torch.autograd.grad(loss, M)
    return torch.complex(gradient[:n, :n].T, gradient[:n, n:].T)


@pytest.mark.parametrize("backend", FUSED)
def test_half_gradient_is_that_of_the_released_code(backend: str) -> None:
    tensors = CASES["plain"].inputs()
    cotangent = torch.randn(5, 3, 4, dtype=torch.complex128)
    gradients = {}
    for half in (True, False):
        leaf = tensors["weight_hh"].clone().requires_grad_()
        h, _ = call({**tensors, "weight_hh": leaf}, half_gradient=half, backend=backend)
        (gradients[half],) = torch.autograd.grad(h, leaf, cotangent)
    torch.testing.assert_close(gradients[True], released_code_gradient(tensors, cotangent))
    assert (gradients[True] - gradients[False]).norm() > 0.1 * gradients[False].norm()


@pytest.mark.parametrize("backend", FUSED)
@by_case({name: CASES[name] for name in ("lengths, reverse", "ensemble, lengths")})
def test_half_gradient_touches_the_gradient_of_W_alone(case: Case, backend: str) -> None:
    tensors = case.inputs()
    half, full = (values_and_grads(case, tensors, half_gradient=half, backend=backend) for half in (True, False))
    assert not torch.allclose(half.pop("dweight_hh"), full.pop("dweight_hh"))
    assert_all_close(half, full, rtol=0, atol=0)


# Bad input

GOOD = single_precision(Case(T=4, B=3, n=2, m=5, lengths=True).inputs())
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "nonlinearity": (
        {"nonlinearity": "modrelo"},
        ValueError,
        r"nonlinearity: expected one of \['hard', 'modrelu', .*\], got 'modrelo'. Did you mean 'modrelu'\?",
    ),
    "backend": ({"backend": "cuda"}, ValueError, r"backend: expected one of \['auto', .*'reference'\], got 'cuda'"),
    "half gradient": (
        {"half_gradient": True, "backend": "reference"},
        ValueError,
        r"half_gradient: expected False with backend='reference', whose gradient is autograd's, got True",
    ),
    "checkpoint": (
        {"checkpoint": "sqr"},
        ValueError,
        r"checkpoint: expected one of \['sqrt'\], got 'sqr'. Did you mean 'sqrt'\?",
    ),
    "return_sequence": ({"return_sequence": 0}, TypeError, r"return_sequence: expected a bool, got int"),
    "x is a list": ({"x": [1.0]}, TypeError, r"x: expected a torch.Tensor, got list"),
    "x is flat": (
        {"x": torch.zeros(4, 5)},
        ValueError,
        r"x: expected shape \(T, B, m\) or \(T, E, B, m\), got \(4, 5\)",
    ),
    "no step": ({"x": torch.zeros(0, 3, 5)}, ValueError, r"x: expected at least one time step, got \(0, 3, 5\)"),
    "x double": (
        {"x": torch.zeros(4, 3, 5).double()},
        TypeError,
        r"x: expected torch.float32 or torch.complex64, as weight_hh is torch.complex64, got torch.float64",
    ),
    "x integer": ({"x": torch.zeros(4, 3, 5).long()}, TypeError, r"x: expected torch.float32 or .*, got torch.int64"),
    "x real, unprojected": (
        {"x": torch.zeros(4, 3, 2), "weight_ih": None},
        TypeError,
        r"x: expected torch.complex64, got torch.float32",
    ),
    "x unprojected, of another size": (
        {"x": torch.zeros(4, 3, 5).cfloat(), "weight_ih": None},
        ValueError,
        r"x: expected shape \(4, 3, 2\), got \(4, 3, 5\)",
    ),
    "W is None": ({"weight_hh": None}, TypeError, r"weight_hh: expected a torch.Tensor, got NoneType"),
    "W real": (
        {"weight_hh": torch.eye(2)},
        TypeError,
        r"weight_hh: expected complex64 or complex128, got torch.float32",
    ),
    "W not square": (
        {"weight_hh": torch.zeros(2, 3).cfloat()},
        ValueError,
        r"weight_hh: expected shape \(\.\.\., n, n\) with n >= 1, got \(2, 3\)",
    ),
    "W empty": ({"weight_hh": torch.zeros(0, 0).cfloat()}, ValueError, r"weight_hh: expected .* n >= 1, got \(0, 0\)"),
    "W of an ensemble": (
        {"weight_hh": torch.zeros(7, 2, 2).cfloat()},
        ValueError,
        r"weight_hh: expected shape \(2, 2\), got \(7, 2, 2\)",
    ),
    "V real": ({"weight_ih": torch.zeros(2, 5)}, TypeError, r"weight_ih: expected torch.complex64, got torch.float32"),
    "V is a list": ({"weight_ih": []}, TypeError, r"weight_ih: expected a torch.Tensor, got list"),
    "V shape": (
        {"weight_ih": torch.zeros(5, 2).cfloat()},
        ValueError,
        r"weight_ih: expected shape \(2, 5\), got \(5, 2\)",
    ),
    "V device": (
        {"weight_ih": torch.zeros(2, 5, device="meta").cfloat()},
        ValueError,
        r"weight_ih: expected the device of x, cpu, got meta",
    ),
    "W device": (
        {"weight_hh": torch.zeros(2, 2, device="meta").cfloat()},
        ValueError,
        r"weight_hh: expected the device of x, cpu, got meta",
    ),
    "b complex": ({"bias": torch.zeros(2).cfloat()}, TypeError, r"bias: expected torch.float32, got torch.complex64"),
    "b is a number": ({"bias": 0.0}, TypeError, r"bias: expected a torch.Tensor, got float"),
    "b shape": ({"bias": torch.zeros(3)}, ValueError, r"bias: expected shape \(2,\), got \(3,\)"),
    "b device": ({"bias": torch.zeros(2, device="meta")}, ValueError, r"bias: expected the device of x, cpu, got meta"),
    "h_0 real": ({"h_0": torch.zeros(3, 2)}, TypeError, r"h_0: expected torch.complex64, got torch.float32"),
    "h_0 is None": ({"h_0": None}, TypeError, r"h_0: expected a torch.Tensor, got NoneType"),
    "h_0 shape": ({"h_0": torch.zeros(2, 2).cfloat()}, ValueError, r"h_0: expected shape \(3, 2\), got \(2, 2\)"),
    "h_0 device": (
        {"h_0": torch.zeros(3, 2, device="meta").cfloat()},
        ValueError,
        r"h_0: expected the device of x, cpu, got meta",
    ),
    "lengths are a list": ({"lengths": [1, 2, 3]}, TypeError, r"lengths: expected a torch.Tensor, got list"),
    "lengths real": ({"lengths": torch.ones(3)}, TypeError, r"lengths: expected int32 or int64, got torch.float32"),
    "lengths shape": ({"lengths": torch.ones(2).int()}, ValueError, r"lengths: expected shape \(3,\), got \(2,\)"),
    "lengths device": (
        {"lengths": torch.ones(3, device="meta").int()},
        ValueError,
        r"lengths: expected the device of x, cpu, got meta",
    ),
    "too long": (
        {"lengths": torch.tensor([1, 5, 2])},
        ValueError,
        r"lengths: expected integers in \[0, 4\], the number of time steps, got 1 to 5",
    ),
    "negative": (
        {"lengths": torch.tensor([-1, 4, 2])},
        ValueError,
        r"lengths: expected integers in \[0, 4\].* got -1 to 4",
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    call(GOOD)  # so what raises is the change
    with pytest.raises(error, match=message):
        call({**GOOD, **change})


def test_ensemble_sizes_must_agree() -> None:
    tensors = single_precision(Case(E=2).inputs())
    with pytest.raises(ValueError, match=r"h_0: expected shape \(2, 3, 4\), got \(3, 4\)"):
        call({**tensors, "h_0": tensors["h_0"][0]})


def test_no_rows_are_served() -> None:
    h, h_n = call(single_precision(replace(Case(), B=0).inputs()))
    assert (h.shape, h_n.shape) == ((5, 0, 4), (0, 4))


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_every_name_serves(backend: str) -> None:
    h, h_n = call(GOOD, backend=backend)
    assert (h.shape, h_n.shape) == ((4, 3, 2), (3, 2))


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize(("E", "B"), [(0, 3), (2, 0)])
def test_an_empty_ensemble_or_batch_gives_empty_results(backend: str, E: int, B: int) -> None:
    complex_shapes = ((E, 3, 2), (E, 3, 3), (E, B, 3))
    V, W, h_0 = (torch.randn(shape, dtype=torch.complex64).requires_grad_() for shape in complex_shapes)
    x, b = (torch.randn(shape).requires_grad_() for shape in ((4, E, B, 2), (E, 3)))
    h, h_n = recurrence(x, V, W, b, h_0, backend=backend)
    assert (h.shape, h_n.shape) == ((4, E, B, 3), (E, B, 3))
    gradients = torch.autograd.grad(h.abs().sum() + h_n.abs().sum(), (x, V, W, b, h_0))
    assert [g.shape for g in gradients] == [t.shape for t in (x, V, W, b, h_0)]
    assert not any(bool(g.any()) for g in gradients)
    if backend != "reference":
        _, h_n = recurrence(x, V, W, b, h_0, backend=backend, return_sequence=False, checkpoint="sqrt")
        assert h_n.shape == (E, B, 3)
        gradients = torch.autograd.grad(h_n.abs().sum(), (x, V, W, b, h_0))
        assert [g.shape for g in gradients] == [t.shape for t in (x, V, W, b, h_0)]
        assert not any(bool(g.any()) for g in gradients)
