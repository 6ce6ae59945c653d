"""Operand packing: an auxiliary kernel copies A or B to rows along M (N) of whole 128 bytes before the product.

Such rows are copied to shared memory 16 bytes at a time, without a transposition, whatever the layout and the leading
dimension of the operand. The elements past the end of a row of the copy are undefined, or zeros; their sums are outside
C.
"""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.config.config import packs
from ptxgen.codegen.vectorized import ceil_div, where
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, Axis, Digit, PackedCopy, matrix_rows

SIZES = (2, 4)  #: bytes of elements that are packed
LIMIT = 1 << 34  #: most bytes of packed operands, because each thread of the packing kernel counts 16 bytes
ACCESS = 16  #: alignment of packed rows in bytes that loads use


def kmajor(p: KernelProblem, name: str) -> bool:
    """True if K is contiguous in operand ``name``."""
    return p.layout[0] == "N" if name == "a" else p.layout[1] == "T"


def packed_operand(p: KernelProblem, name: str) -> PackedCopy:
    """The packed copy of operand ``name``: a row for each k."""
    access, extent = p.operand(name.upper()).access, p.m if name == "a" else p.n
    unit = ROW // p.element.bytes
    pitch = ceil_div(max(extent, 1), unit) * unit
    if not kmajor(p, name):
        return matrix_rows(p.k, extent, access.ld, pitch)
    return PackedCopy((Digit(p.k, 0),), (Axis(1),), Axis(access.ld, extent), pitch, vec=access.vec)


def widest_load(p: KernelProblem, c: Any, name: str) -> Any:
    """The number of elements of the widest aligned load of operand ``name``, packed or not."""
    return where(packs(c, name), ACCESS // p.element.bytes, p.vectors["ab".index(name)])


def packed_bytes(p: KernelProblem, c: Any) -> Any:
    """The number of bytes of the packed operands of ``c``, a configuration or columns of many."""
    if p.element.bytes not in SIZES:
        return 0
    items = [p.batch if offset else min(p.batch, 1) for offset in p.offsets[:2]]
    a, b = (packed_operand(p, "ab"[n]).size * p.element.bytes * items[n] for n in (0, 1))
    return where(packs(c, "a"), a, 0) + where(packs(c, "b"), b, 0)


def product_problem(p: KernelProblem, c: Any) -> KernelProblem:
    """The problem that the main kernel computes, whose operands have the layout and the alignment of their copies."""
    product = p
    for name, offset in zip("ab", p.offsets, strict=False):
        if packs(c, name):
            copy = packed_operand(p, name)
            product = product.with_access(
                name.upper(),
                kmajor=False,
                rows=p.k,
                columns=p.m if name == "a" else p.n,
                ld=copy.pitch,
                stride=copy.size if offset else 0,
                aligned=ACCESS,
                vec=ACCESS // p.element.bytes,
            )
    return product
