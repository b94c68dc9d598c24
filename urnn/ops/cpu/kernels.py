"""The compiled loops: forward and backward of one block of batch rows through all time steps.

Rows of a batch are independent, so a block needs no barrier in time. Its states stay in cache, and of the big tensors
each element is read or written once; the input projection is part of the step. Products go through register tiles
(``tile.py``) over panels padded with zeros to whole tiles.

Legend: T steps, E ensemble members, B rows, n hidden size, m input size, X reals in an input (m, or 2 m if complex), P
panels of p reals. Complex arrays come as reals, Re and Im interleaved: h is (T, E, B, 2 n). A block is the rows
``first:last`` of member ``e``; R is their number. Without V (m = 0) the input is V x itself and is added.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from urnn.ops.cpu.tile import CONJUGATE, OUTER, PLAIN, PLANAR, REAL, tile

MODRELU, HARD = 0, 1
"""Kinds of nonlinearity that these kernels know."""
PAD = 16
"""Reals between rows of a buffer, so that rows do not fall on the same lines of the cache."""
GATHERED_BYTES = 600_000
"""Of dz, gathered over some steps before it goes into dM in one product."""

compiled: Any = njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
inlined: Any = njit(inline="always")


@inlined
def multiply(mode, like, s, s_row, s_step, w, count, c, c_row, rows, tail):
    """A product for any number of rows, six at a time; ``mode`` is a constant, the rest as in ``tile``."""
    size = like.itemsize
    while rows >= 6:
        tile(mode, 6, like, s, s_row, s_step, w, count, c, c_row, tail)
        s += 6 * s_row * size
        c += 6 * c_row * size
        rows -= 6
    if rows == 5:
        tile(mode, 5, like, s, s_row, s_step, w, count, c, c_row, tail)
    elif rows == 4:
        tile(mode, 4, like, s, s_row, s_step, w, count, c, c_row, tail)
    elif rows == 3:
        tile(mode, 3, like, s, s_row, s_step, w, count, c, c_row, tail)
    elif rows == 2:
        tile(mode, 2, like, s, s_row, s_step, w, count, c, c_row, tail)
    elif rows == 1:
        tile(mode, 1, like, s, s_row, s_step, w, count, c, c_row, tail)


@compiled
def modrelu_rows(z, b, low, high, t, lengths, state, h):
    """``h = sigma_b(z)`` for all rows; fast where |z|^2 lies between ``low`` and ``high``, exact elsewhere."""
    n, nought = b.shape[0], b.dtype.type(0)
    for r in range(z.shape[0]):
        if t >= lengths[r]:
            h[r] = 0
            continue
        odd = 0
        for i in range(n):
            re, im = z[r, 2 * i], z[r, 2 * i + 1]
            square = re * re + im * im
            modulus = math.sqrt(square)
            raised = modulus + b[i]
            scale = nought if raised <= 0 else raised / modulus
            odd += not (low <= square <= high)
            state[r, 2 * i], state[r, 2 * i + 1] = re * scale, im * scale
        if odd:
            for i in range(n):
                re, im = z[r, 2 * i], z[r, 2 * i + 1]
                square = re * re + im * im
                if not (low <= square <= high):
                    modulus = math.hypot(np.float64(re), np.float64(im))
                    silent = modulus == 0 or modulus + b[i] <= 0  # false for NaN, which goes through
                    state[r, 2 * i] = 0.0 if silent else re + b[i] * (re / modulus)
                    state[r, 2 * i + 1] = 0.0 if silent else im + b[i] * (im / modulus)
        for k in range(2 * n):
            h[r, k] = state[r, k]


@compiled
def hard_rows(z, b, t, lengths, state, h):
    """``h = z`` where its modulus is above -b, and 0 elsewhere, for all rows."""
    nought = b.dtype.type(0)
    for r in range(z.shape[0]):
        if t >= lengths[r]:
            h[r] = 0
            continue
        for i in range(b.shape[0]):
            re, im = z[r, 2 * i], z[r, 2 * i + 1]
            modulus = math.hypot(re, im)
            silent = modulus == 0 or modulus + b[i] <= 0
            state[r, 2 * i] = nought if silent else re
            state[r, 2 * i + 1] = nought if silent else im
            h[r, 2 * i], h[r, 2 * i + 1] = state[r, 2 * i], state[r, 2 * i + 1]


@compiled
def forward(x, m, packed, b, h_0, lengths, kind, reverse, limits, e, first, last, h):
    """States of the block, into ``h``; zero beyond the lengths (E, B). ``packed`` is [W, V]^T (E, P, n + m, p)."""
    low, high, _ = limits
    T, n, X = h.shape[0], b.shape[1], x.shape[3]
    P, p = packed.shape[1], packed.shape[3]
    R, size = last - first, h.itemsize
    row = 2 * n + X + PAD
    count, tail = (n, m) if m == X else (n + m, 0)  # complex and real entries of s
    s, z = np.empty((R, row), h.dtype), np.empty((R, P * p), h.dtype)
    s[:, : 2 * n] = h_0[e, first:last]
    for step in range(T):
        t = T - 1 - step if reverse else step
        if m:
            for r in range(R):
                for k in range(X):
                    s[r, 2 * n + k] = x[t, e, first + r, k]
        for panel in range(P):
            w = packed.ctypes.data + (e * P + panel) * (n + m) * p * size
            multiply(PLAIN, h, s.ctypes.data, row, 2, w, count, z.ctypes.data + panel * p * size, P * p, R, tail)
        if not m:
            for r in range(R):
                for k in range(2 * n):
                    z[r, k] += x[t, e, first + r, k]
        if kind == MODRELU:
            modrelu_rows(z, b[e], low, high, t, lengths[e, first:last], s, h[t, e, first:last])
        else:
            hard_rows(z, b[e], t, lengths[e, first:last], s, h[t, e, first:last])


@compiled
def modrelu_backward_row(g, h, t, e, row, b, low, high, dz, place, db):
    """Gradients of one row from its states alone, into ``dz[place]``: |z| = |h| - b, and z has the phase of h.

    Returns how many entries that does not hold for to working precision: tiny or huge ones, and |h| < 2 b.
    """
    odd, nought = 0, b.dtype.type(0)
    for i in range(b.shape[1]):
        re, im, bias = h[t, e, row, 2 * i], h[t, e, row, 2 * i + 1], b[e, i]
        g_re, g_im = g[2 * i], g[2 * i + 1]
        square = re * re + im * im
        modulus = math.sqrt(square)
        active = re != 0 or im != 0
        plain = low <= square <= high and modulus >= 2 * bias
        across = (g_im * re - g_re * im) * (bias / (square * (modulus - bias)))
        along = (g_re * re + g_im * im) / modulus
        dz[place, 2 * i] = g_re - across * im if active else nought
        dz[place, 2 * i + 1] = g_im + across * re if active else nought
        db[i] += along if active and plain else nought
        odd += active and not plain
    return odd


@compiled
def mend_row(g, h, s, x, W, V, b, low, high, small, dz, db):
    """Redo in double precision what ``modrelu_backward_row`` counted; where |h| < 2 b from z = W s + V x itself."""
    n, m = b.shape[0], V.shape[1] // 2
    for i in range(n):
        re, im = np.float64(h[2 * i]), np.float64(h[2 * i + 1])
        square = h[2 * i] * h[2 * i] + h[2 * i + 1] * h[2 * i + 1]
        if (re == 0 and im == 0) or (low <= square <= high and math.sqrt(square) >= 2 * b[i]):
            continue
        if b[i] > 0:
            re = im = 0.0
            for k in range(n):
                re += W[i, 2 * k] * s[2 * k] - W[i, 2 * k + 1] * s[2 * k + 1]
                im += W[i, 2 * k] * s[2 * k + 1] + W[i, 2 * k + 1] * s[2 * k]
            if m == 0:
                re += x[2 * i]
                im += x[2 * i + 1]
            elif m == x.shape[0]:
                for k in range(m):
                    re += V[i, 2 * k] * x[k]
                    im += V[i, 2 * k + 1] * x[k]
            else:
                for k in range(m):
                    re += V[i, 2 * k] * x[2 * k] - V[i, 2 * k + 1] * x[2 * k + 1]
                    im += V[i, 2 * k] * x[2 * k + 1] + V[i, 2 * k + 1] * x[2 * k]
        else:
            modulus = math.hypot(re, im)
            re, im = re - b[i] * (re / modulus), im - b[i] * (im / modulus)
        modulus = math.hypot(re, im)
        if modulus == 0 or modulus + b[i] <= 0:
            dz[2 * i] = dz[2 * i + 1] = 0
            continue
        e_re, e_im = re / modulus, im / modulus
        bend = b[i] / modulus if max(abs(re), abs(im)) >= small else 0.0
        across = (g[2 * i + 1] * e_re - g[2 * i] * e_im) * bend
        dz[2 * i], dz[2 * i + 1] = g[2 * i] - across * e_im, g[2 * i + 1] + across * e_re
        db[i] += g[2 * i] * e_re + g[2 * i + 1] * e_im


@compiled
def previous_row(h, h_0, lengths, reverse, t, e, row):
    """The state that enters step ``t`` of a row."""
    if reverse:
        return h_0[e, row] if t + 1 >= min(h.shape[0], lengths[e, row]) else h[t + 1, e, row]
    return h_0[e, row] if t == 0 else h[t - 1, e, row]


@compiled
def backward(
    grad_h, carry_0, h, x, V, W, packed_W, packed_V, b, h_0, lengths, kind, reverse, half, limits,
    e, first, last, dx, dW, dV, db, dh_0,
):  # fmt: skip
    """Gradients of the block: ``dx``, ``dh_0`` in place; ``dW`` (n, PW p), ``dV`` and ``db`` (n,) of this block alone.

    ``packed_W`` is W (E, PW, n, p). For complex x ``packed_V`` is V (E, PX, n, p) and ``dV`` (1, n, PX p). For real x
    it is Re and Im of each row of V in turn, (E, PX, 2 n, p), and ``dV`` (2, n, PX p) holds Re and Im apart. ``grad_h``
    may be empty (no gradient arrives step by step), and so may ``dx`` (none is asked for). ``limits`` are low, high
    and small.
    """
    low, high, small = limits
    nought = b.dtype.type(0)
    T, n, m, X = h.shape[0], b.shape[1], V.shape[2] // 2, x.shape[3]
    PW, PX, p = packed_W.shape[1], packed_V.shape[1], packed_W.shape[3]
    R, size, real_x = last - first, h.itemsize, m == X
    row = 2 * n + PAD
    steps = max(1, min(256, GATHERED_BYTES // (row * size)) // R)
    gathered = np.zeros((steps * R, row), h.dtype)  # dz of some steps
    states = np.zeros((PW, steps * R, p), h.dtype)  # h_{t-1} of those steps, in panels
    inputs = np.zeros((PX, steps * R, p), h.dtype)  # x_t of those steps, in panels
    across = max(PW, PX) * p
    product = np.empty((R, across), h.dtype)
    g, carry = np.empty(2 * n, h.dtype), np.empty((R, 2 * n), h.dtype)
    recent = np.zeros(n, h.dtype)  # db of those steps
    carry[:] = carry_0[e, first:last]
    dW[:] = 0
    dV[:] = 0
    db[:] = 0
    slot = 0
    for step in range(T):
        t = step if reverse else T - 1 - step
        for r in range(R):
            place, member_row = slot * R + r, first + r
            if t >= lengths[e, member_row]:
                for k in range(2 * n):
                    gathered[place, k] = 0
                continue
            if grad_h.shape[0]:
                for k in range(2 * n):
                    g[k] = carry[r, k] + grad_h[t, e, member_row, k]
            else:
                for k in range(2 * n):
                    g[k] = carry[r, k]
            if kind == HARD:
                for i in range(n):
                    on = h[t, e, member_row, 2 * i] != 0 or h[t, e, member_row, 2 * i + 1] != 0
                    gathered[place, 2 * i] = g[2 * i] if on else nought
                    gathered[place, 2 * i + 1] = g[2 * i + 1] if on else nought
            elif modrelu_backward_row(g, h, t, e, member_row, b, low, high, gathered, place, recent):
                entering = previous_row(h, h_0, lengths, reverse, t, e, member_row)
                state, out = h[t, e, member_row], gathered[place]
                mend_row(g, state, entering, x[t, e, member_row], W[e], V[e], b[e], low, high, small, out, recent)
            before = t + 1 if reverse else t - 1
            from_start = before < 0 or before >= min(T, lengths[e, member_row])
            for panel in range(PW):
                for k in range(min(p, 2 * n - panel * p)):
                    i = panel * p + k
                    entered = h_0[e, member_row, i] if from_start else h[before, e, member_row, i]
                    states[panel, place, k] = nought if half and k % 2 else entered
            for panel in range(PX):
                for k in range(min(p, X - panel * p)):
                    inputs[panel, place, k] = x[t, e, member_row, panel * p + k]
        here = gathered.ctypes.data + slot * R * row * size
        for panel in range(PW):
            w = packed_W.ctypes.data + (e * PW + panel) * n * p * size
            multiply(CONJUGATE, h, here, row, 2, w, n, product.ctypes.data + panel * p * size, across, R, 0)
        for r in range(R):
            if t < lengths[e, first + r]:
                for k in range(2 * n):
                    carry[r, k] = product[r, k]
        if dx.shape[0]:
            for panel in range(PX):
                c = product.ctypes.data + panel * p * size
                if real_x:
                    w = packed_V.ctypes.data + (e * PX + panel) * 2 * n * p * size
                    multiply(REAL, h, here, row, 1, w, 2 * n, c, across, R, 0)
                else:
                    w = packed_V.ctypes.data + (e * PX + panel) * n * p * size
                    multiply(CONJUGATE, h, here, row, 2, w, n, c, across, R, 0)
            for r in range(R):
                for k in range(X):
                    dx[t, e, first + r, k] = product[r, k] if m else gathered[slot * R + r, k]
        slot += 1
        if slot == steps or step == T - 1:
            samples, origin = slot * R, gathered.ctypes.data
            for panel in range(PW):
                w = states.ctypes.data + panel * steps * R * p * size
                multiply(OUTER, h, origin, 2, row, w, samples, dW.ctypes.data + panel * p * size, PW * p, n, 0)
            for panel in range(PX):
                w = inputs.ctypes.data + panel * steps * R * p * size
                c = dV.ctypes.data + panel * p * size
                if real_x:
                    multiply(PLANAR, h, origin, 2, row, w, samples, c, PX * p, n, n * PX * p)
                else:
                    multiply(OUTER, h, origin, 2, row, w, samples, c, PX * p, n, 0)
            for i in range(n):
                db[i] += recent[i]
                recent[i] = 0
            slot = 0
    dh_0[e, first:last] = carry
