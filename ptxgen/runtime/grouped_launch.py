"""Launches of grouped kernels whose items are anywhere in device memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import Config
from ptxgen.codegen.grouped import GroupedScheduler, GroupTable
from ptxgen.codegen.packing import POINTERS
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.source import Launch, Step
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.grouped import GroupedGemm
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspaces

Ints = NDArray[np.int64]


def table_us(problem: GroupedGemm, config: Config, device: Device, runs: int = 3) -> float:
    """Microseconds of the host in which it makes the descriptor table of a list, the least of ``runs``; NaN: a kernel
    makes the table of a jagged group."""
    if problem.jagged:
        return float("nan")
    scheduler = plan_for(problem, config, device).scheduler
    assert isinstance(scheduler, GroupedScheduler)
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        GroupTable(scheduler.table, problem).words()
        times.append(1e6 * (time.perf_counter() - began))
    return min(times)


@dataclass(eq=False)
class HostTable:
    """A table in host memory that a captured graph copies to the device at each launch, and the kernel that reads it.
    The graph holds a reference to it."""

    words: NDArray[Any]
    kernel: Kernel


class GroupLaunch:
    """A loaded kernel for lists of GEMMs of one class: one copy of a descriptor table, then one launch."""

    def __init__(self, driver: Driver, plan: Plan, kernel: Kernel, workspaces: Workspaces) -> None:
        plan.set_registers(kernel.registers)
        assert isinstance(plan.scheduler, GroupedScheduler)
        self.driver, self.plan, self.kernel, self.workspaces = driver, plan, kernel, workspaces
        self.scheduler = plan.scheduler

    def __call__(
        self,
        problem: GroupedGemm,
        addresses: Ints,
        alpha: Any = 1,
        beta: Any = 0,
        operands: Sequence[Ints] = (),
        stream: int = 0,
    ) -> None:
        """Queues the product on ``stream``. ``addresses``: of A, B and C, one row an item; ``alpha``, ``beta``:
        numbers, or one of each item; ``operands``: the addresses of each operand of the epilogue."""
        if not problem.results:
            return
        table = self.scheduler.table.words(problem.extents, problem.lds, addresses, alpha, beta, operands)
        if stream > 1 and self.driver.capturing(stream):
            words = self.driver.host_memory(table.nbytes).view(np.uint32)
            words[:] = table
            table = words
            workspace = self.workspaces.for_capture(stream, HostTable(words, self.kernel))
        else:
            workspace = self.workspaces.for_stream(stream) if stream else self.workspaces.own
        needs = Launch((), table.nbytes)
        allocation = workspace.acquire(needs)
        self.driver.queue_upload(allocation.address, table, stream)
        step = self.step(problem)
        values: dict[str, int | float] = {name: 0 for _, name in step.arguments if isinstance(name, str)}
        values |= {"alpha": 1, "beta": 1, "table": allocation.address, "items": len(problem.items)}
        self.driver.launch(self.kernel, step, step.pack(values), stream)
        workspace.put_back(needs, allocation)

    def step(self, problem: GroupedGemm) -> Step:
        """The launch of the kernel; its table is an argument that the caller supplies."""
        plan = self.plan
        kind = plan.arithmetic.type
        arguments = (
            *POINTERS,
            *plan.fused_ops.arguments,
            ("u64", "table"),
            ("u32", "items"),
            (kind, "alpha"),
            (kind, "beta"),
        )
        grid = self.scheduler.grid(lower(problem), 1)
        return Step(plan.entry, grid, (plan.threads, 1, 1), plan.shared, arguments)
