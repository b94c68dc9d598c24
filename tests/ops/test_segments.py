"""Segments: how many, how long, and that the work is that of one more forward pass."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from urnn.linalg import haar_unitary
from urnn.ops import BACKENDS, check_checkpoint, recurrence
from urnn.ops.segments import segment_count


@pytest.mark.parametrize("T", [*range(1, 70), 784, 2020, 10**4, 10**6, 2**40])
def test_there_are_about_half_root_T_segments(T: int) -> None:
    S = segment_count(T)
    assert 1 <= S <= T
    assert (S == 1) == (T == 1)
    assert math.sqrt(T) / 2 <= S <= math.sqrt(T) / 2 + 2


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("T", [1, 2, 3, 50, 400])
def test_the_forward_pass_is_computed_twice_and_the_backward_pass_once(
    T: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = BACKENDS["explicit"].load()
    steps: dict[str, list[int]] = {"forward": [], "backward": []}
    originals = {name: getattr(kernels, name) for name in steps}

    def forward(x: Tensor, *args: Any) -> Tensor:
        steps["forward"].append(len(x))
        return originals["forward"](x, *args)

    def backward(grad_h: Tensor | None, grad_h_n: Tensor | None, h: Tensor, *args: Any) -> tuple[Tensor | None, ...]:
        assert grad_h is None
        steps["backward"].append(len(h))
        return originals["backward"](grad_h, grad_h_n, h, *args)

    monkeypatch.setattr(kernels, "forward", forward)
    monkeypatch.setattr(kernels, "backward", backward)
    x, W, h_0 = torch.randn(T, 2, 3).cfloat(), haar_unitary(3).requires_grad_(), torch.zeros(2, 3).cfloat()
    options: dict[str, Any] = {"return_sequence": False, "checkpoint": "sqrt", "backend": "explicit"}
    _, h_n = recurrence(x, None, W, torch.zeros(3), h_0, reverse=reverse, **options)
    assert sum(steps["forward"]) == T
    h_n.abs().sum().backward()
    assert sum(steps["forward"]) == 2 * T
    assert sum(steps["backward"]) == T
    assert len(steps["backward"]) == segment_count(T)
    assert max(steps["backward"]) <= 2 * math.sqrt(T) + 1


def test_none_and_every_backend_with_kernels_pass() -> None:
    assert check_checkpoint(None, "reference") is None
    assert all(check_checkpoint("sqrt", backend) == "sqrt" for backend in ("auto", *BACKENDS))
