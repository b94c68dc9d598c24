"""``urnn.check_unitary`` and ``urnn.load_state_dict``."""

import copy
import math
import re

import pytest
import torch
from torch import nn

import urnn
from urnn.linalg import haar_unitary, nearest_unitary, unitarity_defect, unitarity_tol

FAMILIES = list(urnn.PARAMETRIZATIONS)
W = "body.weight_hh_l1"


def model(family="full", dtype=None):
    body = urnn.UnitaryRNN(2, 4, num_layers=2, parametrization=family, dtype=dtype)
    head = urnn.ComplexToReal(4, 3, dtype=dtype)
    return nn.ModuleDict({"body": body, "head": head, "norm": nn.BatchNorm1d(3)})


def snapshot(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def unchanged(module, before):
    return all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


# check_unitary


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_model_is_unitary_to_its_precision(family, dtype):
    assert urnn.check_unitary(model(family, dtype)) <= unitarity_tol(4, dtype)


def test_the_largest_defect_is_returned():
    module = model()
    with torch.no_grad():
        module["body"].weight_hh_l1.mul_(1 + 1e-6)
    assert urnn.check_unitary(module) == float(unitarity_defect(module["body"].weight_hh_l1))


@pytest.mark.parametrize(("family", "name"), [("full", W), ("exponential", "body.parametrization_hh_l1.base")])
def test_it_names_the_tensor_its_defect_and_the_cause(family, name):
    module = model(family)
    tensor = module.state_dict()[name]
    tensor.mul_(2)
    message = (
        rf"^{re.escape(name)}: expected a unitary matrix, max\|W\^H W - I\| <= \S+, got 3.0e\+00\. The likely cause is "
    )
    with pytest.raises(
        ValueError,
        match=message
        + r"an optimizer that is not from urnn.optim, or an average of several models; .*nearest_unitary\(W\) projects",
    ):
        urnn.check_unitary(module)
    tensor[0, 0] = math.nan
    with pytest.raises(
        ValueError, match=rf"^{re.escape(name)}: .* A gradient that was not finite is the likely cause\.$"
    ):
        urnn.check_unitary(module)


def test_a_weight_made_unitary_by_hand_is_checked_too():
    layer = urnn.unitary(nn.Linear(4, 4, dtype=torch.complex64))
    assert urnn.check_unitary(nn.Sequential(layer)) < 1e-5
    with torch.no_grad():
        layer.weight[0, 0] += 0.1
    with pytest.raises(ValueError, match=r"^0.weight: expected a unitary matrix"):
        urnn.check_unitary(nn.Sequential(layer))


def test_models_without_unitary_tensors_and_empty_ensembles_pass():
    assert urnn.check_unitary(nn.Linear(2, 2)) == 0.0
    assert urnn.check_unitary(urnn.parametrizations.Full(3, (0,))) == 0.0


def test_a_batch_is_checked_member_by_member():
    family = urnn.parametrizations.Full(3, (4,))
    with torch.no_grad():
        family.weight[2] *= 2
    with pytest.raises(ValueError, match=r"^weight: expected a unitary matrix, .* got 3.0e\+00"):
        urnn.check_unitary(family)


def test_check_unitary_takes_modules():
    with pytest.raises(TypeError, match=r"^model: expected a torch.nn.Module, got Tensor$"):
        urnn.check_unitary(torch.eye(2))


# load_state_dict


@pytest.mark.parametrize("family", FAMILIES)
def test_a_state_is_loaded_as_it_is(family):
    module, source = model(family), model(family)
    urnn.load_state_dict(module, source.state_dict())
    assert unchanged(module, source.state_dict())
    module["body"](torch.randn(3, 1, 2))


def with_entry(name, value):
    return lambda state: {**state, name: value}


def without(*names):
    return lambda state: {name: value for name, value in state.items() if name not in names}


BAD_STATES = {
    "missing": (without(W), ValueError, rf"^state: expected an entry '{W}', and 0 more, got none$"),
    "two missing": (without(W, "head.weight"), ValueError, rf"^state: expected an entry '{W}', and 1 more, got none$"),
    "unknown": (
        with_entry("x", torch.ones(1)),
        ValueError,
        r"^state: expected the entries of the model, got 'x' and 0 more$",
    ),
    "no tensor": (with_entry("head.weight", 1.0), TypeError, r"^head.weight: expected a torch.Tensor, got float$"),
    "shape": (
        with_entry("head.weight", torch.zeros(4, 3).cfloat()),
        ValueError,
        r"^head.weight: expected shape \(3, 4\), got \(4, 3\)$",
    ),
    "real for complex": (
        with_entry("head.weight", torch.zeros(3, 4)),
        TypeError,
        r"^head.weight: expected torch.complex64, got torch.float32$",
    ),
    "complex for real": (
        with_entry("head.bias", torch.zeros(3).cfloat()),
        TypeError,
        r"^head.bias: expected torch.float32, got torch.complex64$",
    ),
    "float for int": (
        with_entry("norm.num_batches_tracked", torch.tensor(0.0)),
        TypeError,
        r"^norm.num_batches_tracked: expected torch.int64, got torch.float32$",
    ),
    "nan": (
        with_entry("head.bias", torch.full((3,), math.nan)),
        ValueError,
        r"^head.bias: expected finite entries, got NaN or inf$",
    ),
    "inf in W": (
        with_entry(W, torch.full((4, 4), math.inf).cfloat()),
        ValueError,
        rf"^{W}: expected finite entries, got NaN or inf$",
    ),
    "meta": (
        with_entry("head.bias", torch.zeros(3, device="meta")),
        ValueError,
        r"^head.bias: expected a tensor with values, got one on the meta device$",
    ),
    "not unitary": (
        with_entry(W, 2 * torch.eye(4).cfloat()),
        ValueError,
        rf"^{W}: expected a unitary matrix, .* got 3.0e\+00\. project=True takes the nearest unitary matrix instead\.$",
    ),
    "no mapping": (lambda _: [1], TypeError, r"^state: expected a mapping of names to tensors, got list$"),
}


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("case", BAD_STATES)
def test_a_bad_state_is_refused_and_nothing_changes(case, project):
    change, error, message = BAD_STATES[case]
    if project and case == "not unitary":
        pytest.skip("project=True accepts it; the next test has it")
    module = model()
    before = snapshot(module)
    with pytest.raises(error, match=message):
        urnn.load_state_dict(module, change(snapshot(model())), project=project)
    assert unchanged(module, before)


def test_project_takes_the_nearest_unitary_matrix():
    module, state = model(), snapshot(model())
    state[W] = state[W] + 0.1 * torch.randn(4, 4).cfloat()
    given = state[W].clone()
    urnn.load_state_dict(module, state, project=True)
    assert torch.equal(module["body"].weight_hh_l1, nearest_unitary(given))
    assert torch.equal(state[W], given)
    assert torch.equal(module["body"].weight_hh_l0, state["body.weight_hh_l0"])  # was unitary: taken as it is
    urnn.check_unitary(module)


def test_a_base_is_checked_and_projected_too():
    module, state = model("cayley"), snapshot(model("cayley"))
    name = "body.parametrization_hh_l0.base"
    state[name] = 3 * state[name]
    before = snapshot(module)
    with pytest.raises(ValueError, match=rf"^{re.escape(name)}: expected a unitary matrix"):
        urnn.load_state_dict(module, state)
    assert unchanged(module, before)
    urnn.load_state_dict(module, state, project=True)
    urnn.check_unitary(module)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_state_of_single_precision_becomes_unitary_to_double(family):
    module, state = model(family, torch.float64), snapshot(model(family, torch.float32))
    urnn.load_state_dict(module, state)
    assert urnn.check_unitary(module) <= unitarity_tol(4, torch.float64)
    assert float(unitarity_defect(module["body"].weight_hh_l0)) <= unitarity_tol(4, torch.float64)
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value.to(state[name].dtype), state[name])


