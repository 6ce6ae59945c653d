"""Operands that are copied before they are multiplied: wgmma takes elements of one or four bytes on the side that is
not its 64 rows from shared memory alone, with K contiguous, and where K is not, a pass transposes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ptxgen.columnar import pick
from ptxgen.problem import Gemm

A, B = 1, 2  #: bits of the ``repack`` axis
LIMIT = 1 << 38  #: bytes of copies
ROW = 128  #: bytes that the rows of a copy, and copies, start at a multiple of


def turned(c: Any, name: str) -> Any:
    return c.repack % 2 == 1 if name == "a" else c.repack >= B


def copy_of(p: Gemm, name: str) -> SimpleNamespace:
    """The copy of an operand: ``extent`` rows; ``items`` of a batch that have their own; ``place``: columns, rows,
    elements from one row to the next, bytes from one item's to the next's (0: one for all); ``bytes`` of all of it."""
    extent, by = (p.m, p.offsets[0]) if name == "a" else (p.n, p.offsets[1])
    size = p.element.bytes
    pitch = -(-max(p.k, 1) * size // ROW) * ROW
    items = p.items if by else 1
    place = (p.k, extent, pitch // size, extent * pitch if by else 0)
    return SimpleNamespace(extent=extent, items=items, place=place, bytes=items * extent * pitch)


def workspace(p: Gemm, c: Any) -> Any:
    """Bytes of the copies; ``c``: integers or columns."""
    return pick(turned(c, "a"), copy_of(p, "a").bytes, 0) + pick(turned(c, "b"), copy_of(p, "b").bytes, 0)
