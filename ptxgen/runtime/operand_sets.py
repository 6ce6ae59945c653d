"""Sets of operands in device memory, for timed runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.problem.reference import Array, Deviation
from ptxgen.problem.registry import Problem
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Timing


class OperandSets:
    """Sets of operands on the device that launches use in rotation, together larger than the L2 cache. All sets hold
    the same values, which the host knows.

    ``sets``: the addresses of each set, by name of the array; outputs are undefined.
    """

    problem: Problem

    def __init__(
        self,
        driver: Driver,
        timing: Timing,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, int],
        shared: Mapping[str, Array],
        least: int | None = None,
    ) -> None:
        """Allocates and fills the sets. ``inputs``: arrays that each set has a copy of, as stored for the kernel;
        ``outputs``: sizes in bytes; ``shared``: arrays that all sets share; ``least``: the bytes of the inputs that
        every kernel reads; None: all bytes. LaunchError: out of memory."""
        self.driver = driver
        self._outputs = {name: max(size, 1) for name, size in outputs.items()}
        self._memory: list[Allocation] = []
        count = 1
        if driver.clock == "hardware":
            read = sum(x.nbytes for x in inputs.values()) if least is None else least
            size = read + sum(self._outputs.values())
            count = int(min(timing.most, max(2, -(-timing.l2_multiple * driver.device.l2 // size))))
        self.sets = [
            {name: self._upload(x) for name, x in inputs.items()}
            | {name: self._allocate(size) for name, size in self._outputs.items()}
            for _ in range(count)
        ]
        at = {name: self._upload(x) for name, x in shared.items()}
        for addresses in self.sets:
            addresses.update(at)

    def poison(self) -> None:
        """Fills the outputs of the first set with bytes 0xFF."""
        for name, size in self._outputs.items():
            self.driver.fill(self.sets[0][name], size, 0xFF)

    def _upload(self, array: Array) -> int:
        address = self._allocate(max(array.nbytes, 1))
        if array.nbytes:
            self.driver.upload(address, np.ascontiguousarray(array))
        return address

    def _allocate(self, size: int) -> int:
        self._memory.append(Allocation(self.driver, size))
        return self._memory[-1].address

    def deviation(self, limit: int) -> Deviation:
        """The deviation of about ``limit`` elements of the first set's outputs from a float64 reference."""
        raise NotImplementedError

    def release(self) -> None:
        """Frees the device memory."""
        self._memory.clear()
        self.sets.clear()
