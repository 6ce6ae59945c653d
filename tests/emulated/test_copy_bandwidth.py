"""The copy whose bandwidth bounds problems that read their operands once, on the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.emulator import launch
from ptxgen.problem.device import device
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure import copy_bandwidth

H100 = device("h100")


def test_the_kernel_copies_every_byte() -> None:
    blocks, count = 2, 3
    words = blocks * count * copy_bandwidth.THREADS * copy_bandwidth.VECTORS * 4
    source = np.arange(words, dtype=np.uint32)
    to = np.zeros(words, np.uint32)
    text = copy_bandwidth.source_of(H100).text
    launch(text, copy_bandwidth.ENTRY, blocks, copy_bandwidth.THREADS, [source, to, np.uint32(count)], 0)
    np.testing.assert_array_equal(to, source)


class Timed(EmulatedDriver):
    """A device with one multiprocessor, whose copies take 4 µs."""

    def __init__(self) -> None:
        super().__init__()
        self.device = replace(self.device, sms=1, l2=1000)
        self.held = 0

    def allocate(self, size: int) -> int:
        self.held += 1
        return super().allocate(size)

    def release(self, address: int) -> None:
        self.held -= 1
        super().release(address)

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        launches[0]()
        return [4.0]


def test_the_bandwidth_counts_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = Timed()
    size = copy_bandwidth.BLOCKS * copy_bandwidth.THREADS * copy_bandwidth.VECTORS * 16
    assert copy_bandwidth.bandwidth(driver, Timing(), size - 1) == 2 * size / 4
    assert driver.held == 0
    assert copy_bandwidth.measured(driver, 1e6, Timing()) is None
    driver.clock = "hardware"
    measured_times = copy_bandwidth.measured(driver, 1e6, Timing())
    assert measured_times is not None
    assert measured_times.least_us == pytest.approx(1e6 / (2 * size / 4))
