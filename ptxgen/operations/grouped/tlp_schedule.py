"""Grouped products by the tile policy of Zhang et al. (``tlp_policy``): a launch for each tile that occurs."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.grouped.scheduler import GroupedScheduler
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import CorruptError, LaunchError
from ptxgen.families.common.fma.geometry import warp_rows
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.operations.grouped.tlp_policy import (
    TILES,
    Resources,
    Scheme,
    choose_tiles,
    default_threshold,
    idle_blocks,
    schemes,
    tune_threshold,
)
from ptxgen.problem.device import Device
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.check import CASES, CheckResult
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Kernel, Timing
from ptxgen.runtime.runner import Buffers
from ptxgen.settings import settings

#: by name of a tile of the policy: rows and columns of C of a thread
THREAD_TILES = {"small": (2, 1), "small-medium": (2, 2), "medium": (4, 2), "medium-large": (4, 2), "large": (4, 4)}


def tile_config(name: str) -> Config:
    """The kernel of a tile of the policy: its threads, its step along K, two stages."""
    tile = next(t for t in TILES if t.name == name)
    ms, ns = THREAD_TILES[name]
    text = f"ms={ms} ns={ns} ml={tile.m} nl={tile.n} u={tile.k} stages=2 vec_a=1 vec_b=1 vec_c=1"
    config = parse_config(text)
    return config.replace(lanes_m=int(warp_rows(config)))


# ---- the threshold of a device


def threshold_file(database: Path) -> Path:
    """The file next to a database that holds the tuned thresholds of devices, by name."""
    return database.with_name(f"{database.stem}-tlp.json")


def thresholds(database: Path) -> dict[str, int]:
    """The tuned thresholds by device. CorruptError: the file is damaged."""
    path = threshold_file(database)
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): int(value) for name, value in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CorruptError(f"{path} is damaged: {error}; delete it, and tune the threshold again") from error


def threshold_of(device: Device, database: Path | None = None) -> int:
    """The tuned threshold of a device, or the default one."""
    return thresholds(database or settings().database).get(device.name, default_threshold(device))


# ---- schedules


class TlpSchedule:
    """The launches of a grouped product: for each tile of ``scheme`` that occurs its kernel and its items, the largest
    tile first. A kernel has one tile; the paper has one launch for all.

    ``idle_blocks``: blocks that the paper's grid of the largest item would add. LaunchError: the kernels do not support
    the problem.
    """

    def __init__(self, problem: GroupedGemm, device: Device, scheme: Scheme) -> None:
        self.problem, self.device, self.scheme = problem, device, scheme
        self.idle_blocks = idle_blocks(problem.extents, scheme.tiles)
        self.parts: list[tuple[str, Plan, list[int]]] = []
        for index in reversed(range(len(TILES))):
            items = [int(i) for i in np.flatnonzero(scheme.tiles == index) if problem.item(int(i)).results]
            if items:
                self.parts.append((TILES[index].name, _plan(problem, device, TILES[index].name), items))

    @classmethod
    def choose(cls, problem: GroupedGemm, device: Device, threshold: int | None = None) -> TlpSchedule:
        """The schedule of Algorithm 1. ``threshold``: None: that of the device."""
        resources = _resources(problem, device)
        limit = threshold_of(device) if threshold is None else threshold
        return cls(problem, device, choose_tiles(problem.extents, device, limit, resources))

    @classmethod
    def every(cls, problem: GroupedGemm, device: Device) -> Iterator[TlpSchedule]:
        """The schedules that Algorithm 1 visits."""
        for scheme in schemes(problem.extents, device, _resources(problem, device)):
            yield cls(problem, device, scheme)

    def sources(self) -> list[tuple[str, Source]]:
        """(tile, kernel) of each launch."""
        return [(name, render(plan)) for name, plan, _ in self.parts]

    def facts(self) -> dict[str, Any]:
        """The scheme as plain data."""
        return {
            "tlp": self.scheme.tlp,
            "idle_blocks": self.idle_blocks,
            "tiles": [
                {
                    "tile": name,
                    "items": len(items),
                    "blocks": int(self.scheme.counts[[t.name for t in TILES].index(name)]),
                    "config_text": str(tile_config(name)),
                }
                for name, _, items in self.parts
            ],
        }


def _plan(problem: GroupedGemm, device: Device, name: str) -> Plan:
    """LaunchError: the configuration of the tile is not legal for the problem."""
    if problem.jagged or problem.epilogue_ops:
        raise LaunchError(f"{problem.key()}: the tile policy is for lists of products without an epilogue")
    config = tile_config(name)
    broken = first_violation(lower(problem), config, device)
    if broken is not None:
        raise LaunchError(f"tile {name} of the policy breaks rule {broken.name!r} for {problem.key()}")
    return plan_for(problem, config, device)


def _resources(problem: GroupedGemm, device: Device) -> list[Resources]:
    """The resources of a block of each tile."""
    plans = [_plan(problem, device, t.name) for t in TILES]
    return [Resources(int(plan.geometry.registers), int(plan.geometry.shared)) for plan in plans]


class TlpBaseline:
    """A schedule on a device, with loaded kernels. ``schedule``: None: the one that Algorithm 1 chooses."""

    def __init__(
        self,
        driver: Driver,
        problem: GroupedGemm,
        addresses: Mapping[str, int] | None = None,
        threshold: int | None = None,
        schedule: TlpSchedule | None = None,
    ) -> None:
        self._driver, self.problem = driver, problem
        self.schedule = schedule or TlpSchedule.choose(problem, driver.device, threshold)
        loaded = [(driver.load(render(plan)), plan, items) for _, plan, items in self.schedule.parts]
        self._kernels = [(kernel, plan.with_registers(kernel.registers), items) for kernel, plan, items in loaded]
        self._tables: list[Allocation] = []

    def steps(
        self, addresses: Mapping[str, int], alpha: float = 1, beta: float = 0
    ) -> list[tuple[Kernel, Step, bytes]]:
        """The launches on arrays that hold all items, with tables in device memory."""
        p, found = self.problem, []
        bytes_ = np.array([p.element.bytes, p.element.bytes, p.output.bytes])
        at = p.starts * bytes_ + np.array([addresses[name] for name in "ABC"], np.int64)
        for kernel, plan, items in self._kernels:
            scheduler = plan.scheduler
            assert isinstance(scheduler, GroupedScheduler)
            part = GroupedGemm(
                tuple(p.items[i] for i in items), p.layout, p.dtype, p.compute, write_leading_dimensions(p.lds[items])
            )
            words = scheduler.table.words(part.extents, part.lds, at[items])
            table = Allocation(self._driver, words.nbytes)
            self._driver.upload(table.address, words)
            self._tables.append(table)
            grid = scheduler.grid(lower(part), 1)
            step = Step(plan.entry, grid, (plan.threads, 1, 1), plan.shared, plan.parameters.rows.by_name)
            values = {**dict.fromkeys("ABCW", 0), "table": table.address, "items": len(items)}
            found.append((kernel, step, step.pack({**values, "alpha": alpha, "beta": beta})))
        return found

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the product, the median of the samples. The policy has one choice.

        ``sets``: addresses by name of the array, used in rotation.
        """
        launches = [functools.partial(self.run, self.steps(addresses)) for addresses in sets]
        us = statistics.median(self._driver.time(launches, timing))
        self._tables.clear()
        return VendorTimes(us, us, us)

    def run(self, steps: list[tuple[Kernel, Step, bytes]]) -> None:
        """Queues launches from ``steps`` on the driver's stream."""
        for kernel, step, parameters in steps:
            self._driver.launch(kernel, step, parameters)

    def check(self, seed: int = 0) -> Iterator[CheckResult]:
        """Compares every element with float64, on each kind of input."""
        p = self.problem
        for kind, alpha, beta, initial in CASES:
            arrays = random_group(p, seed, kind)
            if initial == "nan":
                arrays["C"][...] = p.output.poison
            out = np.empty_like(arrays["C"])
            with Buffers(self._driver, arrays) as buffers:
                at = buffers.addresses
                self.run(self.steps(at, alpha, beta))
                self._driver.synchronize()
                if out.nbytes:
                    self._driver.download(at["C"], out)
            self._tables.clear()
            label = kind if beta == 0 else f"{kind}, alpha={alpha:g}, beta={beta:g}"
            yield CheckResult(label, group_deviation(p, arrays, out, kind, alpha, beta))


