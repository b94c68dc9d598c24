"""What is not finite is found, and its name and time."""

import math

import pytest
import torch
from torch import nn

from urnn.experiments.health import Health, values_fault


def model():
    made = nn.ModuleDict({"a": nn.Linear(2, 2, dtype=torch.complex64), "b": nn.Linear(2, 2)})
    for p in made.parameters():
        p.grad = torch.ones_like(p)
    made["b"].bias.grad = None
    return made


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, complex(0, math.nan), complex(1, -math.inf)])
@pytest.mark.parametrize("name", ["a.weight", "a.bias", "b.weight"])
def test_one_bad_entry_of_one_gradient_is_named_with_its_step(bad, name):
    made = model()
    health = Health(made)
    health.look()
    if name == "b.weight":
        bad = bad.imag or bad.real
    made.get_parameter(name).grad.view(-1)[-1] = bad
    health.look()
    made.get_parameter("b.weight").grad.fill_(math.nan)
    health.look()
    assert health.fault([1.0, 0.5, math.nan]) == (
        1,
        f"a finite gradient of {name}, got NaN or inf, though the loss was 0.5",
    )


def test_the_largest_finite_gradients_are_finite():
    made = model()
    made["b"].weight.grad.fill_(torch.finfo(torch.float32).max)
    health = Health(made)
    health.look()
    assert health.fault([1.0]) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_loss_is_named_and_a_call_forgets_the_steps_before(bad):
    made = model()
    health = Health(made)
    for loss in (0.0, bad):
        health.look()
        health.look()
        found = health.fault([1.0, loss])
    assert found == (1, f"a finite loss, got {bad}")


def test_a_model_without_gradients_is_looked_at_too():
    health = Health(nn.Linear(2, 2))
    health.look()
    assert health.fault([1.0]) is None


def test_values_that_are_not_finite_are_named():
    made = model()
    assert values_fault(made) is None
    with torch.no_grad():
        made["a"].bias[1] = complex(0, math.inf)
    assert values_fault(made) == "finite values of a.bias after the step, got NaN or inf"
