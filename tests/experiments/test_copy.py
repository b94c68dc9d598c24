"""The copy problem and the models that are trained on it."""

import math

import pytest
import torch
from torch import nn

from urnn.experiments.errata import descent, epsilon, half_gradient
from urnn.experiments.models import LSTM, Unitary, count_parameters, matching_size
from urnn.experiments.tasks import TASKS, Copy


def test_sequence_is_the_papers(generator):
    task = Copy(time_steps=7)
    x, y = task.batch(5, generator)
    assert x.shape == (27, 5, 10)
    symbols = x.argmax(-1)
    assert (x.sum(-1) == 1).all()
    assert (symbols[:10] < 8).all()
    assert (symbols[10:16] == 8).all()
    assert (symbols[16] == 9).all()
    assert (symbols[17:] == 8).all()
    assert (y[:17] == 8).all()
    assert torch.equal(y[17:], symbols[:10])


def test_baseline_is_the_loss_of_a_guess_without_memory(generator):
    task = Copy(time_steps=1000)
    assert task.baseline == pytest.approx(10 * math.log(8) / 1020)
    _, y = task.batch(4, generator)
    logits = torch.full((task.length, 4, 9), -1e9)
    logits[:-10, :, 8] = 0.0
    logits[-10:, :, :8] = 0.0
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    assert float(loss) == pytest.approx(task.baseline)


def test_recall_counts_the_last_symbols(generator):
    task = Copy(time_steps=3)
    _, y = task.batch(2, generator)
    right = nn.functional.one_hot(y, 9).float()
    assert task.recall(right, y) == 1.0
    right[-1] = right[-1].roll(1, -1)
    assert task.recall(right, y) == pytest.approx(0.9)


@pytest.mark.parametrize(("parametrization", "hidden", "expected"), [("full", 128, 21641), ("restricted", 470, 22569)])
def test_sizes_are_the_papers(parametrization, hidden, expected):
    assert count_parameters(Unitary(10, hidden, 9, parametrization)) == expected


def test_matching_size_is_the_nearest():
    def make(n: int) -> nn.Module:
        return LSTM(10, n, 9)

    size = matching_size(make, 21641)
    distance = [abs(count_parameters(make(n)) - 21641) for n in (size - 1, size, size + 1)]
    assert min(distance) == distance[1]


def test_a_tiny_network_learns_to_copy_a_little(generator):
    """Ten symbols over one step: far below the guess within a hundred iterations."""
    import urnn

    task = Copy(time_steps=1, symbols=2)
    model = Unitary(task.inputs, 32, task.outputs)
    optimizer = urnn.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        x, y = task.batch(32, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2 * task.baseline
    assert urnn.check_unitary(model) < 2e-6


def test_table_of_tasks_names_every_file():
    import inspect
    from pathlib import Path

    import urnn.experiments.tasks as tasks

    files = {p.stem for p in Path(tasks.__file__).parent.glob("*.py")} - {"__init__", "base"}
    assert files == {Path(inspect.getfile(task)).stem for task in TASKS.values()}


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="time_steps: expected an int in .1, 10000000., got 0"):
        Copy(time_steps=0)


def test_errata_at_small_size(generator):
    found = descent(generator, problems=200)
    assert found["corrected"] == 200
    assert 60 < found["printed"] < 140
    cosines = half_gradient(0, networks=2)
    assert -1 <= cosines["smallest"] <= cosines["largest"] < 0.95
    kept = epsilon(steps=10)
    assert kept["modrelu"] == pytest.approx(1.0)
    assert kept["modrelu_epsilon"] < 1.0
