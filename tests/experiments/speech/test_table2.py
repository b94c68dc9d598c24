"""Table 2 and Figure 2, from runs to the page."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from urnn.cli import app
from urnn.experiments import grid, presets, results
from urnn.experiments.folder import RunFolder
from urnn.experiments.speech import figure2, table2, timit
from urnn.experiments.train import train

runner = CliRunner()
SMALL = ["hidden=4", "max_iterations=4", "eval_every=2", "log_every=2", "checkpoint_every=2", "batch_size=3"]


@pytest.fixture
def reproduce(tmp_path, monkeypatch):
    """``urnn reproduce`` with three models of toy size and two trials of each."""
    cells = ["speech/lstm-84", "speech/restricted-158", "speech/full-128"]
    for name in ("table2", "figure2"):
        monkeypatch.setitem(presets.GRIDS, name, {"cells": cells, "seeds": 2})
    folders = [f"--{name}={tmp_path / name}" for name in ("out", "results", "docs")]
    pairs = [word for pair in [*SMALL, "tensorboard=false"] for word in ("--set", pair)]

    def here(cells, jobs, console):
        """In this process, as a process for each run takes seconds to start; test_grid.py has them."""
        for cell in cells:
            train(RunFolder.create(cell.path, cell.config), console)
        return {}

    monkeypatch.setattr(grid, "run_grid", here)

    def call(target, *words):
        return runner.invoke(app, ["reproduce", target, *folders, *pairs, *words])

    return call


def test_the_paper_is_quoted_as_it_is_printed():
    """Table 2, from the paper's source: validation and evaluation MSE."""
    printed = {
        "lstm": {84: (18.02, 18.32), 120: (16.59, 16.98), 158: (15.49, 15.80)},
        "full": {128: (14.78, 15.24), 192: (14.56, 14.66), 256: (14.41, 14.45)},
        "restricted": {
            128: (15.03, 15.78),
            158: (15.06, 14.87),
            192: (15.20, 15.17),
            256: (15.27, 15.63),
            378: (15.78, 16.14),
        },
    }
    assert {name: row[:2] for name, row in table2.PAPER.items()} == {
        f"{model}-{n}": figures for model, sizes in printed.items() for n, figures in sizes.items()
    }
    assert {f"speech/{name}" for name in table2.PAPER} == set(presets.GRIDS["table2"]["cells"])


def test_table_2_and_figure_2_from_audio(reproduce, corpus, tmp_path, write_wav, speechlike):
    pytest.importorskip("pesq", reason="the extra audio is not installed")
    pytest.importorskip("pystoi", reason="the extra audio is not installed")
    for name in ("007", "009"):
        write_wav(corpus / "audio" / f"{name}.wav", speechlike(2.0, int(name)))
    done = reproduce("table2", "--data", str(corpus))
    assert done.exit_code == 0, done.output
    made = json.loads((tmp_path / "results" / "table2-best.json").read_text())
    assert len(made["runs"]) == 6
    page = (tmp_path / "docs" / "results.md").read_text()
    best_last = sorted(made["runs"], key=lambda row: (row["result"]["valid_mse"], row["seed"]), reverse=True)
    rows = {row["preset"]: row for row in best_last}
    for preset, row in rows.items():
        result = row["result"]
        assert f"| {preset.partition('/')[2]} | {result['parameters']} | 2 | {result['valid_mse']:.2f} |" in page
        assert len(result["scores"]["utterances"]["stoi"]) == len(result["eval_mse_of_utterances"]) == 2
        assert f"{result['scores']['means']['segsnr']['mean']:.2f} (" in page
    for name, found in rows["speech/full-128"]["result"]["baselines"].items():
        assert f"| {name} | - | - | {found['valid_mse']:.2f} |" in page
        assert f"{found['scores']['means']['stoi']['mean']:.2f}" in page
    assert "both baselines on validation and evaluation data" in page

    done = reproduce("figure2", "--data", str(corpus))
    assert done.exit_code == 0, done.output
    sounds = {path.name for path in (tmp_path / "out" / "best" / "figure2").iterdir()}
    assert sounds == {"truth.wav", "lstm-4.wav", "restricted-4.wav", "full-4.wav"}
    made = json.loads((tmp_path / "results" / "figure2-best.json").read_text())
    assert [row["preset"] for row in made["runs"]] == presets.GRIDS["figure2"]["cells"]
    assert {row["result"]["utterance"] for row in made["runs"]} == {"007"}
    assert (tmp_path / "docs" / "images" / "figure2-best.png").read_bytes().startswith(b"\x89PNG")
    assert "images/figure2-best.png" in (tmp_path / "docs" / "results.md").read_text()


def test_trained_from_features_and_scored_elsewhere_later(reproduce, corpus, tmp_path):
    pytest.importorskip("pesq", reason="the extra audio is not installed")
    features = tmp_path / "f.safetensors"
    runner.invoke(app, ["features", str(corpus), "-o", str(features)])
    done = reproduce("table2", "--data", str(features))
    assert done.exit_code == 0, done.output
    assert "not scored: table2" in done.output
    path = tmp_path / "results" / "table2-best.json"
    before = json.loads(path.read_text())["runs"]
    assert not any("scores" in row["result"] for row in before)
    features.unlink()
    done = reproduce("table2", "--collect", "--data", str(corpus))
    assert done.exit_code == 0, done.output
    after = json.loads(path.read_text())["runs"]
    assert all("scores" in row["result"] for row in after)
    assert [row["result"]["eval_mse"] for row in after] == [row["result"]["eval_mse"] for row in before]


