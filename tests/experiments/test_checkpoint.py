"""Checkpoints come back to the last bit, and nothing in them is executed."""

import math

import pytest
import torch

from urnn.experiments import checkpoint

TREE = {
    "numbers": [1, 2.5, None, True, "text", float("inf")],
    7: {"pair": (0.9, 0.99), "inner": [torch.arange(3), {"deep": torch.tensor(2.5)}]},
    "empty": {},
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.float64, torch.int64])
def test_tensors_come_back_to_the_last_bit(tmp_path, dtype):
    value = torch.randn(3, 2, dtype=torch.complex128).to(dtype) if dtype.is_complex else torch.arange(6).to(dtype)
    path = checkpoint.save(tmp_path, 5, {"a": value, "scalar": value.flatten()[0]}, {})
    tensors, _ = checkpoint.load(path)
    assert tensors["a"].dtype == dtype
    assert torch.equal(tensors["a"], value)
    assert tensors["scalar"].shape == ()


def test_conjugated_and_shared_tensors_are_stored_as_their_values(tmp_path):
    z = torch.randn(3, 3, dtype=torch.complex64)
    tensors, _ = checkpoint.load(checkpoint.save(tmp_path, 1, {"z": z, "adjoint": z.mH, "row": z[0]}, {}))
    assert torch.equal(tensors["adjoint"], z.mH)
    assert torch.equal(tensors["row"], z[0])


def test_trees_come_back(tmp_path):
    tensors: dict[str, torch.Tensor] = {}
    meta = checkpoint.flatten("tree", TREE, tensors)
    tensors, meta = checkpoint.load(checkpoint.save(tmp_path, 1, tensors, meta))
    found = checkpoint.unflatten(meta, tensors)
    assert found["numbers"] == TREE["numbers"]
    assert math.isinf(found["numbers"][-1])
    assert found[7]["pair"] == (0.9, 0.99)
    assert torch.equal(found[7]["inner"][0], torch.arange(3))
    assert found["empty"] == {}


def test_the_last_ones_are_kept_and_found_in_order(tmp_path):
    for iteration in (90, 100, 1000, 20):
        checkpoint.save(tmp_path, iteration, {}, {}, keep=3)
    assert [int(p.stem) for p in checkpoint.found(tmp_path)] == [90, 100, 1000]


@pytest.mark.parametrize("content", [b"", b"text", b"\xff" * 64])
def test_a_file_that_is_no_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "000000001.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="000000001.safetensors: expected a checkpoint of a run"):
        checkpoint.load(path)


def test_a_truncated_checkpoint_is_named(tmp_path):
    path = checkpoint.save(tmp_path, 1, {"a": torch.zeros(100)}, {})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="expected a checkpoint of a run"):
        checkpoint.load(path)


def test_damaged_ones_are_named_and_passed_over_for_the_one_before(tmp_path):
    for iteration in (1, 2, 3):
        checkpoint.save(tmp_path, iteration, {"a": torch.tensor(iteration)}, {}, keep=3)
    for name, place in (("000000003", -1), ("000000002", 20)):
        path = tmp_path / f"{name}.safetensors"
        content = bytearray(path.read_bytes())
        content[place] ^= 4
        path.write_bytes(content)
    said: list[str] = []
    loaded = checkpoint.newest(tmp_path, said.append)
    assert loaded is not None
    assert loaded[0]["a"] == 1
    assert [("00003.safetensors: " in text, "is now 000000003.safetensors.damaged" in text) for text in said] == [
        (True, True),
        (False, False),
    ]
    assert all("checksum" in text for text in said)
    assert [p.stem for p in checkpoint.found(tmp_path)] == ["000000001"]
    assert checkpoint.newest(tmp_path / "none", said.append) is None
