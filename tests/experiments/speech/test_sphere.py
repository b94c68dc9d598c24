"""SPHERE: what the tests write is read back, and no bytes at all make it crash."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from urnn.experiments.speech.sphere import LARGEST_HEADER, MAGIC, parse_header, read_sphere

SAMPLES = np.array([0, 1, -1, 32767, -32768, 0x0D0A, 258], dtype=np.int16)


@pytest.mark.parametrize("order", ["01", "10"])
def test_both_byte_orders_come_back(sphere, tmp_path, order):
    path = tmp_path / "SA1.WAV"
    path.write_bytes(sphere(SAMPLES, order))
    samples, rate = read_sphere(path)
    assert samples.tolist() == SAMPLES.tolist()
    assert (samples.dtype, rate) == (np.int16, 16000)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"sample_coding": "pcm,embedded-shorten-v2.00"},
            "expected plain PCM, got 'pcm,embedded-shorten-v2.00'. Decom",
        ),
        ({"sample_coding": "ulaw"}, "expected sample_coding pcm, got 'ulaw'"),
        ({"sample_count": 8}, "expected the 8 samples that its header promises, got 7"),
        ({"sample_count": 6}, "expected the 6 samples that its header promises, got 7"),
        ({"sample_count": -1}, "expected a whole number sample_count in the SPHERE header, got -1"),
        ({"sample_count": None}, "expected a whole number sample_count in the SPHERE header, got None"),
        ({"sample_rate": "fast"}, "expected a whole number sample_rate"),
        ({"sample_rate": 0}, "expected a sample_rate of at least 1, got 0"),
        ({"channel_count": 2}, "expected one channel, got 2"),
        ({"sample_n_bytes": 1}, "expected samples of 2 bytes, got 1"),
        ({"sample_byte_format": "1"}, "expected sample_byte_format 01 or 10, got '1'"),
    ],
)
def test_bad_headers_are_named_with_their_file(sphere, tmp_path, fields, message):
    path = tmp_path / "SA1.WAV"
    path.write_bytes(sphere(SAMPLES, **fields))
    with pytest.raises(ValueError, match="SA1.WAV: ") as found:
        read_sphere(path)
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"RIFF", "got a file that begins with b'RIFF'"),
        (b"NIST_1A\n", "got one that claims b''"),
        (b"NIST_1A\n   1024\nend_head\n", "got one that claims b'1024' in a file of 25 bytes"),
        (b"NIST_1A\n9999999\nend_head\n", "got one that claims b'9999999'"),
        (b"NIST_1A\n     -5\nend_head\n", "got one that claims b'-5'"),
        (b"NIST_1A\n     26\nrate -i x\n", "got 'rate -i x'"),
        (b"NIST_1A\n     26\nrate -i 3\n", "expected end_head"),
        (b"NIST_1A\n     32\nrate -s9 short\n\n", "got 'rate -s9 short'"),
    ],
)
def test_what_is_no_header_is_refused(data, message):
    with pytest.raises(ValueError, match="expected") as found:
        parse_header(data)
    assert message in str(found.value)


def parsed(data: bytes) -> tuple[int, dict] | str:
    try:
        return parse_header(data)
    except ValueError as error:
        return str(error)


@given(st.binary(max_size=200), st.sampled_from([b"", MAGIC, MAGIC + b"     40\n", MAGIC + b"  65537\n"]))
def test_any_bytes_are_parsed_or_refused(data, start):
    found = parsed(start + data)
    if isinstance(found, str):
        assert "expected" in found
    else:
        length, fields = found
        assert 16 < length <= min(len(start + data), LARGEST_HEADER)
        assert all(isinstance(name, str) for name in fields)


@given(
    st.dictionaries(
        st.text("abcdefgh_", min_size=1, max_size=10).filter(lambda name: name != "end_head"),
        st.integers() | st.text("pcm,ulaw-. 019", min_size=1).map(str.strip).filter(bool),
        max_size=6,
    )
)
def test_fields_come_back(fields):
    lines = [f"{k} -i {v}" if isinstance(v, int) else f"{k} -s{len(v)} {v}" for k, v in fields.items()]
    head = "NIST_1A\n   1024\n" + "\n".join([*lines, "end_head", ""])
    assert parse_header(head.encode().ljust(1024)) == (1024, fields)
