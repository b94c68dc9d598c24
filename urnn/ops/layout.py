"""Products over whole sequences, and which state precedes which: the parts that every backend shares.

Shapes: T time, E ensemble, B rows, n hidden size, m input size. All sequences are (T, E, B, .).
"""

import torch
from torch import Tensor

from urnn._typing import Inputs, Lengths, Matrices, Projections, States, Steps


def exact_types(x: Tensor) -> torch.autocast:
    """Products of float32 stay in float32 inside, also where the caller runs under autocast."""
    return torch.autocast(x.device.type, enabled=False)


def product(x: Tensor, A: Tensor) -> Tensor:
    """``x`` (T, E, B, k) times ``A`` (E, k, l), as one large product: (T, E, B, l)."""
    T, E, B, k = x.shape
    if E == 1:
        return (x.reshape(T * B, k) @ A[0]).view(T, 1, B, A.shape[-1])
    y = torch.bmm(x.transpose(0, 1).reshape(E, T * B, k), A)  # (E, T B, l)
    return y.view(E, T, B, A.shape[-1]).transpose(0, 1).contiguous()


def correlate(x: Tensor, y: Tensor) -> Tensor:
    """Sum over time and rows of ``x^H y``: (T, E, B, k) and (T, E, B, l) give (E, k, l)."""
    T, E, B, k = x.shape
    if E == 1:
        return (x.reshape(T * B, k).mH @ y.reshape(T * B, y.shape[-1])).unsqueeze(0)
    x = x.transpose(0, 1).reshape(E, T * B, k)
    return torch.bmm(x.mH, y.transpose(0, 1).reshape(E, T * B, y.shape[-1]))


def _as_real_columns(A: Tensor) -> Tensor:
    """Complex (E, k, l) as real (E, k, 2 l), real and imaginary parts side by side."""
    return torch.view_as_real(A.resolve_conj().contiguous()).flatten(-2)


def project(x: Inputs, V: Projections | None) -> Steps:
    """u_t = V x_t for all steps; ``V = None`` means that ``x`` is u itself. Real inputs cost half."""
    if V is None:
        return x
    if x.is_complex():
        return product(x, V.mT)
    u = product(x, _as_real_columns(V.mT))  # (T, E, B, 2 n)
    return torch.view_as_complex(u.unflatten(-1, (-1, 2)))


def project_backward(dz: Steps, x: Inputs, V: Projections | None, need_dx: bool) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of ``project`` with respect to x (where asked for) and V."""
    if V is None:
        return (dz if need_dx else None), None
    if x.is_complex():
        dV = correlate(x, dz).mT
    else:
        planes = correlate(x, torch.view_as_real(dz).flatten(-2))  # (E, m, 2 n)
        dV = torch.view_as_complex(planes.unflatten(-1, (-1, 2)).contiguous()).mT
    if not need_dx:
        return None, dV
    if x.is_complex():
        return product(dz, V.conj()), dV
    # Re(conj(V)^T dz) as one real product: the planes of V stand under each other as those of dz lie side by side.
    stacked = torch.view_as_real(V.resolve_conj()).transpose(-1, -2).flatten(1, 2)  # (E, 2 n, m)
    return product(torch.view_as_real(dz).flatten(-2), stacked), dV


def recurrent_matrix_gradient(
    dz: Steps, h: Steps, h_0: States, lengths: Lengths | None, reverse: bool, half: bool
) -> Matrices:
    """dW = sum over t of dz_t h_{t-1}^H; ``half`` keeps Re h_{t-1} alone, as the released code (docs/equations.md)."""
    if half:
        h, h_0 = (torch.complex(s.real, torch.zeros_like(s.real)) for s in (h, h_0))
    first = final_state(dz, None, lengths, not reverse)  # the step that follows h_0
    dW = correlate(h_0.unsqueeze(0), first.unsqueeze(0))
    if dz.shape[0] > 1:
        before, after = (h[1:], dz[:-1]) if reverse else (h[:-1], dz[1:])  # h is 0 beyond the lengths
        dW = dW + correlate(before, after)
    return dW.mT


def previous_states(h: Steps, h_0: States, lengths: Lengths | None, reverse: bool, start: int, stop: int) -> Tensor:
    """The states that enter the steps ``start:stop``: (stop - start, E, B, n)."""
    T = h.shape[0]
    h_0 = h_0.unsqueeze(0)
    if not reverse:
        return torch.cat((h_0, h[: stop - 1])) if start == 0 else h[start - 1 : stop - 1]
    later = h[start + 1 : stop + 1]
    if stop == T:
        later = torch.cat((later, h_0))
    if lengths is None:
        return later
    following = torch.arange(start + 1, stop + 1, device=h.device).view(-1, 1, 1)
    return torch.where((following < lengths).unsqueeze(-1), later, h_0)


def final_state(h: Steps, h_0: States | None, lengths: Lengths | None, reverse: bool) -> States:
    """The entry of ``h`` at the step that is worked last; rows of length 0 keep ``h_0`` (None: whatever h holds)."""
    if reverse:
        last = h[0]
    elif lengths is None:
        last = h[-1]
    else:
        index = (lengths - 1).clamp(min=0)[None, :, :, None].expand(1, *h.shape[1:])
        last = h.gather(0, index)[0]
    if lengths is None or h_0 is None:
        return last.clone()
    return torch.where((lengths > 0).unsqueeze(-1), last, h_0)
