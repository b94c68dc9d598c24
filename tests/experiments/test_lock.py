"""One process for each folder."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from urnn.experiments import lock
from urnn.experiments.folder import RunFolder
from urnn.experiments.train import train

HOLD = "import sys, time; from pathlib import Path; from urnn.experiments import lock\n" + (
    "with lock.held(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
)


@pytest.fixture
def holder(tmp_path, tiny):
    """Another process that holds the folder of a run."""
    folder = RunFolder.create(tmp_path / "run", tiny("copy"))
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield folder, process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_told_of_the_first_and_kill_9_gives_the_lock_back(holder, quiet):
    folder, process = holder
    held = json.loads((folder.path / lock.NAME).read_text())
    assert held["pid"] == process.pid
    message = rf"run: expected a run that no other process works on, got one of process {process.pid} on {held['host']}"
    with pytest.raises(OSError, match=message + f", since {held['since'][:10]}.*Wait for it, or end it"):
        train(folder, quiet)
    assert not (folder.path / "metrics.jsonl").exists()
    words = [sys.executable, "-m", "urnn", "train", "--resume", str(folder.path)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.startswith("urnn: ")) == (2, True)
    assert f"process {process.pid} on" in found.stderr
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert train(folder, quiet)["iterations"] == 12


def test_settings_do_not_change_under_a_process_that_works(holder):
    folder, process = holder
    with pytest.raises(OSError, match=f"got one of process {process.pid}"):
        folder.change({"lr": 0.5}, ["lr"])
    assert folder.config().lr != 0.5


def test_a_holder_that_has_not_written_yet_is_no_riddle(holder):
    folder, _ = holder
    (folder.path / lock.NAME).write_text("{")
    with (
        pytest.raises(OSError, match="got one of a process that has not said which"),
        lock.held(folder.path),
    ):
        pass


def test_one_process_may_take_it_again_and_again(tmp_path):
    for _ in range(3):
        with lock.held(tmp_path):
            assert json.loads((tmp_path / lock.NAME).read_text())["pid"] == os.getpid()
            time.sleep(0)


def test_a_file_system_without_locks_is_worked_on_with_a_warning(tmp_path, monkeypatch):
    import errno
    import fcntl

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(UserWarning, match="this file system has no locks"), lock.held(tmp_path):
        pass
