"""Observes energy, power and clock of a device while it repeats a kernel."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ptxgen.errors import LaunchError
from ptxgen.runtime.driver import Driver
from ptxgen.tuning.store.observation import Observation

SECONDS = 1.0  #: seconds for which a kernel is repeated: ten steps of the energy counter
WARM_UP = 0.25  #: the fraction of the readings, at the start, that is ignored: power and clock reach their level


class Reading(NamedTuple):
    """The counters of the device at the time ``us``, in microseconds."""

    us: float
    millijoules: float
    megahertz: float


def observe(driver: Driver, calls: Sequence[Callable[[], None]]) -> Observation:
    """Repeats calls, which have run before, and reads the sensors of the device meanwhile. UnavailableError: the device
    has no sensors. LaunchError: the energy counter does not move."""
    sensors = driver.sensors()
    readings: list[Reading] = []

    def read() -> None:
        readings.append(Reading(driver.now_us(), sensors.millijoules(), sensors.megahertz()))

    us = driver.sustain(calls, SECONDS, read)
    warm = readings[int(WARM_UP * len(readings)) :]
    watts = _watts(warm)
    return Observation(watts * us * 1e-3, watts, statistics.median(r.megahertz for r in warm), us)


def _watts(readings: Iterable[Reading]) -> float:
    """The power in watts between the first and the last step of the energy counter. Energy and time between two steps
    belong to the same interval, whatever the length of a step is. LaunchError: the counter has fewer than two steps."""
    before, steps = None, []
    for reading in readings:
        if before is not None and reading.millijoules != before:
            steps.append(reading)
        before = reading.millijoules
    if len(steps) < 2 or not steps[-1].us > steps[0].us:
        raise LaunchError(f"the energy counter moved {len(steps)} times in {SECONDS:g} s; it must move twice")
    return 1e3 * (steps[-1].millijoules - steps[0].millijoules) / (steps[-1].us - steps[0].us)
