"""Operands that are copied before they are multiplied: rows that fit no wide access become rows of whole 128 bytes.

A K-major copy is filled with zeros up to whole chunks of K, and then so is the other operand: the kernel sees a
longer K.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ptxgen.codegen.config import PACK
from ptxgen.codegen.packing import ROW
from ptxgen.codegen.vectorized import pick
from ptxgen.lowering.kernel_gemm import KernelGemm


def kmajor(p: KernelGemm, name: str) -> bool:
    return p.layout[0] == "N" if name == "a" else p.layout[1] == "T"


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def copy_of(p: KernelGemm, name: str) -> SimpleNamespace:
    """The copy of an operand: ``rows``, ``columns``, ``ld`` as it is; ``pitch`` elements from one row of the copy to
    the next; ``filled`` rows; ``bytes`` of one item's; ``by``: bytes from one item's operand to the next's."""
    columns, ld = (p.columns_a, p.lda) if name == "a" else (p.columns_b, p.ldb)
    by = p.offsets[0 if name == "a" else 1]
    extent = p.m if name == "a" else p.n
    rows = extent if kmajor(p, name) else p.k
    size = p.element.bytes
    pitch = _up(max(columns, 1), ROW // size)
    filled = rows if kmajor(p, name) else _up(rows, 16 // size)
    return SimpleNamespace(
        rows=rows, columns=columns, ld=ld, pitch=pitch, filled=filled, bytes=filled * pitch * size, by=by
    )


def copied_items(p: KernelGemm, name: str, items: int) -> int:
    """How many of so many items have an operand of their own."""
    return items if copy_of(p, name).by else min(items, 1)


def workspace(p: KernelGemm, c: Any) -> Any:
    """Bytes of the copies; ``c``: integers or columns."""
    a, b = (copy_of(p, name).bytes * copied_items(p, name, p.batch) for name in "ab")
    return pick(c.operand_path_a == PACK, a, 0) + pick(c.operand_path_b == PACK, b, 0)


def packed(c: Any, name: str) -> Any:
    """Whether an auxiliary kernel copies the operand to aligned rows first."""
    return getattr(c, f"operand_path_{name}") == PACK


def inside(p: KernelGemm, c: Any) -> KernelGemm:
    """The problem that the kernel computes: operands with the pitch and alignment of their copies."""
    changes: dict[str, int] = {}
    if packed(c, "a"):
        copy = copy_of(p, "a")
        changes.update(lda=copy.pitch, aligned_a=16, stride_a=copy.filled * copy.pitch if copy.by else 0)
    if packed(c, "b"):
        copy = copy_of(p, "b")
        changes.update(ldb=copy.pitch, aligned_b=16, stride_b=copy.filled * copy.pitch if copy.by else 0)
    if any(packed(c, name) and kmajor(p, name) for name in "ab"):
        changes["k"] = _up(p.k, 16 // p.element.bytes)
    return replace(p, **changes) if changes else p  # type: ignore[arg-type]
