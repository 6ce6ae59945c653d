"""The record of one access to shared memory, and the pages of 128 bytes that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import flatnonzero

Array = NDArray[Any]
PAGE = 7


def page_bits(lo: int, hi: int) -> int:
    """The pages that contain bytes ``lo`` to ``hi`` - 1 of a block's shared memory, as bits of an integer."""
    first = lo >> PAGE
    return ((1 << (((hi - 1) >> PAGE) - first + 1)) - 1) << first


class Touch:
    """One access of one warp batch: byte positions in the wave's arena, ``size`` bytes each.

    ``number``: the number of a write in the order of execution; ``changed``: for each position, whether a store changed
    a value that another warp had stored (None: not known); ``arrival``: the line of an arrival by other lanes of the
    warp that does not release the access (0: none).
    """

    __slots__ = ("arrival", "changed", "index", "ins", "lanes", "mask", "number", "offset", "pages", "size")

    def __init__(self, pages: int, index: Array, offset: int, size: int, mask: Any, ins: Instruction) -> None:
        self.pages, self.index, self.offset, self.size, self.mask, self.ins = pages, index, offset, size, mask, ins
        self.lanes: Array | None = None  # the lanes of ``index``; None: all
        self.number = self.arrival = 0
        self.changed: Array | None = None

    def positions(self) -> tuple[Array, Array | None]:
        """The pair (byte positions of the active lanes, numbers of these lanes or None for all)."""
        if self.mask is None:
            return self.index + self.offset, self.lanes
        lanes = flatnonzero(self.mask)
        return self.index[lanes] + self.offset, lanes

    def subset(self, which: Array) -> Touch:
        """The part of the access at some of its positions (a mask)."""
        at, lanes = self.positions()
        out = Touch(self.pages, at[which], 0, self.size, None, self.ins)
        out.lanes, out.number = flatnonzero(which) if lanes is None else lanes[which], self.number
        out.changed = None if self.changed is None else self.changed[which]
        return out

    def of_lanes(self, mask: Array) -> Touch:
        """The part of the access that the lanes of a mask make."""
        at, lanes = self.positions()
        return self.subset(mask[: len(at)] if lanes is None else mask[lanes])


class Reads:
    """Reads of one size through one address register: instruction ``sites[i][1]`` reads at ``index`` +
    ``sites[i][0]``."""

    __slots__ = ("index", "mask", "pages", "sites", "size", "touches")

    def __init__(self, pages: int, index: Array, sites: list[tuple[int, Instruction]], size: int, mask: Any) -> None:
        self.pages, self.index, self.sites, self.size, self.mask = pages, index, sites, size, mask
        self.touches: list[Touch] | None = None

    def each(self) -> list[Touch]:
        if self.touches is None:
            self.touches = [Touch(self.pages, self.index, at, self.size, self.mask, ins) for at, ins in self.sites]
        return self.touches


def each(accesses: Iterable[Touch | Reads]) -> Iterator[Touch]:
    """The accesses one by one: each of ``Reads`` as several."""
    for access in accesses:
        if isinstance(access, Reads):
            yield from access.each()
        else:
            yield access


def words(positions: Array, size: int) -> list[tuple[int, Array]]:
    """Pairs (unit, element positions) that cover ``size`` bytes from each position."""
    unit = min(size, 8)
    first = positions >> (unit.bit_length() - 1)
    return [(unit, first + i) for i in range(size // unit)]


def units(positions: Array, size: int, shift: int) -> list[Array]:
    """The numbers of the units of ``1 << shift`` bytes that cover ``size`` bytes from each position."""
    first = positions >> shift
    return [first + i if i else first for i in range(max(size >> shift, 1))]


#: bytes of a unit -> the value of the unit whose bytes are all marked
FULL = {1: 1, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}
