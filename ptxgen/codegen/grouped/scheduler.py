"""The scheduler and the parameters of grouped kernels, whose blocks loop over the tiles of all items."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.geometry import GROUPED_SHARED, Geometry
from ptxgen.codegen.grouped.descriptor_table import HEADER, DescriptorTable, GroupTable, table_of
from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.launches.matrix_parameters import MatrixParameters
from ptxgen.codegen.parts.parameters import Parameters, addresses, block_scale_parameters, given, weight_parameters
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.parts.scheduler import GridScheduler, blocks_at_once
from ptxgen.codegen.vectorized import Log2
from ptxgen.lowering.block_scales import item_scales
from ptxgen.lowering.descriptor_table import Items, items_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class PrefetchedRows:
    """The rows in memory of operand ``name`` that a tile reads. Each of ``threads`` threads prefetches some of them to
    L2.

    ``start``, ``extent``: the registers of the tile's first index and of the extent, along M or N; ``tile``: the extent
    of a tile along this axis.
    """

    name: str
    kmajor: bool
    start: str
    extent: str
    tile: int
    bytes: int
    threads: int

    LINE = 128  #: bytes of a cache line
    BEFORE = -128  #: mask that rounds an address down to its cache line

    @property
    def row_step(self) -> int:
        """The number of bytes per element of the leading dimension: the step of a thread from one of its rows to the
        next is this number times the leading dimension."""
        return self.bytes * self.threads


@dataclass(frozen=True)
class GroupedScheduler(GridScheduler):
    """The scheduler of kernels with as many blocks as fit on the device at once. A block computes the tile with its own
    number first; a counter gives the next tiles. ``geometry``: that of a block; ``blocks``: blocks that fit on the
    device; ``slice_bytes``: bytes of the sums of one slice of a tile; ``prefetched``: the rows that blocks prefetch for
    each tile."""

    table: DescriptorTable
    geometry: Geometry
    blocks: int
    slice_bytes: int = 0
    prefetched: tuple[PrefetchedRows, ...] = ()

    HEADER = HEADER
    counts_resident = True

    template = "sched/grouped.mako"

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: Geometry, d: Device, registers: int = -1) -> GroupedScheduler:
        """The scheduler of a kernel. ``registers``: registers per thread; -1: the most that ptxas may allocate. More
        blocks than fit at once would delay the first tiles of the surplus blocks."""
        scheduler_class = StreamScheduler if c.stream_k else cls
        arrays = *p.sink.arrays, *item_scales(p)
        table = DescriptorTable(c.ml, c.nl, p.sink.arithmetic, arrays, c.u, c.kg, stream=bool(c.stream_k))
        resident = blocks_at_once(c, g, d, registers)
        parts = 1 if c.stream_k else c.kl * c.ks if c.kg > 1 else 0  # sums of a slice of a tile per element
        slice_bytes = c.ml * c.nl * parts * p.accumulator.bytes
        table = replace(table, sms=d.sms, resident=resident)
        return scheduler_class(c, False, table, g, d.sms * resident, slice_bytes, _prefetched(p, c, int(g.threads)))

    @property
    def counter_at(self) -> int:
        """The offset in shared memory of the counter of a tile that several slices compute."""
        return self.shared_at + 4

    @property
    def shared_at(self) -> int:
        """The offset in shared memory of the number of the next tile."""
        return int(self.geometry.shared) - GROUPED_SHARED

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        c = self.config
        tiles = int(p.extents.tiles(c.ml, c.nl, c.u, c.kg))
        return (self.blocks if p.extents.jagged else min(tiles, self.blocks)), 1, 1

    def partial_bytes(self, group: Items) -> int:
        """The number of bytes of the partial sums of all tiles that have several slices."""
        return self.table.split_tiles(group.extents) * self.slice_bytes

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        if self.slice_bytes:
            region = workspace.claim(self.partial_bytes(items_of(p)), "sums of slices of K")
            assert region.offset == 0, "the kernel finds them at the start of the workspace"

    def batch_limit(self, p: KernelProblem) -> int:
        return 1

    @property
    def grid_text(self) -> str:
        return f"(blocks, at most {self.blocks}, 1, 1)"


def _prefetched(p: KernelProblem, c: Config, threads: int) -> tuple[PrefetchedRows, ...]:
    """The rows of A and B that blocks of ``threads`` threads prefetch for each tile."""
    if not c.l2_prefetch:
        return ()
    a, b, size = p.operand("A").access, p.operand("B").access, p.element.bytes
    return (
        PrefetchedRows("A", bool(a.kmajor), "%m0", "%M", c.ml, size, threads),
        PrefetchedRows("B", bool(b.kmajor), "%n0", "%N", c.nl, size, threads),
    )


@dataclass(frozen=True)
class StreamScheduler(GroupedScheduler):
    """The scheduler of stream-K: blocks have equal shares of the K iterations of all tiles. Several blocks may share
    the first and the last tile of a share: each stores its sums, and the last block to finish adds them."""

    template = "sched/grouped_stream.mako"

    log2_u = Log2("config.u")

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        if p.extents.group is None:
            return self.blocks, 1, 1
        return len(self.table.shares(items_of(p).extents)) - 1, 1, 1

    def partial_bytes(self, group: Items) -> int:
        """The number of bytes of the partial sums of each block's first and last tile."""
        return 2 * (len(self.table.shares(group.extents)) - 1) * self.slice_bytes


@dataclass(frozen=True)
class GroupedParameters(MatrixParameters):
    """The parameters of grouped kernels. Values that differ between items are in descriptors."""

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.c.problem),
            Parameters("u64", ("table",), lambda x: (self._table(x),)),
            Parameters("u32", ("items",), lambda x: (len(items_of(x.p).items),), same_line=True),
            given(self.arithmetic.type, "alpha", "beta"),
            *self.packing.product_parameters,
            *weight_parameters(self.c.problem),
            *block_scale_parameters(self.c.problem),
        ]

    def _table(self, launched: Launched) -> int | GroupTable:
        """The descriptor table: its offset in the workspace if a kernel makes it."""
        assert isinstance(self.scheduler, GroupedScheduler)
        return table_of(launched, self.scheduler.table)
