"""Files that are whole or not there, and tensors in them: safetensors with a checksum. Nothing in them is executed.

Note [Complex tensors]
safetensors has no complex128, so a complex tensor is stored as the real one (..., 2) of its parts, and the header lists
the names of those that were complex.

Note [The checksum]
The header holds the SHA-256 of the whole file as it is with zeros in place of that checksum. So every byte counts, and
one file is enough: a checksum in a file of its own could be of another moment.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

LIMIT = 2**34
"""No file of tensors is larger, in bytes."""
HEADER_LIMIT = 2**24
"""No header is larger, in bytes."""
_KEY = b'"sha256":"'
_ZEROS = b"0" * 64


class Stored(NamedTuple):
    """What a file holds: tensors on the CPU, JSON, and the checksum, which names this very file."""

    tensors: dict[str, Tensor]
    meta: Any
    checksum: str


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``. Whatever stops it, ``path`` holds either what it held before or all of this.

    Raises:
        OSError: the half-written file is gone then.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def pack(tensors: dict[str, Tensor], meta: Any) -> tuple[bytes, str]:
    """The content of a file with these tensors and this JSON, and its checksum."""
    import safetensors.torch

    header = {
        "meta": json.dumps(meta),
        "complex": json.dumps([name for name, tensor in tensors.items() if tensor.is_complex()]),
        "sha256": _ZEROS.decode(),
    }
    content = safetensors.torch.save({name: _stored(tensor) for name, tensor in tensors.items()}, metadata=header)
    return _sealed(content, content.index(_KEY + _ZEROS) + len(_KEY))


def unpack(path: Path, limit: int = LIMIT) -> Stored:
    """What ``pack`` put into the file at ``path``; nothing is read of one that has more bytes than ``limit``.

    Raises:
        ValueError: says what is wrong with the file, without its name.
        OSError: it cannot be read.
    """
    import safetensors.torch
    from safetensors import SafetensorError

    if (size := path.stat().st_size) > limit:
        raise ValueError(f"a file of {size} bytes, more than the {limit} that there can be")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(HEADER_LIMIT, len(content) - 8):
        raise ValueError("a file that is cut off, or no safetensors")
    place = content.find(_KEY, 8, 8 + length) + len(_KEY)
    found = content[place : place + 64]
    sealed, checksum = _sealed(content[:place] + _ZEROS + content[place + 64 :], place)
    if found != checksum.encode() or sealed != content:
        raise ValueError("a file whose checksum is not that of its content: it is damaged, or no file of urnn")
    try:
        header = json.loads(content[8 : 8 + length])["__metadata__"]
        complex_names = json.loads(header["complex"])
        meta = json.loads(header["meta"])
        tensors = safetensors.torch.load(content)
        tensors |= {name: torch.view_as_complex(tensors[name]) for name in complex_names}
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"a file that urnn did not write ({type(error).__name__}: {error})") from error
    return Stored(tensors, meta, checksum)


def read_text(path: Path, limit: int) -> str:
    """The text of a file, which may have so many bytes."""
    if (size := path.stat().st_size) > limit:
        raise ValueError(f"a file of {size} bytes, more than the {limit} that there can be")
    return path.read_text(encoding="utf-8")


def parse_json(text: str) -> Any:
    """JSON as Python values; ValueError for what is none, be it only too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _sealed(content: bytes, place: int) -> tuple[bytes, str]:
    """``content``, which has zeros at ``place``, with its checksum there."""
    checksum = hashlib.sha256(content).hexdigest()
    return content[:place] + checksum.encode() + content[place + 64 :], checksum


def _stored(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.clone(memory_format=torch.contiguous_format)  # tensors that share memory are refused otherwise


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
