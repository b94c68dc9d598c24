"""The loop: repeatable, resumable to the last bit, and clear about what stops it."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import urnn
from urnn.experiments import checkpoint, optimizers
from urnn.experiments.folder import RunFolder
from urnn.experiments.tasks.copy import CopyProblem
from urnn.experiments.train import WINDOW, Progressed, _evaluate, _watch, train

RUNS = {
    "full, rmsprop": ("copy", {}),
    "full, paper": ("copy", {"recipe": "paper", "train_sequences": 8}),
    "full, adam, warm-up": ("copy", {"optimizer": "adam", "warmup": 5, "bias_lr": 1e-2}),
    "full, sgd": ("copy", {"optimizer": "sgd", "momentum": 0.9}),
    "full, elementwise": ("copy", {"unitary_scaling": "elementwise"}),
    "householder": ("copy", {"model": "householder", "reflections": 2}),
    "restricted, float64": ("copy", {"model": "restricted", "dtype": "float64"}),
    "lstm, clipped": ("copy", {"model": "lstm", "clip_value": 0.01, "clip_norm": 0.01}),
    "speech": ("speech", {}),
    "speech, paper, lstm": ("speech", {"recipe": "paper", "model": "lstm", "max_iterations": 12}),
    "system identification": ("sysid", {"model": "full,restricted"}),
    "system identification, paper": ("sysid", {"model": "full,restricted", "recipe": "paper", "max_iterations": 12}),
    "mnist, dropout": ("mnist", {"dropout": 0.2, "label_smoothing": 0.1, "gradient_noise": 0.01}),
    "mnist, two layers, paper": (
        "mnist",
        {"recipe": "paper", "num_layers": 2, "readout": "times", "readout_states": 3},
    ),
    "mnist, lstm": ("mnist", {"model": "lstm", "readout": "mean", "readout_states": 3}),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("killed_at", [1, 6, 11])
def test_a_killed_run_resumes_to_the_last_bit(tmp_path, quiet, monkeypatch, name, killed_at, tiny, timeless):
    task, own = RUNS[name]
    config = tiny(task, **own)
    unbroken = train(RunFolder.create(tmp_path / "unbroken", config), quiet)

    broken = RunFolder.create(tmp_path / "broken", config)
    set_rates = optimizers.set_rates

    def killed(optimizer: torch.optim.Optimizer, share: float) -> None:
        if calls.pop() == 0:
            raise KeyboardInterrupt
        set_rates(optimizer, share)

    calls = list(range(killed_at, -1, -1))[::-1]
    monkeypatch.setattr(optimizers, "set_rates", killed)
    with pytest.raises(KeyboardInterrupt):
        train(broken, quiet)
    monkeypatch.undo()
    torch.manual_seed(999)  # nothing may hang on what is left over

    assert timeless(train(RunFolder.open(tmp_path / "broken"), quiet)) == timeless(unbroken)
    first, second = (RunFolder.open(tmp_path / name).metrics() for name in ("unbroken", "broken"))
    assert timeless(second) == timeless(first)
    ends = [checkpoint.load(checkpoint.found(tmp_path / n / "checkpoint")[-1])[0] for n in ("unbroken", "broken")]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])


def test_a_run_is_repeatable_and_its_seed_counts(run, timeless):
    results = [timeless(run("copy", name, seed=seed)[1]) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert results[0] == results[1] != results[2]


def test_kill_9_and_resume(tmp_path, quiet, tiny, timeless):
    """The real thing: a process that gets no chance to tidy up."""
    config = tiny("copy", max_iterations=200, hidden=16, time_steps=20)
    unbroken = train(RunFolder.create(tmp_path / "unbroken", config), quiet)
    folder = RunFolder.create(tmp_path / "killed", config)
    words = [sys.executable, "-m", "urnn", "train", "--resume", str(folder.path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not checkpoint.found(folder.path / "checkpoint") and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert folder.result() is None
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    assert timeless(folder.result()) == timeless(unbroken)
    assert timeless(folder.metrics()) == timeless(RunFolder.open(tmp_path / "unbroken").metrics())


def test_a_run_that_is_done_is_not_done_again(run, tmp_path, quiet):
    folder, result = run("copy")
    before = (folder.path / "metrics.jsonl").read_bytes()
    assert train(RunFolder.create(folder.path, folder.config()), quiet) == result
    assert (folder.path / "metrics.jsonl").read_bytes() == before


def test_solved_is_the_first_window_under_a_tenth_of_the_baseline(tiny):
    now, config = Progressed(), tiny("copy", stop_after_solved=4)
    values = [1.0] * 5 + [0.0] * 30
    for start in range(0, 34, 2):
        now.iteration += 2
        _watch(now, values[start : start + 2], config, baseline=1.0)
        if now.stopped:
            break
    assert now.solved_at == 5 + WINDOW - 1  # one loss of 1 among 20 is 5 % of the baseline, two are 10 %
    assert (now.stopped, now.iteration) == ("solved", 28)
    assert now.worst_after_solved == pytest.approx(0.05)
    _watch(now, [1.0] * 10, config, baseline=1.0)
    assert now.worst_after_solved == pytest.approx(0.5)


def test_without_a_baseline_nothing_is_solved(tiny):
    now = Progressed(iteration=40)
    _watch(now, [0.0] * 40, tiny("sysid"), None)
    assert now.solved_at is None


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, quiet, monkeypatch, tiny, bad):
    folder = RunFolder.create(tmp_path / "run", tiny("copy"))
    loss = CopyProblem.loss
    monkeypatch.setattr(CopyProblem, "loss", lambda *a: loss(*a) * (float(bad) if next(count) == 6 else 1))
    count = iter(range(100))
    message = rf"^iteration 7: expected a finite loss, got {bad} and no finite gradient of \S+ either\. The last good "
    with pytest.raises(FloatingPointError, match=message + r"checkpoint is \S+/000000004.safetensors; a lower lr"):
        train(folder, quiet)
    assert [p.stem for p in checkpoint.found(folder.path / "checkpoint")] == ["000000004"]


@pytest.mark.parametrize("at", [1, 7, 8])
@pytest.mark.parametrize("model", ["full", "lstm"])
def test_a_gradient_that_is_not_finite_stops_the_run_with_the_loss_still_finite(
    tmp_path, quiet, monkeypatch, tiny, at, model
):
    """The eighth is the last before a checkpoint, which then is not written."""
    folder = RunFolder.create(tmp_path / "run", tiny("copy", model=model))
    loss = CopyProblem.loss

    def spoilt(self, model, x, y):
        if next(count) == at:
            model.readout.bias.register_hook(lambda g: g * float("inf"))
        return loss(self, model, x, y)

    monkeypatch.setattr(CopyProblem, "loss", spoilt)
    count = iter(range(1, 100))
    last = "not there yet" if at == 1 else r"\S+/000000004.safetensors"
    message = (
        rf"^iteration {at}: expected a finite gradient of readout.bias, got NaN or inf, though the loss was \S+\. "
    )
    with pytest.raises(FloatingPointError, match=message + rf"The last good checkpoint is {last};"):
        train(folder, quiet)
    assert all(int(p.stem) < at for p in checkpoint.found(folder.path / "checkpoint"))


def test_a_parameter_that_is_not_finite_is_never_saved(tmp_path, quiet, monkeypatch, tiny):
    """As an optimizer may make it of finite gradients."""
    folder = RunFolder.create(tmp_path / "run", tiny("copy", model="lstm", optimizer="sgd", lr=3e38, weight_decay=3e38))
    with pytest.raises(
        FloatingPointError, match="iteration [1-4]: expected .* The last good checkpoint is not there yet"
    ):
        train(folder, quiet)
    assert not checkpoint.found(folder.path / "checkpoint")


class Validated(CopyProblem):
    """The copy problem with validation losses as given."""

    losses: list[float]

    def evaluate(self, model):
        return {"validation": [self.losses.pop(0)]}


def test_patience_stops_and_the_best_weights_are_kept(tiny):
    config = tiny("copy", eval_every=2, patience=2)
    problem = Validated(config.problem, config)
    problem.losses = [3.0, 1.0, 2.0, float("nan"), 0.5]
    model, now, best = problem.model(), Progressed(), dict[str, torch.Tensor]()
    for step in range(4):
        now.iteration = 2 * (step + 1)
        with torch.no_grad():
            model.readout.bias.fill_(step)
        _evaluate(problem, model, now, best, config)
    assert (now.stopped, now.best_at, now.best) == ("patience", 4, [1.0])
    assert (best["readout.bias"] == 1).all()


def test_the_final_test_uses_the_best_weights(run, monkeypatch):
    seen = {}

    def evaluate(self, model):
        seen[len(seen)] = model.readout.weight.detach().clone()
        return {"validation": [[2.0, 1.0, 3.0][len(seen) - 1]]}

    def test(self, model, evaluations):
        assert torch.equal(model.readout.weight, seen[1])
        assert [row["validation"] for row in evaluations] == [[2.0], [1.0], [3.0]]
        return {"tested": True}

    monkeypatch.setattr(CopyProblem, "evaluate", evaluate)
    monkeypatch.setattr(CopyProblem, "test", test)
    assert run("copy", eval_every=4)[1]["best_at"] == 8


def test_a_full_disk_loses_nothing(tmp_path, quiet, monkeypatch, tiny, timeless):
    config = tiny("copy")
    unbroken = train(RunFolder.create(tmp_path / "unbroken", config), quiet)
    folder = RunFolder.create(tmp_path / "full", config)
    fsync, calls = os.fsync, iter(range(1000))

    def full(handle: int) -> None:
        if next(calls) >= 4:  # in the second checkpoint
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device. Make room, then `urnn train --resume .*full` goes on"):
        train(folder, quiet)
    monkeypatch.undo()
    assert [p.stem for p in checkpoint.found(folder.path / "checkpoint")] == ["000000004"]
    assert timeless(train(RunFolder.open(folder.path), quiet)) == timeless(unbroken)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX's")
def test_a_file_system_that_takes_no_more_is_said_in_one_line(tmp_path, tiny):
    """Not a patched function but the operating system's own refusal."""
    import resource

    folder = RunFolder.create(tmp_path / "run", tiny("copy"))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))

    words = [sys.executable, "-m", "urnn", "train", "--resume", str(folder.path)]
    found = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert found.returncode == 2
    assert "File too large. Make room, then `urnn train --resume" in found.stderr
    assert found.stderr.strip().splitlines()[-1].startswith("urnn: ")
    assert "Traceback" not in found.stderr
    assert not [p for p in folder.path.rglob("*") if p.name.endswith(".part")]


