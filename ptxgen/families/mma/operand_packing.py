"""Operands that an auxiliary kernel packs before the product: unaligned rows become rows of whole 128 bytes.

A K-major copy is padded with zeros to whole 16 bytes along K. Then the other operand is packed and padded too, and the
kernel computes a longer K.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ptxgen.codegen.config import PACK
from ptxgen.codegen.packing import ROW
from ptxgen.codegen.vectorized import where
from ptxgen.lowering.kernel_gemm import KernelGemm


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


def kmajor(p: KernelGemm, name: str) -> bool:
    return p.layout[0] == "N" if name == "a" else p.layout[1] == "T"


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def packed_operand(p: KernelGemm, name: str) -> PackedOperand:
    """The packed copy of operand ``name``."""
    columns, ld = (p.columns_a, p.lda) if name == "a" else (p.columns_b, p.ldb)
    item_bytes = p.offsets[0 if name == "a" else 1]
    extent = p.m if name == "a" else p.n
    rows = extent if kmajor(p, name) else p.k
    size = p.element.bytes
    pitch = _up(max(columns, 1), ROW // size)
    filled = rows if kmajor(p, name) else _up(rows, 16 // size)
    bytes_ = filled * pitch * size
    return PackedOperand(rows, columns, ld, pitch, filled, bytes_, item_bytes)


def copied_items(p: KernelGemm, name: str, items: int) -> int:
    """How many of ``items`` batch items have an operand of their own."""
    return items if packed_operand(p, name).item_bytes else min(items, 1)


def workspace(p: KernelGemm, c: Any) -> Any:
    """Bytes of the packed operands of ``c``, a configuration or columns of many."""
    a, b = (packed_operand(p, name).bytes * copied_items(p, name, p.batch) for name in "ab")
    return where(c.operand_path_a == PACK, a, 0) + where(c.operand_path_b == PACK, b, 0)


def packs(c: Any, name: str) -> Any:
    """Whether an auxiliary kernel copies the operand to aligned rows first."""
    return getattr(c, f"operand_path_{name}") == PACK


def inside(p: KernelGemm, c: Any) -> KernelGemm:
    """The problem that the kernel computes: operands with the pitch and alignment of their copies."""
    changes: dict[str, int] = {}
    if packs(c, "a"):
        copy = packed_operand(p, "a")
        changes.update(lda=copy.pitch, aligned_a=16, stride_a=copy.filled * copy.pitch if copy.item_bytes else 0)
    if packs(c, "b"):
        copy = packed_operand(p, "b")
        changes.update(ldb=copy.pitch, aligned_b=16, stride_b=copy.filled * copy.pitch if copy.item_bytes else 0)
    if any(packs(c, name) and kmajor(p, name) for name in "ab"):
        changes["k"] = _up(p.k, 16 // p.element.bytes)
    return replace(p, **changes) if changes else p  # type: ignore[arg-type]
