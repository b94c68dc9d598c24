"""Corpora: which audio files there are, who speaks in them, and what they are for."""

import csv
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SPLITS = ("train", "valid", "eval")
MANIFEST = "manifest.csv"
COLUMNS = ("utt_id", "speaker", "split", "path")
SUFFIXES = (".wav", ".flac", ".sph")


@dataclass(frozen=True)
class Utterance:
    """One audio file."""

    utt_id: str
    speaker: str
    split: str
    path: Path


@dataclass(frozen=True)
class Corpus:
    """Utterances, and what there is to say about them."""

    utterances: tuple[Utterance, ...]
    notes: tuple[str, ...] = ()


def find(folder: Path) -> Corpus:
    """The corpus in a folder: by its manifest, as TIMIT, or else all audio files below it.

    Raises:
        ValueError: there is none, or its manifest is wrong.
    """
    from urnn.experiments.speech import timit

    if not folder.is_dir():
        raise ValueError(f"data: expected a folder of audio or a file of features, got {str(folder)!r}")
    if (folder / MANIFEST).exists():
        return Corpus(read_manifest(folder / MANIFEST))
    if timit.files(folder):
        return timit.find(folder)
    return scan(folder)


def read_manifest(path: Path) -> tuple[Utterance, ...]:
    """A CSV file with at least the columns utt_id, speaker, split and path (relative to it).

    Raises:
        ValueError: names the line, what was expected and what came.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected a manifest in UTF-8, got {error}") from error
    try:
        reader = csv.DictReader(text.splitlines(), strict=True)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: expected the columns {', '.join(COLUMNS)}, got none called {', '.join(missing)}")
        rows = list(enumerate(reader, start=2))
    except csv.Error as error:
        raise ValueError(f"{path}: expected CSV, got {error}") from error
    utterances = []
    for line, row in rows:
        values = {name: (row[name] or "").strip() for name in COLUMNS}
        if not all(values.values()) or "\0" in values["path"]:
            raise ValueError(f"{path}: expected a value in each of {', '.join(COLUMNS)}, got {values} in line {line}")
        if values["split"] not in SPLITS:
            raise ValueError(f"{path}: expected a split of {', '.join(SPLITS)}, got {values['split']!r} in line {line}")
        utterances.append(Utterance(values["utt_id"], values["speaker"], values["split"], path.parent / values["path"]))
    return checked(utterances, str(path))


def scan(folder: Path) -> Corpus:
    """All audio files below a folder, the folder of each being its speaker.

    In the order of sha256(speaker), of five speakers one is for evaluation, one for validation; with under five
    speakers, files take the place of speakers.
    """
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise ValueError(f"data: expected audio files ({', '.join(SUFFIXES)}) below {folder}, got none")
    names = {p: p.relative_to(folder).with_suffix("").as_posix() for p in paths}
    speakers = {p: p.parent.relative_to(folder).as_posix() for p in paths}
    by_speaker = len(set(speakers.values())) >= 5
    unit = speakers if by_speaker else names
    ranks = {name: rank for rank, name in enumerate(sorted(set(unit.values()), key=_digest))}
    split = {0: "eval", 1: "valid"}
    utterances = [Utterance(names[p], speakers[p], split.get(ranks[unit[p]] % 5, "train"), p) for p in paths]
    what = "speakers (folders)" if by_speaker else "files: there are under five folders, so speakers are not held apart"
    return Corpus(
        checked(utterances, str(folder), disjoint=by_speaker), (f"{folder} has no {MANIFEST}: splits are by {what}",)
    )


def checked(utterances: Iterable[Utterance], where: str, disjoint: bool = True) -> tuple[Utterance, ...]:
    """Every identifier once, no speaker in two splits, no split empty."""
    found = tuple(utterances)
    ids: set[str] = set()
    split_of: dict[str, str] = {}
    for one in found:
        if one.utt_id in ids:
            raise ValueError(f"{where}: expected every utt_id once, got {one.utt_id!r} twice")
        ids.add(one.utt_id)
        if disjoint and split_of.setdefault(one.speaker, one.split) != one.split:
            raise ValueError(
                f"{where}: expected every speaker in one split, got {one.speaker!r} in {split_of[one.speaker]} "
                f"and {one.split}"
            )
    for split in SPLITS:
        if not any(one.split == split for one in found):
            raise ValueError(f"{where}: expected utterances of the splits {', '.join(SPLITS)}, got none of {split}")
    return found


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
