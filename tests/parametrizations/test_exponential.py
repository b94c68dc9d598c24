"""The two families around a movable base."""

import pytest
import torch

from urnn.linalg import cayley_step, exponential_step, haar_unitary, skew_from_reals
from urnn.parametrizations import Cayley, Exponential
from urnn.parametrizations.exponential import Based

FAMILIES = [Exponential, Cayley]
every_family = pytest.mark.parametrize("family", FAMILIES)


def moved(family: type[Based], size: float = 1.0) -> Based:
    made = family(5, (2,), dtype=torch.complex128)
    torch.nn.init.normal_(made.coordinates, std=size)
    return made


@pytest.mark.parametrize(("family", "step"), [(Exponential, exponential_step), (Cayley, cayley_step)])
def test_the_map_is_the_step_of_minus_one_from_the_base(family: type[Based], step: object) -> None:
    made = moved(family)
    A = skew_from_reals(made.coordinates)
    expected = exponential_step(made.base, -A, 1.0) if step is exponential_step else cayley_step(made.base, A, 1.0)
    torch.testing.assert_close(made(), expected)


@every_family
def test_rebase_keeps_W_and_clears_the_coordinates(family: type[Based]) -> None:
    made = moved(family)
    W = made().detach().clone()
    made.rebase()
    assert not made.coordinates.any()
    assert made.coordinates.requires_grad
    torch.testing.assert_close(made(), W)
    torch.testing.assert_close(made.base, W)


@every_family
def test_the_base_is_saved_and_follows_the_precision(family: type[Based]) -> None:
    made = moved(family)
    assert sorted(made.state_dict()) == ["base", "coordinates"]
    assert made.float().base.dtype == torch.complex64


@every_family
def test_the_start_is_the_haar_base(family: type[Based]) -> None:
    made = family(4)
    assert not made.coordinates.any()
    assert torch.equal(made(), made.base)


@every_family
def test_minus_one_is_within_reach(family: type[Based]) -> None:
    made = family(4, dtype=torch.complex128)
    minus_one = -torch.eye(4, dtype=torch.complex128)
    made.load_unitary(minus_one)
    torch.testing.assert_close(made(), minus_one)
    (gradient,) = torch.autograd.grad(made().imag.sum(), made.coordinates)
    assert torch.isfinite(gradient).all()
    assert gradient.any()


@every_family
def test_gradient_steps_reach_a_target(family: type[Based]) -> None:
    """An ordinary optimizer, with one move of the base on the way."""
    torch.manual_seed(1)
    made, W = family(3, dtype=torch.complex128), haar_unitary(3, dtype=torch.complex128)
    for _ in range(2):
        optimizer = torch.optim.LBFGS(made.parameters(), max_iter=60, line_search_fn="strong_wolfe")

        def closure(optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (made() - W).abs().square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
        made.rebase()
    torch.testing.assert_close(made(), W, rtol=0, atol=1e-5)
