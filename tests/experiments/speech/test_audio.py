"""Audio: what is good is read to the last bit, what is bad is named."""

import numpy as np
import pytest

from urnn.experiments.speech import audio
from urnn.experiments.speech.audio import read_audio, resample

soundfile = pytest.importorskip("soundfile", reason="the extra audio is not installed")
TONE = np.sin(2 * np.pi * 440 * np.arange(4000) / 8000) / 2


@pytest.mark.parametrize("kind", ["flac", "wav", "float", "sphere"])
def test_every_format_is_read_to_the_last_bit(kind, sphere, tmp_path):
    whole = np.rint(TONE * 32768).astype(np.int16)
    path = tmp_path / "a.wav"  # whatever the name says
    if kind == "sphere":
        path.write_bytes(sphere(whole, rate=8000))
    elif kind == "float":
        soundfile.write(path, whole / 32768, 8000, subtype="FLOAT", format="WAV")
    else:
        soundfile.write(path, whole, 8000, format=kind)
    assert np.array_equal(read_audio(path, 8000), whole / 32768)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.wav"
    audio.write_wav(path, np.append(TONE, [2.0, -2.0]), 8000)
    x = read_audio(path, 8000)
    assert np.abs(x[:-2] - TONE).max() <= 0.5 / 32768
    assert x[-2:].tolist() == [32767 / 32768, -1.0]


def test_resampling_keeps_a_tone_and_removes_what_the_lower_rate_cannot_hold():
    time = np.arange(16000) / 16000
    tone, high = (np.sin(2 * np.pi * f * time) for f in (440, 6000))
    middle = slice(500, -500)
    expected = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    assert np.abs(resample(tone + high, 16000, 8000) - expected)[middle].max() < 2e-3


def _bad(tmp_path, sphere, write_wav):
    """The files that people have, and what is said of them."""
    good = write_wav(tmp_path / "good.wav", TONE).read_bytes()
    flac = tmp_path / "good.flac"
    soundfile.write(flac, TONE, 8000)
    nan = tmp_path / "nan.wav"
    soundfile.write(nan, np.where(np.arange(4000) == 7, np.nan, TONE), 8000, subtype="FLOAT")
    samples = (TONE * 32767).astype(np.int16)
    contents = {
        "empty.wav": (b"", "got an empty file"),
        "truncated.wav": (good[:-1000], "expected 8000 bytes of samples, got 7000. The file is truncated"),
        "header.wav": (good[:30], "expected WAV with samples, got none"),
        "truncated.flac": (flac.read_bytes()[:-500], "truncated.flac: expected"),
        "damaged.flac": (flac.read_bytes()[:40] + bytes(500), "damaged.flac: expected"),
        "text.wav": (b"This is not audio.\n", "got a file that begins with b'This is '"),
        "liar.wav": (
            sphere(samples, sample_count=5000),
            "expected the 5000 samples that its header promises, got 4000",
        ),
        "shorten.wav": (sphere(samples, sample_coding="pcm,embedded-shorten-v1.09"), "expected plain PCM"),
        "nothing.wav": (sphere(samples[:0]), "got no samples"),
    }
    for name, (data, message) in contents.items():
        (tmp_path / name).write_bytes(data)
        yield tmp_path / name, message
    yield nan, "expected finite samples, got nan in 1 places"
    yield write_wav(tmp_path / "stereo.wav", TONE, channels=2), "expected one channel, got 2"
    yield write_wav(tmp_path / "slow.wav", TONE, rate=4000), "expected a rate of at least 8000 Hz, got 4000 Hz"
    yield write_wav(tmp_path / "silence.wav", 0 * TONE), "got silence"
    yield write_wav(tmp_path / "constant.wav", 0 * TONE + 0.5), "got silence: all samples are 0.49"


def test_bad_files_are_named(tmp_path, sphere, write_wav):
    for path, message in _bad(tmp_path, sphere, write_wav):
        with pytest.raises(ValueError, match=path.name) as found:
            read_audio(path, 8000)
        assert message in str(found.value), path


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(OSError, match="gone.wav"):
        read_audio(tmp_path / "gone.wav", 8000)


def test_a_missing_package_is_named(monkeypatch, tmp_path, write_wav):
    def gone(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", gone)
    with pytest.raises(ValueError, match=r"soundfile: expected it to be installed.*pip install 'urnn\[audio\]'"):
        read_audio(write_wav(tmp_path / "a.wav", TONE), 8000)
