"""``graphed_step``: captured steps are those of a plain loop. On CUDA devices, and emulated on the CPU."""

import copy
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR

import urnn
from urnn import graphs
from urnn.optim.capture import make_capturable

EXACT = {"rtol": 0, "atol": 1e-7}  # torch's capturable Adam rounds its rate to float32; a lost step is 1e-3 or more
OPTIMIZERS = {
    "sgd": lambda p: urnn.optim.SGD(p, lr=0.1, momentum=0.9),
    "rmsprop": lambda p: urnn.optim.RMSprop(p, lr=1e-2, foreach=True),
    "adam": lambda p: urnn.optim.Adam(p, lr=1e-2, unitary_lr=5e-3, foreach=True),
}


class Model(nn.Module):
    def __init__(self, device, dtype=torch.float64):
        super().__init__()
        self.rnn = urnn.UnitaryRNN(3, 6, device=device, dtype=dtype, backend="explicit")  # float64 on a GPU too
        self.readout = urnn.ComplexToReal(6, 2, device=device, dtype=dtype)

    def forward(self, x):
        return self.readout(self.rnn(x)[0])


def mean_square(model, x, y):
    return (model(x) - y).square().mean()


def batches(count, *lengths):
    generator = torch.Generator().manual_seed(3)
    for i in range(count):
        x, y = (torch.randn(lengths[i % len(lengths)], 4, k, dtype=torch.float64, generator=generator) for k in (3, 2))
        yield x, y


def twins(device, name="adam", loss_fn=mean_square, **options):
    """A captured and a plain step, with models and optimizers of their own that start alike."""
    torch.manual_seed(1)
    model, steps = Model(device), []
    for capture, twin in ((True, model), (False, copy.deepcopy(model))):
        optimizer = OPTIMIZERS[name](twin.parameters())
        if not capture:
            make_capturable(optimizer)  # torch's Adam corrects its bias in float32 then
        steps.append(graphs.graphed_step(twin, optimizer, loss_fn, capture=capture, **options))
    assert [step.captures for step in steps] == [True, False]
    return steps


def graphs_of(step):
    return [kind.graph for kind in step._kinds.values()]


def assert_equal_training(first, second):
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, **EXACT)
        torch.testing.assert_close(a.grad, b.grad, **EXACT)
    assert urnn.check_unitary(first.model) < 1e-12


# The same on every device


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_plain_step_is_that_of_a_loop(name, clip):
    torch.manual_seed(1)
    model = Model("cpu")
    twin = copy.deepcopy(model)
    optimizer = OPTIMIZERS[name](twin.parameters())
    step = urnn.graphed_step(model, OPTIMIZERS[name](model.parameters()), mean_square, clip_grad_norm=clip)
    assert not step.captures
    for x, y in batches(4, 5):
        optimizer.zero_grad()
        loss = mean_square(twin, x, y)
        loss.backward()
        if clip is not None:
            assert nn.utils.clip_grad_norm_(twin.parameters(), clip) > clip
        optimizer.step()
        found = step(x, y)
        assert torch.equal(found, loss)
        assert not found.requires_grad
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.grad, b.grad)


def test_what_is_no_tensor_is_handed_on_and_tuples_come_back():
    model = Model("cpu")

    def loss_fn(model, x, scale, name, nothing):
        assert (name, nothing) == ("mean", None)
        y = model(x)
        return scale * y.square().mean(), y, y.abs().max()

    step = urnn.graphed_step(model, urnn.optim.SGD(model.parameters()), loss_fn)
    loss, y, largest = step(torch.randn(5, 4, 3).double(), 2.0, "mean", None)
    assert float(loss) == pytest.approx(2 * float(y.square().mean()))
    assert float(largest) == float(y.abs().max())
    assert not y.requires_grad


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": None}, TypeError, r"^model: expected a Module of PyTorch, got NoneType$"),
        ({"optimizer": "adam"}, TypeError, r"^optimizer: expected a Optimizer of PyTorch, got str$"),
        ({"loss_fn": 3}, TypeError, r"^loss_fn: expected a callable, got int$"),
        ({"clip_grad_norm": -1.0}, ValueError, r"^clip_grad_norm: expected a number in \[0.0, inf\), got -1.0$"),
        ({"max_graphs": 0}, ValueError, r"^max_graphs: expected an int >= 1, got 0$"),
    ],
)
def test_bad_arguments_say_what_was_expected(changes, error, message):
    model = Model("cpu")
    arguments = {"model": model, "optimizer": urnn.optim.SGD(model.parameters()), "loss_fn": mean_square, **changes}
    with pytest.raises(error, match=message):
        urnn.graphed_step(**arguments)


