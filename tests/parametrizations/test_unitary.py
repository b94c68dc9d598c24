"""``urnn.unitary`` on the weights of other people's modules."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import urnn
from urnn._module import ComplexModule, is_unitary
from urnn.linalg import haar_unitary, is_unitary_matrix
from urnn.parametrizations import PARAMETRIZATIONS, Householder

FAMILIES = tuple(PARAMETRIZATIONS)
OTHERS = tuple(name for name, family in PARAMETRIZATIONS.items() if not family.direct)
TAKE_ANY = ("full", "householder", "givens", "exponential", "cayley")


class Bank(nn.Module):
    """Several square weights in one parameter."""

    def __init__(self, dtype: torch.dtype = torch.complex64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 4, 4, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight @ x.unsqueeze(-1)).squeeze(-1)


def linear(n: int = 4, **settings: Any) -> nn.Linear:
    return nn.Linear(n, n, **{"dtype": torch.complex64, **settings})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_every_family_on_a_linear_layer(family: str, dtype: torch.dtype) -> None:
    layer = linear(dtype=dtype)
    assert urnn.unitary(layer, family=family) is layer
    assert layer.weight.dtype == dtype
    assert is_unitary_matrix(layer.weight)
    x = torch.randn(7, 4, dtype=dtype)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
    layer(x).abs().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_on_a_batch_of_weights(family: str) -> None:
    bank = urnn.unitary(Bank(), family=family)
    assert bank.weight.shape == (2, 3, 4, 4)
    assert is_unitary_matrix(bank.weight)
    assert bank(torch.randn(4, dtype=torch.complex64)).shape == (2, 3, 4)


@pytest.mark.parametrize("family", OTHERS)
def test_any_optimizer_trains_the_other_families(family: str) -> None:
    layer = urnn.unitary(linear(), family=family)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(4, dtype=torch.complex64)).abs().square().sum().backward()
        optimizer.step()
    assert is_unitary_matrix(layer.weight)
    assert not torch.allclose(layer.weight, before, atol=1e-4)


@pytest.mark.parametrize("family", TAKE_ANY)
def test_a_unitary_weight_stays(family: str) -> None:
    layer = linear(dtype=torch.complex128)
    W = haar_unitary(4, dtype=torch.complex128)
    with torch.no_grad():
        layer.weight.copy_(W)
    urnn.unitary(layer, family=family)
    torch.testing.assert_close(layer.weight.detach(), W)


def test_a_weight_that_is_no_member_starts_at_random() -> None:
    layer = linear()
    with torch.no_grad():
        layer.weight.copy_(haar_unitary(4))
    W = layer.weight.detach().clone()
    urnn.unitary(layer, family="householder", reflections=1)
    assert int(torch.linalg.matrix_rank(layer.weight - torch.eye(4), tol=1e-4)) == 1
    assert not torch.allclose(layer.weight, W)


def test_options_callables_and_names() -> None:
    layer = urnn.unitary(linear(), "weight", Householder, reflections=2)
    assert layer.parametrizations["weight"][0].family.reflections == 2  # type: ignore[index,union-attr]
    rnn = nn.Module()
    rnn.U = nn.Parameter(torch.zeros(3, 3, dtype=torch.complex64))
    assert is_unitary_matrix(urnn.unitary(rnn, "U").U)


# Assignment


@pytest.mark.parametrize("family", [f for f in TAKE_ANY if f != "full"])
def test_assignment_sets_the_weight(family: str) -> None:
    for module in (linear(dtype=torch.complex128), Bank(torch.complex128)):
        urnn.unitary(module, family=family)
        for dtype, atol in ((torch.complex128, 1e-12), (torch.complex64, 1e-5)):  # the coarser one is polished
            W = haar_unitary(4, module.weight.shape[:-2], dtype=dtype)
            module.weight = W
            torch.testing.assert_close(module.weight, W.to(torch.complex128), rtol=0, atol=atol)
            assert is_unitary_matrix(module.weight)


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in (*module.named_parameters(), *module.named_buffers())}


@pytest.mark.parametrize(
    ("W", "error", "message"),
    [
        (2 * torch.eye(4).cfloat(), ValueError, r"weight: expected a unitary matrix"),
        (torch.eye(4), TypeError, r"weight: expected complex64 or complex128, got torch.float32"),
        (torch.eye(3).cfloat(), ValueError, r"weight: expected shape \(4, 4\), got \(3, 3\)"),
        (torch.eye(4).cfloat() * float("nan"), ValueError, r"weight: expected finite entries"),
    ],
)
@pytest.mark.parametrize("family", [f for f in TAKE_ANY if f != "full"])
def test_assignment_of_another_matrix_is_refused_and_changes_nothing(
    family: str, W: Tensor, error: type[Exception], message: str
) -> None:
    layer = urnn.unitary(linear(), family=family)
    before = values(layer)
    with pytest.raises(error, match=message):
        layer.weight = W  # type: ignore[assignment]
    after = values(layer)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_assignment_to_a_family_without_right_inverse() -> None:
    layer = urnn.unitary(linear(), family="restricted")
    with pytest.raises(NotImplementedError, match=r"Restricted has no right inverse"):
        layer.weight = torch.eye(4).cfloat()  # type: ignore[assignment]


# Copies


def test_full_keeps_the_parameter_and_marks_it() -> None:
    layer = linear()
    weight = layer.weight
    urnn.unitary(layer)
    assert layer.weight is weight
    assert is_unitary(weight)
    assert not is_unitary(layer.bias)
    assert isinstance(layer, nn.Linear)
    assert isinstance(layer, ComplexModule)
    assert urnn.check_unitary(layer) < 1e-5


def through_pickle(module: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(module))


def through_torch_save(module: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, through_pickle, through_torch_save])
def test_copies_of_full_are_whole(duplicate: Any) -> None:
    layer = urnn.unitary(linear())
    other = duplicate(layer)
    assert isinstance(other, nn.Linear)
    assert isinstance(other, ComplexModule)
    assert type(other).__name__ == "UnitaryLinear"
    assert is_unitary(other.weight)
    assert torch.equal(other.weight, layer.weight)
    assert repr(other) == repr(layer)
    x = torch.randn(2, 4, dtype=torch.complex64)
    assert torch.equal(other(x), layer(x))
    assert is_unitary_matrix(duplicate(other).double().weight)


@pytest.mark.parametrize("family", OTHERS)
def test_deepcopy_of_the_other_families(family: str) -> None:
    layer = urnn.unitary(linear(), family=family)
    other = copy.deepcopy(layer)
    assert torch.equal(other.weight, layer.weight)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2).add_(0.5)
    assert not torch.allclose(other.weight, layer.weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_state_dict_round_trip(family: str) -> None:
    layer, other = (urnn.unitary(linear(), family=family) for _ in range(2))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)


def test_the_mark_survives_meta_and_assign() -> None:
    layer = urnn.unitary(linear())
    other = urnn.unitary(linear()).to("meta")
    assert is_unitary(other.weight)
    other.load_state_dict(layer.state_dict(), assign=True)
    assert is_unitary(other.weight)
    assert torch.equal(other.weight, layer.weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_module_follows_the_precision(family: str) -> None:
    model = nn.Sequential(urnn.unitary(linear(32), family=family))
    before = model[0].weight.detach().clone()
    layer = model.double()[0]
    assert layer.weight.dtype == layer.bias.dtype == torch.complex128
    assert is_unitary_matrix(layer.weight)
    torch.testing.assert_close(layer.weight.to(torch.complex64), before, rtol=0, atol=1e-5)
    assert is_unitary(model[0].weight) == (family == "full")
    assert model.float()[0].weight.dtype == torch.complex64
    with pytest.raises(TypeError, match=r"dtype: expected float32 or float64"):
        model.half()
    assert is_unitary_matrix(model[0].weight)


@pytest.mark.parametrize("family", [f for f in TAKE_ANY if f != "full"])
def test_assignment_after_a_change_of_precision(family: str) -> None:
    layer, W = urnn.unitary(linear(), family=family).double(), haar_unitary(4, dtype=torch.complex128)
    layer.weight = W
    torch.testing.assert_close(layer.weight, W)


def test_pytorch_pickles_no_parametrized_module() -> None:
    layer = urnn.unitary(linear(), family="givens")
    with pytest.raises(RuntimeError, match=r"parametrized modules is only supported through state_dict"):
        pickle.dumps(layer)


def test_parametrizations_can_be_removed() -> None:
    layer = urnn.unitary(linear(), family="givens")
    W = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert torch.equal(layer.weight, W)
    urnn.unitary(layer, family="householder")
    torch.testing.assert_close(layer.weight.detach(), W, rtol=0, atol=1e-5)


# Bad input


def parametrized() -> nn.Linear:
    return urnn.unitary(linear(), family="cayley")


@pytest.mark.parametrize(
    ("module", "arguments", "error", "message"),
    [
        ("no module", {}, TypeError, r"module: expected a torch.nn.Module, got str"),
        (
            linear(),
            {"name": "wait"},
            ValueError,
            r"name: expected one of \['bias', 'weight'\], the parameters of .*, got 'wait'",
        ),
        (
            linear(dtype=torch.float32),
            {},
            TypeError,
            r"weight: expected complex64 or complex128, got torch.float32. Build the",
        ),
        (linear(), {"name": "bias"}, ValueError, r"bias: expected shape \(\.\.\., n, n\) with n >= 1, got \(4,\)"),
        (
            nn.Linear(3, 4, dtype=torch.complex64),
            {},
            ValueError,
            r"weight: expected shape \(\.\.\., n, n\).* got \(4, 3\)",
        ),
        (linear(bias=False), {"name": "bias"}, ValueError, r"name: expected one of \['bias', 'weight'\].* got 'bias'"),
        (
            linear(),
            {"family": "ful"},
            ValueError,
            r"parametrization: expected one of .* got 'ful'. Did you mean 'full'\?",
        ),
        (
            linear(),
            {"family": "cayley", "layers": 2},
            TypeError,
            r"layers: expected an option of 'cayley', one of \[\]",
        ),
        (
            linear(),
            {"family": "givens", "layer": 2},
            TypeError,
            r"layer: expected an option of 'givens', one of \['layers', 'layout'\]",
        ),
        (
            linear(),
            {"family": nn.Identity},
            TypeError,
            r"parametrization: expected a callable that makes a Parametrization, got Identity",
        ),
        (
            linear(),
            {"family": "householder", "reflections": 5},
            ValueError,
            r"reflections: expected an int in \[1, 4\], got 5",
        ),
        (
            parametrized(),
            {},
            ValueError,
            r"name: expected a plain parameter, got 'weight', which is parametrized already. torch",
        ),
    ],
)
def test_bad_input(module: nn.Module, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        urnn.unitary(module, **arguments)
