"""A run gives the rows it promises, whatever happens to one model."""

import re

import pytest
import torch
from typer.testing import CliRunner

from urnn.bench import device, registry, run
from urnn.bench.device import Cpu, Gpu
from urnn.bench.registry import BASE, Model, Shape, models
from urnn.bench.run import Effort
from urnn.bench.tables import COLUMNS, absences, read_csv, timed
from urnn.cli import app

TINY = Shape("tiny", 4, 2, 3, 2)
EFFORT = Effort(repetitions=2, seconds=10.0, limit=100.0)


def measured(shapes, effort=EFFORT, **options):
    return [row for rows in run.measure(shapes, Cpu(), effort, **options) for row in rows]


class Broken(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("out of order\nin detail")


class Slow(torch.nn.RNN):
    """Records how many steps it was asked for."""

    asked: list[int] = []

    def forward(self, x):
        self.asked.append(len(x))
        return super().forward(x)


def test_every_model_gets_a_row():
    rows = measured([TINY])
    assert [row["model"] for row in rows] == list(models(TINY, "cpu"))
    for row in timed(rows):
        assert 0 < row["ms_20"] <= row["ms_50"] <= row["ms_80"]
        assert (row["T"], row["B"], row["N"], row["M"], row["repetitions"]) == (4, 2, 3, 2, 2)
    (base,) = (row for row in rows if row["model"] == BASE["cpu"])
    assert base["ratio"] == 1.0
    untimed = {model: note for model, note, _ in absences(rows)}
    assert "real time loop, torch.compile" in untimed
    assert untimed == {
        name: reason for name, model in models(TINY, "cpu").items() if (reason := model.why_not(TINY, "cpu"))
    }


def test_rows_have_the_columns_of_the_file():
    (row, *_) = timed(measured([TINY]))
    assert set(row) <= set(COLUMNS)
    assert row["torch"] == torch.__version__
    assert row["threads"] == torch.get_num_threads()


def test_a_slow_model_is_not_repeated_for_ever():
    rows = measured([TINY], Effort(repetitions=3, seconds=1e-9, limit=100.0))
    assert {row["repetitions"] for row in timed(rows)} == {1}


def test_a_pass_beyond_the_limit_is_never_run_whole(monkeypatch):
    monkeypatch.setattr(run, "models", lambda shape, device: {"slow": Model(lambda s: Slow(s.M, s.N))})
    Slow.asked = []
    (row,) = measured([Shape("long", 80, 2, 3, 2)], Effort(2, 1.0, limit=1e-9))
    assert row["note"].startswith("left out: a pass would take about")
    assert {*Slow.asked} == {10, 1}


class Steady(Cpu):
    """A clock that tells 2 s for a pass and 0.5 s more for each step."""

    def time(self, step, expected):
        return 2.0 + 0.5 * len(step.x)


@pytest.mark.parametrize("T", [1, 7, 100])
def test_what_a_pass_takes_is_told_apart_from_what_a_step_takes(T, monkeypatch):
    monkeypatch.setattr(run, "models", lambda shape, device: {"nn.RNN": Model(lambda s: torch.nn.RNN(s.M, s.N))})
    shape = Shape("steady", T, 2, 3, 2)
    ((row,),) = run.measure([shape], Steady(), Effort(2, 1.0, limit=0.0))
    assert row["note"] == f"left out: a pass would take about {2.0 + 0.5 * T:.0f} s"


def test_a_model_that_fails_has_a_row_and_spares_the_others(monkeypatch):
    table = {"broken": Model(lambda s: Broken()), "nn.LSTM": Model(lambda s: torch.nn.LSTM(s.M, s.N))}
    monkeypatch.setattr(run, "models", lambda shape, device: table)
    broken, lstm = measured([TINY])
    assert broken["note"] == "failed: RuntimeError: out of order"
    assert "ms_50" not in broken
    assert lstm["ratio"] == 1.0


def test_a_shape_of_the_other_device_has_one_row():
    (row,) = measured([Shape("large", 4, 2, 3, 2, devices=("gpu",))])
    assert row["note"] == "left out on the CPU: it takes too long there"


def test_a_quick_run_compiles_nothing(monkeypatch):
    table = {"compiled": Model(lambda s: Broken(), compiles=True)}
    monkeypatch.setattr(run, "models", lambda shape, device: table)
    (row,) = measured([TINY], run.QUICK)
    assert row["note"] == "left out of a quick run"


def test_all_gradients_are_computed_anew():
    layer = torch.nn.RNN(2, 3)
    step = run.TrainingPass(layer, torch.randn(4, 2, 2), {})
    step()
    first = [step.x.grad.clone(), *(p.grad.clone() for p in layer.parameters())]
    step()
    for once, again in zip(first, [step.x.grad, *(p.grad for p in layer.parameters())], strict=True):
        torch.testing.assert_close(once, again)
        assert once.abs().max() > 0
    step.clear()
    assert step.x.grad is None
    assert all(p.grad is None for p in layer.parameters())


class TwoPrecisions(Cpu):
    """A device that multiplies in two ways and counts memory, as a GPU does."""

    precisions = ("float32", "tf32")

    def peak(self, step):
        step()
        return 1.25


def test_loops_and_reasons_come_in_the_first_precision_alone():
    (rows,) = run.measure([TINY], TwoPrecisions(), EFFORT)
    second = {row["model"] for row in rows if row["precision"] == "tf32"}
    assert second == {
        name for name, model in models(TINY, "cpu").items() if not model.loop and model.why_not(TINY, "cpu") is None
    }
    both = [row["precision"] for row in rows if row["model"] == "nn.GRU"]
    assert both == ["float32", "tf32"]
    assert [row["precision"] for row in rows if row["model"] == "real time loop"] == ["float32"]
    assert {row["peak_mib"] for row in timed(rows)} == {1.2}
    assert [row["ratio"] for row in rows if row["model"] == BASE["cpu"]] == [1.0, 1.0]


def test_a_series_is_measured_in_one_precision():
    (rows,) = run.measure([Shape("T = 4", 4, 2, 3, 2, series="T")], TwoPrecisions(), EFFORT)
    assert [(row["model"], row["precision"]) for row in rows] == [
        (name, "float32") for name in ("UnitaryRNN, cpu", "nn.RNN", "nn.LSTM")
    ]


def test_the_precision_of_a_gpu_is_set_and_restored():
    """The settings exist without a GPU."""
    gpu, matmul, rnn = object.__new__(Gpu), torch.backends.cuda.matmul, torch.backends.cudnn.rnn
    before = matmul.fp32_precision, rnn.fp32_precision
    for name, value in (("float32", "ieee"), ("tf32", "tf32")):
        with gpu.precision(name):
            assert (matmul.fp32_precision, rnn.fp32_precision) == (value, value)
        assert (matmul.fp32_precision, rnn.fp32_precision) == before


def test_the_commit_is_that_of_the_tree_or_given():
    assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?|-", run.commit())
    (row, *_) = measured([TINY], source="abc")
    assert row["commit"] == "abc"


def test_versions():
    assert device.installed("torch") == torch.__version__.split("+")[0] or torch.__version__
    assert device.installed("no_such_package") == "-"


def invoke(*words):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def test_the_command_prints_a_table_and_writes_a_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "SHAPES", (TINY,))
    series = tuple(Shape(f"T = {T}", T, 2, 3, 2, series="T") for T in (2, 4))
    monkeypatch.setattr(registry, "SERIES", series)
    path = tmp_path / "new" / "cpu.csv"
    result = invoke("cpu", "--repetitions", "1", "--csv", path, "--commit", "abc")
    assert result.exit_code == 0, result.output
    assert "UnitaryRNN, cpu" in result.output
    assert "exponent" in result.output
    rows = read_csv(path)
    assert [row["model"] for row in rows if row["shape"] == "tiny"] == list(models(TINY, "cpu"))
    assert {row["series"] for row in rows} == {"", "T"}
    assert {row["commit"] for row in rows} == {"abc"}


