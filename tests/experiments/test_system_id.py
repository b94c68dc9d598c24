"""System identification: the paper's data, one ensemble, and a curriculum that finds the system."""

import math

import pytest
import torch

from urnn.experiments import models, optimizers
from urnn.experiments.config import resolve
from urnn.experiments.tasks import SystemId
from urnn.experiments.train import training_step
from urnn.linalg import is_unitary_matrix, unitarity_defect
from urnn.nn.modrelu import ModReLU


@pytest.fixture
def problem(tiny):
    config = tiny("sysid", model="full,restricted", dtype="float64", hidden=5, systems="Wu,Wg,haar")
    return config.problem.start(config)


def test_the_data_are_the_papers(tiny):
    config = tiny("sysid", hidden=4, train_sequences=4000)
    problem = config.problem.start(config)
    x = problem.inputs["train"]
    assert x.shape == (6, 4000, 4)
    assert float(x.real.var()) == pytest.approx(0.5, rel=0.02)
    assert float(x.imag.var()) == pytest.approx(0.5, rel=0.02)
    assert float(x.mean().abs()) < 0.01
    assert (problem.bias >= -0.11).all()
    assert (problem.bias <= -0.09).all()
    assert not torch.equal(problem.inputs["validation"], problem.inputs["test"])
    paper = SystemId()
    assert (paper.time_steps, paper.starts) == (150, 6)
    assert (paper.train_sequences, paper.validation_sequences, paper.test_sequences) == (20_000, 1000, 1000)


def test_outputs_are_the_states_of_the_system_by_eq_1_and_2(problem):
    x, y = problem.batch(11)
    sigma = ModReLU(5, dtype=torch.float64)
    with torch.no_grad():
        sigma.bias.copy_(problem.bias)
        for s, W in enumerate(problem.W_systems):
            h = torch.zeros(x.shape[1], 5, dtype=torch.complex128)
            for t in range(len(x)):
                h = sigma(h @ W.mT + x[t])
                assert torch.allclose(y[t, s], h, atol=1e-12)


def test_all_starts_and_a_system_from_w_u_are_in_the_restricted_learners_family(problem):
    model = problem.model()
    W = model()  # (learner, system, start)
    E = 3 * 2
    assert is_unitary_matrix(W)
    assert torch.allclose(W[:E], W[E:], atol=1e-12)  # both learners start at the same matrices
    assert torch.allclose(W[0:2], W[2:4], atol=1e-12)  # for every system the same
    restricted = model.families["restricted"]
    assert torch.equal(restricted.permutation, problem.permutation)
    assert sorted(restricted.permutation.tolist()) == list(range(5))


def test_w_g_is_a_product_of_two_members_and_all_are_unitary(problem):
    assert float(unitarity_defect(problem.W_systems).max()) < 1e-12
    assert len({tuple(W.flatten().tolist()) for W in problem.W_systems}) == 3


def test_the_loss_is_zero_at_the_system_and_the_mean_square_elsewhere(problem):
    x, y = problem.batch(11)
    model = problem.model()
    with torch.no_grad():
        model.families["full"].weight.copy_(problem.W_systems.repeat_interleave(2, 0))
        errors = problem._errors(model(), x, y)
    assert float(errors[:6].max()) < 1e-20
    assert float(errors[6:].min()) > 1e-3
    assert problem.loss(model, x, y).item() == pytest.approx(float(errors.sum()) / (2 * x.numel()))


def test_normalized_mse_of_a_model_without_memory_of_its_own(problem):
    """Against the formula, written out: sum |y - yhat|^2 / sum |y|^2 over the whole set."""
    model = problem.model()
    found = torch.tensor(problem.evaluate(model)["test"]).view(2, 3, 2)
    x = problem.inputs["test"].to(torch.complex128)
    y, h = problem._run(problem.W_systems, x), problem._run(model().detach(), x)
    share = (h[:, 3] - y[:, 1]).abs().square().sum() / y[:, 1].abs().square().sum()  # full, second system, second start
    assert float(found[0, 1, 1]) == pytest.approx(float(share))