def choice_us(problem: GroupedGemm, device: Device, runs: int = 3) -> float:
    """Microseconds of the host in which Algorithm 1 chooses the tiles, the least of ``runs``."""
    resources, limit, times = _resources(problem, device), threshold_of(device), []
    for _ in range(runs):
        began = time.perf_counter()
        choose_tiles(problem.extents, device, limit, resources)
        times.append(1e6 * (time.perf_counter() - began))
    return min(times)


class TlpPolicy:
    """The schedule of ``--schedule tlp``. Its setting is the threshold of a device, which Algorithm 1 compares TLP
    with."""

    name, suite = "tlp", "batchgemm"
    none_tuned = "every problem is jagged; schedule tlp is for lists of products"
    titles: tuple[str, ...] = "items by tile", "blocks", "idle blocks", "TLP"

    def cells(self, row: dict[str, Any]) -> list[Any]:
        tiles = ", ".join(f"{t['items']} {t['tile']}" for t in row["tiles"])
        return [tiles, sum(t["blocks"] for t in row["tiles"]), row["idle_blocks"], row["tlp"]]

    def settings(self, device: Device, database: Path) -> dict[str, Any]:
        return {"threshold": threshold_of(device, database)}

    def settings_text(self, document: dict[str, Any]) -> str:
        return f"threshold of TLP: {document['threshold']}"

    def choose(self, problem: GroupedGemm, device: Device, database: Path) -> TlpSchedule:
        return TlpSchedule.choose(problem, device, threshold_of(device, database))

    def choice_us(self, problem: GroupedGemm, device: Device) -> float:
        return choice_us(problem, device)

    def launches(self, driver: Driver, choice: TlpSchedule) -> TlpBaseline:
        return TlpBaseline(driver, choice.problem, schedule=choice)

    def tunes(self, problem: GroupedGemm) -> bool:
        return not problem.jagged

    def every(self, problem: GroupedGemm, device: Device) -> Iterator[TlpSchedule]:
        return TlpSchedule.every(problem, device)

    def tuned(
        self, measured: list[list[tuple[TlpSchedule, float]]], device: Device, database: Path
    ) -> tuple[dict[str, Any], Path, dict[str, Any]]:
        known = thresholds(database)
        limit = tune_threshold([[(choice.scheme.tlp, us) for choice, us in group] for group in measured])
        return {"threshold": limit}, threshold_file(database), {**known, device.name: limit}
