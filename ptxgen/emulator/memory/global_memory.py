"""Global memory: one byte arena behind 64-bit addresses, with unused space between allocations."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE
from ptxgen.emulator.memory.texture import Texture
from ptxgen.errors import InputError

#: alignment of allocations, in bytes
ALIGNMENT = 1024


#: guard space after an allocation, in bytes
GUARD = 64 * 1024


Bytes = NDArray[np.uint8]


def typed_views(buffer: Bytes) -> dict[int, NDArray[Any]]:
    """The buffer as unsigned integers of 1, 2, 4 and 8 bytes."""
    return {size: buffer.view(f"<u{size}") for size in (1, 2, 4, 8)}


#: an access below this address is reported as one through a null pointer with an index
NULL_RANGE = 1 << 20


class GlobalMemory:
    """Allocations in one arena; ``views[size]`` shows it as unsigned integers of that many bytes."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        self.buffer: Bytes = np.zeros(capacity, np.uint8)
        self.views = typed_views(self.buffer)
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.bounds: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # both as arrays
        self.readonly: set[int] = set()
        self.constants: dict[int, int] = {}  # .const variables: first address, past-the-last address
        self.names: dict[int, str] = {}  # names of allocations, by first address: "Y, f32[256]"
        self.null_pointers: list[str] = []  # the parameters of the last launch that are null
        self.pointers: dict[int, str] = {}  # the parameter of the last launch that points to an allocation
        #: allocations of malloc in device code that were freed: first address -> (past-the-last address, name, line)
        self.released: dict[int, tuple[int, str, int]] = {}
        self.textures: dict[int, Texture] = {}  # by handle
        self.freed: list[tuple[int, int]] = []
        self.top = ALIGNMENT
        self.permanent = False  # whether reserved bytes stay reserved when there is no allocation

    def alloc(self, nbytes: int) -> int:
        """The address of a new allocation, which is filled with zeros; ``nbytes`` may be 0."""
        start = self.reserve(nbytes)
        self.insert(start, nbytes)
        self.buffer[start - GLOBAL_BASE : start - GLOBAL_BASE + nbytes] = 0
        return start

    def reserve(self, nbytes: int) -> int:
        """The address of bytes that no other allocation will get. They are not accessible until ``insert``."""
        if nbytes < 0:
            raise InputError(f"nbytes is {nbytes}; it must not be negative")
        span = -(-(nbytes + GUARD) // ALIGNMENT) * ALIGNMENT
        for i, (offset, size) in enumerate(self.freed):
            if size >= span:
                self.freed[i] = (offset + span, size - span)
                break
        else:
            offset = self.top
            self.top += span
            if self.top > len(self.buffer):
                try:
                    grown = np.zeros(max(self.top, 2 * len(self.buffer)), np.uint8)
                except MemoryError:
                    raise InputError(f"nbytes is {nbytes}; it must fit in the memory of this machine") from None
                grown[: len(self.buffer)] = self.buffer
                self.buffer = grown
                self.views = typed_views(grown)
        return GLOBAL_BASE + offset

    def insert(self, start: int, nbytes: int) -> None:
        """Makes reserved bytes an accessible allocation."""
        at = bisect.bisect_left(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, start + nbytes)
        self.bounds = None

    def free(self, address: int) -> None:
        """Releases an allocation; ``address`` must be one that ``alloc`` returned."""
        nbytes = self.remove(address)
        self.freed.append((address - GLOBAL_BASE, -(-(nbytes + GUARD) // ALIGNMENT) * ALIGNMENT))
        if not self.starts and not self.permanent:
            self.freed.clear()
            self.top = ALIGNMENT

    def remove(self, address: int) -> int:
        """Makes an allocation inaccessible, and returns its size in bytes."""
        at = bisect.bisect_left(self.starts, address)
        if at == len(self.starts) or self.starts[at] != address:
            raise InputError(f"address {address:#x} is not the start of an allocation")
        nbytes = self.ends[at] - address
        del self.starts[at], self.ends[at]
        self.bounds = None
        self.readonly.discard(address)
        self.constants.pop(address, None)
        self.names.pop(address, None)
        self.pointers.pop(address, None)
        return nbytes

    def extent(self, address: int) -> tuple[int, int] | None:
        """The pair (first, past-the-last address) of the allocation that holds ``address``; None if no allocation
        does."""
        at = bisect.bisect_right(self.starts, address) - 1
        if at >= 0 and address < self.ends[at]:
            return self.starts[at], self.ends[at]
        return None

    def span(self, address: int, nbytes: int) -> slice:
        """The slice of the buffer that holds [address, address + nbytes); InputError outside an allocation."""
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0 or nbytes < 0 or address + nbytes > self.ends[at]:
            raise InputError(f"[{address:#x}, {address + nbytes:#x}) is not inside one allocation")
        return slice(address - GLOBAL_BASE, address - GLOBAL_BASE + nbytes)

    def inside(self, addresses: NDArray[np.int64], nbytes: int) -> NDArray[np.bool_]:
        """True for each address whose ``nbytes`` bytes are inside one allocation."""
        if not self.starts:
            return np.zeros(len(addresses), bool)
        extent = self.extent(int(addresses.min())) if len(addresses) else None
        if extent is not None and int(addresses.max()) + nbytes <= extent[1]:
            return np.ones(len(addresses), bool)
        if self.bounds is None:
            self.bounds = np.array(self.starts, np.int64), np.array(self.ends, np.int64)
        starts, ends = self.bounds
        at = np.searchsorted(starts, addresses, "right") - 1
        return (at >= 0) & (addresses + nbytes <= ends[np.maximum(at, 0)])

    def name(self, start: int) -> str:
        """The name of the allocation that begins at ``start``, for messages."""
        if start in self.names:
            return self.names[start]
        nbytes = self.ends[bisect.bisect_left(self.starts, start)] - start
        by = f"that {self.pointers[start]} points to" if start in self.pointers else f"at {start:#x}"
        return f"the allocation of {nbytes} bytes {by}"

    def outside(self, address: int, nbytes: int, near: int | None = None) -> str:
        """The position of an access outside every allocation, for messages.

        ``near``: an address in the allocation that the message names; None: the allocation nearest to ``address``.
        """
        for start, (end, name, line) in self.released.items():
            if start <= address < end:
                return f"{nbytes} bytes at offset {address - start} of {name}, which line {line} has freed"
        extent = None if near is None else self.extent(near)
        if extent is None and abs(address) < NULL_RANGE:
            names = " and ".join(self.null_pointers)
            by = f": {names} {'are' if len(self.null_pointers) > 1 else 'is'} null" if names else ""
            return f"{nbytes} bytes at offset {address} of a null pointer{by}"
        if extent is None:
            if not self.starts:
                return f"{nbytes} bytes, and no allocation exists"
            at = max(bisect.bisect_right(self.starts, address) - 1, 0)
            if at + 1 < len(self.starts) and self.starts[at + 1] - address < address - self.ends[at]:
                at += 1
            extent = self.starts[at], self.ends[at]
        start, end = extent
        if address < start:
            where = f"{start - address} bytes before the start of"
        elif address < end:
            where = f"{address + nbytes - end} of them past the end of"
        else:
            where = f"{address - end} bytes past the end of"
        return f"{nbytes} bytes at offset {address - start}, {where} {self.name(start)}"
