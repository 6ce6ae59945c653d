"""The groups that a wgmma kernel computes in one launch, and the tensor maps of the rows of their items.

Items are ranges of rows of one array. Its tensor map has four directions: columns; FAR rows, the last of which are
those of the item; the row after the item; and a direction with the single coordinate FAR, which moves back by FAR rows,
because addresses are modulo 2^64. Therefore TMA clips boxes at the last row of an item: loads give zeros, and stores
leave the next item unchanged.

The first coordinate of a box is a multiple of 16 bytes, and so is a pitch. Therefore TMA can neither begin at the first
column of an item nor end at its last one. If items are ranges of columns, along K, a kernel packs them first, by blocks
of 128 bytes of K: a block has all rows of an item, and the last block of an item is filled with zeros. So it does with
lists, and with ranges of rows along K whose elements wgmma reads K-major only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma.tensor_maps import Matrix, row_pitch
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem, Operand
from ptxgen.lowering.packed_copy import ROW
from ptxgen.lowering.strided import Strided

FAR = 1 << 30  #: more rows than an item has
WRAP = (1 << 64) // FAR  #: FAR times this is 0 modulo 2^64


def packs_items(p: KernelProblem) -> bool:
    """True if a kernel packs the items of A and of B: 8-bit elements of lists, and of items that are ranges of K."""
    return grouped(p) and jagged(p) != "m" and p.element.bytes == 1


def packed_block(p: KernelProblem) -> int:
    """The number of elements of a block of K of packed items."""
    return ROW // p.element.bytes


def packed_rows(p: KernelProblem, name: str) -> int:
    """The number of rows of ROW bytes of all packed items of an operand; the most that they may have, if the sizes of
    items are on the device."""
    block = packed_block(p)
    extents = np.array([[p.m, p.n, p.k]]) if p.extents.group is None else p.extents.group.extents
    rows, k = extents[:, "ab".index(name)], extents[:, 2]
    if not p.extents.jagged:
        return int((rows * -(-k // block)).sum())
    return int(rows.max(initial=0)) * ((int(k.sum()) + (block - 1) * len(k)) // block)


def differ_in_k(p: KernelProblem) -> bool:
    """True if the kernel computes items of different K."""
    return jagged(p) == "k" or packs_items(p)


def jagged(p: KernelProblem) -> str:
    """The jagged axis of a group; empty for a list, and for problems without items."""
    return p.operands[0].access.jagged if grouped(p) else ""


def matrices_of_experts(p: KernelProblem) -> KernelProblem:
    """The batch whose operands are packed for a group with items that are rows of A: A is one matrix with the rows of
    all items, and each item has its B. Packing does not depend on the sizes of the items."""

    def matrix(x: Operand) -> Operand:
        columns, rows, ld, step = x.access.tensor(x.element.bytes)
        numbers = x.access.kmajor, rows, columns, ld, step // x.element.bytes, x.access.aligned, x.access.vec
        return replace(x, access=Strided(*numbers))

    a, b = (matrix(x) for x in p.operands)
    m = a.access.rows if a.access.kmajor else a.access.columns
    return replace(p, extents=GemmExtents(m, p.n, p.k, p.extents.tensor_items), operands=(a, b))


def ranges(p: KernelProblem, name: str) -> bool:
    """True if items are ranges of rows of A, B or C, so that one map describes all of them."""
    return name in {"": "", "m": "ac", "k": "" if packs_items(p) else "ab"}[jagged(p)]


def coordinates(p: KernelProblem, name: str) -> list[str]:
    """The registers with the coordinates of an item in A, B or C, which follow the coordinates of a matrix."""
    return ["%rows_end", "%far"] if ranges(p, name) else ["%item"]


def item_rows_map(
    operand: str, element_type: str, matrix: Matrix, size: int, box: tuple[int, ...], span: int, offset: int = 0
) -> TensorMap:
    """The tensor map of ``matrix``, whose rows belong to items. Row i of an item with n rows, which begins at row s,
    has the coordinates FAR - n + i, s + n, FAR. ``offset``: bytes from the address of ``operand`` to the matrix."""
    columns, rows, ld, _ = matrix
    pitch = row_pitch(columns, ld, rows, size)
    pitches = (pitch, pitch, WRAP - pitch)
    extents = columns, FAR, rows + 1, FAR + 1
    return TensorMap(operand, element_type, extents, pitches, (*box, 1, 1), span, offset=offset)
