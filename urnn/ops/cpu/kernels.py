"""The compiled loops: forward and backward over a block of batch rows, and products over whole sequences.

Rows of a batch are independent, so a task takes a block of rows through all time steps with no barrier. Its states stay
in cache; of the big tensors each element is read or written once. W is packed into panels as wide as a register tile,
zero beyond n, so tiles have no ragged edge; what they write goes through a padded buffer of the same width.

Legend: T steps, B rows of one ensemble member, n hidden size, p columns padded to whole panels. Complex arrays come as
reals, Re and Im interleaved: (T, B, 2 n).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from numba import njit, types

from urnn.ops.cpu.tile import make_tile

MAX_ROWS = 6
"""Rows of the tallest tile."""
MODRELU, HARD = 0, 1
"""Nonlinearities of these kernels."""


class Kernels(NamedTuple):
    """Compiled functions for one precision and panel width."""

    forward: Callable[..., None]
    backward: Callable[..., None]
    correlate: Callable[..., None]
    panel: int
    """Complex columns of a panel."""


@functools.cache
def lanes(itemsize: int) -> int:
    """Reals in a vector of this machine: 64 bytes where it has AVX-512, 32 elsewhere."""
    features = llvm.get_host_cpu_features()
    return (64 if features.get("avx512f") else 32) // itemsize


def jit(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile now, without the GIL, and keep the code on disk."""
    return njit(signature, nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy", boundscheck=False)
