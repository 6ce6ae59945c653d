"""Grouped kernels: the descriptor table of the items, and the scheduler of blocks that loop over all tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.launched import Launched
from ptxgen.codegen.matrix_parameters import MatrixParameters
from ptxgen.codegen.parameters import Parameters, addresses, given
from ptxgen.codegen.parts import Allocator
from ptxgen.codegen.scheduler import GridScheduler
from ptxgen.codegen.vectorized import log2, register_cap
from ptxgen.lowering.descriptor_table import Items, items_of, slice_length
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.table import Table
from ptxgen.problem.device import Device

Words = NDArray[np.uint32]

#: of stream-K, in K iterations: the cost of beginning and storing a tile; the least part of a tile; the least mean
#: share, unless there are more tiles
TILE_ITERATIONS, LEAST_PART, LEAST_SHARE = 2, 2, 4
GROUPED_SHARED = 16  #: bytes of shared memory for the number of the next tile
GROUPED_REGISTERS = 8  #: registers that the tile loop adds
HEADER = 16  #: bytes before the first tiles: the tile counter and the number of tiles
EPILOGUE_AT = 88  #: offset of the addresses of epilogue operands in a descriptor

#: the fields of a descriptor, each with its offset: addresses relative to A, B and C, extents, leading dimensions;
#: ``start``: where a jagged item begins, else 0; ``k_slice``: the length of a slice of K
_FIELDS = {
    "a": ("u8", 0),
    "b": ("u8", 8),
    "c": ("u8", 16),
    "tiles_m": ("u4", 24),
    "tiles_n": ("u4", 28),
    "m": ("u4", 32),
    "n": ("u4", 36),
    "k": ("u4", 40),
    "lda": ("u4", 44),
    "ldb": ("u4", 48),
    "ldc": ("u4", 52),
    "first": ("u4", 56),
    "item": ("u4", 60),
    "alpha": ("", 64),
    "beta": ("", 72),
    "start": ("u4", 80),
    "k_slice": ("u4", 84),
}
_NUMBERS = {"f32": "f4", "f64": "f8", "s32": "i4"}


@dataclass(frozen=True)
class DescriptorTable:
    """The layout of a table in device memory that describes each item to the blocks.

    ``ml``, ``nl``: the tile of a block; ``kind``: the type of alpha and beta; ``operands``: the operands of the
    epilogue; ``u``: the depth of an iteration, ``kg``: slices of the longest K; ``sms``: multiprocessors, ``resident``:
    blocks that one of them runs at once; ``stream``: whether blocks have shares of K iterations. The table has the tile
    counter, which
    launches leave zero, the number of tiles, the first tile of each item, then the descriptors, in the order in which
    items are computed, and a counter for each tile of several slices, which launches leave zero, too. Every slice of a
    tile is a tile of its own. With ``stream``, numbers of tiles are those of K iterations, and the shares of the blocks
    precede the counters, one for each block.
    """

    ml: int
    nl: int
    kind: str
    operands: tuple[str, ...] = ()
    u: int = 1
    kg: int = 1
    sms: int = 1
    resident: int = 1
    stream: bool = False

    @property
    def descriptor_bytes(self) -> int:
        return -(-(EPILOGUE_AT + 8 * len(self.operands)) // 16) * 16

    def descriptors_at(self, items: int) -> int:
        """The offset of the descriptors."""
        return HEADER + -(-items // 4) * 16

    def bytes(self, items: int, more: int = 0) -> int:
        """``more``: words that follow the descriptors: counters, and shares."""
        return self.descriptors_at(items) + items * self.descriptor_bytes + 4 * more

    def k_slices(self, extents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The length of a slice of each item, and its slices of K. Only the last slice of an item is shorter."""
        k = extents[:, 2]
        count = np.maximum(-(-k // slice_length(int(k.max(initial=0)), self.u, self.kg)), 1)
        return np.maximum(-(-k // (count * self.u)), 1) * self.u, count

    def split_tiles(self, extents: NDArray[np.int64]) -> int:
        """Tiles of items that have several slices: they are the first ones."""
        if self.kg == 1:
            return 0
        tiles = -(-extents[:, 0] // self.ml) * -(-extents[:, 1] // self.nl)
        slices = self.k_slices(extents)[1]
        return int((tiles * slices)[slices > 1].sum())

    def order(self, extents: NDArray[np.int64], tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        """The items in the order in which blocks compute them: those with the longest K first. ``tiles``: of each item.

        The blocks of a multiprocessor begin with the tiles of one number modulo ``sms``. Every second round of such
        tiles is in reverse order, so that multiprocessors with a long tile have a short one, too. Items with several
        slices of K come first in any case.
        """
        longest = np.argsort(-extents[:, 2], kind="stable")
        ends = np.cumsum(tiles[longest])
        if not len(ends) or self.kg > 1 or self.stream:
            return longest
        rounds = min(-(-int(ends[-1]) // self.sms), self.resident)
        middle = (ends - (tiles[longest] + 1) // 2) // self.sms  # the round of an item's middle tile
        reverse = (middle < rounds) & ((rounds - 1 - middle) % 2 == 1)
        within = np.arange(len(longest))
        found: NDArray[np.int64] = longest[np.lexsort((np.where(reverse, -within, within), np.minimum(middle, rounds)))]
        return found

    # ---- stream-K

    def tile_iterations(self, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """K iterations of a tile of each item, at least one."""
        return np.maximum(-(-extents[:, 2] // self.u), 1)

    def shares(self, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first iteration of the share of each block, then the number of all iterations. They count the iterations
        of all tiles in the order of ``order``; shares have about equal work."""
        tiles = -(-extents[:, 0] // self.ml) * -(-extents[:, 1] // self.nl)
        order = self.order(extents, tiles)
        tiles, each = tiles[order], self.tile_iterations(extents)[order]
        firsts = np.cumsum(tiles * each) - tiles * each
        total = int((tiles * each).sum())
        work = np.cumsum(tiles * (each + TILE_ITERATIONS))
        blocks = min(self.sms * self.resident, max(total // LEAST_SHARE, int(tiles.sum())))
        if blocks <= 1:
            return np.array([0, total])
        ends = work[-1] * np.arange(1, blocks) // blocks
        item = np.searchsorted(work, ends, side="right")
        tile, inside = np.divmod(
            ends - work[item] + (tiles * (each + TILE_ITERATIONS))[item], each[item] + TILE_ITERATIONS
        )
        k = inside - TILE_ITERATIONS // 2
        k = np.where(k < LEAST_PART, 0, np.where(k > each[item] - LEAST_PART, each[item], k))
        return np.unique(np.concatenate([[0], firsts[item] + tile * each[item] + k, [total]]))

    def at(self, field: str) -> int:
        """The offset of a field, or of the address of an epilogue operand, in a descriptor."""
        return EPILOGUE_AT + 8 * self.operands.index(field) if field in self.operands else _FIELDS[field][1]

    def words(
        self,
        extents: NDArray[np.int64],
        lds: NDArray[np.int64],
        addresses: NDArray[np.int64],
        alpha: Any = 1,
        beta: Any = 1,
        operands: Sequence[NDArray[np.int64]] = (),
    ) -> Words:
        """The table. ``extents``, ``lds``, ``addresses``: M, N, K, leading dimensions in elements and addresses in
        bytes of A, B and C, one row an item; ``alpha``, ``beta``: numbers, or one of each item; ``operands``: the
        addresses of each epilogue operand."""
        count = len(extents)
        formats = {name: (kind or _NUMBERS[self.kind], at) for name, (kind, at) in _FIELDS.items()}
        formats |= {name: ("u8", self.at(name)) for name in self.operands}
        record = np.dtype(
            {
                "names": list(formats),
                "formats": [kind for kind, _ in formats.values()],
                "offsets": [at for _, at in formats.values()],
                "itemsize": self.descriptor_bytes,
            }
        )
        tiles_m, tiles_n = -(-extents[:, 0] // self.ml), -(-extents[:, 1] // self.nl)
        k_slice, slices = self.k_slices(extents)
        tiles = tiles_m * tiles_n * slices
        order = self.order(extents, tiles)
        rows = np.zeros(count, record)
        rows["alpha"], rows["beta"] = np.broadcast_to(alpha, count)[order], np.broadcast_to(beta, count)[order]
        for x, name in enumerate("abc"):
            rows[f"ld{name}"] = lds[order, x]
        for axis, name in enumerate("mnk"):
            rows[name] = extents[order, axis]
        for name, at in zip(self.operands, operands, strict=True):
            rows[name] = np.asarray(at)[order].astype(np.uint64)
        rows["tiles_m"], rows["tiles_n"], rows["item"] = tiles_m[order], tiles_n[order], order
        rows["k_slice"] = k_slice[order]
        units = tiles[order] * (self.tile_iterations(extents)[order] if self.stream else 1)
        ends = np.cumsum(units)
        rows["first"] = ends - units
        shares = self.shares(extents) if self.stream else np.zeros(0, np.int64)
        counters = len(shares) - 1 if self.stream else self.split_tiles(extents)
        out = np.zeros(self.bytes(count, len(shares) + counters) // 4, np.uint32)
        out[1] = ends[-1] if count else 0
        out[HEADER // 4 : HEADER // 4 + count] = rows["first"]
        out[self.descriptors_at(count) // 4 : self.bytes(count) // 4] = rows.view(np.uint32)
        out[self.bytes(count) // 4 :][: len(shares)] = shares
        self.place(out, addresses)
        return out

    def place(self, words: Words, addresses: NDArray[np.int64]) -> None:
        """Writes the addresses of A, B and C of the items to a table."""
        count = len(addresses)
        rows = words[self.descriptors_at(count) // 4 : self.bytes(count) // 4].reshape(count, -1)
        order = rows[:, _FIELDS["item"][1] // 4]
        rows[:, : 2 * addresses.shape[1]] = addresses[order].view(np.uint32)  # the first fields


@dataclass(frozen=True)
class GroupTable(Table):
    """The table of a group whose operands are each in one array."""

    layout: DescriptorTable
    group: Items

    def words(self) -> Words:
        p, size, out = self.group, self.group.element.bytes, self.group.output.bytes
        starts = p.starts * np.array([size, size, out])
        operands = [p.epilogue_sizes(n)[0] * p.epilogue_operand_dtype(n).bytes for n in self.layout.operands]
        return self.layout.words(p.extents, p.lds, starts, operands=operands)


@dataclass(frozen=True)
class GroupedScheduler(GridScheduler):
    """As many blocks as fit on the device at once, each of which loops over tiles: the first is the one with the
    block's number, a counter gives the others. ``geometry``: of a block; ``blocks``: blocks that fit the device;
    ``slice_bytes``: of the sums of a slice of a tile."""

    table: DescriptorTable
    geometry: Geometry
    blocks: int
    slice_bytes: int = 0

    HEADER = HEADER
    counts_resident = True

    template = "sched/grouped.mako"

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: Geometry, d: Device, registers: int = -1) -> GroupedScheduler:
        """The scheduler of kernels with so many registers per thread, or with those that ptxas may grant at most. More
        blocks than fit at once would delay the tiles that they begin with."""
        kind = StreamScheduler if c.stream_k else cls
        table = DescriptorTable(c.ml, c.nl, p.sink.arithmetic, p.sink.arrays, c.u, c.kg, stream=bool(c.stream_k))
        if registers <= 0:
            registers = min(int(g.registers), int(register_cap(d, g.threads, c.min_ctas_per_sm)))
        resident = max(int(d.blocks_per_sm(g.threads, registers, g.shared)), c.min_ctas_per_sm)
        parts = 1 if c.stream_k else c.kl * c.ks if c.kg > 1 else 0  # sums of a slice of a tile per element
        slice_bytes = c.ml * c.nl * parts * p.accumulator.bytes
        return kind(c, False, replace(table, sms=d.sms, resident=resident), g, d.sms * resident, slice_bytes)

    @property
    def shared_at(self) -> int:
        """The offset in shared memory of the number of the next tile."""
        return int(self.geometry.shared) - GROUPED_SHARED

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        c = self.config
        tiles = int(p.extents.tiles(c.ml, c.nl, c.u, c.kg))
        return (self.blocks if p.extents.jagged else min(tiles, self.blocks)), 1, 1

    def partial_bytes(self, group: Items) -> int:
        """Bytes of the sums of all slices of tiles that have several."""
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


@dataclass(frozen=True)
class StreamScheduler(GroupedScheduler):
    """Blocks have equal shares of the K iterations of all tiles. The first and the last tile of a share may be in
    several shares: each block stores its sums, and the last one adds them."""

    template = "sched/grouped_stream.mako"

    @property
    def log2_u(self) -> int:
        return log2(self.config.u)

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        if p.extents.group is None:
            return self.blocks, 1, 1
        return len(self.table.shares(items_of(p).extents)) - 1, 1, 1

    def partial_bytes(self, group: Items) -> int:
        """Bytes of the sums of the first and the last tile of each block."""
        return 2 * (len(self.table.shares(group.extents)) - 1) * self.slice_bytes


@dataclass(frozen=True)
class GroupedParameters(MatrixParameters):
    """Parameters of grouped kernels. Descriptors hold the values that differ between items."""

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.c.problem),
            Parameters("u64", ("table",), lambda x: (self._table(x),)),
            Parameters("u32", ("items",), lambda x: (len(items_of(x.p).items),), same_line=True),
            given(self.arithmetic.type, "alpha", "beta"),
            *self.packing.product_parameters,
        ]

    def _table(self, launched: Launched) -> int | GroupTable:
        """The descriptor table: its offset in the workspace if a kernel makes it."""
        assert isinstance(self.scheduler, GroupedScheduler)
        made = launched.buffers.packed.get("table")
        return GroupTable(self.scheduler.table, items_of(launched.p)) if made is None else made
