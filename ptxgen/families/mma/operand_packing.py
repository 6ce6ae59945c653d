"""Operands that an auxiliary kernel packs before the product: unaligned rows become rows of whole 128 bytes.

A K-major copy is padded with zeros to whole 16 bytes along K. Then the other operand is packed and padded too, and the
kernel computes a longer K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.config.config import PACK
from ptxgen.codegen.launches.bit_packing import packed_bytes, packs_bits
from ptxgen.codegen.launches.packing import ROW
from ptxgen.codegen.vectorized import where
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import aligned_access


@dataclass(frozen=True)
class PackedOperand:
    """An operand, and its packed copy in the workspace."""

    rows: int  #: rows of the operand
    columns: int  #: elements of a row
    ld: int  #: elements from one row of the operand to the next
    pitch: int  #: elements from one row of the copy to the next
    filled: int  #: rows of the copy, padded
    bytes: int  #: bytes of the copy of one batch item
    item_bytes: int  #: bytes from the operand of one batch item to that of the next, 0: one for all


def kmajor(p: KernelProblem, name: str) -> bool:
    return p.layout[0] == "N" if name == "a" else p.layout[1] == "T"


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def packed_operand(p: KernelProblem, name: str) -> PackedOperand:
    """The packed copy of operand ``name``."""
    columns, ld = (
        (p.operand("A").access.columns, p.operand("A").access.ld)
        if name == "a"
        else (p.operand("B").access.columns, p.operand("B").access.ld)
    )
    item_bytes = p.offsets[0 if name == "a" else 1]
    extent = p.m if name == "a" else p.n
    rows = extent if kmajor(p, name) else p.k
    size = p.element.bytes
    pitch = _up(max(columns, 1), ROW // size)
    filled = rows if kmajor(p, name) else _up(rows, 16 // size)
    bytes_ = filled * pitch * size
    return PackedOperand(rows, columns, ld, pitch, filled, bytes_, item_bytes)


def copied_items(p: KernelProblem, name: str, items: int) -> int:
    """How many of ``items`` batch items have an operand of their own."""
    return items if packed_operand(p, name).item_bytes else min(items, 1)


def workspace(p: KernelProblem, c: Any) -> Any:
    """Bytes of the packed operands of ``c``, a configuration or columns of many."""
    if packs_bits(p):
        return sum(packed_bytes(x.access) for x in p.operands)
    a, b = (packed_operand(p, name).bytes * copied_items(p, name, p.batch) for name in "ab")
    return where(c.operand_path_a == PACK, a, 0) + where(c.operand_path_b == PACK, b, 0)


def packs(c: Any, name: str) -> Any:
    """True if an auxiliary kernel copies the operand to aligned rows first."""
    return getattr(c, f"operand_path_{name}") == PACK


def inside(p: KernelProblem, c: Any) -> KernelProblem:
    """The problem that the kernel computes: operands with the pitch and alignment of their copies."""
    size, q = p.element.bytes, p
    if any(packs(c, name) and kmajor(p, name) for name in "ab"):
        q = q.with_extents("", k=_up(p.k, 16 // size))
    for name in "ab":
        if packs(c, name):
            copy, columns = packed_operand(p, name), q.operand(name.upper()).access.columns
            stride = copy.filled * copy.pitch if copy.item_bytes else 0
            vec = aligned_access(16, columns, copy.pitch, stride, size)
            q = q.with_access(name.upper(), ld=copy.pitch, aligned=16, stride=stride, vec=vec)
    return q
