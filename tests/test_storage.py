"""Files of tensors: to the last bit, and no byte may be another."""

import json
import struct

import pytest
import torch

from urnn import _storage


def written(tmp_path, tensors, meta=None):
    path = tmp_path / "a.safetensors"
    content, checksum = _storage.pack(tensors, meta)
    _storage.write_atomic(path, content)
    return path, checksum


def test_what_is_packed_comes_back_with_its_checksum(tmp_path):
    z = torch.randn(2, 3, dtype=torch.complex128)
    meta = {"text": '"sha256":"' + "0" * 64, "numbers": [1, None, 0.5]}
    path, checksum = written(tmp_path, {"z": z, "conjugate": z.conj(), "none": torch.empty(0)}, meta)
    stored = _storage.unpack(path)
    assert torch.equal(stored.tensors["z"], z)
    assert torch.equal(stored.tensors["conjugate"], z.conj())
    assert stored.tensors["none"].shape == (0,)
    assert (stored.meta, stored.checksum) == (meta, checksum)


def test_every_byte_counts(tmp_path):
    path, _ = written(tmp_path, {"a": torch.arange(4), "z": torch.ones(2, dtype=torch.complex64)}, {"x": 1})
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"^a file (whose checksum|that is cut off)"):
            _storage.unpack(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"^a file (whose checksum|that is cut off)"):
            _storage.unpack(path)


def test_a_file_that_promises_more_than_it_has_is_refused_unread(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(ValueError, match=r"^a file that is cut off"):
        _storage.unpack(path)
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk
    with pytest.raises(ValueError, match=r"^a file of 1099511627776 bytes, more than the 17179869184 that"):
        _storage.unpack(path)


def sealed(header, data=b""):
    """A file with a right checksum around any content."""
    header["__metadata__"] = {"sha256": "0" * 64, **header.get("__metadata__", {})}
    text = json.dumps(header, separators=(",", ":")).encode()
    content = struct.pack("<Q", len(text)) + text + data
    place = content.index(b'"sha256":"') + 10
    return _storage._sealed(content, place)[0]


ONE = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({}, b""),
        ({"__metadata__": {"meta": "{", "complex": "[]"}}, b""),
        ({"__metadata__": {"meta": "1", "complex": '["b"]'}}, b""),
        ({"__metadata__": {"meta": "1", "complex": "3"}}, b""),
        ({"__metadata__": {"meta": "[" * 100_000, "complex": "[]"}}, b""),
        ({**ONE, "__metadata__": {"meta": "1", "complex": "[]"}}, b""),
        ({**ONE, "__metadata__": {"meta": "1", "complex": '["a"]'}}, b"\0" * 4),
        (
            {"a": {"dtype": "X", "shape": [], "data_offsets": [0, 0]}, "__metadata__": {"meta": "1", "complex": "[]"}},
            b"",
        ),
    ],
    ids=range(8),
)
def test_nonsense_with_a_right_checksum_is_refused(tmp_path, header, data):
    path = tmp_path / "a.safetensors"
    path.write_bytes(sealed(header, data))
    with pytest.raises(ValueError, match=r"^a file that urnn did not write"):
        _storage.unpack(path)


def test_json_that_is_too_deep_is_no_json():
    with pytest.raises(ValueError, match="it is nested too deeply"):
        _storage.parse_json("[" * 100_000)