def test_members_do_not_see_each_other(tiny):
    """A member of a large ensemble goes the way that it goes in a small one."""
    ends = []
    for model, systems in (("full,restricted", "Wu,Wg"), ("full", "Wg"), ("restricted", "Wg")):
        config = tiny("sysid", model=model, systems=systems, dtype="float64")
        problem = config.problem.start(config)
        learners = problem.model()
        optimizer = optimizers.build(config, learners)
        step = training_step(config, problem, learners, optimizer)
        for iteration in range(5):
            step(*problem.batch(iteration))
        ends.append(learners().detach())
    assert torch.allclose(ends[0][2:4], ends[1], atol=1e-10)
    assert torch.allclose(ends[0][6:8], ends[2], atol=1e-10)


def test_length_grows_geometrically_to_the_whole():
    task = SystemId()
    lengths = [task.length_at(i, 1000) for i in range(1000)]
    assert lengths[0] == 2
    assert lengths[300] == round(math.sqrt(2 * 150))
    assert lengths == sorted(lengths)
    assert lengths[600] == lengths[-1] == 150
    assert SystemId(growth=0.0).length_at(0, 1000) == 150


def test_an_epoch_takes_every_sequence_once(tiny):
    config = tiny("sysid", train_sequences=22)
    problem = config.problem.start(config)
    epochs = [torch.cat([problem.rows_of_epoch(5 * e + i, 22) for i in range(5)]) for e in range(2)]
    assert all(len(set(rows.tolist())) == 20 for rows in epochs)  # the rest of 22 by 4 waits for another order
    assert not torch.equal(*epochs)
    assert torch.equal(problem.rows_of_epoch(2, 22), epochs[0][8:12])


def test_best_weights_are_kept_member_by_member(problem):
    model, best = problem.model(), dict[str, torch.Tensor]()
    problem.keep(best, model, [True] * 12)
    first = model().detach()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.roll(1, 0) if p.dim() else p)
    second = model().detach()
    better = [i % 3 == 0 for i in range(12)]
    problem.keep(best, model, better)
    model.load_state_dict(best)
    expected = torch.where(torch.tensor(better)[:, None, None], second, first)
    assert torch.allclose(model(), expected, atol=1e-12)


def test_both_rules_of_selection(problem, monkeypatch):
    final = [0.5, 0.25, *[1.0] * 10]
    monkeypatch.setattr(problem, "_normalized_mse", lambda *_: final)
    found = problem.test(problem.model(), [{"test": [0.1, *[2.0] * 11]}, {"test": [float("nan")] * 12}])
    cell = found["normalized_mse"]["Wu/full"]
    assert cell["best validation"] == {"best": 0.25, "median": 0.375, "worst": 0.5, "all": [0.5, 0.25]}
    assert cell["lowest test"]["all"] == [0.1, 0.25]
    assert list(found["normalized_mse"]) == [
        f"{s}/{learner}" for learner in ("full", "restricted") for s in ("Wu", "Wg", "haar")
    ]


def test_the_curriculum_finds_the_system_and_training_at_full_length_does_not(tiny):
    """The claim behind the recipe, at a size of seconds."""
    medians = []
    for growth in (0.6, 0.0):
        config = resolve(
            tiny("sysid").flat()
            | {"time_steps": 100, "hidden": 4, "starts": 6, "batch_size": 20, "growth": growth, "first_length": 2}
            | {"train_sequences": 2000, "validation_sequences": 20, "test_sequences": 20, "systems": "Wu"}
            | {"max_iterations": 300, "model": "full"}
        )
        problem = config.problem.start(config)
        model = problem.model()
        optimizer = optimizers.build(config, model)
        step = training_step(config, problem, model, optimizer)
        for iteration in range(config.max_iterations):
            optimizers.set_rates(optimizer, optimizers.factor(config, iteration))
            step(*problem.batch(iteration))
        with torch.no_grad():
            medians.append(sorted(problem.evaluate(model)["test"])[3])
    assert medians[0] < 1e-4
    assert medians[1] > 1e-2


@pytest.mark.parametrize("name", ["householder", "givens", "exponential", "cayley"])
def test_other_families_learn_too(tiny, name):
    config = tiny("sysid", model=name, reflections=2, rotations=2)
    problem = config.problem.start(config)
    model = problem.model()
    assert model().shape == (4, 3, 3)
    assert models.count_parameters(model) % 4 == 0
    loss = problem.loss(model, *problem.batch(0))
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
