"""What a page is made from is what the files hold."""

import json
from pathlib import Path

import pytest
import torch

from urnn.experiments import checkpoint
from urnn.experiments.folder import RunFolder
from urnn.report import charts
from urnn.report.gather import gather
from urnn.report.media import embedded, recordings
from urnn.report.spectrum import eigenvalues, matrices

ROOT = Path(__file__).parents[2]


def test_a_run_folder_is_read(runs):
    folder = RunFolder.open(runs / "copy-1")
    (run,) = gather([folder.path]).runs
    losses = [row for row in folder.metrics() if "loss" in row]
    assert run["name"] == "copy-1"
    assert run["iterations"] == [row["iteration"] for row in losses]
    assert run["losses"] == pytest.approx([row["loss"] for row in losses], rel=1e-3)
    assert run["command"].startswith("urnn train copy --T 4")
    assert [iteration for iteration, _ in run["defects"]] == [4, 8, 12]
    assert all(0 <= defect < 1e-5 for _, defect in run["defects"])


def test_a_run_without_unitary_matrices_has_no_defect_and_no_eigenvalues(runs):
    (run,) = gather([runs / "lstm"]).runs
    assert (run["defects"], run["eigenvalues"], run["note"]) == ([], None, None)


def test_folders_of_runs_are_searched(runs, hostile):
    found = gather([runs])
    assert [run["name"] for run in found.runs] == [hostile, "copy-0", "copy-1", "lstm", "sysid"]
    assert {run["group"] for run in found.runs if run["model"] == "full" and run["task"] == "copy"} == {
        "copy, full, best, T = 4, N = 6"
    }


def test_committed_results_are_read():
    found = gather([ROOT / "results", ROOT / "benchmarks" / "results"])
    assert found.runs[0]["task"] == "copy"
    rows = [row for rows in found.grids.values() for row in rows]
    assert len(found.runs) == len(rows) + 2  # and those of the demo
    assert all(run["command"] for run in found.runs)
    assert found.soak
    assert found.benchmarks


def test_a_run_that_is_under_way_is_read_up_to_its_last_whole_line(small_run, tmp_path):
    folder = small_run(tmp_path / "run", "copy")
    (folder.path / "result.json").unlink()
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 14, "lo')
    (run,) = gather([folder.path]).runs
    assert run["iterations"][-1] == 12
    assert run["result"] is None


@pytest.mark.parametrize(("name", "message"), [("nowhere", "which is none"), (".", "which holds none")])
def test_what_holds_nothing_is_refused(tmp_path, name, message):
    with pytest.raises(ValueError, match=f"RUNS: expected .*{message}"):
        gather([tmp_path / name])


@pytest.mark.parametrize("task", ["copy", "sysid"])
def test_eigenvalues_after_a_run_are_those_of_its_checkpoint(small_run, tmp_path, task):
    folder = small_run(tmp_path / "run", task)
    tensors, meta = checkpoint.load(checkpoint.found(folder.path / "checkpoint")[-1])
    state = checkpoint.unflatten(meta["model"], tensors)
    (W,) = (tensor for name, tensor in state.items() if name.endswith(("weight_hh_l0", "full.weight")))
    found = eigenvalues(folder)
    expected = torch.linalg.eigvals(W).flatten()
    assert sorted(a for a, _ in found["after"]) == pytest.approx(sorted(expected.angle().tolist()), abs=1e-4)
    assert all(abs(r - 1) < 1e-5 for _, r in [*found["before"], *found["after"]])
    assert found["before"] != found["after"]


def test_the_first_w_is_that_of_the_run(small_run, tmp_path):
    """A run whose rates are 0 ends where it began."""
    before = torch.get_rng_state()
    folder = small_run(tmp_path / "run", "copy", lr=0.0, unitary_lr=0.0, polish=False)
    torch.set_rng_state(before)
    found = eigenvalues(folder)
    before_and_after = [sum(sorted(found[when]), ()) for when in ("before", "after")]
    assert before_and_after[0] == pytest.approx(before_and_after[1], abs=2e-5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_the_first_w_is_left_out_where_the_device_is_not_here(small_run, tmp_path):
    folder = small_run(tmp_path / "run", "sysid")
    expected = eigenvalues(folder)
    config = json.loads((folder.path / "config.json").read_text())
    (folder.path / "config.json").write_text(json.dumps({**config, "device": "cuda"}))
    (run,) = gather([folder.path]).runs
    assert run["eigenvalues"] == {**expected, "before": []}
    assert len(charts.eigenvalues([run]).data) == 1


@pytest.mark.parametrize("model", ["full", "restricted", "householder", "exponential"])
def test_every_family_has_its_matrices(small_run, tmp_path, model):
    config = small_run(tmp_path / "run", "copy", model=model, reflections=2, num_layers=2).config()
    found = matrices(config.problem.start(config).model())
    assert [W.shape for W in found] == [(6, 6), (6, 6)]


def test_a_checkpoint_that_cannot_be_read_is_said_on_the_page(small_run, tmp_path):
    folder = small_run(tmp_path / "run", "copy")
    checkpoint.found(folder.path / "checkpoint")[-1].write_bytes(b"none")
    (run,) = gather([folder.path]).runs
    assert "expected a checkpoint of a run" in run["note"]


def test_settings_of_another_version_give_no_command(tmp_path):
    content = json.loads((ROOT / "results" / "table1-best.json").read_text())
    row = content["runs"][0]
    row["config"]["recipe"] = "lost"
    (tmp_path / "table1-best.json").write_text(json.dumps({**content, "runs": [row]}))
    (run,) = gather([tmp_path]).runs
    assert run["command"] is None


def test_recordings_are_embedded_as_far_as_there_is_room(runs, hostile):
    found = recordings(runs)
    assert [(row["name"], bool(row["picture"])) for row in found] == [(f"{hostile}/truth", True)]
    shown, left_out = embedded(found)
    assert shown[0]["audio"].startswith("data:audio/wav;base64,UklGR")
    assert not left_out
    assert embedded(found, budget=1000) == ([], [f"{hostile}/truth"])
