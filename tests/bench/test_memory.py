"""Memory: the measure counts what is allocated, and the layer keeps its bounds."""

import json
import math

import pytest
import torch

from urnn import UnitaryRNN
from urnn.bench import memory
from urnn.bench.memory import MODES, measure, time_ratio, watch
from urnn.bench.registry import Shape

SHAPE = Shape("states outweigh all else", 1024, 16, 32, 1)
STATE = 1024 * 16 * 32 * 8
PEAKS = {"cpu": 3.2, "explicit": 3.4}
"""In the backward pass, in states. ``explicit`` holds dz, and what a block of 64 steps needs, besides."""
CHECKPOINT = MODES["last state, checkpoint"]
GRADIENTS = {
    "as the states": torch.ones_like,
    "one number": lambda h: torch.ones((), dtype=h.dtype).expand_as(h),
    "other strides": lambda h: torch.ones_like(h.transpose(0, 1).contiguous()).transpose(0, 1),
    "conjugated": lambda h: torch.ones_like(h).conj(),
}
"""Forms in which the gradient of the states may arrive."""


@pytest.fixture(autouse=True)
def _as_users_have_it():
    torch.use_deterministic_algorithms(False)


# The measure


def test_watch_counts_what_stays_and_what_was_there_at_most():
    def work():
        passing = torch.empty(3000, dtype=torch.uint8)
        del passing
        return torch.empty(1000, dtype=torch.uint8)

    kept, grown, peak = watch(work)
    assert (kept.numel(), grown, peak) == (1000, 1000, 3000)
    assert watch(lambda: kept.set_())[1] == -1000


def test_watch_sees_into_operators():
    """A temporary that no Python code ever holds: the copy that makes strided input dense."""
    x = torch.ones(500, 2)[:, 0]
    _, grown, peak = watch(lambda: torch.cumsum(x, 0).add_(1).sum().item())
    assert grown == 0
    assert peak >= 2000


def test_the_time_loop_keeps_what_autograd_keeps():
    assert measure(Shape("", 32, 16, 32, 1), backend="reference")["kept"] > 3


# The bounds, in states


@pytest.mark.parametrize("backend", PEAKS)
def test_the_returned_states_are_what_is_kept(backend):
    row = measure(SHAPE, backend=backend)
    assert row["state_bytes"] == STATE
    assert 1.0 <= row["kept"] <= 1.1
    assert row["forward"] <= 1.2
    assert 2.0 <= row["backward"] <= PEAKS[backend]  # the states and their gradient are two


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_the_peak_of_the_backward_pass(gradient):
    """Whatever the form in which the gradient arrives; it is counted, and so is its dense copy."""
    rnn, x = UnitaryRNN(1, 32, backend="cpu"), torch.randn(1024, 16, 1, requires_grad=True)
    rnn(x)[0].sum().abs().backward()
    rnn.zero_grad()
    (h, _), kept, _ = watch(lambda: rnn(x))
    _, _, more = watch(lambda: h.backward(gradient(h)))
    assert kept + more <= PEAKS["cpu"] * STATE


@pytest.mark.parametrize("backend", PEAKS)
def test_a_last_state_alone_brings_no_gradient_of_the_others(backend):
    row = measure(SHAPE, backend=backend, **MODES["last state"])
    assert 1.0 <= row["kept"] <= 1.1
    assert row["backward"] <= PEAKS[backend] - 1


def exponent(key, backend, T=1024, **options):
    """How memory grows with T, between T and 16 T, at sizes where weights are small beside states."""
    short, long = (
        measure(Shape("", steps, 64, 8, 1), input_gradient=False, backend=backend, **options) for steps in (T, 16 * T)
    )
    return math.log(long[key] * 16 / short[key]) / math.log(16)


@pytest.mark.parametrize("key", ["kept", "forward", "backward"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_with_a_checkpoint_memory_grows_as_the_root_of_T(bidirectional, key):
    assert 0.4 < exponent(key, "cpu", bidirectional=bidirectional, **CHECKPOINT) < 0.55


def test_with_a_checkpoint_memory_of_explicit_grows_as_the_root_of_T():
    assert 0.3 < exponent("backward", "explicit", T=64, **CHECKPOINT) < 0.55


def test_without_a_checkpoint_memory_grows_as_T():
    assert 0.9 < exponent("kept", "cpu", T=64, **MODES["last state"]) < 1.1


# The record


def test_the_record_holds_all_modes(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "LARGE", Shape("large", 100, 2, 4, 1))
    monkeypatch.setattr(memory, "TIMED", (Shape("timed", 9, 2, 4, 1),))
    path = tmp_path / "new" / "memory.json"
    memory.record(path, repetitions=2)
    found = json.loads(path.read_text())
    assert [(row["mode"], row["input_gradient"]) for row in found["memory"]] == [
        (mode, gradient) for mode in MODES for gradient in (True, False)
    ]
    (row,) = found["time"]
    assert (row["shape"], row["T"], row["repetitions"]) == ("timed", 9, 2)
    assert found["device"] == "cpu"


def test_the_ratio_is_that_of_the_medians():
    row = time_ratio(Shape("", 9, 2, 4, 1), repetitions=3)
    assert row["ratio"] == pytest.approx(row["ms, last state, checkpoint"] / row["ms, last state"], abs=0.02)
