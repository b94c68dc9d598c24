"""Faults that a run survives: signals, kill -9, damaged files, places that cannot be written, changed settings."""

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from urnn.experiments import checkpoint
from urnn.experiments.config import CHANGEABLE, settings_of
from urnn.experiments.folder import RunFolder
from urnn.experiments.train import train

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
LONG = {"max_iterations": 400, "log_every": 2, "checkpoint_every": 4, "keep_checkpoints": 3}


def resumed(folder, *words, **options):
    command = [sys.executable, "-m", "urnn", "train", "--resume", str(folder.path), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# Signals


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_ends_with_the_usual_status(tmp_path, quiet, tiny, timeless, sent, status):
    config = tiny("copy", **{**LONG, "checkpoint_every": 100_000, "max_iterations": 4000})
    folder = RunFolder.create(tmp_path / "run", config)
    words = [sys.executable, "-m", "urnn", "train", "--resume", str(folder.path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (folder.path / "metrics.jsonl").exists():
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(sent)
    output, _ = process.communicate()
    assert process.returncode == status, output
    (saved,) = checkpoint.found(folder.path / "checkpoint")
    assert f"{sent.name} at iteration {int(saved.stem)}: saved; `urnn train --resume {folder.path}` goes on." in output
    assert "Traceback" not in output
    unbroken = train(RunFolder.create(tmp_path / "unbroken", config), quiet)
    assert timeless(train(folder, quiet)) == timeless(unbroken)
    assert timeless(folder.metrics()) == timeless(RunFolder.open(tmp_path / "unbroken").metrics())


def test_a_second_interrupt_ends_at_once():
    from urnn.experiments.signals import noted

    with noted() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)  # as a terminal sends to a grid and its workers both
        assert signals.status == 130
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):  # as it was before
        os.kill(os.getpid(), signal.SIGINT)


# kill -9


def _child(path):
    train(RunFolder.open(path), Console(quiet=True))


def kill_and_resume(tmp_path, tiny, timeless, kills):
    """Kill a run at random instants until there were so many kills; whenever it is through, begin a new one."""
    config = tiny("copy", **LONG)
    unbroken = RunFolder.create(tmp_path / "unbroken", config)
    expected = timeless(train(unbroken, Console(quiet=True)))
    context = multiprocessing.get_context("fork")
    source, count, runs = random.Random(0), 0, 0
    while count < kills:
        folder = RunFolder.create(tmp_path / f"run-{runs}", config)
        while folder.result() is None:
            process = context.Process(target=_child, args=(folder.path,))
            process.start()
            if count < kills:
                process.join(source.uniform(0.0, 0.4))
                process.kill()
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
            count += process.exitcode == -signal.SIGKILL
        assert timeless(folder.result()) == expected
        assert timeless(folder.metrics()) == timeless(unbroken.metrics())
        assert not list(folder.path.rglob("*.damaged"))
        runs += 1
    return count, runs


def test_kill_9_at_random_instants_loses_nothing(tmp_path, tiny, timeless):
    assert kill_and_resume(tmp_path, tiny, timeless, kills=5)[0] == 5


@pytest.mark.long
def test_200_kill_9_at_random_instants_lose_nothing(tmp_path, tiny, timeless):
    count, runs = kill_and_resume(tmp_path, tiny, timeless, kills=200)
    sys.stdout.write(f"\nCOUNT kill -9: {count} in {runs} runs, all results equal to the unbroken run's\n")
    assert count == 200


# Damage


@pytest.mark.parametrize("damaged", [1, 2, 3], ids=["the last", "the last two", "all three"])
def test_damaged_checkpoints_cost_steps_and_no_more(tmp_path, tiny, timeless, capsys, damaged):
    config = tiny("copy", keep_checkpoints=3)
    unbroken = train(RunFolder.create(tmp_path / "unbroken", config), Console(quiet=True))
    folder = RunFolder.create(tmp_path / "run", config)
    train(folder, Console(quiet=True))
    (folder.path / "result.json").unlink()
    for path in checkpoint.found(folder.path / "checkpoint")[-damaged:]:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
    assert timeless(train(folder, Console(width=500))) == timeless(unbroken)
    output = capsys.readouterr().out
    for name in ("000000012", "000000008", "000000004")[:damaged]:
        assert f"{name}.safetensors: expected a checkpoint of a run, got a file whose checksum" in output
        assert (folder.path / "checkpoint" / f"{name}.safetensors.damaged").exists()
    assert output.count("damaged, and the run goes on") == damaged


def test_a_checkpoint_of_another_run_is_named(tmp_path, tiny, quiet):
    folders = [RunFolder.create(tmp_path / f"{n}", tiny("copy", hidden=n)) for n in (5, 6)]
    for folder in folders:
        train(folder, quiet)
    (folders[0].path / "result.json").unlink()
    theirs = folders[1].last_checkpoint()
    (folders[0].path / "checkpoint" / theirs.name).write_bytes(theirs.read_bytes())
    (folders[0].path / "metrics.jsonl").write_bytes((folders[1].path / "metrics.jsonl").read_bytes())
    with pytest.raises(ValueError, match="000000012.safetensors: expected a checkpoint of this run, got RuntimeError"):
        train(folders[0], quiet)


# Places that cannot be written


@pytest.mark.parametrize(
    ("number", "text"), [(errno.EROFS, "Read-only file system"), (errno.EACCES, "Permission denied")]
)
@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", ".000000004.safetensors"])
def test_a_folder_that_cannot_be_written_is_said_and_nothing_changes(
    tmp_path, tiny, quiet, monkeypatch, timeless, number, text, name
):
    """The refusal of the operating system, at each kind of file that a run writes."""
    import builtins
    import io

    folder = RunFolder.create(tmp_path / "run", tiny("copy"))
    unbroken = train(RunFolder.create(tmp_path / "unbroken", tiny("copy")), quiet)

    def refusing(opened):
        def refuse(path, *args, **options):
            if "run/" in str(path) and str(path).rpartition("/")[2].startswith(name):
                raise OSError(number, text, str(path))
            return opened(path, *args, **options)

        return refuse

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(os.open))
        patch.setattr(io, "open", refusing(io.open))
        patch.setattr(builtins, "open", refusing(builtins.open))
        with pytest.raises(
            OSError, match=f"run/.*: expected to write here, got: {text}. Nothing that was there before"
        ):
            train(folder, quiet)
    assert folder.result() is None
    assert not list(folder.path.rglob("*.part"))
    assert timeless(train(folder, quiet)) == timeless(unbroken)


