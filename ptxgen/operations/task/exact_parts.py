"""The exact filters that calls choose, and the same as parts that ``bench`` times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ptxgen.operations.task.exact_nearest import ExactNearest
from ptxgen.operations.task.exact_select import COUNT, ExactSelect
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from ptxgen.problem.operation import Part, Parts
from ptxgen.runtime.driver import Driver
from ptxgen.tuning.selection import require


def chosen(p: Task, d: Device) -> ExactSelect | None:
    """The launches that filter candidates for a call; None: the float32 kernel computes all pairs."""
    exact = (ExactSelect if p.selected else ExactNearest).of(p, d)
    return exact if exact is not None and predicted_faster(exact, p, d) else None


def predicted_faster(exact: ExactSelect, p: Task, d: Device) -> bool:
    """True if the launches that list candidates are predicted to take less time than the kernel of all pairs."""
    return sum(require(x.problem, d)[0].us for x in exact.stages) < require(p, d)[0].us


def has_room(exact: ExactSelect, driver: Driver, addresses: Mapping[str, int]) -> bool:
    """True if the lists had room for the candidates of the last launches, which are complete."""
    count = np.zeros(1, np.int64)
    driver.download(addresses[COUNT], count)
    return bool(count[0] <= exact.room)


@dataclass(frozen=True)
class PairLaunches:
    """The launches of a filter that compute the sums of candidates. ``scalars``: the numbers of the task."""

    exact: ExactSelect
    scalars: Mapping[str, float]

    def load(self, driver: Driver) -> Callable[[Mapping[str, int]], None]:
        kernel = driver.load(self.exact.source)
        return lambda addresses: self.exact.launch_pairs(driver, kernel, addresses, self.scalars)

    def fits(self, driver: Driver, addresses: Mapping[str, int]) -> bool:
        return has_room(self.exact, driver, addresses)


def parts_of_filter(p: Task, d: Device) -> Parts | None:
    """The launches of the filter that a call chooses. None: the float32 kernel computes all pairs."""
    exact = chosen(p, d)
    if exact is None:
        return None
    scalars = p.typical_scalars
    steps = []
    for x in exact.stages:
        arrays = dict(zip(x.problem.arrays, x.arrays, strict=True))
        steps.append(Part(arrays["C"], x.problem, arrays, x.numbers(scalars)))
    memory = {name: 4 * n for name, n in exact.scratch.items()}
    note = f"{len(steps) + 1} kernels: tensor cores list candidates, f32 decides"
    return Parts(tuple(steps), memory, float("nan"), note, PairLaunches(exact, scalars))
