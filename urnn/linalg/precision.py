"""Products that have to be exact to float32, whatever the program has chosen for its own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Keep TF32 out of the matrix products inside: a polish in TF32 would hold W on U(n) to 1.4e-4 only.

    The setting is the process's own (``torch.backends.cuda.matmul.fp32_precision``) and comes back on exit. Inside a
    CUDA graph the precision is fixed when the graph is captured.
    """
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    if before == "ieee":
        yield
        return
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before