# Settings


def test_a_changed_setting_is_refused_until_it_is_allowed(tmp_path, tiny, quiet):
    folder = RunFolder.create(tmp_path / "run", tiny("copy"))
    first = train(folder, quiet)
    with pytest.raises(
        ValueError, match=r"lr: expected 0.001, as .*run was begun with, got 0.5. --allow lr changes it"
    ):
        folder.change({"lr": 0.5}, [])
    with pytest.raises(ValueError, match=r"^hidden: expected 6, as .*run was begun with, got 7\.$"):
        folder.change({"hidden": 7}, ["lr"])
    with pytest.raises(ValueError, match=r"^--allow: expected one of \[.*\], got 'hidden'"):
        folder.change({"hidden": 7}, ["hidden"])
    folder.change({}, ["lr"])
    folder.change({"lr": first and 0.001}, [])
    assert folder.result() == first
    assert folder.config() == tiny("copy")


def test_an_allowed_change_takes_effect_and_is_remembered(tmp_path, tiny, quiet):
    folder = RunFolder.create(tmp_path / "run", tiny("copy", schedule="constant"))
    train(folder, quiet)
    folder.change({"max_iterations": 20, "lr": 0.5}, ["lr", "max_iterations"])
    assert folder.result() is None
    assert train(folder, quiet)["iterations"] == 20
    rates = [
        group["value"]
        for group in _leaves(checkpoint.load(folder.last_checkpoint())[1]["optimizer"], ("lr", "reference_lr"))
    ]
    assert rates == [0.5, 0.5]
    assert [json.loads(line) for line in (folder.path / "changes.jsonl").read_text().splitlines()] == [
        {"after": 12, "changes": {"lr": [0.001, 0.5], "max_iterations": [12, 20]}}
    ]
    assert [row["iteration"] for row in folder.metrics()] == list(range(2, 21, 2))


def _leaves(tree, names):
    """What lies under these names in the first group of an optimizer."""
    groups = dict(tree["dict"])["param_groups"]["list"]
    return [dict(groups[0]["dict"])[name] for name in names]


def test_the_command_line_changes_what_is_allowed(tmp_path, tiny):
    folder = RunFolder.create(tmp_path / "run", tiny("copy"))
    refused = resumed(folder, "--set", "max_iterations=6")
    assert refused.returncode == 2
    assert "max_iterations: expected 12, as" in refused.stderr
    done = resumed(folder, "--set", "max_iterations=6", "--allow", "max_iterations")
    assert done.returncode == 0, done.stderr
    assert folder.result()["iterations"] == 6


def test_what_may_change_are_settings():
    from urnn.experiments.config import Config

    assert set(CHANGEABLE) <= settings_of(Config).keys()
