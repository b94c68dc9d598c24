import pytest
import torch

from urnn.capacity.fit import inverts, share_reached
from urnn.parametrizations import PARAMETRIZATIONS, build


@pytest.mark.parametrize(
    ("family", "options", "hits"),
    [
        *((name, {}, name != "restricted") for name in PARAMETRIZATIONS),
        ("householder", {"reflections": 2}, False),
        ("givens", {"layers": 2}, False),
        ("givens", {"layout": "fft"}, False),
    ],
)
def test_inverts(family: str, options: dict[str, object], hits: bool, generator: torch.Generator) -> None:
    assert inverts(build(family, 3, dtype=torch.complex128, **options), 3, generator) is hits


@pytest.mark.parametrize(
    ("family", "options", "share"), [("givens", {}, 1.0), ("givens", {"layers": 1}, 0.0), ("full", {}, 1.0)]
)
def test_share_of_targets_that_a_fit_reaches(
    family: str, options: dict[str, int], share: float, generator: torch.Generator
) -> None:
    made = build(family, 2 if share else 3, dtype=torch.complex128, **options)
    assert share_reached(made, 2, generator, iterations=100) == share
