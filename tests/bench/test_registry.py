"""The registry: every backend and every family has its model, and none is dropped in silence."""

import dataclasses

import pytest
import torch

import urnn
from urnn.bench import registry
from urnn.bench.registry import BASE, SERIES, SHAPES, Shape, equal_parameters, models, select
from urnn.ops import BACKENDS, Backend

TINY = Shape("tiny", 4, 2, 3, 2)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_backend_and_every_family_has_a_model(device):
    names = set(models(TINY, device))
    assert {f"UnitaryRNN, {name}" for name in BACKENDS} < names
    assert {f"UnitaryRNN, {name}" for name in urnn.PARAMETRIZATIONS if name != "full"} < names
    assert BASE[device] in names


def test_a_backend_that_cannot_serve_is_listed_with_its_reason():
    assert "the tensors are on cuda:0" in models(TINY, "gpu")["UnitaryRNN, cpu"].why_not(TINY, "gpu")
    assert models(TINY, "cpu")["UnitaryRNN, cpu"].why_not(TINY, "cpu") is None
    assert models(TINY, "gpu")["complextorch.UnitaryRNN"].why_not(TINY, "gpu") == "a loop in Python, timed on the CPU"


def test_a_new_backend_needs_no_line_here(monkeypatch):
    monkeypatch.setitem(BACKENDS, "new", Backend("urnn.ops.explicit", lambda problem: f"no {problem.n}"))
    assert models(TINY, "cpu")["UnitaryRNN, new"].why_not(TINY, "cpu") == "no 3"


def test_the_first_backend_that_serves_is_the_one_of_the_series(monkeypatch):
    refused = Backend("urnn.ops.explicit", lambda problem: "no")
    table = {"first": refused, "cpu": BACKENDS["cpu"], "explicit": BACKENDS["explicit"]}
    monkeypatch.setattr(registry, "BACKENDS", table)
    series = dataclasses.replace(TINY, series="T")
    assert list(models(series, "cpu")) == ["UnitaryRNN, cpu", "nn.RNN", "nn.LSTM"]
    assert list(models(series, "gpu")) == ["UnitaryRNN, explicit", "nn.RNN", "nn.LSTM"]


def test_graphs_are_for_gpus():
    assert not any(model.graph for model in models(TINY, "cpu").values())
    assert [name for name, model in models(TINY, "gpu").items() if model.graph] == [
        f"UnitaryRNN, {registry.best(TINY, 'gpu')}, CUDA graph",
        "nn.RNN, CUDA graph",
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
@pytest.mark.parametrize(("cls", "gates"), [(torch.nn.RNN, 1), (torch.nn.GRU, 3), (torch.nn.LSTM, 4)])
def test_a_peer_of_equal_parameters_is_the_nearest(shape, cls, gates):
    n = equal_parameters(shape, gates)
    target = shape.N**2 + 2 * shape.N * shape.M + 3 * shape.N

    def distance(size: int) -> int:
        return abs(sum(p.numel() for p in cls(shape.M, size).parameters()) - target)

    assert distance(n) <= min(distance(max(n - 1, 1)), distance(n + 1))


def test_the_target_of_equal_parameters_is_the_layer_itself():
    """A full W counts its n^2 degrees of freedom, all else its real numbers."""
    layer = urnn.UnitaryRNN(3, 5)
    reals = sum(p.numel() * (2 if p.is_complex() else 1) for p in layer.parameters())
    assert reals - 5**2 == 5**2 + 2 * 5 * 3 + 3 * 5


def test_shapes_and_models_have_names_of_their_own():
    names = [shape.name for shape in (*SHAPES, *SERIES)]
    assert len({*names}) == len(names)
    assert {*registry.COMPILED} <= {*names}


def test_select():
    assert select() == [*SHAPES, *SERIES]
    assert [shape.name for shape in select(quick=True)] == list(registry.COMPILED)
    assert [shape.name for shape in select(["copy", "speech"])] == ["copy, T = 1000", "copy, T = 2000", "speech"]
    assert [shape.N for shape in select(["MNIST"])] == [116, 128, 256, 512]
    with pytest.raises(ValueError, match=r"--shape: expected a part of one of \[.*'speech'.*\], got 'speach'"):
        select(["copy", "speach"])
