"""Operands that a kernel packs before the product: those that TMA cannot map, to rows of whole 128 bytes. wgmma reads
the operand that is not on the side of its 64 rows from shared memory, and requires K to be contiguous if its elements
have one or four bytes: the packed form of such operands has K contiguous.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ptxgen.codegen.config import PACK, REALIGN
from ptxgen.codegen.packing import ROW
from ptxgen.codegen.vectorized import ceil_div, pick
from ptxgen.families.wgmma import bf16x3
from ptxgen.lowering.im2col_descriptor import PackedCopy
from ptxgen.lowering.kernel_gemm import KernelGemm

RESIDUES = 8  #: rows after which another one begins at the same offset in 16 bytes, whatever the leading dimension
STAGES = 3  #: least number for realigned operands: loaded, realigned into the preceding one, multiplied
LIMIT = 1 << 34  #: bytes of copies: threads of a packing kernel count 16 bytes each
TMA_ALIGNED = 16  #: bytes that an address and a row's length must be multiples of
OFFSET_LIMIT = 1 << 40  #: bytes from one item to the next


def mapped(p: KernelGemm, operand: str) -> bool:
    """Whether there can be a tensor map of A, B or C: rows and items of whole 16 bytes, where there are several.
    Operands that are empty, or are split into planes first, need none."""
    size = (p.output if operand == "c" else p.element).bytes
    ld, start = getattr(p, f"ld{operand}"), getattr(p, f"aligned_{operand}")
    if p.im2col is not None and operand != "c":
        return True  # another rule's
    rows = {"a": p.rows_a, "b": p.rows_b, "c": p.m}[operand]
    offset = p.offsets["abc".index(operand)] if p.batch > 1 else 0
    nothing = operand != "c" and (p.k == 0 or bf16x3.planes(p) > 1)
    aligned = start >= TMA_ALIGNED and (rows <= 1 or ld * size % TMA_ALIGNED == 0)
    return nothing or (aligned and offset % TMA_ALIGNED == 0 and offset < OFFSET_LIMIT)


def boxed(p: KernelGemm) -> bool:
    """Whether TMA can store boxes of C: it writes whole 16 bytes."""
    matrix = p.im2col is None or p.im2col.result is None
    return matrix and mapped(p, "c") and p.n * p.output.bytes % TMA_ALIGNED == 0


def unmapped(p: KernelGemm) -> tuple[bool, bool]:
    """Whether TMA cannot map A, and B."""
    return not mapped(p, "a"), not mapped(p, "b")


def copied(c: Any, name: str) -> Any:
    """Whether an auxiliary kernel copies the operand to aligned rows first."""
    return getattr(c, f"operand_path_{name}") == PACK


def lies(c: Any, name: str) -> Any:
    """Whether TMA loads the operand's unaligned rows, which are shifted in shared memory."""
    return getattr(c, f"operand_path_{name}") == REALIGN


def lying(lines: Any, width: Any, size: int) -> Any:
    """Bytes of a stage's lines of one residue, ``width`` elements and the following 16 bytes each."""
    return ceil_div(lines // RESIDUES * (width * size + TMA_ALIGNED), ROW) * ROW


def turns(p: KernelGemm, name: str) -> bool:
    """Whether the copy of an operand is transposed. Copies of images and filters are as their window has them."""
    layout, copy = (p.im2col.layout, p.im2col.copy(name)) if p.im2col is not None else (p.layout, None)
    apart = layout[0] == "T" if name == "a" else layout[1] == "N"
    return apart and copy is None and bf16x3.factor_bytes(p) != 2


def walked(p: KernelGemm) -> tuple[bool, bool]:
    """Whether A, and B, of a convolution must be packed before TMA loads it."""
    return (False, False) if p.im2col is None else (p.im2col.copy("a") is not None, p.im2col.copy("b") is not None)


def straight(p: KernelGemm, name: str) -> SimpleNamespace:
    """The copy of an operand as it is: ``items`` of a batch that have their own; ``place``: columns, rows, elements
    from one row to the next, bytes from one item's to the next's (0: one for all); ``bytes`` of all of it."""
    columns, rows, by = (p.columns_a, p.rows_a, p.offsets[0]) if name == "a" else (p.columns_b, p.rows_b, p.offsets[1])
    return _rows(p, columns, rows, by)


def copy_of(p: KernelGemm, name: str) -> SimpleNamespace:
    """The copy of an operand that is multiplied, as ``straight``."""
    extent, by = (p.m, p.offsets[0]) if name == "a" else (p.n, p.offsets[1])
    return _rows(p, p.k, extent, by) if turns(p, name) else straight(p, name)


def _rows(p: KernelGemm, columns: int, rows: int, by: int) -> SimpleNamespace:
    size = p.element.bytes
    pitch = -(-max(columns, 1) * size // ROW) * ROW
    items = p.batch if by else 1
    place = (columns, rows, pitch // size, rows * pitch if by else 0)
    return SimpleNamespace(items=items, place=place, pitch=pitch, bytes=items * rows * pitch)


def _bytes(p: KernelGemm, name: str) -> int:
    """Of all copies of an operand: one that TMA cannot map is copied as it is before it is transposed."""
    if p.im2col is not None and any(walked(p)):
        copy = p.im2col.copy(name)
        return copy_bytes(p, copy) if copy else 0
    before = straight(p, name).bytes if turns(p, name) and not mapped(p, name) else 0
    return int(before + copy_of(p, name).bytes)


def copy_bytes(p: KernelGemm, copy: PackedCopy) -> int:
    """Of a copy of images or filters, up to where another may begin."""
    return -(-copy.size * p.element.bytes // ROW) * ROW


def workspace(p: KernelGemm, c: Any) -> Any:
    """Bytes of the copies; ``c``: integers or columns."""
    return pick(copied(c, "a"), _bytes(p, "a"), 0) + pick(copied(c, "b"), _bytes(p, "b"), 0)
