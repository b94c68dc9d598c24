"""Spectra, features and the file that keeps them."""

import io
import math

import numpy as np
import pytest
import torch
from rich.console import Console

from urnn.experiments.speech import corpora, features, timit
from urnn.experiments.speech.audio import read_audio
from urnn.experiments.speech.stft import FEATURES, Frames

FRAMES = Frames()
QUIET = Console(quiet=True)


def noise(samples: int) -> torch.Tensor:
    return torch.randn(samples, dtype=torch.float64) / 10


@pytest.mark.parametrize("samples", [256, 257, 383, 384, 1000, 8000])
def test_reconstruction_is_perfect(samples):
    x = noise(samples)
    assert (FRAMES.signal(FRAMES.spectrum(x), samples) - x).abs().max() < 1e-10
    same = FRAMES.resynthesized(x, FRAMES.features(x))
    assert (same - x).abs().max() < 1e-9


@pytest.mark.parametrize("frames", [Frames(), Frames(window=64, hop=16), Frames(window=100, hop=30)])
@pytest.mark.parametrize("samples", [100, 256, 257, 384, 1001])
def test_inner_frames_are_those_that_see_no_padding(frames, samples):
    """Whatever lies outside of the signal, they are the same, and no others are."""
    x = noise(samples)
    pad = frames.window
    K = len(frames.spectrum(x))
    wide = torch.cat([noise(pad), x, noise(pad)])
    window = torch.hann_window(frames.window, dtype=x.dtype)
    same = []
    for k in range(K):
        start = pad + k * frames.hop - frames.window // 2
        X = torch.fft.rfft(wide[start : start + frames.window] * window) if start + frames.window <= len(wide) else None
        same.append(X is not None and bool((X - frames.spectrum(x)[k]).abs().max() < 1e-12))
    inner = frames.inner(samples)
    # periodic Hann is 0 in its first place, so the frame that starts one sample early agrees all the same
    assert all(same[inner])
    outside = [k for k in range(K) if not inner.start <= k < inner.stop]
    early = [k for k in outside if k * frames.hop - frames.window // 2 == -1]
    assert not any(same[k] for k in outside if k not in early)
    assert frames.count(samples) == len(frames.features(x)) == max(0, inner.stop - inner.start)


def test_the_feature_is_what_its_name_says():
    x = torch.zeros(256, dtype=torch.float64)
    x[128] = 0.5  # the middle of the window, where it is 1
    assert torch.allclose(FRAMES.features(x), torch.full((1, 129), 10 * math.log10(1e-5 + 0.25), dtype=torch.float64))
    assert FRAMES.features(0 * x).tolist() == [[pytest.approx(-50.0)] * 129]


def test_magnitudes_come_back_and_are_never_nan():
    X = torch.randn(100, dtype=torch.complex128)
    feature = FEATURES["log_power"]
    assert torch.allclose(feature.magnitude(feature.of(X)), X.abs(), atol=1e-8)
    assert feature.magnitude(torch.tensor([-50.0, -80.0, -1e9])).tolist() == [pytest.approx(0.0, abs=1e-5), 0.0, 0.0]


def test_silence_within_an_utterance_is_finite(write_wav, tmp_path, speechlike):
    x = speechlike(0.5, 0)
    x[1000:3000] = 0
    path = write_wav(tmp_path / "a.wav", x)
    values = features.of_file(path, FRAMES)
    assert torch.isfinite(values).all()
    assert values.min() == -50
    y = torch.from_numpy(read_audio(path, 8000))
    assert torch.isfinite(FRAMES.resynthesized(y, torch.randn(10, 129, dtype=torch.float64))).all()


def test_the_last_frames_alone_are_replaced():
    x = noise(4000)
    y = FRAMES.resynthesized(x, FRAMES.features(x)[-5:] - 20)
    changed = ((y - x).abs() > 1e-6).nonzero()
    inner = FRAMES.inner(4000)
    assert changed.min() >= (inner.stop - 5) * FRAMES.hop - 128
    assert changed.max() < (inner.stop - 1) * FRAMES.hop + 128


def test_features_of_a_corpus_and_their_file(corpus, tmp_path):
    made = features.load(corpus, FRAMES, False, QUIET)
    assert made.values.shape == (int(made.lengths.sum()), 129)
    assert made.values.dtype == torch.float32
    assert [len(made.places(split)) for split in corpora.SPLITS] == [6, 2, 2]
    for place, one in enumerate(corpora.find(corpus).utterances):
        assert made.ids[place] == one.utt_id
        assert torch.equal(made[place], features.of_file(one.path, FRAMES))
    path = tmp_path / "f.safetensors"
    features.write(path, made)
    again = features.load(path, FRAMES, False, QUIET)
    assert torch.equal(again.values, made.values)
    assert again.ids == made.ids
    with pytest.raises(ValueError, match="data: expected features made with Frames.*hop=64"):
        features.load(path, Frames(hop=64), False, QUIET)


def test_a_corpus_is_read_once(corpus, monkeypatch, write_wav, speechlike):
    first = features.load(corpus, FRAMES, False, QUIET)
    monkeypatch.setattr(features, "of_file", lambda *_: pytest.fail("read again"))
    assert torch.equal(features.load(corpus, FRAMES, False, QUIET).values, first.values)
    monkeypatch.undo()
    monkeypatch.setenv("URNN_CACHE", str(features.cache_folder()))
    write_wav(corpus / "audio" / "000.wav", speechlike(2.0, 99))
    assert features.load(corpus, FRAMES, False, QUIET).lengths[0] != first.lengths[0]


def test_a_bad_file_ends_it_or_is_left_out(corpus, write_wav):
    (corpus / "audio" / "001.wav").write_bytes(b"text")
    (corpus / "audio" / "002.wav").unlink()
    write_wav(corpus / "audio" / "003.wav", np.ones(300) * np.linspace(0, 1, 300))
    with pytest.raises(ValueError, match=r"001.wav: expected FLAC, WAV or NIST SPHERE.*--skip-bad goes on"):
        features.load(corpus, FRAMES, False, QUIET)
    console = Console(record=True, width=300, file=io.StringIO())
    found = features.load(corpus, FRAMES, True, console)
    assert found.ids == ("000", "004", "005", "006", "007", "008", "009")
    assert [name in line for name, line in zip(("001", "002", "003"), found.skipped, strict=True)] == [True] * 3
    assert "at least 2 frames, got 300 samples, which make 1" in found.skipped[2]
    text = console.export_text()
    assert "3 of 10 files left out" in text
    assert "001.wav: expected FLAC" in text


def test_a_split_that_bad_files_emptied_is_named(corpus):
    for name in ("006", "008"):
        (corpus / "audio" / f"{name}.wav").write_bytes(b"")
    found = features.load(corpus, FRAMES, True, QUIET)
    with pytest.raises(ValueError, match=r"got none of valid\. .*006.wav: expected audio, got an empty file"):
        found.places("valid")


@pytest.mark.parametrize("damage", ["text", "other", "short", "nan"])
def test_a_damaged_file_of_features_is_named(corpus, tmp_path, damage):
    from safetensors.torch import save_file

    path = tmp_path / "f.safetensors"
    made = features.load(corpus, FRAMES, False, QUIET)
    if damage == "text":
        path.write_text("no")
    elif damage == "other":
        save_file({"weight": torch.zeros(3)}, path)
    else:
        values = made.values[1:] if damage == "short" else made.values * torch.nan
        features.write(path, features.Features(**{**made.__dict__, "values": values.contiguous()}))
    with pytest.raises(ValueError, match=r"f.safetensors: expected features that urnn wrote, got"):
        features.read(path)


def test_the_sample_of_timit_has_finite_features(urnn_timit_sample):
    found = timit.files(urnn_timit_sample)
    samples = 0
    for _, _, path in found:
        x = read_audio(path, 8000)
        samples += len(x)
        values = FRAMES.features(torch.from_numpy(x))
        assert torch.isfinite(values).all()
        assert len(values) == FRAMES.count(len(x))
    assert samples / 8000 == pytest.approx(490.1, abs=0.1)
    original = read_audio(urnn_timit_sample / "dr1-fvmh0" / "sa1.wav", 16000)
    assert len(original) == 54682


def test_the_open_corpus_has_the_frames_that_its_readme_counts(urnn_speech):
    corpus = corpora.find(urnn_speech)
    made = features.make(corpus, FRAMES, False, QUIET)
    assert int(made.lengths.sum()) == 275_044
    counts = [int(made.lengths[made.places(split)].sum()) for split in corpora.SPLITS]
    assert counts == [204_378, 27_291, 43_375]
    assert torch.isfinite(made.values).all()
