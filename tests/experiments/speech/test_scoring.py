"""From a run to sound, scores and pictures."""

import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from urnn.cli import app
from urnn.experiments.folder import RunFolder
from urnn.experiments.speech import baselines, corpora, metrics, scoring
from urnn.experiments.speech.audio import read_audio
from urnn.experiments.speech.predict import predict_file
from urnn.experiments.speech.stft import Frames

for name in ("soundfile", "scipy", "pystoi", "pesq"):
    pytest.importorskip(name, reason="the extra audio is not installed")
QUIET = Console(quiet=True)
FRAMES = Frames()
runner = CliRunner()


@pytest.fixture
def trained(corpus, run):
    return run("speech", data=str(corpus), eval_every=4)[0]


def test_the_best_weights_come_back(trained, corpus):
    """The predictions of a run that is opened again have the error that its result states."""
    predict = scoring.predictor(trained)
    stated = trained.result()["eval_mse_of_utterances"]
    for one in corpora.find(corpus).utterances:
        if one.utt_id in stated:
            x = FRAMES.features(torch.from_numpy(read_audio(one.path, 8000))).float()
            error = (predict(x) - x[1:]).square().mean().item()
            assert error == pytest.approx(stated[one.utt_id], rel=1e-5)


def test_a_perfect_prediction_is_heard_as_the_original(speechlike):
    x = speechlike(2.0, 0)
    truth = FRAMES.features(torch.from_numpy(x)).float()
    y = scoring.heard(x, lambda _: truth[1:], FRAMES)
    assert np.abs(y - x).max() < 1e-4  # features in single precision
    assert metrics.segmental_snr(x, y, 8000) > 60


def test_what_is_heard_lies_in_time(speechlike):
    """A prediction of frame t is put into frame t: silence predicted for late frames leaves the early ones alone."""
    x = speechlike(1.0, 0)

    def half(features: torch.Tensor) -> torch.Tensor:
        y = features[1:].clone()
        y[len(y) // 2 :] = -50
        return y

    y = scoring.heard(x, half, FRAMES)
    assert np.abs(y[:3500] - x[:3500]).max() < 1e-4
    assert np.abs(y[4800:7700]).max() < 1e-2 < np.abs(x[4800:7700]).max()


@pytest.mark.parametrize("jobs", [1, 2])
def test_scores_are_of_every_utterance_and_their_means(corpus, jobs, write_wav, speechlike):
    for name in ("007", "009"):
        write_wav(corpus / "audio" / f"{name}.wav", speechlike(2.5, int(name)))
    found = scoring.score(scoring.evaluation_of(corpus), baselines.previous_frame, FRAMES, jobs, QUIET)
    assert found["utterances"].keys() == {"007", "009"}
    assert not found["left_out"]
    for name in scoring.MEASURES:
        values = [scores[name] for scores in found["utterances"].values()]
        mean = found["means"][name]
        assert mean["utterances"] == 2
        assert mean["mean"] == pytest.approx(sum(values) / 2)
        assert min(values) <= mean["low"] <= mean["mean"] <= mean["high"] <= max(values)
    x = read_audio(corpus / "audio" / "007.wav", 8000)
    y = scoring.heard(x, baselines.previous_frame, FRAMES)
    assert found["utterances"]["007"]["segsnr"] == metrics.segmental_snr(x, y, 8000)


def test_utterances_that_cannot_be_measured_are_listed_and_not_averaged(corpus, write_wav, speechlike):
    write_wav(corpus / "audio" / "007.wav", speechlike(2.5, 7))
    write_wav(corpus / "audio" / "009.wav", speechlike(0.2, 9))
    extra = corpora.Utterance("010", "eval0", "eval", corpus / "audio" / "010.wav")
    extra.path.write_bytes(b"text")
    utterances = [*scoring.evaluation_of(corpus), extra]
    found = scoring.score(utterances, baselines.previous_frame, FRAMES, 1, QUIET)
    assert found["means"]["stoi"]["utterances"] == 1
    assert found["means"]["stoi"]["mean"] == found["utterances"]["007"]["stoi"]
    assert found["left_out"]["stoi"].keys() == found["left_out"]["pesq_raw"].keys() == {"009", "010"}
    assert "expected FLAC, WAV" in found["left_out"]["segsnr"]["010"]
    assert "expected enough speech for STOI" in found["left_out"]["stoi"]["009"]
    json.dumps(found, allow_nan=False)
    none = scoring.summarized({"010": found["utterances"]["010"]})
    assert none["means"]["pesq"] == {"mean": None, "low": None, "high": None, "utterances": 0}


def test_scores_of_a_run_are_kept(trained, corpus, monkeypatch):
    first = scoring.score_run(trained, None, 1, QUIET)
    assert json.loads((trained.path / "scores.json").read_text()) == first
    monkeypatch.setattr(scoring, "score", lambda *_: pytest.fail("scored again"))
    assert scoring.score_run(trained, corpus, 1, QUIET) == first


def test_baselines_are_scored(corpus, trained):
    made = trained.config().problem.load(QUIET)
    train = [made[int(place)] for place in made.places("train")]
    found = scoring.score_baselines(corpus, train, FRAMES, 1, QUIET)
    assert found.keys() == {"previous frame", "linear prediction"}
    assert found["previous frame"] != found["linear prediction"]


def test_predicting_a_file(trained, tmp_path, write_wav, speechlike):
    source = write_wav(tmp_path / "in.wav", speechlike(1.0, 3, rate=16000), rate=16000)
    done = predict_file(trained, source, tmp_path / "new" / "out.wav")
    assert len(read_audio(done.audio, 8000)) == 8000
    assert done.picture.read_bytes().startswith(b"\x89PNG")
    x = FRAMES.features(torch.from_numpy(read_audio(source, 8000))).float()
    assert done.previous_frame == pytest.approx((x[1:] - x[:-1]).square().mean().item())
    assert done.mse == pytest.approx((scoring.predictor(trained)(x) - x[1:]).square().mean().item())


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        ("in.wav", "out.mp3", "out: expected a name that ends in .wav"),
        ("in.wav", "in.wav", "out: expected another file than the input"),
        ("text.wav", "out.wav", "text.wav: expected FLAC, WAV or NIST SPHERE"),
        ("short.wav", "out.wav", "short.wav: expected at least 2 frames, got 300 samples"),
    ],
)
def test_what_cannot_be_predicted_is_named(trained, tmp_path, write_wav, speechlike, source, out, message):
    write_wav(tmp_path / "in.wav", speechlike(1.0, 3))
    write_wav(tmp_path / "short.wav", speechlike(1.0, 3)[:300])
    (tmp_path / "text.wav").write_bytes(b"text")
    with pytest.raises(ValueError, match="expected") as found:
        predict_file(trained, tmp_path / source, tmp_path / out)
    assert message in str(found.value)
    assert not (tmp_path / "out.wav").exists()


