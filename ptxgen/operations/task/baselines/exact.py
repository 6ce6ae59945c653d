"""The exact filter as a baseline: lists of pairs, or reductions of rows, by f32 sums of candidates that tensor cores
select. Its kernels are ptxgen's own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ptxgen.errors import LaunchError
from ptxgen.expr.node import variable
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.task.baselines.checked import Candidate, TaskBaseline
from ptxgen.operations.task.baselines.operands import downloaded, rows_of
from ptxgen.operations.task.exact_nearest import ExactNearest
from ptxgen.operations.task.exact_select import COUNT, ExactSelect, Launch
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.runtime.device_tables import Part, allocate_parts
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.runner import Runner
from ptxgen.runtime.workspace import Workspace
from ptxgen.tuning.selection import require


class ExactFilter(TaskBaseline):
    """The launches of ``ExactSelect`` or ``ExactNearest`` as a baseline. Calls use these launches, without an option,
    where they are faster."""

    title = "exact filter"

    def timed(self, candidate: Candidate, timing: Timing, least: float) -> float:
        launches: list[Callable[[], None]] = list(candidate.launches)  # type: ignore[arg-type]
        return statistics.median(self.driver.time(launches, timing))

    def checked(self, sets: Sequence[Mapping[str, int]]) -> Iterator[tuple[Candidate, str]]:
        p, driver = self.problem, self.driver
        exact = (ExactSelect if p.selected else ExactNearest).of(p, driver.device)
        if exact is None or (p.selected is not None and variable("i", "s32") not in p.selected.values):
            raise LaunchError("it takes large lists of i, and values, of sums of f32 by a threshold, or rows of sums")
        kernel, runners, workspace = driver.load(exact.source), dict[Task, Runner](), Workspace(driver)
        for stage in exact.stages:
            config = require(stage.problem, driver.device)[0].config
            runners[stage.problem] = Runner.of(driver, stage.problem, config, workspace)
        scratch: Mapping[str, Part] = allocate_parts(driver, {name: 4 * n for name, n in exact.scratch.items()})
        bound: dict[tuple[Task, tuple[int, ...]], Callable[[], None]] = {}

        def launched(q: Task, numbers: Mapping[str, float], addresses: tuple[int, ...], stream: int) -> None:
            if (q, addresses) not in bound:
                at = dict(zip(q.arrays, addresses, strict=True))
                bound[q, addresses] = runners[q].bind(at, scalars=numbers)
            bound[q, addresses]()

        def make_launch(q: Task, numbers: Mapping[str, float]) -> Launch:
            return partial(launched, q, numbers)

        own = {name: part.address for name, part in scratch.items()}
        launches = [
            partial(exact.launch, driver, kernel, make_launch, {**each, **own}, p.typical_scalars) for each in sets
        ]
        launches[0]()
        driver.synchronize()
        yield Candidate("tf32", launches), self._wrong(exact, sets[0], own)

    def _count(self, at: int) -> int:
        """The 64-bit integer at an address of the device."""
        count = np.empty(1, np.int64)
        self.driver.download(at, count)
        return int(count[0])

    def _wrong(self, exact: ExactSelect, addresses: Mapping[str, int], own: Mapping[str, int]) -> str:
        """The fault of the results of some rows; empty if they are correct."""
        p, driver = self.problem, self.driver
        candidates = self._count(own[COUNT])
        if candidates > exact.room:
            return f"there are {candidates} candidates; at most {exact.room} have room"
        if p.selected is None:
            got = np.empty(p.m, p.output.numpy)
            driver.download(addresses["C"], got)
            rows = self.sampled_rows()
            part, some = rows_of(p, downloaded(driver, p, addresses), rows)
            expected = evaluate(p.program, {**some, **p.typical_scalars}, {"i": part.m, "j": p.n, "k": p.k})["C"]
            return difference(expected, got[rows])
        count = self._count(addresses[SelectValues.COUNT])
        if count > p.capacity:
            return f"there are {count} results; at most {p.capacity} have room"
        lists = []
        for name, value in zip(list_names(len(p.selected.values)), p.selected.values, strict=True):
            lists.append(np.empty(p.capacity, p.result_arrays[name].dtype.numpy))
            driver.download(addresses[name], lists[-1])
            if value is variable("i", "s32"):
                i = lists[-1][:count]
        part, some = rows_of(p, downloaded(driver, p, addresses), self.sampled_rows())
        expected = evaluate(p.program, {**some, **p.typical_scalars}, {"i": part.m, "j": p.n, "k": p.k})["C"]
        return difference(expected, tuple(x[:count][i < part.m] for x in lists))
