"""A trained run as a tool: an audio file in, what the model would have predicted of it out."""

from dataclasses import dataclass
from pathlib import Path

import torch

from urnn.experiments.folder import RunFolder
from urnn.experiments.speech import scoring
from urnn.experiments.speech.audio import read_audio, write_wav
from urnn.experiments.speech.features import SHORTEST
from urnn.experiments.speech.pictures import spectrograms


@dataclass(frozen=True)
class Predicted:
    """What was written, and the squared errors in dB^2 of the model and of repeating the last frame."""

    audio: Path
    picture: Path
    mse: float
    previous_frame: float


def predict_file(folder: RunFolder, source: Path, out: Path) -> Predicted:
    """Predict every frame from those before it; writes a WAV file and, beside it, a picture of both spectra."""
    if out.suffix.lower() != ".wav":
        raise ValueError(f"out: expected a name that ends in .wav, got {out}")
    if out.resolve() == source.resolve():
        raise ValueError(f"out: expected another file than the input, got {out} for both")
    task = scoring.speech_of(folder.config())
    frames = task.frames
    method = scoring.predictor(folder)
    x = read_audio(source, frames.rate)
    truth = frames.features(torch.from_numpy(x)).float()
    if len(truth) < SHORTEST:
        raise ValueError(f"{source}: expected at least {SHORTEST} frames, got {len(x)} samples")
    predicted = method(truth)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_wav(out, scoring.heard(x, method, frames), frames.rate)
    picture = out.with_suffix(".png")
    name = f"{folder.config().model}, N = {folder.config().hidden}"
    spectrograms({"truth": truth[1:].numpy(), name: predicted.numpy()}, frames, picture)
    return Predicted(
        out, picture, float((predicted - truth[1:]).square().mean()), float((truth[:-1] - truth[1:]).square().mean())
    )
