"""The features of a corpus, and the file that keeps them: enough to train on a machine that can read no audio."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from urnn._storage import pack, unpack
from urnn.experiments.files import write_atomic
from urnn.experiments.speech.audio import read_audio
from urnn.experiments.speech.corpora import SPLITS, Corpus, Utterance, find
from urnn.experiments.speech.stft import Frames

SHORTEST = 2
"""Frames of an utterance: one to predict from, one to predict."""
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Features:
    """Features of all utterances, one after the other, (sum of lengths, F) in float32, in the order of ``ids``."""

    frames: Frames
    values: Tensor
    lengths: Tensor
    ids: tuple[str, ...]
    speakers: tuple[str, ...]
    splits: tuple[str, ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...]

    def places(self, split: str) -> Tensor:
        """Numbers of the utterances of a split."""
        found = [place for place, name in enumerate(self.splits) if name == split]
        if not found:
            raise ValueError(
                f"data: expected utterances of the splits {', '.join(SPLITS)}, got none of {split}. "
                + " ".join((*self.notes, *self.skipped[:3]))
            )
        return torch.tensor(found)

    def __getitem__(self, place: int) -> Tensor:
        """Features (T, F) of an utterance."""
        start = int(self.lengths[:place].sum())
        return self.values[start : start + int(self.lengths[place])]


def cache_folder() -> Path:
    """``URNN_CACHE``, or ``urnn`` in the user's folder of caches."""
    return Path(
        os.environ.get("URNN_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "urnn"
    )


def load(data: Path, frames: Frames, skip_bad: bool, console: Console) -> Features:
    """The features of a corpus, from its cache where nothing has changed, or those in a file.

    Raises:
        ValueError: an audio file is bad (without ``skip_bad``), or the file holds other features.
    """
    if data.suffix == SUFFIX:
        features = read(data)
        if features.frames != frames:
            raise ValueError(
                f"data: expected features made with {frames}, got a file made with {features.frames}: {data}"
            )
        return features
    corpus = find(data)
    cached = cache_folder() / f"features-{_key(corpus, frames, skip_bad)}{SUFFIX}"
    if cached.exists():
        return read(cached)
    features = make(corpus, frames, skip_bad, console)
    cached.parent.mkdir(parents=True, exist_ok=True)
    write(cached, features)
    return features


def make(corpus: Corpus, frames: Frames, skip_bad: bool, console: Console) -> Features:
    """Read all audio and compute its features, with a bar of progress on a terminal."""
    used: list[Utterance] = []
    parts: list[Tensor] = []
    skipped: list[str] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for one in progress.track(corpus.utterances, description="features"):
            try:
                part = of_file(one.path, frames)
            except (ValueError, OSError) as error:
                if not skip_bad:
                    raise ValueError(f"{error}. --skip-bad goes on without such files.") from error
                skipped.append(str(error))
                continue
            used.append(one)
            parts.append(part)
    if skipped:
        console.print(f"{len(skipped)} of {len(corpus.utterances)} files left out:", highlight=False)
        for line in skipped:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if not used:
        raise ValueError("data: expected at least one file of usable audio, got none")
    return Features(
        frames,
        torch.cat(parts),
        torch.tensor([len(part) for part in parts]),
        tuple(one.utt_id for one in used),
        tuple(one.speaker for one in used),
        tuple(one.split for one in used),
        corpus.notes,
        tuple(skipped),
    )


def of_file(path: Path, frames: Frames) -> Tensor:
    """Features (T, F) of one file, in float32."""
    x = torch.from_numpy(read_audio(path, frames.rate))
    if (found := frames.count(len(x))) < SHORTEST:
        raise ValueError(f"{path}: expected at least {SHORTEST} frames, got {len(x)} samples, which make {found}")
    return frames.features(x).float()


def write(path: Path, features: Features) -> None:
    """Write features as safetensors with a checksum: nothing in the file is executed."""
    about = {name: getattr(features, name) for name in ("ids", "speakers", "splits", "notes", "skipped")}
    tensors = {"values": features.values, "lengths": features.lengths}
    write_atomic(path, pack(tensors, {**about, "frames": asdict(features.frames)})[0])


def read(path: Path) -> Features:
    """Read what ``write`` wrote.

    Raises:
        ValueError: the file is missing or holds something else.
    """
    try:
        stored = unpack(path)
        about: dict[str, Any] = dict(stored.meta)
        values, lengths = stored.tensors["values"], stored.tensors["lengths"]
        frames = Frames(**about.pop("frames"))
        names: Sequence[tuple[str, ...]] = [
            tuple(about[name]) for name in ("ids", "speakers", "splits", "notes", "skipped")
        ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected features that urnn wrote, got {error!r}") from error
    whole = values.dtype == torch.float32 and values.shape == (int(lengths.sum()), frames.bins)
    if not whole or any(len(part) != len(lengths) for part in names[:3]) or not bool(torch.isfinite(values).all()):
        raise ValueError(f"{path}: expected features that urnn wrote, got a damaged file")
    return Features(frames, values, lengths, *names)


def _key(corpus: Corpus, frames: Frames, skip_bad: bool) -> str:
    """Changes with the settings, with the list of utterances, and with the size or time of any file."""
    listed: list[tuple[object, ...]] = []
    for one in corpus.utterances:
        stat = one.path.stat() if one.path.exists() else None
        seen = (stat.st_size, stat.st_mtime_ns) if stat else None
        listed.append((one.utt_id, one.speaker, one.split, str(one.path.resolve()), seen))
    text = json.dumps([asdict(frames), skip_bad, corpus.notes, listed])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
