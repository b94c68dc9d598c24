"""NIST SPHERE, the format of TIMIT as the LDC sends it: a header of text, then the samples."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC = b"NIST_1A\n"
LARGEST_HEADER = 1 << 16
"""Headers are 1024 bytes; one that claims more than this is damaged."""
ORDERS = {"01": "<i2", "10": ">i2"}

Fields = dict[str, int | float | str]


def parse_header(data: bytes) -> tuple[int, Fields]:
    r"""Length of the header in bytes, and its fields. ``data`` may go on beyond it.

    Raises:
        ValueError: it is not a header; the message does not name the file.

    >>> parse_header(b"NIST_1A\n   1024\nsample_count -i 3\nsample_coding -s3 pcm\nend_head\n".ljust(1024))
    (1024, {'sample_count': 3, 'sample_coding': 'pcm'})
    """
    if not data.startswith(MAGIC):
        raise ValueError(f"expected a SPHERE header, got a file that begins with {data[:8]!r}")
    size = data[8:16].strip()
    length = int(size) if size.isdigit() else 0
    if not 16 < length <= LARGEST_HEADER or len(data) < length:
        raise ValueError(
            f"expected a SPHERE header of 17 to {LARGEST_HEADER} bytes, got one that claims {size!r} in a file of "
            f"{len(data)} bytes or more"
        )
    fields: Fields = {}
    for line in data[16:length].split(b"\n"):
        words = line.decode("ascii", errors="replace").strip()
        if words == "end_head":
            return length, fields
        if words and not words.startswith(";"):
            name, value = _field(words)
            fields[name] = value
    raise ValueError(f"expected end_head within the first {length} bytes of a SPHERE file, got none")


def read_sphere(path: Path) -> tuple[NDArray[np.int16], int]:
    """Samples and rate of a file with one channel of 16-bit PCM, in either byte order.

    Raises:
        ValueError: it holds something else, is compressed, or is shorter or longer than its header says.
    """
    data = path.read_bytes()
    try:
        start, fields = parse_header(data)
        coding = str(fields.get("sample_coding", "pcm"))
        if "shorten" in coding:
            raise ValueError(f"expected plain PCM, got {coding!r}. Decompress it first, for example by sph2pipe -p.")
        if coding != "pcm":
            raise ValueError(f"expected sample_coding pcm, got {coding!r}")
        count, rate = _whole(fields, "sample_count"), _whole(fields, "sample_rate")
        if (channels := _whole(fields, "channel_count", 1)) != 1:
            raise ValueError(f"expected one channel, got {channels}")
        if (width := _whole(fields, "sample_n_bytes")) != 2:
            raise ValueError(f"expected samples of 2 bytes, got {width}")
        order = str(fields.get("sample_byte_format", "01"))
        if order not in ORDERS:
            raise ValueError(f"expected sample_byte_format 01 or 10, got {order!r}")
        if rate < 1:
            raise ValueError(f"expected a sample_rate of at least 1, got {rate}")
        if len(data) - start != 2 * count:
            raise ValueError(
                f"expected the {count} samples that its header promises, got {(len(data) - start) / 2:g}. "
                "The file is damaged."
            )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return np.frombuffer(data, dtype=ORDERS[order], offset=start).astype(np.int16), rate


def _field(line: str) -> tuple[str, int | float | str]:
    """``name -type value``; -i is a whole number, -r a number, -s3 three characters."""
    name, _, rest = line.partition(" ")
    kind, _, value = rest.partition(" ")
    try:
        if kind == "-i":
            return name, int(value)
        if kind == "-r":
            return name, float(value)
        if kind.startswith("-s") and len(value) >= int(kind[2:]) >= 0:
            return name, value[: int(kind[2:])]
    except ValueError:
        pass
    raise ValueError(f"expected a SPHERE header of lines NAME -TYPE VALUE, got {line[:60]!r}")


def _whole(fields: Fields, name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number {name} in the SPHERE header, got {value!r}")
    return value
