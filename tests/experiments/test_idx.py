"""The reader of idx files: what is right comes back, what is not is named, and nothing large is allocated."""

import gzip
import hashlib
import math
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from urnn.experiments.data.idx import LARGEST, read_idx


def idx(*shape: int, values: bytes | None = None, kind: int = 8) -> bytes:
    body = bytes(i % 251 for i in range(math.prod(shape))) if values is None else values
    return struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + body


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "file"


@settings(max_examples=60, deadline=None)
@given(shape=st.lists(st.integers(0, 6), min_size=1, max_size=3), zipped=st.booleans(), data=st.data())
def test_values_come_back_and_the_sum_is_that_of_the_plain_file(path, shape, zipped, data):
    size = math.prod(shape)
    body = data.draw(st.binary(min_size=size, max_size=size))
    content = idx(*shape, values=body)
    path.write_bytes(gzip.compress(content) if zipped else content)
    values, md5 = read_idx(path, len(shape))
    assert values.dtype == torch.uint8
    assert values.shape == torch.Size(shape)
    assert bytes(values.flatten().tolist()) == body
    assert md5 == hashlib.md5(content).hexdigest()


def _mutated(draw: st.DrawFn) -> bytes:
    """A right file, plain or gzipped, that was cut, lengthened or changed in some bytes."""
    content = idx(*draw(st.sampled_from([(4,), (2, 3, 2), (0, 2, 2)])))
    if draw(st.booleans()):
        content = gzip.compress(content, mtime=0)
    changed = bytearray(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)
    for _ in range(draw(st.integers(0, 3)) if changed else 0):
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    return bytes(changed) + draw(st.binary(max_size=3))


@settings(max_examples=400, deadline=None)
@given(content=st.one_of(st.binary(max_size=40), st.composite(_mutated)()), dimensions=st.sampled_from([1, 3]))
def test_any_bytes_are_read_to_the_last_or_refused_by_name(path, content, dimensions):
    """Nothing else happens: no other error, and no value that is not in the file."""
    path.write_bytes(content)
    found = _read_or_refused(path, dimensions)
    if isinstance(found, ValueError):
        assert str(found).startswith(f"{path}: expected ")
    else:
        values, md5 = found
        plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        assert idx(*values.shape, values=bytes(values.flatten().tolist())) == plain
        assert md5 == hashlib.md5(plain).hexdigest()


def _read_or_refused(path: Path, dimensions: int) -> tuple[torch.Tensor, str] | ValueError:
    try:
        return read_idx(path, dimensions)
    except ValueError as error:
        return error


ZIPPED = gzip.compress(idx(2, 4, 3), mtime=0)
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expected an idx file of images .3 dimensions., got one that begins with nothing"),
    "text": (b"<html>", "got one that begins with 3c 68 74 6d"),
    "labels for images": (idx(24), "got 1 dimensions, labels. Are files swapped?"),
    "two dimensions": (idx(4, 6), r"got 2 dimensions$"),
    "floats": (idx(2, 4, 3, kind=0x0D), "expected unsigned bytes .type 0x08., got float .type 0x0d."),
    "no such type": (idx(2, 4, 3, kind=0x0A), "begins with 00 00 0a 03"),
    "cut in the header": (idx(2, 4, 3)[:11], "expected 16 bytes of header, got 11. It is truncated"),
    "cut in the values": (
        idx(2, 4, 3)[:-5],
        r"expected 24 bytes after the header, as .* got 19. It is truncated",
    ),
    "trailing bytes": (idx(2, 4, 3) + b"x", r"expected its end after \(2, 4, 3\), got more bytes"),
    "too large": (idx(2**31, 28, 28, values=b""), f"expected at most {LARGEST} bytes, got a header that promises"),
    "larger than 64 bits": (idx(2**32 - 1, 2**32 - 1, 2**32 - 1, values=b""), "expected at most"),
    "gzip, cut": (ZIPPED[:-9], "expected a whole gzip file, got .* It is truncated or damaged"),
    "gzip, cut in its header": (ZIPPED[:5], "expected a whole gzip file"),
    "gzip, without its sum": (ZIPPED[:-8], "expected a whole gzip file"),
    "gzip, wrong sum": (ZIPPED[:-8] + b"\0\0\0\0" + ZIPPED[-4:], "expected a whole gzip file, got CRC check failed"),
    "gzip, damaged": (ZIPPED[:12] + b"\xff" + ZIPPED[13:], "expected a whole gzip file"),
    "gzip, trailing bytes": (ZIPPED + b"more", "expected a whole gzip file"),
    "gzip, twice": (ZIPPED + ZIPPED, "expected its end after"),
    "gzip, values cut": (gzip.compress(idx(2, 4, 3)[:-5]), "expected 24 bytes after the header, .* got 19"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_named(tmp_path, name):
    content, message = MALFORMED[name]
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"train-images-idx3-ubyte.gz: .*{message}"):
        read_idx(path, 3)


@pytest.mark.parametrize(
    "content",
    [
        idx(LARGEST // 4, 2, 2, values=b"few"),
        gzip.compress(idx(LARGEST // 4, 2, 2, values=b"few")),
        idx(2**31, 28, 28, values=b""),
        gzip.compress(idx(2, 2, 2) + bytes(50_000_000)),  # 50 kB that unpack to 50 MB
    ],
    ids=["promises", "promises, gzipped", "promises too much", "bomb"],
)
def test_a_small_file_takes_little_memory_whatever_it_promises(path, content):
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"expected \d+ bytes|expected at most|expected its end"):
            read_idx(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_what_is_gzipped_is_told_by_its_first_bytes(tmp_path):
    for name, content in (("plain.gz", idx(3)), ("zipped", gzip.compress(idx(3)))):
        (tmp_path / name).write_bytes(content)
        assert read_idx(tmp_path / name, 1)[0].tolist() == [0, 1, 2]


def test_compression_does_not_count(tmp_path):
    """The same values packed anew have another gzip file and the same sum."""
    sums = set()
    for level in (1, 9):
        (tmp_path / "file").write_bytes(gzip.compress(idx(5, 5), level))
        sums.add(read_idx(tmp_path / "file", 2)[1])
    raw = zlib.compressobj(wbits=31)
    (tmp_path / "file").write_bytes(raw.compress(idx(5, 5)) + raw.flush())
    assert sums == {read_idx(tmp_path / "file", 2)[1]}


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        read_idx(tmp_path / "nothing-here", 1)
