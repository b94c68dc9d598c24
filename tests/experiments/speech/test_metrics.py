"""Measures against signals of which the answer is known."""

import math

import numpy as np
import pytest

from urnn.experiments.speech import metrics
from urnn.experiments.speech.metrics import Unmeasurable, activity, interval, measured, raw_pesq, segmental_snr

pytest.importorskip("scipy", reason="the extra audio is not installed")
RATE = 8000


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(int(seconds * RATE))


@pytest.mark.parametrize("gain", [1e-3, 0.1, 3.0])
def test_the_level_of_a_steady_signal_is_its_power(gain):
    x = gain * noise(3)
    level, active = activity(x, RATE)
    assert level == pytest.approx(10 * math.log10(np.square(x).mean()), abs=0.2)
    assert active[RATE // 10 :].all()


@pytest.mark.parametrize("background", [0.0, 1e-4])
def test_pauses_are_not_active_but_for_the_hangover(background):
    """A second of signal within three: its level is found, and active are it and the 0.2 s after it."""
    x = background * noise(3, 1)
    x[RATE : 2 * RATE] += noise(1)
    level, active = activity(x, RATE)
    speech = 10 * math.log10(np.square(x[RATE : 2 * RATE]).mean())
    assert level == pytest.approx(speech - 10 * math.log10(1.3), abs=0.5)  # over 1.3 s, with decay and hangover
    assert not active[: RATE - 1].any()
    assert active[RATE + 400 : 2 * RATE].all()
    assert 0.2 <= (active[2 * RATE :].sum()) / RATE <= 0.4


@pytest.mark.parametrize("error", [0.01, 0.1, 0.5, 1.0, 2.0])
def test_an_error_in_proportion_gives_its_ratio(error):
    x = noise(2)
    assert segmental_snr(x, (1 + error) * x, RATE) == pytest.approx(-20 * math.log10(error), abs=1e-6)


def test_errors_in_pauses_do_not_count():
    x = 1e-4 * noise(3, 1)
    x[: 2 * RATE] += noise(2)
    y = 1.1 * x
    late = slice(int(2.6 * RATE), None)
    worse = y.copy()
    worse[late] += noise(3, 2)[late]
    assert segmental_snr(x, worse, RATE) == segmental_snr(x, y, RATE) == pytest.approx(20, abs=1e-6)


def test_the_mean_is_of_decibels_and_not_of_powers():
    x = noise(2)
    y = x.copy()
    y[:RATE] *= 1.1
    y[RATE:] *= 1.01
    _, active = activity(x, RATE)
    first = active.reshape(-1, 80).sum(1)[:100] > 40
    expected = (20 * first.sum() + 40 * 100) / (first.sum() + 100)
    assert segmental_snr(x, y, RATE) == pytest.approx(expected, abs=1e-6)


def test_frames_without_error_are_clamped():
    x = noise(1)
    assert segmental_snr(x, x, RATE) == metrics.CLAMP
    assert segmental_snr(x, x * (1 + 1e-9), RATE) == metrics.CLAMP
    gap = x.copy()
    gap[4000:4800] = 0  # ten frames, in the hangover
    assert math.isfinite(segmental_snr(gap, gap + 1e-3, RATE))


def test_pesq_and_stoi_know_perfect_and_worse(speechlike):
    pytest.importorskip("pystoi", reason="the extra audio is not installed")
    pytest.importorskip("pesq", reason="the extra audio is not installed")
    x = speechlike(3, 0)
    perfect, noisy, awful = (measured(x, x + g * noise(3, 1), RATE) for g in (0.0, 0.03, 0.5))
    assert perfect["stoi"] == pytest.approx(1, abs=1e-3)
    assert perfect["pesq"] == pytest.approx(4.549, abs=1e-3)
    assert perfect["pesq_raw"] == pytest.approx(4.5, abs=1e-3)
    for name in metrics.MEASURES:
        assert perfect[name] > noisy[name] > awful[name]


def test_the_raw_score_is_the_inverse_of_the_map():
    for score in np.linspace(-0.5, 4.5, 11):
        assert raw_pesq(0.999 + 4 / (1 + math.exp(-1.4945 * score + 4.6607))) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("case", ["silent", "short", "signal"])
def test_what_cannot_be_measured_says_why_and_is_no_number(case, speechlike):
    pytest.importorskip("pystoi", reason="the extra audio is not installed")
    pytest.importorskip("pesq", reason="the extra audio is not installed")
    x = {"silent": np.zeros(RATE), "short": speechlike(0.15, 0), "signal": speechlike(2.0, 0)}[case]
    found = measured(x, 0 * x if case == "signal" else x, RATE)
    if case == "signal":  # nothing but silence came out: the SNR is 0 dB, PESQ does not exist
        assert found["segsnr"] == pytest.approx(0)
        assert found["pesq"] == found["pesq_raw"] == "expected a signal, got silence"
    else:
        assert isinstance(found["stoi"], str)
        assert isinstance(found["pesq"], str)
    if case == "silent":
        assert found["segsnr"] == "expected speech, got silence"
    assert all(isinstance(v, str) or math.isfinite(v) for v in found.values())


def test_nothing_is_active_in_a_click():
    with pytest.raises(Unmeasurable, match="expected"):
        segmental_snr(np.ones(20), np.ones(20), RATE)


def test_the_interval_holds_the_mean_as_often_as_it_says():
    source = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        low, high = interval(source.standard_normal(60), draws=400)
        hits += low <= 0 <= high
    assert 0.88 <= hits / 200 <= 0.99
    assert interval([3.0]) == (3.0, 3.0)
    assert interval([1.0, 2.0, 5.0]) == interval([1.0, 2.0, 5.0])
