"""The public entry: checks, the ensemble dimension, and the way to a backend."""

import torch
from torch import Tensor

from urnn._checks import (
    PRECISIONS,
    check_choice,
    check_complex,
    check_same_device,
    check_shape,
    check_square,
    check_tensor,
    format_shape,
)
from urnn.ops import reference
from urnn.ops.backends import check_backend
from urnn.ops.layout import exact_types
from urnn.ops.nonlinearity import NONLINEARITIES
from urnn.ops.registration import Recurrence
from urnn.ops.segments import check_checkpoint


def recurrence(
    x: Tensor,
    weight_ih: Tensor | None,
    weight_hh: Tensor,
    bias: Tensor,
    h_0: Tensor,
    lengths: Tensor | None = None,
    *,
    nonlinearity: str = "modrelu",
    reverse: bool = False,
    half_gradient: bool = False,
    backend: str = "auto",
    checkpoint: str | None = None,
    return_sequence: bool = True,
) -> tuple[Tensor | None, Tensor]:
    r"""Run ``h_t = sigma_b(W h_{t-1} + V x_t)`` over a sequence (Eq. 1).

    A row with ``lengths`` below T takes part while t < length; beyond that its output is 0 and its state stands. With
    ``reverse`` the steps are worked from the last to the first.

    Args:
        x: inputs, (T, B, m) or (T, E, B, m) with an ensemble dimension; real or complex.
        weight_ih: V, complex ([E,] n, m); None takes ``x`` itself as the pre-activations.
        weight_hh: W, complex ([E,] n, n). Its gradient is G = dL/dRe W + i dL/dIm W.
        bias: b, real ([E,] n).
        h_0: state before the first step, complex ([E,] B, n).
        lengths: integers ([E,] B) in [0, T], on the device of ``x``; None means T everywhere.
        nonlinearity: one of ``NONLINEARITIES``.
        reverse: run backward in time.
        half_gradient: keep only the part of W's gradient that the released code keeps. For comparisons.
        backend: one of ``BACKENDS``, ``reference``, or ``auto``.
        checkpoint: ``"sqrt"`` keeps O(sqrt T) states for the backward pass, which computes the others anew. It needs
            ``return_sequence=False``; the returned states are in memory anyway, and with them it changes nothing.
        return_sequence: whether the states of all steps are returned.

    Returns:
        h (T, [E,] B, n), or None without ``return_sequence``, and the state after the last step ([E,] B, n).

    >>> W = torch.eye(2, dtype=torch.complex64)
    >>> h, h_n = recurrence(torch.ones(3, 1, 2).cfloat(), None, W, torch.zeros(2), torch.zeros(1, 2).cfloat())
    >>> h_n
    tensor([[3.+0.j, 3.+0.j]])
    """
    check_choice("nonlinearity", nonlinearity, NONLINEARITIES)
    check_backend("backend", backend)
    check_checkpoint(checkpoint, backend)
    if not isinstance(return_sequence, bool):
        raise TypeError(f"return_sequence: expected a bool, got {type(return_sequence).__name__}")
    if half_gradient and backend == "reference":
        raise ValueError(
            "half_gradient: expected False with backend='reference', whose gradient is autograd's, got True"
        )
    _check_tensors(x, weight_ih, weight_hh, bias, h_0, lengths)
    single = x.dim() == 3
    if single:
        x, weight_hh, bias, h_0 = x.unsqueeze(1), weight_hh.unsqueeze(0), bias.unsqueeze(0), h_0.unsqueeze(0)
        weight_ih = None if weight_ih is None else weight_ih.unsqueeze(0)
        lengths = None if lengths is None else lengths.unsqueeze(0)
    if backend == "reference":
        with exact_types(x):
            h, h_n = reference.recurrence(x, weight_ih, weight_hh, bias, h_0, lengths, nonlinearity, reverse)
    else:
        kept = None if return_sequence else checkpoint
        h, h_n = Recurrence.apply(  # type: ignore[no-untyped-call]
            x, weight_ih, weight_hh, bias, h_0, lengths, nonlinearity, reverse, half_gradient, backend, kept
        )
    if single:
        h, h_n = h.squeeze(1), h_n.squeeze(0)
    return h if return_sequence else None, h_n


def _check_tensors(x: Tensor, V: Tensor | None, W: Tensor, b: Tensor, h_0: Tensor, lengths: Tensor | None) -> None:
    check_tensor("x", x)
    check_complex("weight_hh", check_tensor("weight_hh", W))
    n = check_square("weight_hh", W)
    real, cplx = PRECISIONS[W.dtype]
    if x.dim() not in (3, 4):
        raise ValueError(f"x: expected shape (T, B, m) or (T, E, B, m), got {format_shape(x.shape)}")
    T, *ensemble, B, m = x.shape
    if T == 0:
        raise ValueError(f"x: expected at least one time step, got {format_shape(x.shape)}")
    if x.dtype not in (real, cplx):
        raise TypeError(f"x: expected {real} or {cplx}, as weight_hh is {cplx}, got {x.dtype}")
    check_shape("weight_hh", W, (*ensemble, n, n))
    if V is None:
        check_complex("x", x, cplx)
        check_shape("x", x, (T, *ensemble, B, n))
    else:
        check_complex("weight_ih", check_tensor("weight_ih", V), cplx)
        check_shape("weight_ih", V, (*ensemble, n, m))
        check_same_device("weight_ih", V, "x", x)
    if check_tensor("bias", b).dtype != real:
        raise TypeError(f"bias: expected {real}, got {b.dtype}")
    check_shape("bias", b, (*ensemble, n))
    check_complex("h_0", check_tensor("h_0", h_0), cplx)
    check_shape("h_0", h_0, (*ensemble, B, n))
    for name, tensor in (("weight_hh", W), ("bias", b), ("h_0", h_0)):
        check_same_device(name, tensor, "x", x)
    if lengths is not None:
        check_lengths(lengths, (*ensemble, B), T, x)


def check_lengths(lengths: Tensor, shape: tuple[int, ...], T: int, x: Tensor) -> None:
    """``lengths`` must be integers in [0, T] of this shape; the values are read on the CPU alone."""
    if check_tensor("lengths", lengths).dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths: expected int32 or int64, got {lengths.dtype}")
    check_shape("lengths", lengths, shape)
    check_same_device("lengths", lengths, "x", x)
    readable = lengths.device.type == "cpu" and not torch.compiler.is_compiling()
    if readable and not _is_mapped(lengths) and lengths.numel():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > T:
            raise ValueError(f"lengths: expected integers in [0, {T}], the number of time steps, got {low} to {high}")


def _is_mapped(tensor: Tensor) -> bool:
    """Whether ``vmap`` runs over ``tensor``, at any level below ``grad``: its values cannot be read then."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False
