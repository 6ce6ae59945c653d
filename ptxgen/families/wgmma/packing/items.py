"""The packing of the items of a group that is jagged along K, and the descriptor table of the group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ptxgen.codegen.grouped.descriptor_table import HEADER
from ptxgen.codegen.grouped.jagged_table import JaggedTable
from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.launches.packing import MappedOperand
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, addresses
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.codegen.vectorized import ceil_div, log2
from ptxgen.families.wgmma.operand_packing import packed_rows
from ptxgen.lowering.descriptor_table import items_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW

CHUNK = 16  #: bytes of a chunk, which a thread stores at once
#: entries of the descriptor table: the first row of an item among the packed rows of A, and of B
PACKED = ("packed_a", "packed_b")


class Side(NamedTuple):
    """An operand to pack, and the fields of a descriptor about it: its number of rows, leading dimension, address and
    first packed row."""

    name: str
    rows: int
    ld: int
    address: int
    first: int


@dataclass(frozen=True)
class ItemPacking(JaggedTable):
    """The kernel that writes the descriptor table, and the kernel that packs the items of A and B."""

    template = "copy/pack_items.mako"
    table_template = JaggedTable.template
    PACK_THREADS, CHUNK, HEADER = AUX_KERNEL_THREADS, CHUNK, HEADER
    CHUNKS = ROW // CHUNK  #: chunks of a packed row
    log2_chunks, log2_row, log2_chunk = log2(CHUNKS), log2(ROW), log2(CHUNK)
    words = range(CHUNK // 4)

    @property
    def names(self) -> list[str]:
        return ["a", "b"]

    @property
    def summary(self) -> str:
        return "; a kernel packs the items of A and B first"

    @property
    def block_shift(self) -> int:
        """log2 of the elements of a block of K."""
        return log2(ROW // self.problem.element.bytes)

    @property
    def last_of_block(self) -> int:
        return (1 << self.block_shift) - 1

    def place(self, name: str) -> str:
        return "%packed_block64" if name in PACKED else super().place(name)

    def array_steps(self, p: KernelProblem, name: str) -> tuple[int, int]:
        """The steps of the first packed row count rows: a block has all rows of an item."""
        if name not in PACKED:
            return super().array_steps(p, name)
        return 0, int(items_of(p).extents[:, PACKED.index(name)].max(initial=0))

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        table = super().allocate(p, run, workspace)
        packed = {
            name: workspace.claim(ROW * packed_rows(p, name), f"packed {name.upper()}", ROW).offset
            for name in self.names
        }
        return replace(table, packed={**table.packed, **packed})

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        p = launched.p
        extents = ROW // p.element.bytes, max(packed_rows(p, x.name), 1)
        return TensorMap(
            "W", element_type, extents, (ROW,), x.box, x.span, offset=launched.buffers.packed[x.name]
        )

    # ---- the kernel that packs

    @property
    def sides(self) -> list[Side]:
        at = self.layout.offsets
        return [Side(x, at["mn"[n]], at[f"ld{x}"], at[x], at[PACKED[n]]) for n, x in enumerate(self.names)]

    @property
    def pack_parameters(self) -> ParameterList:
        places, rows = (tuple(f"{word}_{name}" for name in self.names) for word in ("copy", "rows"))
        buffers = ("table", *self.names)
        return ParameterList(
            (
                *addresses(self.problem),
                Parameters("u64", ("table", *places), lambda x: (x.buffers.packed[name] for name in buffers)),
                Parameters("u32", rows, lambda x: (packed_rows(x.p, name) for name in self.names)),
                Parameters("u32", ("items",), lambda x: (len(items_of(x.p).items),), same_line=True),
            )
        )

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        rows = max(packed_rows(launched.p, name) for name in self.names)
        grid = (max(ceil_div(rows * self.CHUNKS, self.PACK_THREADS), 1), len(self.names), 1)
        arguments = self.pack_parameters.arguments(launched)
        return (
            *super().steps(launched),
            Step(f"{self.entry}_pack", grid, (self.PACK_THREADS, 1, 1), 0, arguments),
        )