def test_a_coarser_model_takes_a_finer_state():
    module, state = model(), snapshot(model(dtype=torch.float64))
    urnn.load_state_dict(module, state)
    assert module["body"].weight_hh_l0.dtype == torch.complex64
    urnn.check_unitary(module)


def test_load_state_dict_takes_modules():
    with pytest.raises(TypeError, match=r"^model: expected a torch.nn.Module, got dict$"):
        urnn.load_state_dict({}, {})


def test_plain_loading_refuses_a_bad_w_and_names_the_cure():
    module, state = model(), snapshot(model())
    state[W] = haar_unitary(4) * 1.1
    before = module["body"].weight_hh_l1.detach().clone()
    with pytest.raises(
        RuntimeError, match=rf"{W}: expected a unitary matrix, .*urnn.load_state_dict\(model, state, project=True"
    ):
        module.load_state_dict(state)
    assert torch.equal(module["body"].weight_hh_l1, before)


# Families that make W from other parameters


@pytest.mark.parametrize(
    ("family", "spoil"),
    [
        ("householder", lambda f: f.vectors.data.fill_(torch.nan)),
        ("restricted", lambda f: f.permutation.zero_()),
        ("givens", lambda f: f.first.zero_()),
    ],
)
def test_a_broken_family_is_found(family, spoil):
    rnn = urnn.UnitaryRNN(2, 5, parametrization=family)
    good = copy.deepcopy(rnn.state_dict())
    spoil(rnn.parametrization_hh_l0)
    with pytest.raises(ValueError, match="parametrization_hh_l0: expected a unitary matrix"):
        urnn.check_unitary(rnn)
    bad = rnn.state_dict()
    fresh = urnn.UnitaryRNN(2, 5, parametrization=family)
    fresh.load_state_dict(good)
    with pytest.raises(ValueError, match="expected"):
        urnn.load_state_dict(fresh, bad)
    assert all(torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), good.values(), strict=True))


def test_indices_that_point_nowhere_are_refused():
    rnn = urnn.UnitaryRNN(2, 5, parametrization="restricted")
    state = {**rnn.state_dict(), "parametrization_hh_l0.permutation": torch.full((5,), 99)}
    with pytest.raises(ValueError, match="state: expected parameters that make a unitary matrix"):
        urnn.load_state_dict(rnn, state)


def test_a_family_on_a_weight_is_checked_too():
    layer = urnn.unitary(torch.nn.Linear(4, 4, dtype=torch.complex64), family="householder")
    assert urnn.check_unitary(layer) < 1e-5
    layer.parametrizations.weight.original0.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="weight: expected a unitary matrix"):
        urnn.check_unitary(layer)
