"""The descriptor table of a group: what blocks read of each item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.vectorized import IntOrColumn
from ptxgen.lowering.descriptor_table import Items, slice_length
from ptxgen.lowering.table import Table

Words = NDArray[np.uint32]

#: of stream-K, in K iterations: the cost of beginning and storing a tile; the least part of a tile; the least mean
#: share, unless there are more tiles
TILE_ITERATIONS, LEAST_PART, LEAST_SHARE = 2, 2, 4
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

    ``ml``, ``nl``: the tile of a block, or of the blocks of each item; ``scalar_type``: the type of alpha and beta;
    ``operands``: the operands of the epilogue; ``u``: the depth of an iteration, ``kg``: slices of the longest K;
    ``sms``: multiprocessors, ``resident``: blocks that one of them runs at once; ``stream``: whether blocks have shares
    of K iterations. The table has the tile counter, which
    launches leave zero, the number of tiles, the first tile of each item, then the descriptors, in the order in which
    items are computed, and a counter for each tile of several slices, which launches leave zero, too. Every slice of a
    tile is a tile of its own. With ``stream``, numbers of tiles are those of K iterations, and the shares of the blocks
    precede the counters, one for each block.
    """

    ml: IntOrColumn
    nl: IntOrColumn
    scalar_type: str
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
        order: NDArray[np.int64] = longest[np.lexsort((np.where(reverse, -within, within), np.minimum(middle, rounds)))]
        return order

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

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Field, or epilogue operand -> its offset in a descriptor."""
        return {name: self.at(name) for name in (*_FIELDS, *self.operands)}

    @cached_property
    def offsets_after_header(self) -> dict[str, int]:
        """The same from the header of the table on."""
        return {name: HEADER + at for name, at in self.offsets.items()}

    @property
    def last_row(self) -> int:
        return int(self.ml) - 1

    @property
    def last_column(self) -> int:
        return int(self.nl) - 1

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
        formats = {
            name: (number_format or _NUMBERS[self.scalar_type], at) for name, (number_format, at) in _FIELDS.items()
        }
        formats |= {name: ("u8", self.at(name)) for name in self.operands}
        record = np.dtype(
            {
                "names": list(formats),
                "formats": [number_format for number_format, _ in formats.values()],
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
