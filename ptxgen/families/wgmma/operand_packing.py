"""The operands that an auxiliary kernel packs before the product.

An operand that TMA cannot map is copied to rows of whole 128 bytes. Y, the operand that is not on the side of the 64
rows, is read from shared memory, from which wgmma takes elements of one or four bytes only K-major. Its copy is then
K-major.
"""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.config.config import PACK, REALIGN, packs
from ptxgen.codegen.vectorized import ceil_div, where
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.grouped_rows import jagged, matrices_of_experts, packed_rows, packs_items
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, Axis, Digit, PackedCopy, matrix_rows

#: period of alignment: rows i and i + 8 of 2-byte elements have the same alignment modulo 16 bytes, for every pitch
RESIDUES = 8
STAGES = 3  #: least stages with realignment: one is loaded, one is realigned, one is multiplied
LIMIT = 1 << 34  #: most bytes of packed operands, because each thread of the packing kernel counts 16 bytes
TMA_ALIGNED = 16  #: alignment in bytes that TMA requires of addresses and row lengths
OFFSET_LIMIT = 1 << 40  #: most bytes from one batch item to the next


def mapped(p: KernelProblem, operand: str) -> bool:
    """True if A, B or C can have a tensor map: it starts at a multiple of 16 bytes, and so do its rows and batch items.
    Empty operands, and operands that are first split into planes or packed by item, need no map."""
    size, access = p.operand(operand.upper()).element.bytes, p.operand(operand.upper()).access
    if im2col(p) is not None and operand != "c":
        return True  # the rules of im2col decide
    offset = access.stride * size if p.batch > 1 else 0
    unused = operand != "c" and (p.k == 0 or bf16x3.planes(p) > 1 or packs_items(p))
    aligned = access.aligned >= TMA_ALIGNED and (
        (access.rows <= 1 and not grouped(p)) or access.ld * size % TMA_ALIGNED == 0
    )
    return unused or (aligned and offset % TMA_ALIGNED == 0 and offset < OFFSET_LIMIT)


def boxed(p: KernelProblem) -> bool:
    """True if TMA can store boxes of C, of which it writes whole 16 bytes."""
    matrix = im2col(p) is None or im2col(p).result is None
    return matrix and mapped(p, "c") and p.n * p.output.bytes % TMA_ALIGNED == 0


def unmapped(p: KernelProblem) -> tuple[bool, bool]:
    """For A and for B: True if TMA cannot map the operand."""
    return not mapped(p, "a"), not mapped(p, "b")


def realigns(c: Any, name: str) -> Any:
    """True if TMA loads the operand's unaligned rows and math warpgroups realign them in shared memory."""
    return getattr(c, f"operand_path_{name}") == REALIGN


def residue_bytes(lines: Any, width: Any, size: int) -> Any:
    """The number of bytes that the rows of one residue take in a stage of ``lines`` rows: each row has ``width``
    elements and 16 more bytes."""
    return ceil_div(lines // RESIDUES * (width * size + TMA_ALIGNED), ROW) * ROW


def transposes(p: KernelProblem, name: str) -> bool:
    """True if packing transposes operand ``name``. Images and filters are packed in the order of im2col."""
    layout, copy = (im2col(p).layout, im2col(p).copy(name)) if im2col(p) is not None else (p.layout, None)
    mn_major = layout[0] == "T" if name == "a" else layout[1] == "N"
    return mn_major and copy is None and bf16x3.factor_bytes(p) != 2


def paths(x: Im2colDescriptor) -> tuple[int, int]:
    """The values of operand_path_a and operand_path_b that pack exactly those operands of which ``x`` describes
    copies."""
    return PACK * (x.copy("a") is not None), PACK * (x.copy("b") is not None)


def packs_conv(p: KernelProblem) -> tuple[bool, bool]:
    """For A and for B of a convolution: True if the operand must be packed before TMA loads it."""
    return (False, False) if im2col(p) is None else (im2col(p).copy("a") is not None, im2col(p).copy("b") is not None)


def row_copy(p: KernelProblem, name: str) -> PackedCopy:
    """The description of an operand's copy with aligned rows."""
    access = p.operand(name.upper()).access
    return matrix_rows(access.rows, access.columns, access.tensor(p.element.bytes)[2], _pitch(p, access.columns))


def packed_operand(p: KernelProblem, name: str) -> PackedCopy:
    """The description of the packed operand that the main kernel reads."""
    if not transposes(p, name):
        return row_copy(p, name)
    ld = p.operand(name.upper()).access.tensor(p.element.bytes)[2]
    digits = (Digit(p.m if name == "a" else p.n, 0),)
    return PackedCopy(digits, (Axis(1),), Axis(ld, p.k), _pitch(p, p.k))


def _pitch(p: KernelProblem, columns: int) -> int:
    """The number of elements of a row whose length is a multiple of ROW bytes."""
    size = p.element.bytes
    return -(-max(columns, 1) * size // ROW) * ROW // size


def all_bytes(p: KernelProblem, name: str, copy: PackedCopy) -> int:
    """The number of bytes of the copies of all batch items that have an operand of their own."""
    return (p.batch if p.offsets["ab".index(name)] else 1) * copy.size * p.element.bytes


def _bytes(p: KernelProblem, name: str) -> int:
    """The number of bytes of the copies of an operand. An operand that TMA cannot map is first copied to aligned rows,
    then transposed."""
    if packs_items(p):
        return ROW * packed_rows(p, name)
    if jagged(p) == "m":
        return _bytes(matrices_of_experts(p), name)
    if im2col(p) is not None and any(packs_conv(p)):
        copy = im2col(p).copy(name)
        return -(-copy.size * p.element.bytes // ROW) * ROW if copy else 0
    row_bytes = all_bytes(p, name, row_copy(p, name)) if transposes(p, name) and not mapped(p, name) else 0
    return row_bytes + all_bytes(p, name, packed_operand(p, name))


def workspace(p: KernelProblem, c: Any) -> Any:
    """The number of bytes of the packed operands of ``c``, a configuration or columns of many."""
    a, b = (packs(c, name) | packs_items(p) for name in "ab")
    return where(a, _bytes(p, "a"), 0) + where(b, _bytes(p, "b"), 0)
