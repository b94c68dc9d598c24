"""Steps as a CUDA graph takes them, on the CPU: long ones are skipped and counted, rates are tensors."""

import copy

import pytest
import torch
from torch import nn

import urnn
from urnn.linalg import unitarity_defect
from urnn.optim import base
from urnn.optim.capture import Rates, make_capturable

CPU = torch.device("cpu")


@pytest.fixture
def capturing(monkeypatch):
    """The unitary side believes that it is being captured."""
    monkeypatch.setattr(base, "_capturing", lambda W: True)


def test_a_captured_step_is_that_of_the_solve(unitary, new_unitary, drive, monkeypatch):
    case, options = unitary
    results = []
    for capturing in (True, False):
        monkeypatch.setattr(base, "_capturing", lambda W, capturing=capturing: capturing)
        parameters = [new_unitary(5, 2), new_unitary(5, seed=2), new_unitary(4)]
        optimizer = case.ours(parameters, **{**options, "lr": options["lr"] / 10})
        drive(optimizer, parameters)
        assert int(optimizer.failed_steps()) == 0
        results.append([p.detach() for p in parameters])
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_steps_that_are_too_long_leave_their_matrix_and_are_counted(capturing, new_unitary):
    """Each matrix of an ensemble, and of several parameters that move together, for itself."""
    first, second = new_unitary(5, 2, 2, dtype=torch.complex64), new_unitary(5, 3, 1, dtype=torch.complex64)
    optimizer = urnn.optim.SGD([first, second], lr=0.01)
    for p in (first, second):
        p.grad = torch.randn_like(p)
    first.grad[1, 0] *= 1e3
    second.grad[2, 0] *= 1e10
    starts = [p.detach().clone() for p in (first, second)]
    for _ in range(2):
        optimizer.step()
    stayed = [(p == start).all(-1).all(-1) for p, start in zip((first, second), starts, strict=True)]
    assert stayed[0].tolist() == [[False, False], [True, False]]
    assert stayed[1].tolist() == [[False], [False], [True]]
    for p, flags in zip((first, second), stayed, strict=True):
        assert torch.equal(optimizer.state[p]["failed"], 2 * flags)
        assert unitarity_defect(p).max() < 2e-6
    assert int(optimizer.failed_steps()) == 4


def test_a_gradient_that_is_no_number_reaches_w(capturing, new_unitary):
    W = new_unitary(5, 2)
    optimizer = urnn.optim.SGD([W], lr=0.01)
    W.grad = torch.randn_like(W)
    W.grad[1, 0, 0] = torch.nan
    optimizer.step()
    assert W[1].isnan().any()
    assert not W[0].isnan().any()
    assert int(optimizer.failed_steps()) == 0


def test_the_count_is_part_of_the_state(capturing, new_unitary):
    """And a state that is older than the count can be loaded."""
    W = new_unitary()
    optimizer = urnn.optim.SGD([W], lr=1e3)
    assert int(optimizer.failed_steps()) == 0
    W.grad = torch.randn_like(W)
    optimizer.step()
    again = urnn.optim.SGD([W], lr=1e3)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert int(again.failed_steps()) == 1
    again.step()
    assert (int(again.failed_steps()), int(optimizer.failed_steps())) == (2, 1)
    older = copy.deepcopy(optimizer.state_dict())
    del older["state"][0]["failed"]
    again.load_state_dict(older)
    assert int(again.failed_steps()) == 0
    again.step()
    assert int(again.failed_steps()) == 1


def test_plain_steps_do_not_fail(new_unitary):
    W = new_unitary()
    optimizer = urnn.optim.SGD([W], lr=1e3)
    W.grad = torch.randn_like(W)
    start = W.detach().clone()
    optimizer.step()
    assert not torch.equal(W, start)
    assert int(optimizer.failed_steps()) == 0


# Rates


@pytest.mark.parametrize("unitary_lr", [None, 0.04])
def test_steps_at_rates_that_are_tensors_are_those_at_numbers(unitary, unitary_lr, new_unitary, drive):
    case, options = unitary

    def parameters():
        return [new_unitary(), nn.Parameter(torch.full((3,), 2.0).double()), nn.Parameter(torch.ones(2) * (1 + 0j))]

    options = {**options, "unitary_lr": unitary_lr}
    mine, theirs = parameters(), parameters()
    first, second = case.ours(mine, **options), case.ours(theirs, **options)
    rates = Rates(first, CPU)
    for step, lr in enumerate((0.05, 0.05, 0.01, 0.0)):
        first.param_groups[0]["lr"] = second.param_groups[0]["lr"] = lr
        with rates.as_tensors():
            drive(first, mine, steps=1, first=step)
        assert first.param_groups[0]["lr"] == lr
        drive(second, theirs, steps=1, first=step)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12 if a.dtype in (torch.float64, torch.complex128) else 1e-6)


def test_a_rate_that_began_at_zero_may_be_a_tensor(new_unitary):
    W = new_unitary()
    optimizer = urnn.optim.SGD([W], lr=0.0, unitary_lr=0.02)
    with Rates(optimizer, CPU).as_tensors():
        assert optimizer._rate(optimizer.param_groups[0]) == 0.02


def test_the_numbers_come_back_after_an_error(new_unitary):
    optimizer = urnn.optim.SGD([{"params": [new_unitary()]}, {"params": [new_unitary()], "lr": 0.2}], lr=0.1)
    rates = Rates(optimizer, CPU)
    with rates.as_tensors():
        assert [group["lr"].tolist() for group in optimizer.param_groups] == [0.1, 0.2]
    with pytest.raises(ZeroDivisionError), rates.as_tensors():
        1 / 0
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


def test_what_is_handed_over():
    """Not a tensor that lies on the device already, nor the rate of an SGD that would read it."""
    p = [nn.Parameter(torch.ones(1))]
    tensor = torch.tensor(0.1)
    for optimizer, expected in (
        (urnn.optim.SGD(p, lr=0.1), True),
        (urnn.optim.SGD(p, lr=tensor), False),
        (torch.optim.SGD(p, lr=0.1), False),
        (torch.optim.Adam(p, lr=0.1), True),
        (torch.optim.Adam(p, lr=tensor), False),
    ):
        assert Rates(optimizer, CPU).handed_over(optimizer.param_groups[0]) == expected


def test_make_capturable_switches_it_on_in_every_group():
    parameters = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = urnn.optim.Adam([{"params": [p]} for p in parameters])
    make_capturable(optimizer)
    assert all(group["capturable"] for group in optimizer.param_groups)
    make_capturable(torch.optim.SGD(parameters))


def test_what_cannot_be_captured_is_named(new_unitary):
    parameters = [nn.Parameter(torch.ones(1))]
    make_capturable(urnn.optim.SGD(parameters, unitary_step="exponential"))
    with pytest.raises(ValueError, match=r"^unitary_step: expected 'cayley' in a CUDA graph.*, got 'exponential'\."):
        make_capturable(urnn.optim.SGD([new_unitary()], unitary_step="exponential"))
    with pytest.raises(ValueError, match=r"^optimizer: expected SGD or one with the option capturable.*got Adagrad\."):
        make_capturable(torch.optim.Adagrad(parameters))
