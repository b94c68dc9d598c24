"""A file is whole or as it was."""

import errno
import os

import pytest

from urnn.experiments.files import read_json, run_folder, write_atomic, write_json


def test_json_goes_through(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, None, 0.1]})
    assert read_json(tmp_path / "a.json") == {"x": [1, None, 0.1]}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_text_that_is_no_json_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match="a.json: expected JSON"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, stage):
    path = tmp_path / "a.json"
    write_atomic(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, stage, full)
    with pytest.raises(OSError, match="No space left on device. Make room, then `urnn train --resume"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_the_run_of_a_file_is_named(tmp_path):
    assert run_folder(tmp_path / "run" / "checkpoint" / "1.safetensors") == tmp_path / "run"
    assert run_folder(tmp_path / "run" / "metrics.jsonl") == tmp_path / "run"
