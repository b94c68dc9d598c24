"""The unitary side of each optimizer against numpy: directions, steps, and ``RMSprop.paper`` to the letter."""

import numpy as np
import pytest
import torch
from torch import nn

import urnn

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def lie(W, G):
    return G @ W.conj().T - W @ G.conj().T


def cayley(W, A, rate):
    """Eq. 6 with an explicit inverse, as the paper writes it."""
    eye = np.eye(len(W))
    return np.linalg.inv(eye + rate / 2 * A) @ (eye - rate / 2 * A) @ W


def exponential(W, A, rate):
    phases, Q = np.linalg.eigh(-1j * A)
    return Q @ np.diag(np.exp(-1j * rate * phases)) @ Q.conj().T @ W


def plain(rate):
    def step(W, G, memory, t):
        return lie(W, G), rate

    return step


def with_momentum(rate, momentum, dampening=0.0, nesterov=False):
    def step(W, G, memory, t):
        A = lie(W, G)
        memory["m"] = momentum * memory.get("m", 0) + (1 - dampening) * A
        return (A + momentum * memory["m"] if nesterov else memory["m"]), rate

    return step


def scalar(rate, mean_decay, square_decay):
    """Running mean of A over the running RMS of its entries, each divided by 1 - decay^t; decay 0 means no mean."""

    def step(W, G, memory, t):
        A = lie(W, G)
        memory["m"] = mean_decay * memory.get("m", 0) + (1 - mean_decay) * A
        memory["v"] = square_decay * memory.get("v", 0) + (1 - square_decay) * np.mean(np.abs(A) ** 2)
        mean, square = memory["m"] / (1 - mean_decay**t), memory["v"] / (1 - square_decay**t)
        return mean / np.sqrt(square), rate

    return step


def elementwise(rate, decay, eps, start):
    """Re and Im of G apart, over their running RMS without correction, before A is formed."""

    def step(W, G, memory, t):
        g = np.stack((G.real, G.imag))
        memory["v"] = decay * memory.get("v", start) + (1 - decay) * g**2
        g = g / (np.sqrt(memory["v"]) + eps)
        return lie(W, g[0] + 1j * g[1]), rate

    return step


SGD, RMSprop, Adam = urnn.optim.SGD, urnn.optim.RMSprop, urnn.optim.Adam
DIRECTIONS = [
    (SGD, {"lr": 0.1}, plain(0.1)),
    (SGD, {"lr": 0.1, "unitary_lr": 0.02}, plain(0.02)),
    (SGD, {"lr": 0.1, "momentum": 0.9}, with_momentum(0.1, 0.9)),
    (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, with_momentum(0.1, 0.9, 0.5)),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, with_momentum(0.1, 0.9, nesterov=True)),
    (RMSprop, {"lr": 0.1}, scalar(0.03, 0.0, 0.99)),
    (RMSprop, {"lr": 0.1, "alpha": 0.8}, scalar(0.03, 0.0, 0.8)),
    (RMSprop, {"lr": 0.1, "momentum": 0.9, "centered": True}, scalar(0.03, 0.0, 0.99)),  # both for ordinary ones alone
    (RMSprop, {"lr": 0.1, "unitary_betas": (0.7, 0.9)}, scalar(0.03, 0.7, 0.9)),
    (RMSprop, {"lr": 0.1, "unitary_scaling": "none"}, plain(0.03)),
    (
        RMSprop,
        {"lr": 0.1, "alpha": 0.8, "eps": 1e-3, "unitary_scaling": "elementwise", "initial_square_avg": 0.1},
        elementwise(0.03, 0.8, 1e-3, 0.1),
    ),
    (Adam, {"lr": 0.1}, scalar(0.03, 0.9, 0.99)),
    (Adam, {"lr": 0.1, "unitary_betas": (0.5, 0.8), "unitary_lr": 0.2}, scalar(0.2, 0.5, 0.8)),
]


