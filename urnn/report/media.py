"""Audio files and spectrograms of a run, as data that a page can carry."""

import base64
from pathlib import Path
from typing import Any

BUDGET = 2_500_000
"""Bytes of audio and pictures in a page at most."""
KINDS = {".wav": "audio/wav", ".png": "image/png"}


def recordings(folder: Path) -> list[dict[str, Any]]:
    """For each WAV file below ``folder`` its name, itself and the picture beside it; then spectrograms alone."""
    found = []
    for audio in sorted(folder.rglob("*.wav")):
        picture = audio.with_suffix(".png")
        name = audio.relative_to(folder).with_suffix("").as_posix()
        found.append({"name": name, "audio": audio, "picture": picture if picture.exists() else None})
    beside = {row["picture"] for row in found}
    for picture in sorted(folder.rglob("*.png")):
        if picture not in beside and "spectr" in picture.stem.lower():
            name = picture.relative_to(folder).with_suffix("").as_posix()
            found.append({"name": name, "audio": None, "picture": picture})
    return found


def embedded(rows: list[dict[str, Any]], budget: int = BUDGET) -> tuple[list[dict[str, Any]], list[str]]:
    """The recordings as data URIs, as many as the budget has room for, and the names of the others."""
    shown, left_out = [], []
    for row in rows:
        files = [path for path in (row["audio"], row["picture"]) if path]
        size = sum(path.stat().st_size for path in files)
        if size > budget:
            left_out.append(row["name"])
            continue
        budget -= size
        shown.append({**row, **{kind: _uri(row[kind]) if row[kind] else None for kind in ("audio", "picture")}})
    return shown, left_out


def _uri(path: Path) -> str:
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