def test_an_optimizer_with_a_line_search_is_refused():
    model = Model("cpu")
    optimizer = urnn.optim.SGD(model.parameters(), line_search="armijo_wolfe")
    with pytest.raises(ValueError, match=r"^optimizer: expected one without line_search"):
        urnn.graphed_step(model, optimizer, mean_square)


@pytest.mark.parametrize(
    ("loss_fn", "error", "message"),
    [
        (lambda model, x: 1.0, TypeError, r"^loss_fn: expected to return a tensor or a tuple of tensors, got float$"),
        (lambda model, x: (model(x).sum(), 1.0), TypeError, r"got a tuple of \['Tensor', 'float'\]$"),
        (
            lambda model, x: model(x).square(),
            ValueError,
            r"a loss of one element with a gradient, got shape \(5, 4, 2\)",
        ),
        (lambda model, x: model(x).sum().detach(), ValueError, r"got shape \(\) with requires_grad=False$"),
    ],
)
def test_a_bad_loss_says_what_was_expected(loss_fn, error, message):
    model = Model("cpu")
    step = urnn.graphed_step(model, urnn.optim.SGD(model.parameters()), loss_fn)
    with pytest.raises(error, match=message):
        step(torch.randn(5, 4, 3).double())


def test_a_bad_batch_says_what_was_expected():
    model = Model("cpu")
    step = urnn.graphed_step(model, urnn.optim.SGD(model.parameters()), mean_square)
    with pytest.raises(TypeError, match=r"^batch: expected tensors, numbers, strings or None, got list$"):
        step([torch.zeros(1)])


# Captured


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_captured_steps_equal_plain_ones(name, device):
    """At every call: losses, parameters, gradients; with clipping, a schedule, and a rate set by hand."""
    steps, losses = twins(device, name, clip_grad_norm=0.05), []
    for step in steps:
        scheduler = ExponentialLR(step.optimizer, 0.8)
        found = []
        for i, (x, y) in enumerate(batches(10, 5)):
            if i == 7:
                step.optimizer.param_groups[0]["lr"] = 5e-3
            found.append(step(x, y))
            scheduler.step()
            assert isinstance(step.optimizer.param_groups[0]["lr"], float)
        losses.append(torch.stack(found))
        if step is steps[0]:
            assert len(graphs_of(step)) == 1
            assert None not in graphs_of(step)
    torch.testing.assert_close(*losses, **EXACT)
    assert len(losses[0].unique()) == 10  # every call returns a tensor of its own
    assert_equal_training(*steps)
    assert int(steps[0].optimizer.failed_steps()) == 0


def test_a_rate_that_is_a_tensor_is_followed(device):
    """A scheduler writes into such a tensor; one on the device is read by the graph, one on the CPU handed over."""
    steps = twins(device)
    for where in {device, torch.device("cpu")}:
        for step in steps:
            group = step.optimizer.param_groups[0]
            group["lr"] = torch.tensor(1e-2, dtype=torch.float64, device=where if step.captures else device)
            scheduler = CosineAnnealingLR(step.optimizer, 8)
            for x, y in batches(8, 5):
                step(x, y)
                scheduler.step()
        assert_equal_training(*steps)


