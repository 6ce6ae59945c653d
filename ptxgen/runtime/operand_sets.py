"""Sets of operands in device memory, for timed runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptxgen.problem.reference import Array, Deviation
from ptxgen.problem.registry import Problem
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Timing


class OperandSets:
    """Sets of operands on the device that launches use in rotation, together larger than the L2 cache. All sets hold
    the same values, which the host knows.

    ``sets``: the addresses of A, B and C of each; C is undefined; ``bytes_c``: its size; ``more_at``: the addresses of
    the arrays that the epilogue reads.
    """

    problem: Problem

    def __init__(
        self, driver: Driver, timing: Timing, a: Array, b: Array, bytes_c: int, epilogue_operands: Sequence[Array]
    ) -> None:
        """``a``, ``b``, ``epilogue_operands``: as the kernel reads them in memory. LaunchError: out of memory."""
        self.driver, self.bytes_c = driver, max(bytes_c, 1)
        self._memory: list[Allocation] = []
        count = 1
        if driver.clock == "hardware":
            size = a.nbytes + b.nbytes + self.bytes_c
            count = int(min(timing.most, max(2, -(-timing.l2_multiple * driver.device.l2 // size))))
        self.sets = [(self._upload(a), self._upload(b), self._allocate(self.bytes_c)) for _ in range(count)]
        self.more_at = tuple(map(self._upload, epilogue_operands))

    def _upload(self, array: Array) -> int:
        address = self._allocate(max(array.nbytes, 1))
        if array.nbytes:
            self.driver.upload(address, np.ascontiguousarray(array))
        return address

    def _allocate(self, size: int) -> int:
        self._memory.append(Allocation(self.driver, size))
        return self._memory[-1].address

    def deviation(self, limit: int) -> Deviation:
        """Compares about ``limit`` elements of the first set's C, as the device holds it, with float64."""
        raise NotImplementedError

    def release(self) -> None:
        """Frees the device memory."""
        self._memory.clear()
        self.sets.clear()
        self.more_at = ()
