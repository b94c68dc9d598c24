"""The benchmark: its registry, and that a run gives the rows it promises."""

import csv

import pytest
import torch
from typer.testing import CliRunner

from urnn.bench import registry, run
from urnn.bench.registry import BASE, MODELS, SHAPES, Shape, equal_parameters
from urnn.cli import app

TINY = Shape("tiny", 4, 2, 3, 2)


def test_every_shape_and_model_gets_a_row():
    rows = list(run.measure([TINY], repetitions=2))
    assert [row["model"] for row in rows] == list(MODELS)
    for row in rows:
        assert 0 < row["ms_20"] <= row["ms_50"] <= row["ms_80"]
        assert (row["T"], row["B"], row["N"], row["M"]) == (4, 2, 3, 2)
    (base,) = (row for row in rows if row["model"] == BASE)
    assert base["ratio"] == 1.0


def test_a_slow_model_is_not_repeated_for_ever(monkeypatch):
    monkeypatch.setattr(run, "SLOW", 0.0)
    assert all(row["repetitions"] == 0 for row in run.measure([], 3))
    monkeypatch.setattr(run, "SLOW", 1e-9)
    assert {row["repetitions"] for row in run.measure([TINY], 3)} == {1}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_an_lstm_of_equal_parameters_is_the_nearest(shape):
    n = equal_parameters(shape)
    target = shape.N**2 + 2 * shape.N * shape.M + 3 * shape.N

    def distance(size: int) -> int:
        return abs(sum(p.numel() for p in torch.nn.LSTM(shape.M, size).parameters()) - target)

    assert distance(n) <= min(distance(max(n - 1, 1)), distance(n + 1))


def test_the_command_prints_a_table_and_writes_a_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "SHAPES", (TINY,))
    path = tmp_path / "new" / "cpu.csv"
    result = CliRunner().invoke(app, ["bench", "cpu", "--repetitions", "1", "--csv", str(path)])
    assert result.exit_code == 0, result.output
    assert "UnitaryRNN, cpu" in result.output
    with path.open() as file:
        assert [row["model"] for row in csv.DictReader(file)] == list(MODELS)


def test_an_unknown_device_is_named():
    result = CliRunner().invoke(app, ["bench", "gpu"])
    assert "device: expected one of ['cpu'], got 'gpu'" in str(result.exception)