def test_shapes_get_graphs_of_their_own_up_to_the_limit(device):
    steps = twins(device, max_graphs=2)
    for step in steps:
        for i, (x, y) in enumerate(batches(14, 5, 7)):
            step(x, y)
            if i == 11 and step.captures:
                assert len(graphs_of(step)) == 2
                assert None not in graphs_of(step)
        said = pytest.warns(UserWarning, match="got more than max_graphs=2 kinds of batches")
        with said if step.captures else nullcontext():
            step(*next(batches(1, 9)))
        step(*next(batches(1, 9)))  # said once
        step(*next(batches(1, 5)))
    assert_equal_training(*steps)


def test_values_and_modes_are_kinds_of_their_own(device):
    def loss_fn(model, x, y, scale):
        return scale * mean_square(model, x, y) * (1.0 if model.training else 0.5)

    steps = twins(device, loss_fn=loss_fn)
    for step in steps:
        for i, (x, y) in enumerate(batches(12, 5)):
            step.model.train(i < 8)
            step(x, y, 1.0 if i < 4 else 2.0)
    assert_equal_training(*steps)
    assert len(graphs_of(steps[0])) == 3


def test_an_option_that_changes_is_honoured(device):
    steps = twins(device)
    for step in steps:
        for i, (x, y) in enumerate(batches(10, 5)):
            step.optimizer.param_groups[0]["unitary_betas"] = (0.9, 0.99) if i < 5 else (0.5, 0.9)
            step(x, y)
    assert_equal_training(*steps)
    assert len(graphs_of(steps[0])) == 2


@pytest.mark.parametrize("own", [False, True], ids=["default generator", "own generator"])
def test_batches_drawn_inside_are_those_of_plain_steps(own, device):
    kind = torch.Generator(device) if own else None

    def drawn(model):
        x = torch.randn(5, 4, 3, dtype=torch.float64, device=device, generator=kind)
        return model(x).square().mean(), x

    steps = twins(device, "rmsprop", drawn, generators=[kind] if own else [])
    drawings = []
    for step in steps:
        (kind.manual_seed if own else torch.manual_seed)(5)
        drawings.append(torch.stack([step()[1] for _ in range(6)]))
    assert torch.equal(*drawings)
    assert len(drawings[0][:, 0, 0, 0].unique()) == 6
    assert_equal_training(*steps)


def test_a_loaded_state_is_captured_anew(device):
    """Loading replaces the tensors of the optimizer's state; the old graph would go on with the old ones."""
    steps = twins(device)
    for step in steps:
        for i, (x, y) in enumerate(batches(9, 5)):
            if i == 5:
                saved = copy.deepcopy((step.model.state_dict(), step.optimizer.state_dict()))
            if i == 7:
                step.model.load_state_dict(saved[0])
                step.optimizer.load_state_dict(saved[1])
            step(x, y)
    assert_equal_training(*steps)
    assert len(graphs_of(steps[0])) == 1


def test_the_gradients_are_those_of_the_last_call(device):
    """Whichever graph computed them, and whatever became of ``p.grad`` in between."""
    steps = twins(device)
    for i, (x, y) in enumerate(batches(10, 5, 7)):
        for step in steps:
            step.optimizer.zero_grad()
            step(x, y)
        if i > 5:
            assert_equal_training(*steps)


