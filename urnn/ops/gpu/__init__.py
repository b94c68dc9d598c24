"""The recurrence on an NVIDIA GPU, in CUDA C++ compiled at run time. Signatures as in ``urnn/ops/explicit.py``."""

from urnn.ops.gpu.launch import backward, forward

__all__ = ["backward", "forward"]
