"""The idx files that MNIST comes in.

Two zero bytes, one for the type, one for the number of dimensions; the sizes as big-endian 32-bit numbers; the values.
A file may be gzipped, which its first bytes tell and not its name: browsers unpack what they download.
"""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import torch
from torch import Tensor

from urnn._checks import format_shape

TYPES = {0x08: "unsigned bytes", 0x09: "signed bytes", 0x0B: "16-bit", 0x0C: "32-bit", 0x0D: "float", 0x0E: "double"}
CONTENTS = {1: "labels", 3: "images"}
"""What MNIST's files hold, by their number of dimensions."""
LARGEST = 2**28
"""Bytes; MNIST's own largest file has a sixth of it."""
PART = 2**20


def read_idx(path: Path, dimensions: int) -> tuple[Tensor, str]:
    """Read unsigned bytes in so many dimensions.

    Returns:
        The values, uint8, and the MD5 of the whole file as it is when it is not gzipped.

    Raises:
        ValueError: names the file, what was expected and what came. Nothing larger than ``LARGEST`` is allocated.
        OSError: the file cannot be read.
    """
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not zipped:
            return _read(raw, path, dimensions)
        try:
            with gzip.open(raw) as file:
                return _read(cast(IO[bytes], file), path, dimensions)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise ValueError(
                f"{path}: expected a whole gzip file, got {error}. It is truncated or damaged; copy it anew."
            ) from error


def _read(file: IO[bytes], path: Path, dimensions: int) -> tuple[Tensor, str]:
    """The values and the MD5, from a file that unpacks as it is read."""
    head = file.read(4 + 4 * dimensions)
    shape = _shape(head, path, dimensions)
    size = math.prod(shape)
    if size > LARGEST:
        raise ValueError(f"{path}: expected at most {LARGEST} bytes, got a header that promises {format_shape(shape)}")
    content = bytearray()
    while len(content) < size and (part := file.read(min(PART, size - len(content)))):
        content += part
    if len(content) < size:
        raise ValueError(
            f"{path}: expected {size} bytes after the header, as {format_shape(shape)}, got {len(content)}. "
            "It is truncated; copy it anew."
        )
    if file.read(1):
        raise ValueError(f"{path}: expected its end after {format_shape(shape)}, got more bytes")
    digest = hashlib.md5(head, usedforsecurity=False)
    digest.update(content)
    values = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return values.view(shape), digest.hexdigest()


def _shape(head: bytes, path: Path, dimensions: int) -> tuple[int, ...]:
    """The sizes, from a header of the right type and number of dimensions."""
    expected = f"an idx file of {CONTENTS.get(dimensions, 'values')} ({dimensions} dimensions)"
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise ValueError(f"{path}: expected {expected}, got one that begins with {head[:4].hex(' ') or 'nothing'}")
    if head[3] != dimensions:
        held = f", {CONTENTS[head[3]]}. Are files swapped?" if head[3] in CONTENTS else ""
        raise ValueError(f"{path}: expected {expected}, got {head[3]} dimensions{held}")
    if head[2] != 0x08:
        raise ValueError(f"{path}: expected unsigned bytes (type 0x08), got {TYPES[head[2]]} (type 0x{head[2]:02x})")
    if len(head) < 4 + 4 * dimensions:
        raise ValueError(f"{path}: expected {4 + 4 * dimensions} bytes of header, got {len(head)}. It is truncated.")
    shape: tuple[int, ...] = struct.unpack(f">{dimensions}I", head[4:])
    return shape
