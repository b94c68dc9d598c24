"""What others use in our place, each called as nn.RNN: states first."""

import importlib
import importlib.util

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

from urnn import linalg

CHUNK = 10
"""Steps that torch.compile sees at most: it unrolls them, and takes the longer the more there are."""
CHUNK_NOTE = f"at most {CHUNK} steps compiled as one; the rest is a loop over such pieces"


def chunk(T: int) -> int:
    """The largest divisor of T that is no more than ``CHUNK``."""
    return max(k for k in range(1, CHUNK + 1) if T % k == 0)


class RealLoop(nn.Module):
    """The recurrence as a loop over time in real arithmetic, since Inductor makes no code for complex tensors.

    W = P + i Q is not kept unitary, which costs a pass nothing.

    Args:
        input_size, hidden_size: M and N.
        compiled: steps that ``torch.compile`` sees as one piece; 0 means none.

    Shape:
        x (T, B, M) -> h (T, B, N), complex.
    """

    def __init__(self, input_size: int, hidden_size: int, compiled: int = 0) -> None:
        super().__init__()
        n = hidden_size
        self.V = nn.Linear(input_size, 2 * n, bias=False)
        W = linalg.haar_unitary(n, dtype=torch.complex64)
        self.P, self.Q = nn.Parameter(W.real.clone()), nn.Parameter(W.imag.clone())
        self.bias = nn.Parameter(torch.zeros(n))
        self.h_0 = nn.Parameter(torch.randn(2, 1, n))
        self.compiled = compiled
        if compiled:
            torch.compiler.reset()  # what other sizes left behind would make this one dynamic in its sizes
            self._piece = torch.compile(_steps, dynamic=False, fullgraph=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u_re, u_im = self.V(x).chunk(2, -1)  # (T, B, N) each
        h_re, h_im = self.h_0.repeat(1, x.shape[1], 1).unbind()  # (B, N) each
        states = []
        size = self.compiled or len(x)
        for re, im in zip(u_re.split(size), u_im.split(size), strict=True):
            steps = self._piece if len(re) == self.compiled else _steps
            h, h_re, h_im = steps(h_re, h_im, re, im, self.P, self.Q, self.bias)
            states.append(torch.complex(*h))
        return torch.cat(states), torch.complex(h_re, h_im)


def _steps(
    h_re: Tensor, h_im: Tensor, u_re: Tensor, u_im: Tensor, P: Tensor, Q: Tensor, b: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Some steps: their states as two planes (T, B, N), and the last one."""
    out_re, out_im = [], []
    for re, im in zip(u_re, u_im, strict=True):
        z_re = h_re @ P - h_im @ Q + re
        z_im = h_re @ Q + h_im @ P + im
        m = torch.sqrt(z_re * z_re + z_im * z_im + 1e-10)
        scale = torch.relu(m + b) / m
        h_re, h_im = z_re * scale, z_im * scale
        out_re.append(h_re)
        out_im.append(h_im)
    return (torch.stack(out_re), torch.stack(out_im)), h_re, h_im


class OrthogonalRNN(nn.Module):
    """An nn.RNN whose recurrence matrix torch keeps orthogonal; the matrix is made once in a pass."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(input_size, hidden_size)
        orthogonal(self.rnn, "weight_hh_l0")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with parametrize.cached():
            h, h_n = self.rnn(x)
        return h, h_n


class ComplexTorch(nn.Module):
    """complextorch's UnitaryRNN, which takes complex inputs alone."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = importlib.import_module("complextorch").nn.UnitaryRNN(input_size, hidden_size)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, h_n = self.rnn(x.to(torch.complex64))
        return h, h_n


def missing(package: str) -> str | None:
    """None, or that a package is not installed."""
    return None if importlib.util.find_spec(package) else f"{package} is not installed. pip install {package} adds it"
