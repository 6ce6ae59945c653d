"""The heap of malloc and free in device code: a region of global memory that lives as long as the device."""

from __future__ import annotations

from collections import Counter

from ptxgen.emulator.memory.global_memory import GlobalMemory

#: bytes that kernels may allocate: the default limit of the CUDA runtime
CAPACITY = 8 << 20


#: bytes of the region, which has unused space between allocations
REGION = 16 << 20


#: alignment of allocations, and number of unused bytes after each
ALIGNMENT, GAP = 16, 112


class DeviceHeap:
    """Allocations in one region. Freed space is used again only when the region is full."""

    def __init__(self, memory: GlobalMemory) -> None:
        self.memory = memory
        self.top = memory.reserve(REGION)
        memory.permanent = True
        self.end = self.top + REGION
        self.used = 0
        self.sizes: dict[int, int] = {}
        self.lines: dict[int, int] = {}  # by first address: the line of the call of malloc
        #: the allocations that the current launch has made and not freed
        self.recent: dict[int, None] = {}

    def malloc(self, nbytes: int, line: int) -> int:
        """The address of a new allocation, whose bytes are 0xff; 0 for no bytes, or if they do not fit."""
        if not 0 < nbytes <= CAPACITY - self.used:
            return 0
        span = -(-nbytes // ALIGNMENT) * ALIGNMENT + GAP
        if self.top + span <= self.end:
            address, self.top = self.top, self.top + span
        else:
            address = self.hole(span)
            if not address:
                return 0
        self.used += nbytes
        self.sizes[address], self.lines[address] = nbytes, line
        self.recent[address] = None
        self.memory.insert(address, nbytes)
        self.memory.names[address] = f"the {nbytes} bytes that malloc allocated (line {line})"
        self.memory.buffer[self.memory.span(address, nbytes)] = 0xFF
        return address

    def hole(self, span: int) -> int:
        """The address of the oldest freed space of at least ``span`` bytes; 0 if there is none."""
        for address, (end, _, _) in self.memory.released.items():
            if end - address + GAP >= span:
                del self.memory.released[address]
                return address
        return 0

    def refusal(self, address: int) -> str:
        """The reason why an address cannot be freed; empty if it can."""
        if address in self.sizes:
            return ""
        released = self.memory.released.get(address)
        if released is not None:
            return f"{released[1]} are freed twice, first by line {released[2]}"
        return "the pointer is not one that malloc has returned"

    def free(self, address: int, line: int) -> None:
        """Releases an allocation. ``refusal(address)`` must be empty."""
        nbytes = self.sizes.pop(address)
        self.used -= nbytes
        name = self.memory.names[address]
        self.memory.remove(address)
        self.memory.released[address] = address + nbytes, name, line
        self.recent.pop(address, None)
        del self.lines[address]

    def leaks(self) -> list[str]:
        """The allocations that the launch has not freed, by line, as texts. The list for the next launch begins
        empty."""
        counts: Counter[int] = Counter()
        total: Counter[int] = Counter()
        for address in self.recent:
            counts[self.lines[address]] += 1
            total[self.lines[address]] += self.sizes[address]
        self.recent = {}
        return [
            f"line {line}: {n} allocation{'s' * (n != 1)} of malloc, {total[line]} bytes, "
            f"{'have' if n != 1 else 'has'} not been freed"
            for line, n in sorted(counts.items())
        ]
