"""Figure 2: one utterance, and what the best model of each kind predicts of it, to be seen and heard."""

import base64
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from urnn.experiments.folder import RunFolder
from urnn.experiments.grid import Cell
from urnn.experiments.speech import scoring
from urnn.experiments.speech.audio import read_audio, write_wav
from urnn.experiments.speech.pictures import spectrograms
from urnn.experiments.speech.stft import Frames

KINDS = ("lstm", "restricted", "full")
STEP = 0.5
"""dB; spectra are kept in whole steps from the lowest value of the feature."""
LOWEST = -50.0


def best_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Of each kind the run with the lowest validation error, as the paper chose them."""
    done = [(cell, RunFolder.open(cell.path).result()) for cell in cells if (cell.path / "config.json").exists()]
    kinds = [cell.config.model for cell, _ in done]
    found = []
    for kind in KINDS:
        mine = [(result["valid_mse"], i) for i, (_, result) in enumerate(done) if result and kinds[i] == kind]
        if mine:
            found.append(done[min(mine)[1]][0])
    return found


def predictions(cells: Sequence[Cell], data: Path, sounds: Path) -> dict[tuple[str, int], Any]:
    """What each run predicts of the first evaluation utterance, by preset and seed; with WAV files of all."""
    one = min(scoring.evaluation_of(data), key=lambda utterance: utterance.utt_id)
    frames = scoring.speech_of(cells[0].config).frames
    x = read_audio(one.path, frames.rate)
    truth = frames.features(torch.from_numpy(x)).float()
    sounds.mkdir(parents=True, exist_ok=True)
    write_wav(sounds / "truth.wav", x, frames.rate)
    found: dict[tuple[str, int], Any] = {}
    for cell in cells:
        method = scoring.predictor(RunFolder.open(cell.path))
        sound = sounds / f"{cell.config.model}-{cell.config.hidden}.wav"
        write_wav(sound, scoring.heard(x, method, frames), frames.rate)
        pictures = {"truth": packed(truth[1:].numpy()), "predicted": packed(method(truth).numpy())}
        found[cell.preset, cell.config.seed] = {"utterance": one.utt_id, "spectra": pictures}
    return found


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The picture, from the rows of ``results/*.json``."""
    bins = rows[0]["config"]["window"] // 2 + 1
    panels = {"truth": unpacked(rows[0]["result"]["spectra"]["truth"], bins)}
    for row in rows:
        title = f"{row['config']['model']}, N = {row['config']['hidden']}: {row['result']['eval_mse']:.2f} dB² on all"
        panels[title] = unpacked(row["result"]["spectra"]["predicted"], bins)
    config = rows[0]["config"]
    spectrograms(panels, Frames(config["feature"], config["rate"], config["window"], config["hop"]), path)


def packed(values: NDArray[Any]) -> str:
    """Spectra as text, to half a decibel."""
    steps = np.clip(np.rint((values - LOWEST) / STEP), 0, 255).astype(np.uint8)
    return base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode()


def unpacked(text: str, bins: int) -> NDArray[Any]:
    """The inverse of ``packed``, (T, bins)."""
    steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return steps.reshape(-1, bins) * STEP + LOWEST
