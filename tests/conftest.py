"""Stricter rules than users have: warnings are errors (pyproject), fresh memory is NaN, randomness is seeded."""

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tensors are tiny here: on a busy machine threads make the suite seven times slower


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # also fills torch.empty with NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def toy_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as those of MNIST: 60 + 20 images of 4 x 3 pixels, each its class's pattern with noise; one is gzipped."""
    folder = tmp_path_factory.mktemp("toy-mnist")
    source = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 200, (10, 4, 3), generator=source)
    for part, n in (("train", 60), ("t10k", 20)):
        labels = torch.arange(n) % 10
        images = patterns[labels] + torch.randint(0, 56, (n, 4, 3), generator=source)
        for name, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            head = struct.pack(f">HBB{values.dim()}I", 0, 8, values.dim(), *values.shape)
            content = head + bytes(values.flatten().tolist())
            if name == "train-images-idx3-ubyte":
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    return folder