def test_a_run_that_is_stopped_keeps_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "SHAPES", (TINY, Shape("second", 5, 2, 3, 2)))
    monkeypatch.setattr(registry, "SERIES", ())
    path, table = tmp_path / "cpu.csv", {"nn.LSTM": Model(lambda s: torch.nn.LSTM(s.M, s.N))}

    def stopped(shape, device):
        if shape.name == "second":
            raise KeyboardInterrupt
        return table

    monkeypatch.setattr(run, "models", stopped)
    assert invoke("cpu", "--csv", path).exit_code != 0
    assert [row["shape"] for row in read_csv(path)] == ["tiny"]


def test_a_failure_is_an_exit_code(monkeypatch):
    monkeypatch.setattr(registry, "SHAPES", (TINY,))
    monkeypatch.setattr(registry, "SERIES", ())
    monkeypatch.setattr(run, "models", lambda shape, device: {"broken": Model(lambda s: Broken())})
    result = invoke("cpu")
    assert "1 of the models failed; the notes say why" in str(result.exception)
    assert "broken: failed: RuntimeError: out of order" in result.output


def test_mistakes_are_named(tmp_path):
    assert "--shape: expected a part of one of" in str(invoke("cpu", "--shape", "nothing").exception)
    assert "--repetitions: expected an int >= 1, got 0" in str(invoke("cpu", "--repetitions", 0).exception)
    assert "--results: expected a folder with files of" in str(invoke("report", "--results", tmp_path).exception)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_a_machine_without_gpu_says_so():
    assert "expected a CUDA device for the benchmark on a GPU, got none" in str(invoke("gpu").exception)
