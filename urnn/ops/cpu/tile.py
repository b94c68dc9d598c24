"""The inner kernel of all products: a register tile, written as LLVM vector code.

``C[r, :] = sum over k of s[r, k] * w[k, :]`` for a few rows r and one panel of columns, complex and interleaved in
memory as PyTorch keeps it (Re, Im, Re, Im, ...). With w[k, :] as a vector of interleaved entries, the sums of Re(s) w
and of Im(s) w are two accumulators that need no shuffles; they become s w, or s conj(w), once at the end. A loop in plain
Numba would keep its accumulators in memory; here they stay in registers for all of k.
"""

import functools
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic

VECTORS = 2
"""Vectors across a panel."""
_INDEX = ir.IntType(64)
_INT = ir.IntType(32)
_FUSE = ("contract", "nsz")  # lets LLVM make fused multiply-adds where the machine has them


@functools.cache
def lanes(itemsize: int) -> int:
    """Reals in a vector of this machine: 64 bytes where it has AVX-512, 32 elsewhere."""
    return (64 if llvm.get_host_cpu_features().get("avx512f") else 32) // itemsize


def panel_reals(itemsize: int) -> int:
    """Reals across a panel; half as many complex columns."""
    return VECTORS * lanes(itemsize)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def tile(typing: Any, rows: Any, conjugate: Any, like: Any, s: Any, s_row: Any, s_step: Any, w: Any, w_step: Any, count: Any, c: Any, c_row: Any) -> Any:
    """Emit one tile.

    ``rows`` (a constant) is its height; with ``conjugate`` (a constant, 0 or 1) the product is s conj(w). ``like`` is
    an array of the real type. ``s``, ``w`` and ``c`` are addresses, ``s_row``, ``s_step``, ``w_step`` and ``c_row``
    strides in reals, and ``count`` >= 1 is the number of k.
    """
    for constant in (rows, conjugate):
        if not isinstance(constant, types.IntegerLiteral):
            raise RequireLiteralValue(constant)
    height, is_conjugate = rows.literal_value, bool(conjugate.literal_value)
    itemsize = like.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, height, is_conjugate, itemsize, args[3:])
        return context.get_dummy_value()

    return types.void(rows, conjugate, like, *[types.intp] * 8), generate


def _emit(builder: Any, rows: int, conjugate: bool, itemsize: int, args: Any) -> None:
    s, s_row, s_step, w, w_step, count, c, c_row = args
    scalar = ir.FloatType() if itemsize == 4 else ir.DoubleType()
    width = lanes(itemsize)
    vector = ir.VectorType(scalar, width)
    undefined = ir.Constant(vector, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(_INT, width), [0] * width)
    swap = ir.Constant(ir.VectorType(_INT, width), [i ^ 1 for i in range(width)])
    # s w       = first + (-, +, ...) swapped second:  Re s Re w - Im s Im w,  Re s Im w + Im s Re w
    # s conj(w) = (+, -, ...) first + swapped second:  Re s Re w + Im s Im w,  Im s Re w - Re s Im w
    signs = ir.Constant(vector, [ir.Constant(scalar, 1.0 if (i % 2 == 0) == conjugate else -1.0) for i in range(width)])
    s, w, c = (builder.inttoptr(address, scalar.as_pointer()) for address in (s, w, c))

    def index(value: int) -> Any:
        return ir.Constant(_INDEX, value)

    def vector_at(base: Any, offset: Any) -> Any:
        return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

    def broadcast(offset: Any) -> Any:
        one = builder.insert_element(undefined, builder.load(builder.gep(s, [offset])), ir.Constant(_INT, 0))
        return builder.shuffle_vector(one, undefined, everywhere)

    def fused(a: Any, b: Any, total: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=_FUSE), total, flags=_FUSE)

    before = builder.block
    loop, end = builder.append_basic_block("k"), builder.append_basic_block("end")
    builder.branch(loop)

    builder.position_at_end(loop)
    k = builder.phi(_INDEX)
    k.add_incoming(index(0), before)
    totals = [builder.phi(vector) for _ in range(2 * rows * VECTORS)]
    for total in totals:
        total.add_incoming(ir.Constant(vector, [ir.Constant(scalar, 0.0)] * width), before)
    w_at, s_at = builder.mul(k, w_step), builder.mul(k, s_step)
    panel = []
    for v in range(VECTORS):
        panel.append(builder.load(vector_at(w, builder.add(w_at, index(v * width)))))
        panel[-1].align = itemsize
    sums = []
    for r in range(rows):
        place = builder.add(builder.mul(s_row, index(r)), s_at)
        re, im = broadcast(place), broadcast(builder.add(place, index(1)))
        for v in range(VECTORS):
            first, second = totals[2 * (r * VECTORS + v) :][:2]
            sums += [fused(re, panel[v], first), fused(im, panel[v], second)]
    following = builder.add(k, index(1))
    k.add_incoming(following, loop)
    for total, value in zip(totals, sums, strict=True):
        total.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, end)

    builder.position_at_end(end)
    for r in range(rows):
        for v in range(VECTORS):
            first, second = sums[2 * (r * VECTORS + v) :][:2]
            turned = builder.shuffle_vector(second, undefined, swap)
            if conjugate:
                first = builder.fmul(signs, first)
            else:
                turned = builder.fmul(signs, turned)
            place = builder.add(builder.mul(c_row, index(r)), index(v * width))
            store = builder.store(builder.fadd(first, turned), vector_at(c, place))
            store.align = itemsize
