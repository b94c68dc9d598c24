"""From settings to optimizers and rates."""

import pytest
import torch

from urnn import optim
from urnn.experiments import optimizers
from urnn.experiments.models import first_unitary
from urnn.linalg import unitarity_defect


def build(config):
    model = config.problem.start(config).model()
    return model, optimizers.build(config, model)


def test_every_optimizer_is_the_librarys(tiny):
    kinds = {"rmsprop": optim.RMSprop, "adam": optim.Adam, "sgd": optim.SGD}
    for name in optimizers_of_config():
        assert type(build(tiny("copy", optimizer=name))[1]) is kinds[name]


def optimizers_of_config():
    from urnn.experiments.config import OPTIMIZERS

    return OPTIMIZERS


def test_the_paper_recipe_is_the_libraries_paper_optimizer(tiny):
    model, optimizer = build(tiny("copy", recipe="paper"))
    paper = optim.RMSprop.paper(model.parameters(), "copy")
    ours, theirs = optimizer.param_groups[0], paper.param_groups[0]
    assert {k: v for k, v in ours.items() if k != "params"} == {k: v for k, v in theirs.items() if k != "params"}


def test_schedules(tiny):
    config = tiny("copy", max_iterations=100, schedule="cosine", final_lr=0.1)
    assert optimizers.factor(config, 0) == 1.0
    assert optimizers.factor(config, 50) == pytest.approx(0.55)
    assert optimizers.factor(config, 100) == pytest.approx(0.1)
    config = tiny("copy", max_iterations=100, schedule="exponential", final_lr=0.01)
    assert optimizers.factor(config, 50) == pytest.approx(0.1)
    config = tiny("copy", max_iterations=100, schedule="constant", warmup=4)
    assert [optimizers.factor(config, i) for i in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])


def test_all_rates_follow_the_schedule_and_w_keeps_its_ratio(tiny):
    _, optimizer = build(tiny("copy", lr=0.5, unitary_lr=0.2, bias_lr=0.1))
    optimizers.set_rates(optimizer, 0.5)
    optimizers.set_rates(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.025]
    assert optimizer._rate(optimizer.param_groups[0]) == pytest.approx(0.05)


def test_b_has_its_own_rate(tiny):
    model, optimizer = build(tiny("copy", bias_lr=0.1))
    assert [p is model.rnn.bias_l0 for p in optimizer.param_groups[1]["params"]] == [True]
    counts = sum(len(group["params"]) for group in optimizer.param_groups)
    assert counts == len(list(model.parameters()))


def test_gradients_are_clipped_before_the_step(tiny):
    model, optimizer = build(tiny("copy", clip_value=0.5))
    for p in model.parameters():
        p.grad = torch.full_like(p, 3 - 4j if p.is_complex() else -7)
    optimizer.step()
    assert torch.equal(model.readout.weight.grad, torch.full_like(model.readout.weight, 0.5 - 0.5j))
    assert (model.readout.bias.grad == -0.5).all()

    model, optimizer = build(tiny("copy", clip_norm=0.5))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    total = sum(float(p.grad.abs().square().sum()) for p in model.parameters())
    assert total**0.5 == pytest.approx(0.5, rel=1e-3)


def test_noise_is_added_to_the_gradients_after_they_are_clipped(tiny):
    model, optimizer = build(tiny("copy", clip_value=0.5, gradient_noise=2.0, hidden=64))
    for p in model.parameters():
        p.grad = torch.full_like(p, 3 - 4j if p.is_complex() else -7)
    optimizer.step()
    added = model.readout.weight.grad - (0.5 - 0.5j)
    assert float(added.abs().square().mean()) == pytest.approx(4, rel=0.2)
    assert float(added.mean().abs()) < 0.5


@pytest.mark.parametrize("kind", ["haar", "restricted", "uniform", "even"])
def test_first_values_are_those_that_were_asked_for(tiny, kind):
    config = tiny("copy", initial_w=kind, initial_spread=0.25, bias_init=-0.1, bias_width=0.02, hidden=32)
    model = config.problem.start(config).model()
    W = model.rnn.weight_hh_l0.detach()
    assert float(unitarity_defect(W)) < 1e-5
    widest = float(torch.linalg.eigvals(W).angle().abs().max())
    assert (widest <= 0.25 * torch.pi + 1e-4) == (kind in ("uniform", "even"))
    assert (model.rnn.bias_l0 + 0.1).abs().max() <= 0.02


def test_even_phases_are_evenly_spaced():
    phases = torch.linalg.eigvals(first_unitary("even", 8)).angle().sort().values
    assert torch.allclose(phases.diff(), torch.full((7,), torch.pi / 4), atol=1e-4)
