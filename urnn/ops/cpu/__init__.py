"""The recurrence on the CPU, compiled by Numba. Signatures as in ``urnn/ops/explicit.py``."""

from urnn.ops.cpu.launch import backward, forward

__all__ = ["backward", "forward"]
