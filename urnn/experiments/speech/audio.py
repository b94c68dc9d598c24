"""Audio files: reading with every defect named, resampling, writing."""

import math
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from urnn.experiments.speech import sphere

Samples = NDArray[np.float64]

INSTALL = "Install the extra: pip install 'urnn[audio]'"


def needed(name: str) -> Any:
    """A module of the extra ``audio``."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"{name}: expected it to be installed, got {error}. {INSTALL}") from error


def read_audio(path: Path, rate: int) -> Samples:
    """Samples in [-1, 1] of a FLAC, WAV or NIST SPHERE file, resampled to ``rate``. Content decides, not the name.

    Raises:
        ValueError: the file is empty, truncated, no audio, not mono, of a rate below ``rate``, silent, or not finite.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(12)
    if not head:
        raise ValueError(f"{path}: expected audio, got an empty file")
    if head.startswith(sphere.MAGIC):
        whole, found = sphere.read_sphere(path)
        x = whole / 32768.0
    elif head.startswith(b"fLaC") or (head.startswith(b"RIFF") and head.endswith(b"WAVE")):
        x, found = _sound(path, head)
    else:
        raise ValueError(f"{path}: expected FLAC, WAV or NIST SPHERE, got a file that begins with {head[:8]!r}")
    if not len(x):
        raise ValueError(f"{path}: expected audio, got no samples")
    if (odd := ~np.isfinite(x)).any():
        raise ValueError(f"{path}: expected finite samples, got {x[odd][0]} in {odd.sum()} places")
    if found < rate:
        raise ValueError(f"{path}: expected a rate of at least {rate} Hz, got {found} Hz")
    if not np.ptp(x):
        raise ValueError(f"{path}: expected a signal, got silence: all samples are {x[0]:g}")
    return resample(x, found, rate)


def resample(x: Samples, rate: int, to: int) -> Samples:
    """``x`` at another rate, through scipy's polyphase filter with its default window."""
    if rate == to:
        return x
    divisor = math.gcd(rate, to)
    y: Samples = needed("scipy.signal").resample_poly(x, to // divisor, rate // divisor)
    return y


def write_wav(path: Path, x: Samples, rate: int) -> None:
    """Write mono 16-bit PCM; what lies beyond [-1, 1] is clipped."""
    whole = np.clip(np.rint(x * 32768.0), -32768, 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(whole.tobytes())


def _sound(path: Path, head: bytes) -> tuple[Samples, int]:
    """By libsndfile, which reads what is left of a truncated file without a word."""
    soundfile = needed("soundfile")
    if head.startswith(b"RIFF"):
        _check_wav_length(path)
    try:
        with soundfile.SoundFile(str(path)) as file:
            if file.channels != 1:
                raise ValueError(f"{path}: expected one channel, got {file.channels}")
            frames, rate = file.frames, file.samplerate
            x = file.read(dtype="float64")
    except soundfile.SoundFileError as error:
        raise ValueError(f"{path}: expected audio, got a damaged file: {error}") from error
    if len(x) != frames:
        raise ValueError(f"{path}: expected {frames} samples, got {len(x)}. The file is truncated.")
    return x, rate


def _check_wav_length(path: Path) -> None:
    """The chunk of samples must be as long as it says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        place = 12
        while place + 8 <= size:
            file.seek(place)
            name, length = struct.unpack("<4sI", file.read(8))
            if name == b"data":
                if place + 8 + length > size:
                    raise ValueError(
                        f"{path}: expected {length} bytes of samples, got {size - place - 8}. The file is truncated."
                    )
                return
            place += 8 + length + length % 2
    raise ValueError(f"{path}: expected WAV with samples, got none. The file is truncated.")
