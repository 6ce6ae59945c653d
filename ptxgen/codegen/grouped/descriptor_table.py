"""The descriptor table of a group, from which blocks read the addresses and extents of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.vectorized import IntOrColumn
from ptxgen.lowering.descriptor_table import Items, items_of, slice_length
from ptxgen.lowering.table import Table

Words = NDArray[np.uint32]

#: numbers of stream-K, in K iterations: the cost of starting and storing a tile; the least part of a tile in a share;
#: the least mean share of a block, unless there are more tiles
TILE_ITERATIONS, LEAST_PART, LEAST_SHARE = 2, 2, 4
HEADER = 16  #: bytes before the first tiles: the tile counter and the number of tiles
EPILOGUE_AT = 88  #: offset of the addresses of epilogue operands in a descriptor

#: field of a descriptor -> (NumPy type, offset in bytes). ``a``, ``b``, ``c``: addresses relative to A, B and C;
#: ``first``: number of the item's first tile; ``item``: index of the item; ``start``: first index of a jagged item,
#: else 0; ``k_slice``: length of a slice of K
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

    ``ml``, ``nl``: the tile of a block, or columns with the tile of each item; ``scalar_type``: the type of alpha and
    beta; ``operands``: the operands of the epilogue; ``u``: the depth of an iteration; ``kg``: the number of slices of
    the longest K; ``sms``: multiprocessors; ``resident``: blocks that run at once on a multiprocessor; ``stream``: True
    for stream-K.

    The table consists of the tile counter, the number of tiles, the number of the first tile of each item, the
    descriptors in the order in which items are computed, and one counter for each tile that several slices compute.
    Launches leave all counters zero. Every slice of a tile counts as a tile. With ``stream``, K iterations are counted
    in place of tiles, and the shares of the blocks precede the counters.
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
    def arrays(self) -> tuple[str, ...]:
        """The arrays besides A, B and C whose addresses are in a descriptor."""
        return self.operands

    @property
    def descriptor_bytes(self) -> int:
        return -(-(EPILOGUE_AT + 8 * len(self.operands)) // 16) * 16

    def descriptors_at(self, items: int) -> int:
        """The offset of the descriptors in the table, in bytes."""
        return HEADER + -(-items // 4) * 16

    def bytes(self, items: int, more: int = 0) -> int:
        """The size of the table in bytes. ``more``: words of counters and shares, which follow the descriptors."""
        return self.descriptors_at(items) + items * self.descriptor_bytes + 4 * more

    def k_slices(self, extents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The length of a slice of K, and the number of slices, of each item. Only the last slice may be shorter."""
        k = extents[:, 2]
        count = np.maximum(-(-k // slice_length(int(k.max(initial=0)), self.u, self.kg)), 1)
        return np.maximum(-(-k // (count * self.u)), 1) * self.u, count

    def split_tiles(self, extents: NDArray[np.int64]) -> int:
        """The number of tiles of all items with several slices. These tiles have the first numbers."""
        if self.kg == 1:
            return 0
        tiles = -(-extents[:, 0] // self.ml) * -(-extents[:, 1] // self.nl)
        slices = self.k_slices(extents)[1]
        return int((tiles * slices)[slices > 1].sum())

    def order(self, extents: NDArray[np.int64], tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of the items in the order in which blocks compute them: the longest K first. ``tiles``: the
        number of tiles of each item.

        The blocks of a multiprocessor start with tiles whose numbers are equal modulo ``sms``. Every second round of
        ``sms`` tiles is in reverse order, so that a multiprocessor with a long tile also has a short one. Items with
        several slices of K come first in any case.
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
        """The number of K iterations of a tile, at least one, for each item."""
        return np.maximum(-(-extents[:, 2] // self.u), 1)

    def shares(self, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first iteration of each block's share, and then the number of all iterations. Iterations are numbered
        over all tiles, in the order of ``order``; shares have about equal work."""
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
        """Name of a field or epilogue operand -> its offset in a descriptor, in bytes."""
        return {name: self.at(name) for name in (*_FIELDS, *self.operands)}

    @cached_property
    def offsets_after_header(self) -> dict[str, int]:
        """Name of a field or epilogue operand -> its offset in a descriptor plus ``HEADER``, for a pointer to a
        descriptor that lacks the bytes of the header."""
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
        """The words of the table. Arrays with one row for each item: ``extents``: M, N, K; ``lds``: leading dimensions
        of A, B, C in elements; ``addresses``: addresses of A, B, C. ``alpha``, ``beta``: a number, or one for each
        item; ``operands``: for each epilogue operand, its address in each item."""
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
        for name, at in zip(self.arrays, operands, strict=True):
            rows[name] = np.asarray(at)[order].astype(np.uint64)
        for name, numbers in self.further(extents[order]).items():
            rows[name] = numbers
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

    def further(self, extents: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The numbers of further entries by name, one for each descriptor. ``extents``: M, N, K in the order of the
        descriptors."""
        return {}

    def place(self, words: Words, addresses: NDArray[np.int64]) -> None:
        """Replaces the addresses of A, B and C in ``words``, a table. ``addresses``: one row for each item."""
        count = len(addresses)
        rows = words[self.descriptors_at(count) // 4 : self.bytes(count) // 4].reshape(count, -1)
        order = rows[:, _FIELDS["item"][1] // 4]
        rows[:, : 2 * addresses.shape[1]] = addresses[order].view(np.uint32)  # the first fields


def table_of(launched: Launched, layout: DescriptorTable) -> int | GroupTable:
    """The descriptor table of a launch: its offset in the workspace if a kernel makes it."""
    made = launched.buffers.packed.get("table")
    return GroupTable(layout, items_of(launched.p)) if made is None else made


@dataclass(frozen=True)
class GroupTable(Table):
    """The descriptor table of a group in which each operand of all items is one array."""

    layout: DescriptorTable
    group: Items

    def words(self) -> Words:
        p, size, out = self.group, self.group.element.bytes, self.group.output.bytes
        starts = p.starts * np.array([size, size, out])
        operands = [p.epilogue_sizes(n)[0] * p.epilogue_operand_dtype(n).bytes for n in self.layout.arrays]
        return self.layout.words(p.extents, p.kernel_lds, starts, operands=operands)
