"""``ComplexModule``: what ``nn.Module`` does not do for complex and unitary tensors."""

import copy
import pickle

import pytest
import torch
from torch import nn

import urnn
from urnn._module import ComplexModule, is_unitary, mark_unitary, unitary_tensors
from urnn.linalg import haar_unitary, unitarity_defect, unitarity_tol


class Both(ComplexModule):
    """A unitary parameter, a unitary buffer, an ordinary complex and a real parameter, and an index."""

    def __init__(self):
        super().__init__()
        self.register_unitary("W", nn.Parameter(haar_unitary(3)))
        self.register_unitary("B", haar_unitary(3))
        self.z = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.r = nn.Parameter(torch.randn(2))
        self.register_buffer("index", torch.arange(2))


TYPES = {
    torch.float64: {"W": torch.complex128, "B": torch.complex128, "z": torch.complex128, "r": torch.float64},
    torch.float32: {"W": torch.complex64, "B": torch.complex64, "z": torch.complex64, "r": torch.float32},
}


def types(module):
    return {name: value.dtype for name, value in module.state_dict().items() if name != "index"}


def test_the_mark_is_on_the_parameter_alone():
    module = Both()
    assert [is_unitary(t) for t in (module.W, module.B, module.z, module.r)] == [True, False, False, False]
    plain = nn.Parameter(torch.eye(2, dtype=torch.complex64))
    assert not is_unitary(plain)
    mark_unitary(plain)
    assert is_unitary(plain)


def test_conversions_reach_all_tensors_and_leave_indices():
    module = Both()
    values = {name: value.clone() for name, value in module.state_dict().items()}
    module.double()
    assert types(module) == TYPES[torch.float64]
    assert module.index.dtype == torch.int64
    for name in ("W", "B"):
        assert float(unitarity_defect(getattr(module, name))) <= unitarity_tol(3, torch.complex128)
    for name in ("z", "r"):  # exact: single precision is part of double
        assert torch.equal(getattr(module, name).detach(), values[name].to(getattr(module, name).dtype))
    module.float()
    assert types(module) == TYPES[torch.float32]
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, values[name])


def test_gradients_are_converted_too():
    module = Both()
    module.z.grad = torch.randn_like(module.z)
    grad = module.z.grad.clone()
    module.double()
    assert torch.equal(module.z.grad, grad.to(torch.complex128))


def test_identity_survives_what_changes_no_type():
    module = Both()
    before = {name: id(p) for name, p in module.named_parameters()}
    module.to("cpu").float()
    assert {name: id(p) for name, p in module.named_parameters()} == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_is_refused_and_nothing_changes(dtype):
    module = Both()
    before = {name: (id(value), value.detach().clone()) for name, value in module.state_dict(keep_vars=True).items()}
    with pytest.raises(
        TypeError, match=rf"^dtype: expected float32 or float64 .*, got {dtype}\. PyTorch has no complex"
    ):
        module.to(dtype)
    for name, value in module.state_dict(keep_vars=True).items():
        assert id(value) == before[name][0]
        assert torch.equal(value, before[name][1])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_have_marks_of_their_own(copied):
    module = Both()
    twin = copied(module)
    assert twin.W is not module.W
    assert [is_unitary(p) for p in twin.parameters()] == [True, False, False]


def test_a_new_parameter_under_the_name_is_marked():
    module = Both()
    module.W = nn.Parameter(haar_unitary(3))
    assert is_unitary(module.W)


def test_a_lazy_conjugate_is_converted_rightly():
    module = ComplexModule()
    z = torch.randn(3, dtype=torch.complex64)
    module.register_buffer("z", z.conj())
    module.double()
    assert torch.equal(module.z, z.conj().to(torch.complex128))


def test_an_empty_module_takes_every_conversion():
    assert ComplexModule().double().to("cpu") is not None


def test_unitary_tensors_are_named_as_the_state_dict_names_them():
    model = nn.ModuleDict({"a": Both(), "b": urnn.UnitaryRNN(2, 3, parametrization="cayley"), "c": nn.Linear(2, 2)})
    found = dict(unitary_tensors(model))
    assert list(found) == ["a.W", "a.B", "b.parametrization_hh_l0.base"]
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.items())
    assert list(dict(unitary_tensors(model["a"]))) == ["W", "B"]


# load_state_dict of PyTorch itself


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", ["W", "B"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2 * torch.eye(3).cfloat(), r"W?B?: expected a unitary matrix, .* got 3.0e\+00\..* project=True\) does that"),
        (torch.full((3, 3), torch.nan).cfloat(), r"expected finite entries, got NaN or inf"),
        (torch.eye(3), r"expected complex64 or complex128, got torch.float32"),
        (torch.eye(4).cfloat(), r"size mismatch"),
    ],
)
def test_load_state_dict_refuses_what_is_not_unitary(value, message, name, assign):
    module = Both()
    before = {key: v.clone() for key, v in module.state_dict().items()}
    other = {key: v.clone() for key, v in Both().state_dict().items()}
    with pytest.raises(RuntimeError, match=message):
        nn.Sequential(module).load_state_dict({f"0.{k}": v for k, v in {**other, name: value}.items()}, assign=assign)
    if "mismatch" not in message:  # for that error PyTorch loads all the rest
        assert all(torch.equal(v, before[key]) for key, v in module.state_dict().items())
    assert is_unitary(module.W)


@pytest.mark.parametrize("start", [torch.float32, torch.float64])
@pytest.mark.parametrize("end", [torch.float32, torch.float64])
def test_load_state_dict_across_precisions_is_unitary_to_the_finer(start, end):
    module, source = Both().to(end), Both().to(start)
    module.load_state_dict(source.state_dict())
    assert types(module) == TYPES[end]
    for name in ("W", "B"):
        value = getattr(module, name).detach()
        assert float(unitarity_defect(value)) <= unitarity_tol(3, value.dtype)
        torch.testing.assert_close(value.to(torch.complex64), getattr(source, name).detach().to(torch.complex64))


def test_assigning_takes_the_precision_of_the_state():
    module = Both()
    module.load_state_dict(Both().double().state_dict(), assign=True)
    assert types(module) == TYPES[torch.float64]
    assert is_unitary(module.W)


def test_strict_false_may_leave_w_out():
    module = Both()
    W = module.W.detach().clone()
    result = module.load_state_dict({"r": torch.ones(2)}, strict=False)
    assert set(result.missing_keys) == {"W", "B", "z", "index"}
    assert torch.equal(module.W, W)
    assert torch.equal(module.r, torch.ones(2))
