"""Run folders."""

import json

import pytest

from urnn.experiments.folder import RunFolder


def test_a_folder_holds_what_a_reader_needs(run):
    folder, result = run("copy")
    names = {p.name for p in folder.path.iterdir()}
    assert names == {".lock", "config.json", "environment.json", "metrics.jsonl", "checkpoint", "result.json"}
    settings = json.loads((folder.path / "config.json").read_text())
    assert (settings["task"], settings["time_steps"], settings["hidden"]) == ("copy", 4, 6)
    assert [row["iteration"] for row in folder.metrics()] == [2, 4, 6, 8, 10, 12]
    assert result["iterations"] == 12
    assert result["test_loss_over_baseline"] > 0
    assert folder.result() == result


def test_a_folder_with_another_run_is_left_alone(run, tmp_path, tiny):
    folder, _ = run("copy")
    before = {p: p.read_bytes() for p in folder.path.iterdir() if p.is_file()}
    with pytest.raises(ValueError, match=r"--out: .* holds another run \(lr is 0.001 there and 0.5 here\)"):
        RunFolder.create(folder.path, tiny("copy", lr=0.5))
    with pytest.raises(ValueError, match=r"holds another run \(task is 'copy' there and 'sysid' here\)"):
        RunFolder.create(folder.path, tiny("sysid"))
    assert {p: p.read_bytes() for p in folder.path.iterdir() if p.is_file()} == before


def test_the_number_of_threads_makes_no_other_run(run, tiny):
    folder, _ = run("copy")
    assert RunFolder.create(folder.path, tiny("copy", threads=2)).result() is not None


def test_a_folder_with_something_else_is_left_alone(tmp_path, tiny):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="--out: expected a new or empty folder, got .* which holds something else"):
        RunFolder.create(tmp_path, tiny("copy"))
    with pytest.raises(ValueError, match="holds something else"):
        RunFolder.create(tmp_path / "thesis.tex", tiny("copy"))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_was_killed_as_it_began_is_begun_again(tmp_path, tiny):
    for name in ("environment.json", ".lock", ".config.json.123.part"):
        (tmp_path / name).write_text("{}")
    assert RunFolder.create(tmp_path, tiny("copy")).config() == tiny("copy")


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"task": "copy", "hidden": "x"}', '{"task": "copy", "no": 1}'])
def test_settings_that_cannot_be_read_name_their_file(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="config.json: expected"):
        RunFolder.open(tmp_path).config()


def test_resuming_what_is_no_run_is_said(tmp_path):
    with pytest.raises(ValueError, match="--resume: expected the folder of a run, got .* which has no config.json"):
        RunFolder.open(tmp_path)