@pytest.mark.parametrize("curve", [cayley, exponential])
@pytest.mark.parametrize("polish", [True, False])
@pytest.mark.parametrize(
    ("optimizer_class", "options", "direction"), DIRECTIONS, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_steps_are_those_of_the_formulas(optimizer_class, options, direction, polish, curve, new_unitary):
    """In complex128 a polish of a unitary matrix changes nothing above rounding."""
    W = new_unitary()
    optimizer = optimizer_class([W], unitary_step=curve.__name__, polish=polish, **options)
    expected, memory = W.detach().numpy().copy(), {}
    for t in range(1, 5):
        W.grad = torch.randn_like(W)
        A, rate = direction(expected, W.grad.numpy(), memory, t)
        expected = curve(expected, A, rate)
        optimizer.step()
    torch.testing.assert_close(W.detach(), torch.from_numpy(expected), **EXACT)


# RMSprop.paper


@pytest.mark.parametrize(("task", "start", "eps"), [("copy", 1e-3, 0.0), ("speech", 1e-3, 0.0), ("mnist", 0.0, 1e-8)])
def test_paper_steps_ordinary_parameters_as_the_released_code(task, start, eps):
    """v = 0.9 v + 0.1 g^2, p -= lr g / (sqrt(v) + eps), v from 1e-3 and without epsilon on copy and speech."""
    p, z = nn.Parameter(torch.randn(4).double()), nn.Parameter(torch.randn(4, dtype=torch.complex128))
    optimizer = RMSprop.paper([p, z], task, lr=1e-2)
    values = np.concatenate((p.detach().numpy(), z.detach().numpy().real, z.detach().numpy().imag))
    v = np.full(12, start)
    for _ in range(5):
        p.grad, z.grad = torch.randn_like(p), torch.randn_like(z)
        g = np.concatenate((p.grad.numpy(), z.grad.numpy().real, z.grad.numpy().imag))
        v = 0.9 * v + 0.1 * g**2
        values = values - 1e-2 * g / (np.sqrt(v) + eps)
        optimizer.step()
    found = np.concatenate((p.detach().numpy(), z.detach().numpy().real, z.detach().numpy().imag))
    np.testing.assert_allclose(found, values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("task", "direction"),
    [("copy", plain(1e-3)), ("speech", plain(1e-3)), ("mnist", elementwise(1e-6, 0.9, 1e-8, 0.0))],
)
def test_paper_steps_w_as_the_released_code(task, direction, new_unitary):
    """A fixed rate, the corrected A, no polish; on MNIST G over its elementwise RMS, and a rate of 1e-6."""
    W = new_unitary()
    optimizer = RMSprop.paper([W], task)
    assert optimizer.param_groups[0]["polish"] is False
    start = expected = W.detach().numpy().copy()
    memory = {}
    for t in range(1, 6):
        W.grad = torch.randn_like(W)
        A, rate = direction(expected, W.grad.numpy(), memory, t)
        expected = cayley(expected, A, rate)
        optimizer.step()
    # the move itself to 1e-9, as mnist's is as small as 1e-5
    np.testing.assert_allclose(W.detach().numpy() - start, expected - start, rtol=1e-6, atol=1e-13)


def test_paper_takes_changes_and_refuses_other_tasks(new_unitary):
    W = new_unitary()
    group = RMSprop.paper([W], "copy", lr=0.5, polish=True, unitary_lr=0.1).param_groups[0]
    assert (group["lr"], group["polish"], group["unitary_lr"], group["alpha"]) == (0.5, True, 0.1, 0.9)
    with pytest.raises(
        ValueError, match=r"^task: expected one of \['copy', 'mnist', 'speech'\], got 'mnst'\. Did you mean"
    ):
        RMSprop.paper([W], "mnst")


def test_a_given_start_of_the_mean_squares_survives_later_steps():
    """``initial_square_avg`` is the start of a new parameter, not of every step."""
    p = nn.Parameter(torch.zeros(1).double())
    optimizer = RMSprop([p], alpha=0.5, initial_square_avg=4.0)
    for _ in range(3):
        p.grad = torch.zeros(1).double()
        optimizer.step()
    assert optimizer.state[p]["square_avg"].item() == 0.5


def test_the_unitary_side_is_invariant_under_a_change_of_basis(new_unitary):
    """W -> U W V with fixed unitary U, V: one number for each matrix commutes with it, for Adam and RMSprop."""
    U, V = (urnn.linalg.haar_unitary(5, dtype=torch.complex128) for _ in range(2))
    for optimizer_class in (SGD, RMSprop, Adam):
        W, turned = new_unitary(), new_unitary()
        with torch.no_grad():
            turned.copy_(U @ W @ V)
        optimizers = [optimizer_class([p], lr=0.1) for p in (W, turned)]
        for _ in range(4):
            W.grad = torch.randn_like(W)
            turned.grad = U @ W.grad @ V
            for optimizer in optimizers:
                optimizer.step()
        torch.testing.assert_close(turned.detach(), U @ W.detach() @ V, **EXACT)
