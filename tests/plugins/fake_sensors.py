"""Sensors of the emulated device, as a plugin, also for the child that measures: faster calls use more energy. The
counter has steps: every other reading repeats the last one."""

from __future__ import annotations

from ptxgen.runtime.emulated import EmulatedDriver

MEGAHERTZ = 1234.0


def millijoules(us: float) -> float:
    """The energy of a call."""
    return 100.0 / us


class FakeSensors:
    def __init__(self, driver: EmulatedDriver) -> None:
        self.driver, self.reads, self.before = driver, 0, driver.now_us()
        self.total = self.shown = 0.0

    def millijoules(self) -> float:
        us, self.before = self.driver.now_us() - self.before, self.driver.now_us()
        self.total += millijoules(us) if us else 0.0
        self.reads += 1
        if self.reads % 2:
            self.shown = self.total
        return self.shown

    def megahertz(self) -> float:
        return MEGAHERTZ


def register() -> None:
    EmulatedDriver.sensors = lambda self: FakeSensors(self)  # type: ignore[method-assign]
