"""Stricter rules than users have: warnings are errors (pyproject), fresh memory is NaN, randomness is seeded."""

from collections.abc import Iterator

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
