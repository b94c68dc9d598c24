"""Tagare's search along the Cayley curve."""

import pytest
import torch
from torch import nn

import urnn
from urnn.linalg import cayley_step, lie_gradient
from urnn.optim.line_search import CURVATURE, MAX_EVALUATIONS, SUFFICIENT_DECREASE

SGD = urnn.optim.SGD


def quartic(W, C):
    """No linear function of W, so that the curve has a curvature of its own."""
    return (W @ C - C @ W).abs().square().sum() + (W @ C).diagonal().real.sum()


def matrices(count=1, n=6):
    return [torch.randn(n, n, dtype=torch.complex128) for _ in range(count)]


def searching(W, C, lr=1.0, **options):
    optimizer = SGD([W], lr=lr, line_search="armijo_wolfe", **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = quartic(W, C)
        loss.backward()
        losses.append(loss.item())
        return loss

    return optimizer, closure, losses


@pytest.mark.parametrize("lr", [1e-4, 1e-2, 1.0, 100.0])
def test_each_step_satisfies_armijo_and_wolfe(lr, new_unitary):
    """From rates far too small and far too large; tau is found by comparing with the curve itself."""
    (C,) = matrices()
    W = new_unitary(6)
    optimizer, closure, losses = searching(W, C, lr)
    for _ in range(8):
        start = W.detach().clone().requires_grad_()
        first = quartic(start, C)
        first.backward()
        A = lie_gradient(start.detach(), start.grad)
        count = len(losses)
        returned = optimizer.step(closure)
        assert returned.item() == pytest.approx(first.item(), rel=1e-12)  # the loss before the step, as torch.optim
        assert len(losses) - count <= MAX_EVALUATIONS + 2
        # (I - Q)(I + Q)^{-1} = tau lr A / 2 with Q = W start^H
        Q = W.detach() @ start.detach().mH
        eye = torch.eye(6, dtype=Q.dtype)
        half = torch.linalg.solve(eye + Q, eye - Q, left=False)
        rate = float((half * A.conj()).real.sum() / (A / 2 * A.conj()).real.sum())
        torch.testing.assert_close(cayley_step(start.detach(), A, rate), W.detach(), rtol=1e-9, atol=1e-9)
        slope = -float(A.abs().square().sum()) / 2
        after = quartic(W, C).item()
        assert after <= first.item() + SUFFICIENT_DECREASE * rate * slope
        assert after < first.item()
        h = 1e-6 * rate
        ahead, behind = (quartic(cayley_step(start.detach(), A, rate + s * h), C).item() for s in (1, -1))
        assert (ahead - behind) / (2 * h) >= CURVATURE * slope - 1e-5 * abs(slope)


def test_the_loss_never_grows_and_a_fixed_rate_is_beaten(new_unitary):
    for seed in range(5):
        torch.manual_seed(seed)
        (C,) = matrices()
        W = new_unitary(6)
        optimizer, closure, _ = searching(W, C, lr=1e-3)
        values = [quartic(W, C).item()]
        for _ in range(20):
            optimizer.step(closure)
            values.append(quartic(W, C).item())
        assert all(b <= a for a, b in zip(values, values[1:], strict=False))
        fixed = new_unitary(6)
        plain = SGD([fixed], lr=1e-3)
        for _ in range(20):
            plain.zero_grad()
            quartic(fixed, C).backward()
            plain.step()
        assert values[-1] < quartic(fixed, C).item()
    assert urnn.linalg.is_unitary_matrix(W)


def test_the_gradients_left_behind_are_those_of_the_new_point(new_unitary):
    (C,) = matrices()
    W = new_unitary(6)
    optimizer, closure, _ = searching(W, C)
    optimizer.step(closure)
    found = W.grad.clone()
    closure()
    torch.testing.assert_close(found, W.grad, rtol=1e-12, atol=1e-12)


def test_a_stationary_point_and_a_rate_of_zero_stay(new_unitary):
    W = new_unitary(6)
    start = W.detach().clone()
    optimizer, closure, losses = searching(W, torch.zeros(6, 6, dtype=torch.complex128))
    optimizer.step(closure)
    assert torch.equal(W, start)
    assert len(losses) == 1
    optimizer, closure, losses = searching(W, *matrices(), lr=0.0)
    optimizer.step(closure)
    assert torch.equal(W, start)


@pytest.mark.parametrize("change", [1.0, -1e-9], ids=["up", "down_too_little"])
def test_no_sufficient_descent_leaves_w_where_it_was(change, new_unitary):
    """A closure that lies: no point along the curve is lower than the start by what the slope promises."""
    (C,) = matrices()
    W = new_unitary(6)
    start = W.detach().clone()
    optimizer, closure, losses = searching(W, C)

    def lying():
        closure()
        return torch.tensor(change * len(losses), dtype=torch.float64)

    optimizer.step(lying)
    assert torch.equal(W, start)
    assert len(losses) == MAX_EVALUATIONS + 2


def test_several_matrices_share_the_search_and_the_rest_is_stepped(new_unitary):
    """Two searched ones, a unitary one in a group without search, and an ordinary one."""
    C, D = matrices(2)
    first, second, fixed = (new_unitary(6, seed=i) for i in range(3))
    p = nn.Parameter(torch.ones(3).double())
    groups = [{"params": [first, second, p], "line_search": "armijo_wolfe"}, {"params": [fixed]}]
    optimizer = SGD(groups, lr=1e-2)
    starts = [t.detach().clone() for t in (first, second, fixed, p)]

    def closure():
        optimizer.zero_grad()
        loss = quartic(first, C) + quartic(second, D) + (fixed @ C).diagonal().real.sum() + p.square().sum()
        loss.backward()
        return loss

    before = closure().item()
    optimizer.step(closure)
    assert closure().item() < before
    for t, start in zip((first, second, fixed, p), starts, strict=True):
        assert not torch.equal(t, start)
    torch.testing.assert_close(p.detach(), starts[3] * (1 - 2e-2), rtol=1e-12, atol=1e-12)
    A = lie_gradient(starts[2], C.mH)  # the gradient of Re tr(W C) is C^H at every W
    torch.testing.assert_close(fixed.detach(), cayley_step(starts[2], A, 1e-2), rtol=1e-12, atol=1e-12)


def test_it_needs_a_closure(new_unitary):
    with pytest.raises(ValueError, match=r"^closure: expected a callable, as line_search='armijo_wolfe' .*, got None$"):
        SGD([new_unitary()], line_search="armijo_wolfe").step()


def test_hooks_run_once(new_unitary):
    optimizer, closure, _ = searching(new_unitary(6), *matrices())
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.step(closure)
    assert calls == [1]
