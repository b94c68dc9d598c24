"""The one wording of ``<argument>: expected ..., got ...``; everything public that can be misused is checked here."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

PRECISIONS: dict[torch.dtype, tuple[torch.dtype, torch.dtype]] = {
    torch.float32: (torch.float32, torch.complex64),
    torch.complex64: (torch.float32, torch.complex64),
    torch.float64: (torch.float64, torch.complex128),
    torch.complex128: (torch.float64, torch.complex128),
}
"""Real and complex type of each precision that the library computes in."""


def check_precision(name: str, dtype: torch.dtype | None) -> tuple[torch.dtype, torch.dtype]:
    """Return the (real, complex) pair of ``dtype``; None means PyTorch's default type."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in PRECISIONS:
        raise TypeError(
            f"{name}: expected float32, float64, complex64 or complex128, got {dtype}. "
            "PyTorch has no complex arithmetic in half precision, nor would a matrix stay unitary in it."
        )
    return PRECISIONS[dtype]


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """``value`` must be one of ``choices``; a near miss is named."""
    if not isinstance(value, str) or value not in choices:
        near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name}: expected one of {sorted(choices)}, got {value!r}{hint}")
    return value


def check_int(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """``value`` must be an integer (a bool is none) between the two bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__} ({value!r})")
    if value < minimum or (maximum is not None and value > maximum):
        bounds = f">= {minimum}" if maximum is None else f"in [{minimum}, {maximum}]"
        raise ValueError(f"{name}: expected an int {bounds}, got {value}")
    return value


def check_number(
    name: str, value: object, minimum: float, maximum: float = float("inf"), *, open_end: bool = False
) -> None:
    """``value`` must be a real number between the bounds; ``open_end`` shuts out the upper one. Tensors pass unread."""
    if isinstance(value, Tensor):  # reading it would synchronise with the device
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__} ({value!r})")
    if not (minimum <= value <= maximum) or (open_end and value == maximum):
        end = ")" if open_end or maximum == float("inf") else "]"
        raise ValueError(f"{name}: expected a number in [{minimum}, {maximum}{end}, got {value}")


def check_tensor(name: str, value: object) -> Tensor:
    """``value`` must be a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    return value


def check_complex(name: str, value: Tensor, dtype: torch.dtype | None = None) -> None:
    """``value`` must be complex64 or complex128, or exactly ``dtype`` where one is given."""
    expected = "complex64 or complex128" if dtype is None else str(dtype)
    if value.dtype != dtype if dtype else value.dtype not in (torch.complex64, torch.complex128):
        raise TypeError(f"{name}: expected {expected}, got {value.dtype}")


def check_shape(name: str, value: Tensor, expected: Sequence[int | str]) -> None:
    """``value`` must have the shape ``expected``; strings in it stand for any size and name it."""
    if value.dim() != len(expected) or any(
        isinstance(e, int) and e != s for e, s in zip(expected, value.shape, strict=False)
    ):
        raise ValueError(f"{name}: expected shape {format_shape(expected)}, got {format_shape(value.shape)}")


def check_square(name: str, value: Tensor) -> int:
    """``value`` must be (..., n, n) with n >= 1; returns n."""
    if value.dim() < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] == 0:
        raise ValueError(f"{name}: expected shape (..., n, n) with n >= 1, got {format_shape(value.shape)}")
    return value.shape[-1]


def check_same_device(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """``value`` must lie on the device of ``other``."""
    if value.device != other.device:
        raise ValueError(f"{name}: expected the device of {other_name}, {other.device}, got {value.device}")


def format_shape(shape: Sequence[int | str]) -> str:
    """A shape as the messages print it: ``(T, 3, 128)``."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