def test_timit_must_be_whole(reproduce, tmp_path):
    part = tmp_path / "TIMIT"
    for sentence in ("SX1", "SX2"):
        path = part / "TRAIN" / "DR1" / "FAAA0" / f"{sentence}.WAV"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    said = str(reproduce("table2", "--timit", str(part)).exception)
    assert "--timit: expected all of TIMIT, got a part. TIMIT train: expected 462 speakers and 3696 utterances" in said
    assert "found 1 and 2; of faaa0 2 of 8" in said
    both = reproduce("table2", "--timit", str(part), "--data", "x")
    assert "--timit: expected it without --data" in str(both.exception)


def test_timit_is_trained_on_and_kept_apart(reproduce, tmp_path, monkeypatch, sphere, speechlike):
    """A TIMIT of three speakers, with the lists cut down to two of them."""
    monkeypatch.setattr(timit, "SPEAKERS", {"train": 1, "valid": 1, "eval": 1})
    monkeypatch.setattr(timit, "DEVELOPMENT", frozenset({"faks0"}))
    monkeypatch.setattr(timit, "CORE_TEST", frozenset({"mdab0"}))
    for number, (part, speaker) in enumerate((("TRAIN", "FAAA0"), ("TEST", "FAKS0"), ("TEST", "MDAB0"))):
        for sentence in ("SA1", "SA2", *(f"SX{n}" for n in range(8))):
            path = tmp_path / "TIMIT" / part / "DR1" / speaker / f"{sentence}.WAV"
            path.parent.mkdir(parents=True, exist_ok=True)
            x = speechlike(0.8, 10 * number + len(sentence), rate=16000)
            path.write_bytes(sphere((32767 * x).astype(np.int16)))
    monkeypatch.setattr("urnn.experiments.speech.scoring.score_cells", lambda *_: None)
    done = reproduce("table2", "--timit", str(tmp_path / "TIMIT"))
    assert done.exit_code == 0, done.output
    made = json.loads((tmp_path / "out" / "timit" / "table2-best.json").read_text())
    assert len(made["runs"]) == 6
    assert not (tmp_path / "results").exists()


def test_everything_but_speech_needs_no_data(reproduce, monkeypatch):
    monkeypatch.setattr(presets, "GRIDS", {name: presets.GRIDS[name] for name in ("table2", "figure2")})
    done = reproduce("all")
    assert done.exit_code == 0, done.output
    assert "left out: table2, which needs --data" in done.output


def row(name, mse, valid=10.0, utterances=None, baseline=20.0):
    each = utterances or [mse] * 50
    found = {"valid_mse": baseline, "eval_mse": baseline}
    return {
        "preset": f"speech/{name}",
        "result": {
            "valid_mse": valid,
            "eval_mse": mse,
            "eval_mse_of_utterances": each,
            "baselines": {"previous frame": found, "linear prediction": found},
        },
    }


def test_models_are_told_apart_by_paired_intervals():
    """Utterances differ far more from each other than models do."""
    base = list(np.linspace(5, 50, 50))
    noise = np.random.default_rng(0).standard_normal(50)
    best = {
        "full-128": row("full-128", 1, utterances=base),
        "restricted-158": row(
            "restricted-158", 1, utterances=[b + 1 + 0.1 * n for b, n in zip(base, noise, strict=True)]
        ),
        "lstm-84": row("lstm-84", 1, utterances=[b + n for b, n in zip(base, noise, strict=True)]),
    }
    text = " ".join(table2.judgement(best))
    assert "full-128 against restricted-158: -1" in text
    assert text.count("(better)") == 1
    assert text.count("(not told apart)") == 1
    best["full-128"], best["restricted-158"] = best["restricted-158"], best["full-128"]
    assert "(worse)" in " ".join(table2.judgement(best))


def test_models_that_lose_to_a_baseline_are_named():
    best = {"full-128": row("full-128", 19), "lstm-84": row("lstm-84", 21), "lstm-120": row("lstm-120", 1, valid=20.0)}
    assert table2.judgement(best)[-1] == (
        "Not better than both baselines on validation and evaluation data: lstm-84, lstm-120."
    )
    assert "Every model beats both" in table2.judgement({"full-128": best["full-128"]})[-1]


def test_of_several_trials_the_best_on_validation_is_shown():
    rows = [row("full-128", 3, valid=9.0), row("full-128", 1, valid=9.5), row("lstm-84", 2, valid=11.0)]
    assert {name: r["result"]["eval_mse"] for name, r in table2.chosen(rows).items()} == {"full-128": 3, "lstm-84": 2}


def test_spectra_come_back_to_half_a_decibel():
    values = np.random.default_rng(0).uniform(-50, 40, (30, 129))
    assert np.abs(figure2.unpacked(figure2.packed(values), 129) - values).max() <= figure2.STEP / 2
    assert figure2.unpacked(figure2.packed(np.array([[-60.0, 200.0]])), 2).tolist() == [[-50.0, 77.5]]


def test_the_page_knows_every_grid_of_speech():
    known = {name for name, _, _ in results.SECTIONS}
    assert {"table2", "table2-large", "figure2"} <= known & results.PICTURES.keys()