def test_runs_of_other_tasks_and_without_weights_are_named(run, tiny, tmp_path):
    folder, _ = run("copy")
    with pytest.raises(ValueError, match="run: expected one of the task speech, got copy"):
        scoring.predictor(folder)
    new = RunFolder.create(tmp_path / "new", tiny("speech"))
    with pytest.raises(ValueError, match="run: expected a run with a checkpoint"):
        scoring.predictor(new)


def test_a_run_stopped_early_has_its_best_weights(corpus, run):
    folder, result = run("speech", data=str(corpus), eval_every=2, checkpoint_every=100, patience=1, lr=30.0)
    assert result["stopped"] == "patience"
    assert result["iterations"] % 100
    assert scoring.predictor(folder)(torch.randn(5, 129)).shape == (4, 129)


def test_commands(corpus, tmp_path, write_wav, speechlike):
    file, out = tmp_path / "f.safetensors", tmp_path / "run"
    made = runner.invoke(app, ["features", str(corpus), "-o", str(file)])
    assert made.exit_code == 0, made.output
    assert "10 utterances (6 train, 2 valid, 2 eval)" in made.output
    tiny = ["hidden=5", "max_iterations=4", "eval_every=2", "log_every=2", "checkpoint_every=2", "threads=1"]
    pairs = [word for pair in tiny for word in ("--set", pair)]
    trained = runner.invoke(app, ["train", "speech", "--data", str(file), "--out", str(out), *pairs])
    assert trained.exit_code == 0, trained.output
    assert "previous frame" in trained.output
    scored = runner.invoke(app, ["score", str(out), "--data", str(corpus)])
    assert scored.exit_code == 0, scored.output
    assert "segsnr" in scored.output
    source = write_wav(tmp_path / "in.wav", speechlike(1.0, 3))
    predicted = runner.invoke(app, ["predict", str(out), str(source), str(tmp_path / "out.wav")])
    assert predicted.exit_code == 0, predicted.output
    assert "of repeating the last frame" in predicted.output


def test_commands_skip_bad_audio_when_told(corpus, tmp_path):
    (corpus / "audio" / "001.wav").write_bytes(b"")
    words = ["features", str(corpus), "-o", str(tmp_path / "f.safetensors")]
    with pytest.raises(ValueError, match=r"001.wav: expected audio, got an empty file\. --skip-bad goes on"):
        app(words, standalone_mode=False)
    made = runner.invoke(app, [*words, "--skip-bad"])
    assert "1 of 10 files left out" in made.output
    with pytest.raises(ValueError, match=r"--out: expected a name that ends in .safetensors"):
        app([*words[:-1], "f.npz"], standalone_mode=False)


def test_a_bar_is_shown_on_a_terminal(corpus):
    console = Console(force_terminal=True, width=100, file=io.StringIO())
    scoring.score(scoring.evaluation_of(corpus), baselines.previous_frame, FRAMES, 1, console)
    assert "2/2" in console.file.getvalue()
