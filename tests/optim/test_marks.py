"""The mark of a unitary parameter survives what PyTorch does to modules: a step afterwards keeps W unitary."""

import copy
import io
import pickle

import lightning_fabric
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import urnn
from urnn.linalg import unitarity_defect, unitarity_tol


def recurrent():
    return urnn.UnitaryRNN(2, 4, num_layers=2, bidirectional=True)


def cell():
    return urnn.UnitaryRNNCell(2, 4)


def family():
    return urnn.parametrizations.Full(4)


def attached():
    """A plain module of PyTorch with a unitary weight."""
    return urnn.unitary(nn.Linear(4, 4, dtype=torch.complex64))


def nested():
    return nn.ModuleDict({"inner": nn.Sequential(nn.Linear(2, 2), urnn.UnitaryRNN(2, 4))})


MODULES = [recurrent, cell, family, attached, nested]


def deepcopied(module):
    return copy.deepcopy(module)


def deepcopied_twice(module):
    return copy.deepcopy(copy.deepcopy(module))


def pickled(module):
    return pickle.loads(pickle.dumps(module))


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def doubled(module):
    return module.double()


def moved_to_float64(module):
    return module.to(torch.float64)


def moved_to_cpu(module):
    return module.to("cpu")


def shared(module):
    return module.share_memory()


def assigned(module):
    state = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
    return module


def through_meta_and_assigned(module):
    state = {name: value.clone() for name, value in module.state_dict().items()}
    module.to("meta")
    module.load_state_dict(state, assign=True)
    return module


def through_meta_and_loaded(module):
    state = {name: value.clone() for name, value in module.state_dict().items()}
    module.to("meta").to_empty(device="cpu")
    module.load_state_dict(state)
    return module


def loaded(module):
    module.load_state_dict(copy.deepcopy(module.state_dict()))
    return module


def swapped_on_conversion(module):
    """PyTorch's switch that makes new parameters where it would otherwise change them in place."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    module.double()
    torch.__future__.set_overwrite_module_params_on_conversion(False)
    return module


WAYS = [
    deepcopied,
    deepcopied_twice,
    pickled,
    saved,
    doubled,
    moved_to_float64,
    moved_to_cpu,
    shared,
    assigned,
    through_meta_and_assigned,
    through_meta_and_loaded,
    loaded,
    swapped_on_conversion,
]


def step_and_check(optimizer, module):
    """One large step along random gradients; a plain step of that size is far off U(n)."""
    matrices = [p for p in module.parameters() if p.is_complex() and p.dim() == 2 and p.shape[0] == p.shape[1]]
    before = [W.detach().clone() for W in matrices]
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    assert matrices
    for W, old in zip(matrices, before, strict=True):
        assert not torch.equal(W, old)
        assert float(unitarity_defect(W)) <= unitarity_tol(4, W.dtype)
    urnn.check_unitary(module)


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", MODULES, ids=lambda f: f.__name__)
def test_the_mark_survives(make, way):
    module = way(make())
    step_and_check(urnn.optim.SGD(module.parameters(), lr=0.3), module)


@pytest.mark.parametrize("way", [loaded, doubled, moved_to_cpu, shared], ids=lambda f: f.__name__)
def test_an_optimizer_made_before_goes_on(way):
    """Where PyTorch keeps the parameters, the optimizer made before keeps its hold on them."""
    module = recurrent()
    optimizer = urnn.optim.Adam(module.parameters(), lr=0.3)
    step_and_check(optimizer, way(module))


def test_model_and_optimizer_copied_together_stay_connected():
    module = recurrent()
    optimizer = urnn.optim.Adam(module.parameters(), lr=0.3)
    for order in ((module, optimizer), (optimizer, module)):
        copies = copy.deepcopy(order)
        twin, twin_optimizer = copies if order[0] is module else copies[::-1]
        assert twin_optimizer.param_groups[0]["params"][0] is next(twin.parameters())
        step_and_check(twin_optimizer, twin)


@pytest.fixture
def process_group(tmp_path):
    """One process, a file in place of a port."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("make", [recurrent, nested], ids=lambda f: f.__name__)
def test_the_mark_survives_ddp(make, process_group):
    """Values and gradients through DDP are those of the module itself."""
    module = make()
    plain = copy.deepcopy(module)
    wrapped = DistributedDataParallel(module)
    x = torch.randn(5, 3, 2)
    run = (lambda m: m["inner"]) if make is nested else (lambda m: m)
    if make is nested:
        wrapped = DistributedDataParallel(module["inner"])
    for layers in (wrapped, run(plain)):
        layers(x)[0].abs().sum().backward()
    for a, b in zip(run(module).parameters(), run(plain).parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    optimizer = urnn.optim.SGD(wrapped.parameters(), lr=0.3)
    optimizer.step()
    urnn.check_unitary(module)
    step_and_check(optimizer, module)


def test_the_mark_survives_fabric():
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=1)
    module = recurrent()
    wrapped, optimizer = fabric.setup(module, urnn.optim.Adam(module.parameters(), lr=0.3))
    W = module.weight_hh_l0.detach().clone()
    fabric.backward(wrapped(torch.randn(5, 3, 2))[0].abs().sum())
    optimizer.step()
    assert not torch.equal(module.weight_hh_l0, W)
    urnn.check_unitary(wrapped)
    step_and_check(optimizer, wrapped)


def test_fabric_saves_and_loads(tmp_path):
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=1)
    module = recurrent()
    wrapped, optimizer = fabric.setup(module, urnn.optim.Adam(module.parameters(), lr=0.3))
    step_and_check(optimizer, wrapped)
    fabric.save(tmp_path / "checkpoint.ckpt", {"model": wrapped, "optimizer": optimizer})
    other = recurrent()
    again, its_optimizer = fabric.setup(other, urnn.optim.Adam(other.parameters(), lr=1.0))
    fabric.load(tmp_path / "checkpoint.ckpt", {"model": again, "optimizer": its_optimizer})
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))
    step_and_check(its_optimizer, again)
