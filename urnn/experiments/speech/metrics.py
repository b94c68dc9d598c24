"""Measures of reconstructed speech: segmental SNR, STOI, PESQ, and an interval for their means.

Note [Segmental SNR]
Frames of 10 ms without overlap; in each, 10 log10(sum r^2 / sum (r - s)^2) for the reference r and the signal s,
clamped to +-100 dB, so that a frame without error counts 100 and never inf. The mean runs over the active frames: those
of which the voice-activity decision takes more than half. No alignment of s to r is tried: s has the phases of r.

Note [Voice activity]
As in method B of ITU-T P.56. The rectified signal passes two one-pole filters of 30 ms. A sample is active at a
threshold c when that envelope has reached c within the last 200 ms. Over thresholds 3 dB apart, the level of the active
part is the energy of the whole signal over the number of active samples; the threshold sought lies 15.9 dB under the
level that it itself gives, between two of them by interpolation. P.56's band filter is left out.
"""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from urnn.experiments.speech.audio import Samples, needed

FRAME = 0.01
CLAMP = 100.0
SMOOTHING = 0.03
HANGOVER = 0.2
MARGIN = 15.9
THRESHOLDS = 25
"""3 dB each, downward from the largest envelope."""


class Unmeasurable(ValueError):
    """A measure does not exist for this utterance: it is silent or too short."""


def activity(x: Samples, rate: int) -> tuple[float, NDArray[np.bool_]]:
    """Active level in dB (of a mean square of 1), and which samples are active; see Note [Voice activity].

    Raises:
        Unmeasurable: the signal is silent.
    """
    energy = float(np.square(x).sum())
    if not energy > 0:
        raise Unmeasurable("expected speech, got silence")
    decay = math.exp(-1 / (rate * SMOOTHING))
    envelope = np.abs(x)
    for _ in range(2):
        envelope = needed("scipy.signal").lfilter([1 - decay], [1, -decay], envelope)
    held = _running_maximum(envelope, math.ceil(HANGOVER * rate))
    thresholds = 20 * math.log10(float(envelope.max())) - 3.0 * np.arange(1, THRESHOLDS + 1)
    counts = np.array([(held >= 10 ** (c / 20)).sum() for c in thresholds])
    levels = 10 * np.log10(energy / counts)
    over = levels - thresholds - MARGIN  # grows as the threshold falls
    place = int(np.searchsorted(over, 0.0))
    if place == 0:
        threshold, level = thresholds[0], levels[0]
    elif place == THRESHOLDS:
        threshold, level = thresholds[-1], levels[-1]
    else:
        share = -over[place - 1] / (over[place] - over[place - 1])
        threshold = thresholds[place - 1] + share * (thresholds[place] - thresholds[place - 1])
        level = levels[place - 1] + share * (levels[place] - levels[place - 1])
    return float(level), held >= 10 ** (threshold / 20)


def segmental_snr(reference: Samples, signal: Samples, rate: int) -> float:
    """Mean SNR in dB of the active frames; see Note [Segmental SNR].

    Raises:
        Unmeasurable: the reference is silent, or has no active frame.
    """
    _, active = activity(reference, rate)
    length = round(FRAME * rate)
    count = len(reference) // length
    power, error, share = (
        y[: count * length].reshape(count, length).sum(1)
        for y in (np.square(reference), np.square(reference - signal), active.astype(float))
    )
    chosen = share > length / 2
    if not chosen.any():
        raise Unmeasurable("expected active frames, got none")
    power, error = power[chosen], error[chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        snr = 10 * np.log10(power / error)
    snr = np.where(error == 0, CLAMP, snr)
    return float(np.clip(snr, -CLAMP, CLAMP).mean())


def stoi(reference: Samples, signal: Samples, rate: int) -> float:
    """Short-time objective intelligibility, by pystoi.

    Raises:
        Unmeasurable: too little speech for it.
    """
    measure = needed("pystoi").stoi
    if not np.square(reference).sum() > 0:
        raise Unmeasurable("expected speech, got silence")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            value = float(measure(reference, signal, rate))
        except (RuntimeWarning, ValueError) as error:
            raise Unmeasurable(f"expected enough speech for STOI, got {str(error).splitlines()[0]}") from error
    if not math.isfinite(value):
        raise Unmeasurable(f"expected a finite STOI, got {value}")
    return value


def pesq(reference: Samples, signal: Samples, rate: int) -> float:
    """PESQ, narrow band, as MOS-LQO (ITU-T P.862.1), by pesq.

    Raises:
        Unmeasurable: too little speech for it.
    """
    module = needed("pesq")
    for name, x in (("speech", reference), ("a signal", signal)):
        if not np.square(x).sum() > 0:
            raise Unmeasurable(f"expected {name}, got silence")
    try:
        value = float(module.pesq(rate, reference, signal, "nb"))
    except module.PesqError as error:
        said = error.args[0] if error.args else error
        raise Unmeasurable(
            f"expected enough speech for PESQ, got {said.decode() if isinstance(said, bytes) else said}"
        ) from error
    if not math.isfinite(value):
        raise Unmeasurable(f"expected a finite PESQ, got {value}")
    return value


def raw_pesq(mos_lqo: float) -> float:
    """The score of P.862 itself, -0.5 to 4.5, by inverting P.862.1's map to MOS-LQO.

    >>> mos_lqo = 0.999 + 4 / (1 + math.exp(-1.4945 * 3.0 + 4.6607))
    >>> round(raw_pesq(mos_lqo), 6)
    3.0
    """
    return (4.6607 - math.log(4 / (mos_lqo - 0.999) - 1)) / 1.4945


MEASURES: dict[str, Callable[[Samples, Samples, int], float]] = {"segsnr": segmental_snr, "stoi": stoi, "pesq": pesq}


def measured(reference: Samples, signal: Samples, rate: int) -> dict[str, float | str]:
    """Every measure of one utterance: its value, or the reason why there is none."""
    found: dict[str, float | str] = {}
    for name, measure in MEASURES.items():
        try:
            found[name] = measure(reference, signal, rate)
        except Unmeasurable as error:
            found[name] = str(error)
    value = found["pesq"]
    found["pesq_raw"] = value if isinstance(value, str) else raw_pesq(value)
    return found


def interval(values: Sequence[float], draws: int = 2000, share: float = 0.95) -> tuple[float, float]:
    """Bootstrap interval of the mean: the same for the same values."""
    x = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(0).integers(0, len(x), (draws, len(x)))
    low, high = np.quantile(x[picks].mean(1), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def _running_maximum(x: Samples, length: int) -> Samples:
    """Largest of each sample and the ``length - 1`` before it."""
    y: Samples = needed("scipy.ndimage").maximum_filter1d(
        x, length, origin=(length - 1) // 2, mode="constant", cval=-np.inf
    )
    return y
