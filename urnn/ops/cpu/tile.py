"""The inner kernel of all products: a register tile, written as LLVM vector code.

``C[r, :] = sum over k of s[r, k] * w[k, :]`` for a few rows r and one panel of columns, complex and interleaved in
memory as PyTorch keeps it (Re, Im, Re, Im, ...). With w[k, :] as a vector of interleaved entries, the sums of Re(s) w
and of Im(s) w are two accumulators that need no shuffles; they become the result once, at the end, as the mode says:

    PLAIN      s w, followed by a tail of real s2 times w2, at half the cost
    CONJUGATE  s conj(w)
    OUTER      s conj(w), added to what is there
    PLANAR     w is real: the two accumulators are Re and Im of the result, added to what is there, one behind the other
    REAL       s and w are both real: a single accumulator

A loop in plain Numba would keep its accumulators in memory; here they stay in registers for all of k.
"""

import functools
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic

PLAIN, CONJUGATE, OUTER, PLANAR, REAL = range(5)
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


@intrinsic(prefer_literal=True)
def tile(
    typing: Any,
    mode: Any,
    rows: Any,
    like: Any,
    s: Any,
    s_row: Any,
    s_step: Any,
    w: Any,
    count: Any,
    c: Any,
    c_row: Any,
    tail: Any,
) -> Any:
    """Emit one tile.

    ``mode`` and ``rows`` (its height) are constants. ``like`` is an array of the real type. ``s``, ``w`` and ``c`` are
    addresses, ``s_row``, ``s_step`` and ``c_row`` strides in reals, and ``count`` >= 1 is the number of k. Rows of
    ``w`` lie one panel apart. In mode PLAIN ``tail`` is the number of real s2 that follow the ``count`` complex s in a
    row, with as many further rows of ``w``; in mode PLANAR it is the distance in reals from Re to Im of a result.
    """
    for constant in (mode, rows):
        if not isinstance(constant, types.IntegerLiteral):
            raise RequireLiteralValue(constant)
    emitter = _Tile(mode.literal_value, rows.literal_value, like.dtype.bitwidth // 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emitter.emit(builder, *args[3:])
        return context.get_dummy_value()

    return types.void(mode, rows, like, *[types.intp] * 8), generate


class _Tile:
    """Writes the code of one kind of tile."""

    def __init__(self, mode: int, rows: int, itemsize: int) -> None:
        self.mode, self.rows, self.itemsize = mode, rows, itemsize
        self.scalar = ir.FloatType() if itemsize == 4 else ir.DoubleType()
        self.width = lanes(itemsize)
        self.vector = ir.VectorType(self.scalar, self.width)

    def emit(
        self, builder: Any, s: Any, s_row: Any, s_step: Any, w: Any, count: Any, c: Any, c_row: Any, tail: Any
    ) -> None:
        """Loop over k with all accumulators in registers, then store."""
        s, w, c = (builder.inttoptr(address, self.scalar.as_pointer()) for address in (s, w, c))
        zero = ir.Constant(self.vector, [ir.Constant(self.scalar, 0.0)] * self.width)
        parts = 1 if self.mode == REAL else 2
        sums = [zero] * (self.rows * VECTORS * parts)
        sums = self._loop(builder, s, s_row, s_step, w, count, sums, parts, parts)
        if self.mode == PLAIN:
            reals = builder.gep(s, [builder.mul(count, s_step)])
            further = builder.gep(w, [builder.mul(count, _index(VECTORS * self.width))])
            sums = self._loop(builder, reals, s_row, _index(1), further, tail, sums, 2, 1)
        for r in range(self.rows):
            row = builder.gep(c, [builder.mul(c_row, _index(r))])
            for v in range(VECTORS):
                first, *second = sums[parts * (r * VECTORS + v) :][:parts]
                if self.mode in (PLAIN, CONJUGATE, OUTER):
                    first = self._join(builder, first, second[0])
                elif self.mode == PLANAR:
                    self._store(builder, second[0], row, builder.add(tail, _index(v * self.width)))
                self._store(builder, first, row, _index(v * self.width))

    def _loop(
        self,
        builder: Any,
        s: Any,
        s_row: Any,
        s_step: Any,
        w: Any,
        count: Any,
        sums: list[Any],
        stride: int,
        parts: int,
    ) -> list[Any]:
        """Add ``count`` terms, which may be none, to every ``stride``-th sums; returns the sums after the loop."""
        before = builder.block
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        k = builder.phi(_INDEX)
        k.add_incoming(_index(0), before)
        totals = [builder.phi(self.vector) for _ in sums]
        for total, value in zip(totals, sums, strict=True):
            total.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", k, count), body, end)
        builder.position_at_end(body)
        new = list(totals)
        w_at = builder.mul(k, _index(VECTORS * self.width))
        panel = [self._load(builder, w, builder.add(w_at, _index(v * self.width))) for v in range(VECTORS)]
        for r in range(self.rows):
            place = builder.add(builder.mul(s_row, _index(r)), builder.mul(k, s_step))
            for part in range(parts):
                factor = self._broadcast(builder, s, builder.add(place, _index(part)))
                for v in range(VECTORS):
                    i = stride * (r * VECTORS + v) + part
                    new[i] = builder.fadd(builder.fmul(factor, panel[v], flags=_FUSE), new[i], flags=_FUSE)
        k.add_incoming(builder.add(k, _index(1)), builder.block)
        for total, value in zip(totals, new, strict=True):
            total.add_incoming(value, builder.block)
        builder.branch(head)
        builder.position_at_end(end)
        return totals

    def _join(self, builder: Any, first: Any, second: Any) -> Any:
        """From the sums of Re(s) w and of Im(s) w to those of s w, or of s conj(w).

        s w       = first + (-, +, ...) swapped second:  Re s Re w - Im s Im w,  Re s Im w + Im s Re w
        s conj(w) = (+, -, ...) first + swapped second:  Re s Re w + Im s Im w,  Im s Re w - Re s Im w
        """
        swap = ir.Constant(ir.VectorType(_INT, self.width), [i ^ 1 for i in range(self.width)])
        turned = builder.shuffle_vector(second, ir.Constant(self.vector, ir.Undefined), swap)
        conjugate = self.mode != PLAIN
        one = [ir.Constant(self.scalar, 1.0 if (i % 2 == 0) == conjugate else -1.0) for i in range(self.width)]
        signs = ir.Constant(self.vector, one)
        if conjugate:
            return builder.fadd(builder.fmul(signs, first), turned)
        return builder.fadd(first, builder.fmul(signs, turned))

    def _address(self, builder: Any, base: Any, offset: Any) -> Any:
        return builder.bitcast(builder.gep(base, [offset]), self.vector.as_pointer())

    def _load(self, builder: Any, base: Any, offset: Any) -> Any:
        value = builder.load(self._address(builder, base, offset))
        value.align = self.itemsize
        return value

    def _store(self, builder: Any, value: Any, base: Any, offset: Any) -> None:
        if self.mode in (OUTER, PLANAR):
            value = builder.fadd(value, self._load(builder, base, offset))
        builder.store(value, self._address(builder, base, offset)).align = self.itemsize

    def _broadcast(self, builder: Any, base: Any, offset: Any) -> Any:
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = builder.insert_element(undefined, builder.load(builder.gep(base, [offset])), ir.Constant(_INT, 0))
        return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_INT, self.width), [0] * self.width))


def _index(value: int) -> Any:
    return ir.Constant(_INDEX, value)
