"""The packing of the items of a group. If the group is jagged along K, a kernel makes its descriptor table first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ptxgen.codegen.grouped.descriptor_table import HEADER, table_of
from ptxgen.codegen.grouped.jagged_table import BlockTable
from ptxgen.codegen.grouped.packed_table import PACKED
from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.copy_kernel import CHUNK, WORD, Shift
from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.launches.packing import MappedOperand
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, addresses
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.codegen.vectorized import ceil_div, log2
from ptxgen.families.wgmma.grouped_rows import packed_block, packed_rows
from ptxgen.lowering.descriptor_table import items_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, matrix_rows

COPY, TRANSPOSE = "COPY", "TRANSPOSE"  #: labels of the code for operands whose K is contiguous, and for others


class Side(NamedTuple):
    """An operand to pack. ``label``: its name in labels; ``kmajor``: True if K is contiguous; the others are the
    offsets of fields of a descriptor: its number of rows, leading dimension, address and first packed row."""

    name: str
    label: str
    kmajor: bool
    rows: int
    ld: int
    address: int
    first: int

    @property
    def method(self) -> str:
        """The label of the code that packs the operand."""
        return COPY if self.kmajor else TRANSPOSE


@dataclass(frozen=True)
class ItemPacking(BlockTable):
    """The kernel that writes the descriptor table, and the kernel that packs the items of A and B."""

    template = "copy/pack_items.mako"
    table_template = BlockTable.template
    makes_table = True
    HEADER, CHUNK = HEADER, CHUNK
    CHUNKS = ROW // CHUNK  #: chunks of a packed row
    log2_chunks, log2_row = log2(CHUNKS), log2(ROW)
    last_chunk, last_byte, chunk_mask = CHUNKS - 1, CHUNK - 1, -CHUNK

    @property
    def code(self) -> Shift:
        """The code that shifts a chunk of bytes."""
        return Shift(matrix_rows(1, CHUNK, CHUNK, CHUNK), 1)

    @property
    def names(self) -> list[str]:
        return ["a", "b"]

    @property
    def summary(self) -> str:
        return "; a kernel packs the items of A and B first"

    # ---- the kernel that writes the table

    @property
    def block(self) -> int:
        return packed_block(self.problem)

    def place(self, name: str) -> str:
        return "%packed_block64" if name in PACKED else super().place(name)

    def array_steps(self, p: KernelProblem, name: str) -> tuple[int, int]:
        """The steps of the first packed row count rows: a block has all rows of an item."""
        if name not in PACKED:
            return super().array_steps(p, name)
        return 0, int(items_of(p).extents[:, PACKED.index(name)].max(initial=0))

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        table = super().allocate(p, run, workspace)
        return replace(table, packed={**table.packed, **self._copies(p, workspace)})

    def _copies(self, p: KernelProblem, workspace: Allocator) -> dict[str, int]:
        """Claims the packed operands, and returns their offsets."""
        return {
            name: workspace.claim(ROW * packed_rows(p, name), f"packed {name.upper()}", ROW).offset
            for name in self.names
        }

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        p, offset = launched.p, launched.buffers.packed[x.name]
        extents = self.block, max(packed_rows(p, x.name), 1)
        return TensorMap("W", element_type, extents, (ROW,), x.box, x.span, offset=offset)

    # ---- the kernel that packs

    @property
    def sides(self) -> list[Side]:
        at, sides = self.layout.offsets, zip(self.problem.operands, self.names, "mn", PACKED, strict=True)
        return [
            Side(x, x.upper(), operand.access.kmajor, at[rows], at[f"ld{x}"], at[x], at[first])
            for operand, x, rows, first in sides
        ]

    @property
    def copies(self) -> bool:
        """True if the kernel copies an operand whose K is contiguous."""
        return COPY in [x.method for x in self.sides]

    @property
    def transposes(self) -> bool:
        """True if the kernel transposes an operand."""
        return TRANSPOSE in [x.method for x in self.sides]

    # ---- the transpose of items whose K is not contiguous: a block has packed rows of its own

    block_rows = AUX_KERNEL_THREADS // CHUNKS
    log2_block_rows, last_block_row = log2(block_rows), block_rows - 1
    #: the bytes of a chunk, each as loaded
    elements = Tile("element", "b32", (CHUNK,))

    @property
    def insertions(self) -> list[tuple[str, str, int]]:
        """The words of a transposed chunk are made in the registers of their first bytes: (word, another byte, its
        first bit)."""
        places = ((n, e) for n in range(0, CHUNK, WORD) for e in range(1, WORD))
        return [(self.elements[n], self.elements[n + e], 8 * e) for n, e in places]

    @property
    def transposed(self) -> str:
        """The words of a transposed chunk, as an operand."""
        return braces(self.elements.all[::WORD])

    @property
    def pack_parameters(self) -> ParameterList:
        copies, rows = (tuple(f"{word}_{name}" for name in self.names) for word in ("copy", "rows"))
        return ParameterList(
            (
                *addresses(self.problem),
                Parameters("u64", ("table",), lambda x: (table_of(x, self.layout),)),
                Parameters("u64", copies, lambda x: (x.buffers.packed[name] for name in self.names), same_line=True),
                Parameters("u32", rows, lambda x: (packed_rows(x.p, name) for name in self.names)),
                Parameters("u32", ("items",), lambda x: (len(items_of(x.p).items),), same_line=True),
            )
        )

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        rows, threads = max(packed_rows(launched.p, name) for name in self.names), self.code.THREADS
        grid = (max(ceil_div(rows * self.CHUNKS, threads), 1), len(self.names), 1)
        arguments = self.pack_parameters.arguments(launched)
        pack = Step(f"{self.entry}_pack", grid, (threads, 1, 1), 0, arguments)
        return (*(super().steps(launched) if self.makes_table else ()), pack)


@dataclass(frozen=True)
class ListPacking(ItemPacking):
    """The kernel that packs the items of a list, whose descriptor table the host makes."""

    table_template = "copy/no_packing.mako"
    makes_table = False

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        return Buffers(self._copies(p, workspace))
