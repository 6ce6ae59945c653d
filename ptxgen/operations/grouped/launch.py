"""Launches of grouped kernels whose items are anywhere in device memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.grouped.descriptor_table import DescriptorTable, GroupTable
from ptxgen.codegen.grouped.scheduler import GroupedScheduler
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.lowering.table import Table
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import Device
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspaces

Ints = NDArray[np.int64]
SUMS_ALIGNMENT = 256  #: alignment in bytes of the sums of K slices, which follow the table


def table_us(problem: GroupedGemm, config: Config, device: Device, runs: int = 3) -> float:
    """The microseconds in which the host makes the descriptor table of a list, the least of ``runs`` runs; NaN for a
    jagged group, whose table a kernel makes."""
    if problem.jagged:
        return float("nan")
    layout = _layout(plan_for(problem, config, device))
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        GroupTable(layout, problem).words()
        times.append(1e6 * (time.perf_counter() - began))
    return min(times)


def _layout(plan: Plan) -> DescriptorTable:
    """The layout of the descriptor table that the scheduler of ``plan`` reads."""
    layout = getattr(plan.scheduler, "table", None)
    assert isinstance(layout, DescriptorTable)
    return layout


class ItemTable(Protocol):
    """The layout of a descriptor table."""

    def place(self, words: NDArray[Any], addresses: Ints) -> None:
        """Writes the addresses of A, B and C of the items into ``words``, the table."""


class ListLaunch:
    """A loaded kernel for lists of one class, and the layout of its descriptor table. A call copies the table to the
    device, then launches the kernel."""

    def __init__(self, driver: Driver, kernel: Kernel, workspaces: Workspaces, table: ItemTable) -> None:
        self.driver, self.kernel, self.workspaces, self.table = driver, kernel, workspaces, table

    def __call__(
        self,
        problem: GroupedGemm,
        addresses: Ints,
        alpha: Any = 1,
        beta: Any = 0,
        operands: Sequence[Ints] = (),
        stream: int = 0,
    ) -> None:
        """Queues the product on ``stream``. ``addresses``: the addresses of A, B and C, one row per item; ``alpha``,
        ``beta``: one number, or one for each item; ``operands``: for each operand of the epilogue, the addresses of all
        items."""
        if problem.results:
            self.prepare(problem, alpha, beta, operands)(addresses, stream)

    def prepare(self, problem: GroupedGemm, alpha: Any = 1, beta: Any = 0, operands: Sequence[Ints] = ()) -> GroupCall:
        """A call with everything but the addresses of A, B and C."""
        raise NotImplementedError


@dataclass(eq=False)
class HostTable:
    """A table in host memory that a captured graph copies to the device at each launch, and the kernel that reads the
    table. The graph holds a reference to this object."""

    words: NDArray[Any]
    kernel: Kernel


class GroupLaunch(ListLaunch):
    """A loaded kernel for lists of GEMMs that all have the same tile."""

    def __init__(self, driver: Driver, plan: Plan, kernel: Kernel, workspaces: Workspaces) -> None:
        plan = plan.with_registers(kernel.registers)
        assert isinstance(plan.scheduler, GroupedScheduler)
        super().__init__(driver, kernel, workspaces, plan.scheduler.table)
        self.plan, self.scheduler = plan, plan.scheduler

    def prepare(self, problem: GroupedGemm, alpha: Any = 1, beta: Any = 0, operands: Sequence[Ints] = ()) -> GroupCall:
        none = np.zeros((len(problem.items), 3), np.int64)
        words = self.scheduler.table.words(problem.extents, problem.kernel_lds, none, alpha, beta, operands)
        sums_at = _aligned(words.nbytes)
        needs = Launch((), sums_at + self.scheduler.partial_bytes(problem))
        return GroupCall(self, problem, words, (self.step(problem),), sums_at, needs)

    def step(self, problem: GroupedGemm) -> Step:
        """The launch of the kernel; its table is an argument that the caller supplies."""
        plan, grid = self.plan, self.scheduler.grid(lower(problem), 1)
        return Step(plan.entry, grid, (plan.threads, 1, 1), plan.shared, plan.parameters.rows.by_name)


class PackedLaunch(ListLaunch):
    """The loaded kernels for lists of GEMMs whose operands are packed before the product."""

    def __init__(self, driver: Driver, plan: Plan, kernel: Kernel, workspaces: Workspaces) -> None:
        self.plan, self.layout = plan, _layout(plan)
        super().__init__(driver, kernel, workspaces, self.layout)

    def prepare(self, problem: GroupedGemm, alpha: Any = 1, beta: Any = 0, operands: Sequence[Ints] = ()) -> GroupCall:
        none = np.zeros((len(problem.items), 3), np.int64)
        words = self.layout.words(problem.extents, problem.kernel_lds, none, alpha, beta, operands)
        launch, packed_at = self.plan.launch(lower(problem)), _aligned(words.nbytes)
        steps = tuple(replace(step, arguments=tuple(map(_table_by_name, step.arguments))) for step in launch.steps)
        return GroupCall(self, problem, words, steps, packed_at, Launch((), packed_at + launch.workspace))


def _table_by_name(argument: Argument) -> Argument:
    """The argument, with the name ``table`` in place of a table, which the caller supplies."""
    return ("u64", "table") if isinstance(argument[1], Table) else argument


def _aligned(size: int) -> int:
    """The offset of the part of the workspace that follows a table of ``size`` bytes."""
    return -(-size // SUMS_ALIGNMENT) * SUMS_ALIGNMENT


@dataclass(frozen=True, eq=False)
class GroupCall:
    """A launch of a list of GEMMs at any addresses. ``words``: the descriptor table without the addresses; ``sums_at``:
    the offset of the sums of K slices, or of packed operands, in the workspace, after the table; ``needs``: the launch,
    whose workspace the call requires."""

    launch: ListLaunch
    problem: GroupedGemm
    words: NDArray[Any]
    steps: tuple[Step, ...]
    sums_at: int
    needs: Launch

    def __call__(self, addresses: Ints, stream: int = 0) -> None:
        """Queues the product on ``stream``. ``addresses``: the addresses of A, B and C, one row per item."""
        launch = self.launch
        driver, workspaces = launch.driver, launch.workspaces
        if stream > 1 and driver.capturing(stream):
            table = driver.host_memory(self.words.nbytes).view(np.uint32)
            table[:] = self.words
            workspace = workspaces.for_capture(stream, HostTable(table, launch.kernel))
        else:
            table = self.words.copy()
            workspace = workspaces.for_stream(stream) if stream else workspaces.own
        launch.table.place(table, addresses)
        allocation = workspace.acquire(self.needs)
        driver.queue_upload(allocation.address, table, stream)
        given: dict[str, int | float] = {"alpha": 1, "beta": 1, "table": allocation.address, "items": len(addresses)}
        given["W"] = allocation.address + self.sums_at
        for step in self.steps:
            values = {name: 0 for _, name in step.arguments if isinstance(name, str)} | given
            driver.launch(launch.kernel, step, step.pack(values) + step.pack_maps(driver.tensor_map, values), stream)
        workspace.put_back(self.needs, allocation)
