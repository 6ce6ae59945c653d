"""Grouped products by the tile policy of Zhang et al. (``lowering.tlp_policy``), timed as a baseline."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxgen.codegen.config import Config, parse_config
from ptxgen.codegen.grouped import GroupedScheduler
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Argument, Step
from ptxgen.errors import LaunchError
from ptxgen.families.geometry import warp_rows
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.lowering.tlp_policy import TILES, Resources, choose_tiles, grid_of_largest_item
from ptxgen.problem.grouped import GroupedGemm, write_leading_dimensions
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Kernel, Timing

#: by name of a tile of the policy: rows and columns of C of a thread
THREAD_TILES = {"small": (2, 1), "small-medium": (2, 2), "medium": (4, 2), "medium-large": (4, 2), "large": (4, 4)}


def tile_config(name: str) -> Config:
    """The kernel of a tile of the policy: its threads, its step along K, two stages."""
    tile = next(t for t in TILES if t.name == name)
    ms, ns = THREAD_TILES[name]
    text = f"ms={ms} ns={ns} ml={tile.m} nl={tile.n} u={tile.k} stages=2 vec_a=1 vec_b=1 vec_c=1"
    config = parse_config(text)
    return config.replace(lanes_m=int(warp_rows(config)))


class TlpBaseline:
    """A grouped product whose items have the tiles that the policy chooses.

    A kernel has one tile, so each tile that occurs is a launch of its own, the largest first; the paper has one launch
    for all. ``idle_blocks``: blocks that the paper's grid of the largest item would add. LaunchError: the kernels do
    not support the types.
    """

    def __init__(
        self, driver: Driver, problem: GroupedGemm, more: tuple[int, ...] = (), threshold: int | None = None
    ) -> None:
        if problem.jagged or problem.epilogue_ops:
            raise LaunchError(f"{problem.key()}: the tile policy is for lists of products without an epilogue")
        self._driver, self.problem = driver, problem
        resources = [self._resources(t.name) for t in TILES]
        self.scheme = choose_tiles(problem.items, driver.device, threshold, resources)
        self.idle_blocks = grid_of_largest_item(problem.items, self.scheme.tiles).idle_blocks
        self._kernels: list[tuple[Kernel, Any, list[int]]] = []
        for index in reversed(range(len(TILES))):
            items = [int(i) for i in np.flatnonzero(self.scheme.tiles == index) if problem.item(int(i)).results]
            if items:
                plan = self._plan(TILES[index].name)
                self._kernels.append((driver.load(render(plan)), plan, items))
        self._tables: list[Allocation] = []

    def _plan(self, name: str) -> Any:
        """LaunchError: the configuration is not legal for the problem."""
        config, device = tile_config(name), self._driver.device
        broken = first_violation(lower(self.problem), config, device)
        if broken is not None:
            raise LaunchError(f"tile {name} of the policy breaks rule {broken.name!r} for {self.problem.key()}")
        return plan_for(self.problem, config, device)

    def _resources(self, name: str) -> Resources:
        plan = self._plan(name)
        return Resources(int(plan.geometry.registers), int(plan.geometry.shared))

    def steps(self, a: int, b: int, c: int) -> list[tuple[Kernel, Step, bytes]]:
        """The launches on arrays that hold all items, with tables in device memory."""
        p, found = self.problem, []
        bytes_ = np.array([p.element.bytes, p.element.bytes, p.output.bytes])
        addresses = p.starts * bytes_ + np.array([a, b, c], np.int64)
        for kernel, plan, items in self._kernels:
            plan.set_registers(kernel.registers)
            scheduler = plan.scheduler
            assert isinstance(scheduler, GroupedScheduler)
            part = GroupedGemm(
                tuple(p.items[i] for i in items), p.layout, p.dtype, p.compute, write_leading_dimensions(p.lds[items])
            )
            words = scheduler.table.words(part.extents, part.lds, addresses[items])
            table = Allocation(self._driver, words.nbytes)
            self._driver.upload(table.address, words)
            self._tables.append(table)
            kind = plan.arithmetic.type
            arguments: tuple[Argument, ...] = (
                *(("u64", 0) for _ in "ABCW"),
                ("u64", table.address),
                ("u32", len(items)),
                (kind, "alpha"),
                (kind, "beta"),
            )
            grid = scheduler.grid(lower(part), 1)
            step = Step(plan.entry, grid, (plan.threads, 1, 1), plan.shared, arguments)
            found.append((kernel, step, step.pack({"alpha": 1, "beta": 0})))
        return found

    def best(self, sets: Sequence[tuple[int, int, int]], timing: Timing) -> tuple[float, float]:
        """Microseconds of the product, the median of the samples, and the same again: the policy has one choice.

        ``sets``: addresses of A, B and C, used in rotation.
        """
        launches = [functools.partial(self.run, self.steps(*addresses)) for addresses in sets]
        us = statistics.median(self._driver.time(launches, timing))
        self._tables.clear()
        return us, us

    def run(self, steps: list[tuple[Kernel, Step, bytes]]) -> None:
        """Queues launches from ``steps`` on the driver's stream."""
        for kernel, step, parameters in steps:
            self._driver.launch(kernel, step, parameters)