def test_a_step_that_has_begun_elsewhere_goes_on(device):
    """An optimizer that has taken steps is made capturable, and its count of steps moves along."""
    torch.manual_seed(1)
    models = [Model(device)]
    models.append(copy.deepcopy(models[0]))
    result = []
    for capture, model in zip((True, False), models, strict=True):
        optimizer = OPTIMIZERS["adam"](model.parameters())
        data = [(x.to(device), y.to(device)) for x, y in batches(9, 5)]
        for x, y in data[:3]:
            optimizer.zero_grad()
            mean_square(model, x, y).backward()
            optimizer.step()
        assert not optimizer.param_groups[0]["capturable"]
        if not capture:
            make_capturable(optimizer)
        step = graphs.graphed_step(model, optimizer, mean_square, capture=capture)
        for x, y in data[3:]:
            step(x, y)
        result.append(step)
    assert_equal_training(*result)
    assert result[0].optimizer.param_groups[0]["capturable"]


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD])
def test_torchs_own_optimizers_are_captured(make, device):
    """The rate of torch's SGD is fixed in its graph, and part of its kind."""
    torch.manual_seed(1)
    first = nn.Linear(3, 2, device=device, dtype=torch.float64)
    steps = []
    for capture, model in zip((True, False), (first, copy.deepcopy(first)), strict=True):
        optimizer = make(model.parameters(), lr=0.1, foreach=True)
        if not capture:
            make_capturable(optimizer)
        steps.append(graphs.graphed_step(model, optimizer, mean_square, capture=capture))
        for i, (x, y) in enumerate(batches(10, 5)):
            optimizer.param_groups[0]["lr"] = 0.1 if i < 5 else 0.01
            steps[-1](x, y)
    for a, b in zip(steps[0].model.parameters(), steps[1].model.parameters(), strict=True):
        torch.testing.assert_close(a, b, **EXACT)
    assert len(graphs_of(steps[0])) == (2 if make is torch.optim.SGD else 1)


def test_an_optimizer_that_cannot_be_captured_is_named(device):
    model = Model(device)
    optimizer = torch.optim.Adagrad(model.parameters())
    with pytest.raises(ValueError, match=r"^optimizer: expected SGD or one with the option capturable.*, got Adagrad"):
        graphs.graphed_step(model, optimizer, mean_square)


def test_failed_steps_are_reported(device, monkeypatch):
    """The rate is far too high for a graph; the plain steps before take it by a solve."""
    monkeypatch.setattr(graphs, "CHECK_EVERY", 3)
    model = Model(device)
    optimizer = urnn.optim.SGD(model.parameters(), lr=0.0, unitary_lr=1e5)
    step = graphs.graphed_step(model, optimizer, mean_square)
    for call, (x, y) in enumerate(batches(9, 5), start=1):
        before = model.rnn.weight_hh_l0.detach().clone()
        fresh = {6: 1, 9: 3}.get(call)  # fetched at calls 3 and 6, which were captured from call 3 on
        said = pytest.warns(UserWarning, match=f"^{fresh} Cayley steps were too long for a CUDA graph")
        with said if fresh else nullcontext():
            step(x, y)
        if device.type == "cuda":
            torch.cuda.synchronize()
        assert torch.equal(model.rnn.weight_hh_l0, before) == (call > graphs.WARM_UP)
    assert int(optimizer.failed_steps()) == 7
    assert urnn.check_unitary(model) < 1e-12


UNCAPTURABLE = """
import torch, urnn
from urnn.graphs import WARM_UP

rnn = urnn.UnitaryRNN(3, 6, device="cuda")
optimizer = urnn.optim.SGD(rnn.parameters())

def loss_fn(rnn, x):
    loss = rnn(x)[0].abs().sum()
    return loss * float(loss.item() > 0)

step, x = urnn.graphed_step(rnn, optimizer, loss_fn), torch.randn(5, 4, 3)
for _ in range(WARM_UP):
    step(x)
try:
    step(x)
except RuntimeError as error:
    print(error)
urnn.graphed_step(rnn, optimizer, loss_fn, capture=False)(x)
print("goes on with", torch.cuda.current_stream() == torch.cuda.default_stream())
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_what_cannot_be_captured_says_so_and_plain_steps_go_on():
    """In a process of its own: what a broken capture leaves behind must not reach other tests."""
    found = subprocess.run([sys.executable, "-c", UNCAPTURABLE], capture_output=True, text=True, check=True).stdout
    assert "graphed_step: this step cannot be captured in a CUDA graph: " in found
    assert "capture=False takes plain steps." in found
    assert "goes on with True" in found
