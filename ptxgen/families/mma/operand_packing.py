"""Operand packing: an auxiliary kernel copies unaligned rows to rows of whole 128 bytes before the product.

A K-major copy is padded with zeros to whole 16 bytes along K. The other operand is then packed and padded, too, and the
kernel computes a longer K.
"""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.config.config import PACK, packs
from ptxgen.codegen.vectorized import where
from ptxgen.lowering.bit_products import packed_bytes, packs_bits
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, PackedCopy, matrix_rows
from ptxgen.lowering.strided import aligned_access


def kmajor(p: KernelProblem, name: str) -> bool:
    return p.layout[0] == "N" if name == "a" else p.layout[1] == "T"


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def packed_operand(p: KernelProblem, name: str) -> PackedCopy:
    """The packed copy of operand ``name``."""
    access, size = p.operand(name.upper()).access, p.element.bytes
    rows = (p.m if name == "a" else p.n) if kmajor(p, name) else p.k
    filled = rows if kmajor(p, name) else _up(rows, 16 // size)
    return matrix_rows(rows, access.columns, access.ld, _up(max(access.columns, 1), ROW // size), filled)


def workspace(p: KernelProblem, c: Any) -> Any:
    """The number of bytes of the packed operands of ``c``, a configuration or columns of many."""
    if packs_bits(p):
        return sum(packed_bytes(x.access) for x in p.operands)
    items = [p.batch if offset else min(p.batch, 1) for offset in p.offsets[:2]]
    a, b = (packed_operand(p, "ab"[n]).size * p.element.bytes * items[n] for n in (0, 1))
    return where(c.operand_path_a == PACK, a, 0) + where(c.operand_path_b == PACK, b, 0)


def inside(p: KernelProblem, c: Any) -> KernelProblem:
    """The problem that the main kernel computes, whose operands have the pitch and alignment of their copies."""
    size, q = p.element.bytes, p
    if any(packs(c, name) and kmajor(p, name) for name in "ab"):
        q = q.with_extents("", k=_up(p.k, 16 // size))
    for name, offset in zip("ab", p.offsets, strict=False):
        if packs(c, name):
            copy, columns = packed_operand(p, name), q.operand(name.upper()).access.columns
            stride = copy.size if offset else 0
            vec = aligned_access(16, columns, copy.pitch, stride, size)
            q = q.with_access(name.upper(), ld=copy.pitch, aligned=16, stride=stride, vec=vec)
    return q