def test_w_stays_unitary_and_the_result_and_the_metrics_say_so(run):
    folder, result = run("copy", max_iterations=40)
    assert result["unitarity_defect"] < 2e-6
    found = {row["iteration"]: row["unitarity_defect"] for row in folder.metrics() if "unitarity_defect" in row}
    assert list(found) == list(range(4, 41, 4))  # with every checkpoint
    assert found[40] == result["unitarity_defect"]
    folder, result = run("copy", "lstm", model="lstm")
    assert result["unitarity_defect"] is None
    assert not any("unitarity_defect" in row for row in folder.metrics())


def test_events_are_written_for_tensorboard(run):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = run("sysid", tensorboard=True)
    events = EventAccumulator(str(folder.path)).Reload()
    losses = [row["loss"] for row in folder.metrics() if "loss" in row]
    assert [e.value for e in events.Scalars("loss")] == pytest.approx(losses)
    assert len(events.Scalars("validation")) == 3


def test_a_device_that_is_not_there_is_named(tiny):
    with pytest.raises(ValueError, match="device: expected cpu or cuda, got 'tpu'"):
        tiny("copy", device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device: expected one that is there, got 'cuda'"):
            tiny("copy", device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("task", ["copy", "sysid", "mnist", "speech"])
def test_a_run_on_a_gpu(run, task):
    torch.use_deterministic_algorithms(False)
    result = run(task, device="cuda", max_iterations=20)[1]
    assert result["iterations"] == 20
    assert result["unitarity_defect"] < 2e-6
    assert json.dumps(result)


def test_the_environment_is_recorded(run):
    folder, _ = run("copy")
    found = folder.environment()
    assert (found["torch"], found["urnn"]) == (torch.__version__, urnn.__version__)
    assert found["threads"] == torch.get_num_threads()
