"""The kernel that writes the descriptor table of a jagged group from offsets on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxgen.codegen.grouped.descriptor_table import DescriptorTable
from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Last, ceil_div, log2
from ptxgen.lowering.block_scales import item_scales
from ptxgen.lowering.descriptor_table import Items, items_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW
from ptxgen.problem.block_scales import DEPTH
from ptxgen.problem.dtypes import bits_of, dtype

THREADS = 256  #: threads of the block


@dataclass(frozen=True)
class JaggedTable(Packing):
    """The kernel that writes the descriptor table of a jagged group to the workspace, before the product. It has one
    block, and each thread writes descriptors.

    The offsets are clamped to the extent of the whole array, so that no item is outside the array.
    """

    layout: DescriptorTable

    template = "sched/jagged_table.mako"
    blocks_template = "sched/no_item_blocks.mako"  #: counts blocks of K of the items before each item
    THREADS = THREADS
    WARPS = THREADS // WARP

    @property
    def table(self) -> JaggedTable:
        """The part with the numbers of the kernel that writes the table."""
        return self

    @property
    def arrays(self) -> list[str]:
        """The arrays whose places are in a descriptor: A, B, C, and those that the layout adds."""
        return ["a", "b", "c", *self.layout.operands]

    @property
    def places(self) -> dict[str, str]:
        """Array -> its ``place``."""
        return {name: self.place(name) for name in self.arrays}

    def place(self, name: str) -> str:
        """The register with the place of an item along the jagged axis in array ``name``."""
        return "%item_start64"

    def array_steps(self, p: KernelProblem, name: str) -> tuple[int, int]:
        """The steps of array ``name``: from one item to the next, and per index of ``place``."""
        scaled = item_scales(p)
        return scaled[name].scale_steps if name in scaled else items_of(p).steps(name)

    @property
    def along_k(self) -> bool:
        """True if items differ in K. The kernel then sorts the items by K, the longest first."""
        return items_of(self.problem).jagged == "k"

    @property
    def one(self) -> str:
        """The number 1 in the type of alpha and beta, as a PTX literal."""
        return bits_of(1.0, dtype(self.layout.scalar_type)) if self.layout.scalar_type != "s32" else "1"

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        size = self.layout.bytes(len(items_of(p).items))
        return Buffers({"table": workspace.claim(size, "descriptor table", ROW).offset})

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters of the kernel, after the addresses. For an array x, ``by_x``: bytes from one item to the next;
        ``along_x``: bytes per element or block along the jagged axis."""
        steps = tuple(f"{name}_{x}" for x in self.arrays for name in ("by", "along"))
        return [
            Parameters("u64", ("table",), lambda x: (x.buffers.packed["table"],)),
            Parameters("u32", ("items", "extent"), lambda x: _items_and_extent(items_of(x.p)), same_line=True),
            Parameters("u32", ("M", "N", "K", "lda", "ldb", "ldc"), lambda x: _largest(items_of(x.p))),
            Parameters("u64", steps, lambda x: (n for name in self.arrays for n in self.array_steps(x.p, name))),
        ]

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        items = len(items_of(launched.p).items)
        shared = ceil_div(4 * (self.WARPS + (items if self.along_k else 0)), 16) * 16
        return (
            Step(
                f"{self.entry}_table", (1, 1, 1), (self.THREADS, 1, 1), shared, self.parameter_list.arguments(launched)
            ),
        )

    @property
    def warp_offsets(self) -> range:
        """The offset in shared memory of the number of tiles of each warp's items."""
        return range(0, 4 * self.WARPS, 4)


@dataclass(frozen=True)
class BlockTable(JaggedTable):
    """The kernel that writes the descriptor table of a group whose items are ranges of K, and counts the blocks of K of
    the items before each item: scales of blocks are in the order of the items."""

    blocks_template = "sched/item_blocks.mako"

    @property
    def block(self) -> int:
        """The number of elements of a block of K."""
        return DEPTH

    last_of_block = Last("block")

    @property
    def block_shift(self) -> int:
        return log2(self.block)

    @property
    def scaled(self) -> bool:
        """True if A and B have scales of blocks."""
        return bool(item_scales(self.problem))

    def place(self, name: str) -> str:
        return "%first_block64" if name in item_scales(self.problem) else super().place(name)

    @property
    def parameters(self) -> list[Parameters]:
        blocks = Parameters("u32", ("scale_blocks",), lambda x: (min(s.blocks for s in item_scales(x.p).values()),))
        return [*super().parameters, *([blocks] if self.scaled else [])]


def _items_and_extent(group: Items) -> tuple[int, int]:
    """The number of items, and the extent of all items along the jagged axis."""
    ends = group.offsets
    return len(group.items), int(ends[-1]) if len(ends) else 0


def _largest(group: Items) -> Iterator[int]:
    """The maxima over the items of M, N, K and the leading dimensions of A, B and C."""
    yield from (int(n) for n in group.extents.max(axis=0, initial=0))
    yield from (int(n) for n in group.kernel_lds.max(axis=0, initial=1))
