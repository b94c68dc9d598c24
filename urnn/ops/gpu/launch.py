"""From tensors to kernels: which kernel, in what shape, and the products around it."""

from functools import cache

import torch
from torch import Tensor

from urnn._typing import Biases, Inputs, Lengths, Matrices, Projections, States, Steps
from urnn.ops.gpu.compiler import launch
from urnn.ops.gpu.plan import ROW_LIMIT, THREADS, WARPS, Gpu, Launch, Part, row_plan, split_limits, split_plan
from urnn.ops.layout import final_state, product, project, project_backward, recurrent_matrix_gradient


def limits(n: int, device: torch.device) -> str | None:
    """None, or why the GPU is too small for this hidden size."""
    return None if n <= ROW_LIMIT else split_limits(n, gpu(device), tf32())


def forward(
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    h_0: States,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
) -> Steps:
    """States of all steps; zero beyond the lengths."""
    u = project(x, V).contiguous()
    h = torch.empty_like(u)
    if h.numel() == 0:
        return h
    T, E, B, n = u.shape
    W, b, h_0, lengths = W.contiguous(), b.contiguous(), h_0.contiguous(), _long(lengths)
    hard = {"N": n, "HARD": int(nonlinearity == "hard")}
    with torch.cuda.device(h.device):
        if _by_rows(h):
            macros, size = _row(h)
            launch("row.cu", "row_forward", {**hard, **macros}, size, (u, W, b, h_0, lengths, h, T, E, B, reverse))
            return h
        _empty(h)
        for part in _split(h):
            e = part.members
            own = None if lengths is None else lengths[e]
            arguments = (u[:, e], W[e], b[e], h_0[e], own, h[:, e], T, B, E, part.groups, part.packs, reverse)
            launch("split.cu", "split_forward", {**hard, **part.macros}, part.launch, arguments)
    return h


def backward(
    grad_h: Steps | None,
    grad_h_n: States | None,
    h: Steps,
    x: Inputs,
    V: Projections | None,
    W: Matrices,
    b: Biases,
    h_0: States,
    lengths: Lengths | None,
    nonlinearity: str,
    reverse: bool,
    half_gradient: bool,
    need_dx: bool,
) -> tuple[Tensor | None, Projections | None, Matrices, Biases, States]:
    """Gradients with respect to x (where asked for), V, W, b and h_0."""
    dz = torch.empty_like(h)
    db = b.new_zeros(h.shape[1:])
    if h.numel():
        with torch.cuda.device(h.device):
            _backward(grad_h, grad_h_n, h, x, V, W, b, h_0, lengths, nonlinearity, reverse, dz, db)
    dW = recurrent_matrix_gradient(dz, h, h_0, lengths, reverse, half_gradient)
    dx, dV = project_backward(dz, x, V, need_dx)
    first = final_state(dz, None, lengths, not reverse)  # of the step that follows h_0
    dh_0 = product(first.unsqueeze(0), W.conj())[0]
    if lengths is not None:
        dh_0 = torch.where((lengths > 0).unsqueeze(-1), dh_0, 0.0 if grad_h_n is None else grad_h_n)
    return dx, dV, dW, db.sum(1), dh_0


def _backward(
    grad_h: Tensor | None,
    grad_h_n: Tensor | None,
    h: Tensor,
    x: Tensor,
    V: Tensor | None,
    W: Tensor,
    b: Tensor,
    h_0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
    dz: Tensor,
    db: Tensor,
) -> None:
    """Fill ``dz`` (T, E, B, n), the gradient of the pre-activations, and ``db`` (E, B, n)."""
    T, E, B, n = h.shape
    h, W, b, h_0, lengths = h.contiguous(), W.contiguous(), b.contiguous(), h_0.contiguous(), _long(lengths)
    grad_h = None if grad_h is None else grad_h.contiguous()
    grad_h_n = None if grad_h_n is None else grad_h_n.contiguous()
    hard = {"N": n, "HARD": int(nonlinearity == "hard")}
    by_rows = _by_rows(h)
    if not by_rows:
        _empty(dz)
    if nonlinearity != "hard":
        macros = {**hard, "M": 0 if V is None else V.shape[-1], "REAL_INPUTS": int(not x.is_complex())}
        blocks = min(4 * gpu(h.device).multiprocessors, -(-T * E * B // WARPS))
        inputs = (h, x.contiguous(), None if V is None else V.contiguous(), W, b, h_0, lengths, dz, T, E, B, reverse)
        launch("moduli.cu", "moduli", macros, Launch(blocks, THREADS), inputs)
    if by_rows:
        arguments = (grad_h, grad_h_n, h, W, b, lengths, dz, db, T, E, B, reverse)
        macros, size = _row(h)
        launch("row.cu", "row_backward", {**hard, **macros}, size, arguments)
        return
    for part in _split(h):
        e = part.members
        own = None if lengths is None else lengths[e]
        grads = None if grad_h is None else grad_h[:, e], None if grad_h_n is None else grad_h_n[e]
        sizes = (T, B, E, part.groups, part.packs, reverse)
        tensors = (*grads, h[:, e], W[e], b[e], own, dz[:, e], db[e])
        launch("split.cu", "split_backward", {**hard, **part.macros}, part.launch, (*tensors, *sizes))


@cache
def gpu(device: torch.device) -> Gpu:
    """What the plans want to know of a device."""
    properties = torch.cuda.get_device_properties(device)
    shared_bytes: int = getattr(properties, "shared_memory_per_block_optin")  # noqa: B009  (unknown to the stubs)
    return Gpu(properties.multi_processor_count, (properties.major, properties.minor), shared_bytes)


def tf32() -> bool:
    """Whether the program has chosen TF32 for its products."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


def _split(h: Tensor) -> list[Part]:
    _, E, B, n = h.shape
    return split_plan(n, E, B, gpu(h.device), tf32())


def _row(h: Tensor) -> tuple[dict[str, int], Launch]:
    _, E, B, n = h.shape
    return row_plan(n, E, B, gpu(h.device))


def _by_rows(h: Tensor) -> bool:
    return h.shape[-1] <= ROW_LIMIT


def _empty(sequence: Tensor) -> None:
    """Fill with the pattern that says 'not here yet' (split.cu)."""
    torch.view_as_real(sequence).view(torch.int32).fill_(-1)


def _long(lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else lengths.to(torch.int64).contiguous()
