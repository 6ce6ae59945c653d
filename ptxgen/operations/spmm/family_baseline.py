"""A kernel family that implements a published method, as a baseline: its fastest configuration, after preparation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.errors import LaunchError, ShapeError
from ptxgen.families.common.perf_model import predict
from ptxgen.families.common.space import candidates
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.checked_baseline import BaselineCheck
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.runner import Runner

TIMED = 8  #: the number of configurations that are timed, those that the performance model ranks first


class FamilyProduct:
    """A problem computed by kernels of ``family`` on a matrix that is prepared before the timing.

    ShapeError: there is nothing to multiply. LaunchError: the family does not compute the problem.
    """

    def __init__(self, family: str, driver: Driver, problem: Spmm, addresses: Mapping[str, int] | None = None) -> None:
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: an extent or the number of nonzeros is 0, which is not timed")
        self.problem = replace(problem, calls=max(problem.calls, 1))
        self._driver = driver
        self.configs = self._ranked(family)
        if not self.configs:
            raise LaunchError(f"{FAMILIES[family].published} does not compute {problem.key()}")

    def _ranked(self, family: str) -> list[Config]:
        """The configurations of the family to time, the best first."""
        p, d = lower(self.problem), self._driver.device
        space = candidates(p, d)
        every = space.take(np.arange(len(space)))
        own = every.take(np.flatnonzero(every.family == FAMILIES[family].code))
        order = np.argsort(predict(p, own, d), kind="stable") if len(own) else ()
        return [own.row(int(i)) for i in order[:TIMED]]

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the fastest configuration, and the time of the one that is ranked first: medians of the samples
        in microseconds. Each result is compared with the reference before.

        ``sets``: addresses by name of the array, used in rotation. LaunchError: a result is wrong.
        """
        check = BaselineCheck(self._driver, self.problem, sets[0])
        times = []
        for config in self.configs:
            runner = Runner.of(self._driver, self.problem, config)
            launches = [runner.bind(addresses) for addresses in sets]
            check.require(launches[0])
            times.append(statistics.median(self._driver.time(launches, timing)))
        return VendorTimes(min(times), times[0], min(times))


def product_of(family: str) -> partial[FamilyProduct]:
    """The function that makes the baseline of a family from a driver, a problem and addresses."""
    return partial(FamilyProduct, family)
