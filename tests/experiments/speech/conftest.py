"""Corpora of seconds, made here; the samples of real ones are found through the environment."""

import csv
import os
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def speechlike(seconds: float, seed: int, rate: int = 8000) -> np.ndarray:
    """Noise through two moving resonances, in syllables: spectra that can be predicted in part."""
    source = np.random.default_rng(seed)
    time = np.arange(int(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(110 + 30 * np.sin(2 * np.pi * 0.7 * time + seed)) / rate
    voiced = sum(np.sin(k * pitch + k) / k for k in range(1, 12))
    gate = np.clip(np.sin(2 * np.pi * 2.5 * time + seed) + 0.3, 0, 1)
    return 0.2 * gate * voiced / 3 + 0.002 * source.standard_normal(len(time))


def write_wav(path: Path, x: np.ndarray, rate: int = 8000, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(x, -1, 1) * 32767).astype("<i2").tobytes())
    return path


def sphere(samples: np.ndarray, order: str = "01", rate: int = 16000, **fields: Any) -> bytes:
    """A SPHERE file; ``fields`` replace those of the header, None leaves one out."""
    header = {
        "database_id": "TIMIT",
        "channel_count": 1,
        "sample_count": len(samples),
        "sample_rate": rate,
        "sample_n_bytes": 2,
        "sample_byte_format": order,
        "sample_sig_bits": 16,
        "sample_coding": "pcm",
    } | fields
    lines = [
        f"{name} -i {value}" if isinstance(value, int) else f"{name} -s{len(value)} {value}"
        for name, value in header.items()
        if value is not None
    ]
    text = "NIST_1A\n   1024\n" + "\n".join([*lines, "end_head", ""])
    return text.encode().ljust(1024) + samples.astype({"01": "<i2", "10": ">i2"}[order]).tobytes()


def write_corpus(folder: Path, train: int = 6, seconds: float = 0.6) -> Path:
    """A folder with a manifest: ``train`` utterances of two speakers, two of each other split."""
    rows = []
    for number in range(train + 4):
        split = "train" if number < train else ("valid", "eval")[number % 2]
        speaker = f"{split}{number % 2 if split == 'train' else 0}"
        path = write_wav(folder / "audio" / f"{number:03d}.wav", speechlike(seconds + 0.1 * number, number))
        rows.append([f"{number:03d}", speaker, split, path.relative_to(folder)])
    with (folder / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["utt_id", "speaker", "split", "path"], *rows])
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("URNN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def _given(variable: str, what: str) -> Callable[[], Path]:
    @pytest.fixture(name=variable.lower())
    def found() -> Path:
        if variable not in os.environ:
            pytest.skip(f"{variable} is not set: no {what}")
        return Path(os.environ[variable])

    return found


urnn_timit_sample = _given("URNN_TIMIT_SAMPLE", "unpacked TIMIT sample of NLTK's")
urnn_speech = _given("URNN_SPEECH", "folder of the open speech corpus")


@pytest.fixture(name="sphere")
def _sphere() -> Callable[..., bytes]:
    return sphere


@pytest.fixture(name="write_wav")
def _write_wav() -> Callable[..., Path]:
    return write_wav


@pytest.fixture(name="speechlike")
def _speechlike() -> Callable[..., np.ndarray]:
    return speechlike


@pytest.fixture(name="write_corpus")
def _write_corpus() -> Callable[..., Path]:
    return write_corpus
