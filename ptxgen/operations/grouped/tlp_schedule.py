"""Grouped products by the tile policy of Zhang et al. (``tlp_policy``): one launch of one kernel with a body for each
tile (``tile_kernel``). ``VARIANTS`` has the article's method, and the methods that are compared with it."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import CorruptError
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tile_kernel import BODIES, kernel_plan, kernel_resources, kernel_source
from ptxgen.operations.grouped.tlp_policy import (
    BLOCKS,
    FITS,
    NEAR,
    PAPER,
    TILES,
    UNIFORM_TILES,
    Method,
    Scheme,
    TileSet,
    choose_tiles,
    default_threshold,
    idle_blocks,
    log_mean,
    occupancy,
    schemes,
    single_schemes,
    tune_threshold,
)
from ptxgen.problem.device import Device
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.check import CASES, CheckResult
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Kernel, Timing
from ptxgen.runtime.runner import Buffers
from ptxgen.settings import settings, shipped_dir

# ---- the method, and what it is compared with


@dataclass(frozen=True)
class Variant:
    """A way to choose and to launch tiles. ``name``: the name of the schedule; ``grid``: True: every item has the grid
    of the largest one; ``one_tile``: True: all items have the same tile, the largest one whose TLP reaches the
    threshold."""

    name: str
    method: Method = PAPER
    grid: bool = False
    one_tile: bool = False

    def choose(self, problem: GroupedGemm, device: Device, setting: Setting) -> Scheme:
        """The scheme that the variant chooses for a problem."""
        used = kernel_resources(problem, device, self.method.tiles, setting.bodies)
        limit = self.threshold(problem, device, setting)
        if not self.one_tile:
            return choose_tiles(problem.extents, device, limit, used, self.method)
        schemes = list(single_schemes(problem.extents, device, used, self.method.tiles))
        return next((scheme for scheme in reversed(schemes) if scheme.tlp >= limit), schemes[0])

    def visited(self, problem: GroupedGemm, device: Device, bodies: str) -> Iterator[Scheme]:
        """The schemes that ``choose`` visits, in order."""
        used = kernel_resources(problem, device, self.method.tiles, bodies)
        if self.one_tile:
            yield from reversed(list(single_schemes(problem.extents, device, used, self.method.tiles)))
        else:
            yield from schemes(problem.extents, device, used, self.method)

    def threshold(self, problem: GroupedGemm, device: Device, setting: Setting) -> int:
        """The threshold of a setting, or the default one."""
        if setting.threshold is not None:
            return setting.threshold
        return default_threshold(
            device, kernel_resources(problem, device, self.method.tiles, setting.bodies), self.method
        )


VARIANTS = {
    v.name: v
    for v in (
        Variant("tlp"),
        Variant("tlp_blocks", Method(criterion=BLOCKS)),
        Variant("tlp_single", Method(single=True)),
        Variant("tlp_near", Method(initial=NEAR)),
        Variant("tlp_fits", Method(initial=FITS)),
        Variant("tlp_uniform", Method(UNIFORM_TILES)),
        Variant("tlp_grid", grid=True),
        Variant("vbatched", grid=True, one_tile=True),
        *(Variant(f"tile_{tile.m}x{tile.n}", Method(TileSet((tile,)))) for tile in TILES),
    )
}


# ---- the settings of a device


class Setting(NamedTuple):
    """The settings of a TLP schedule on a device. ``threshold``: the threshold of TLP, None: the default; ``bodies``:
    how the threads of a block share a tile, one of BODIES."""

    threshold: int | None = None
    bodies: str = BODIES[0]


#: device -> variant -> setting
Settings = dict[str, dict[str, Setting]]
SHIPPED = "tile-policy.json"  #: the file of a device in the shipped tuning results


def settings_file(database: Path) -> Path:
    """The path of the file next to a database that has the tuned settings of devices."""
    return database.with_name(f"{database.stem}-tlp.json")


def tuned_settings(database: Path) -> Settings:
    """The tuned settings by device and variant. CorruptError: the file is damaged."""
    return _read(settings_file(database))


@functools.lru_cache(8)
def shipped_settings(device: str) -> dict[str, Setting]:
    """The shipped settings of a device by variant."""
    return _read(shipped_dir() / device / SHIPPED).get(device, {})


def _read(path: Path) -> Settings:
    """The settings in a file, which is read again if it has changed."""
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    return _read_at(path, changed)


@functools.lru_cache(8)
def _read_at(path: Path, changed: int) -> Settings:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(device): {str(name): _setting(s) for name, s in variants.items()}
            for device, variants in settings.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise CorruptError(f"{path} is damaged: {error}; delete it, and tune the threshold again") from error


def _setting(values: Mapping[str, Any]) -> Setting:
    if values["bodies"] not in BODIES:
        raise ValueError(f"bodies is {values['bodies']!r}; it must be {' or '.join(BODIES)}")
    return Setting(int(values["threshold"]), values["bodies"])


def setting_of(device: Device, variant: str = "tlp", database: Path | None = None) -> Setting:
    """The setting of a variant on a device: the user's tuned one, else the shipped one. A variant that was not tuned
    has the setting of ``tlp``, but the default threshold if its criterion or tiles differ."""
    tuned = tuned_settings(database or settings().database).get(device.name, {})
    shipped = shipped_settings(device.name)
    if setting := tuned.get(variant) or shipped.get(variant):
        return setting
    method, whole = VARIANTS[variant].method, tuned.get("tlp") or shipped.get("tlp") or Setting()
    alike = (method.criterion, method.tiles) == (PAPER.criterion, PAPER.tiles)
    return whole if alike else Setting(None, whole.bodies)


# ---- schedules


class TlpSchedule:
    """A schedule: the launch of a grouped product whose items have the tiles of ``scheme``."""

    def __init__(
        self,
        problem: GroupedGemm,
        device: Device,
        scheme: Scheme,
        variant: Variant = VARIANTS["tlp"],
        bodies: str = BODIES[0],
    ) -> None:
        self.problem, self.device, self.scheme, self.variant, self.bodies = problem, device, scheme, variant, bodies
        self.plan = kernel_plan(problem, device, variant.method.tiles, bodies, variant.grid)

    @classmethod
    def choose(
        cls,
        problem: GroupedGemm,
        device: Device,
        threshold: int | None = None,
        variant: Variant = VARIANTS["tlp"],
        setting: Setting | None = None,
    ) -> TlpSchedule:
        """The schedule that Algorithm 1 chooses. ``setting``: None: the setting of the device; ``threshold``: None: the
        threshold of the setting. LaunchError: the kernels do not support the problem."""
        chosen = setting or setting_of(device, variant.name)
        if threshold is not None:
            chosen = chosen._replace(threshold=threshold)
        return cls(problem, device, variant.choose(problem, device, chosen), variant, chosen.bodies)

    @classmethod
    def every(cls, problem: GroupedGemm, device: Device, variant: Variant = VARIANTS["tlp"]) -> Iterator[TlpSchedule]:
        """The schedules that the variant visits, with all bodies."""
        for bodies in BODIES:
            for scheme in variant.visited(problem, device, bodies):
                yield cls(problem, device, scheme, variant, bodies)

    @classmethod
    def single(
        cls, problem: GroupedGemm, device: Device, variant: Variant = VARIANTS["tlp"], bodies: str = BODIES[0]
    ) -> Iterator[TlpSchedule]:
        """The schedules in which all items have the same tile, one for each tile, the smallest tile first."""
        used = kernel_resources(problem, device, variant.method.tiles, bodies)
        for scheme in single_schemes(problem.extents, device, used, variant.method.tiles):
            yield cls(problem, device, scheme, variant, bodies)

    def sources(self) -> list[tuple[str, Source]]:
        """The module of the schedule, in a pair (names of its tiles, module)."""
        plan = self.plan.with_schedule(self.variant.name)
        return [(", ".join(tile.name for tile in self.variant.method.tiles), render(plan))]

    @property
    def idle_blocks(self) -> int:
        """The number of blocks without a tile if every item has the grid of the largest one; the schedule launches such
        blocks if ``variant.grid``."""
        return idle_blocks(self.problem.extents, self.scheme.tiles, self.variant.method.tiles)

    @property
    def occupancy(self) -> float:
        """The occupancy that Equation 12 predicts from the registers and the shared memory of blocks."""
        tiles = self.variant.method.tiles
        used = kernel_resources(self.problem, self.device, tiles, self.bodies)
        return occupancy(self.device, self.scheme.counts, used, tiles)

    def facts(self) -> dict[str, Any]:
        """The scheme as plain data."""
        tiles, counts = self.variant.method.tiles, self.scheme.counts
        items = np.bincount(self.scheme.tiles[(self.problem.extents[:, :2] > 0).all(axis=1)], minlength=len(tiles))
        return {
            "tlp": self.scheme.tlp,
            "occupancy": round(self.occupancy, 4),
            "idle_blocks": self.idle_blocks,
            "bodies": self.bodies,
            "tiles": [
                {
                    "tile": tile.name,
                    "items": int(items[i]),
                    "blocks": int(counts[i]),
                    "config_text": str(self.plan.bodies[i].config),
                }
                for i, tile in reversed(list(enumerate(tiles)))
                if counts[i]
            ],
        }


#: the loaded kernels of a driver, by plan
_loaded: WeakKeyDictionary[Driver, dict[MixedTiles, Kernel]] = WeakKeyDictionary()


def _loaded_kernel(driver: Driver, plan: MixedTiles) -> Kernel:
    """The kernel of a plan, which is loaded once, because schedules of a problem differ only in their tables."""
    kernels = _loaded.setdefault(driver, {})
    if plan not in kernels:
        kernels[plan] = driver.load(kernel_source(plan))
    return kernels[plan]


class TlpBaseline:
    """The baseline of the tile policy: a schedule on a device, with its loaded kernel. ``schedule``: None: the schedule
    that Algorithm 1 chooses."""

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
        self._kernel = _loaded_kernel(driver, self.schedule.plan)
        self._tables: list[Allocation] = []

    def steps(
        self, addresses: Mapping[str, int], alpha: float = 1, beta: float = 0
    ) -> list[tuple[Kernel, Step, bytes]]:
        """The launch on arrays that hold all items, with its table in device memory; empty if no item has a tile."""
        p, plan, tiles = self.problem, self.schedule.plan, self.schedule.scheme.tiles
        if not self.schedule.scheme.counts.any():
            return []
        bytes_ = np.array([p.element.bytes, p.element.bytes, p.output.bytes])
        at = p.starts * bytes_ + np.array([addresses[name] for name in "ABC"], np.int64)
        words = plan.scheduler.table.words(p.extents, p.lds, at, tiles)
        table = Allocation(self._driver, words.nbytes)
        self._driver.upload(table.address, words)
        self._tables.append(table)
        step = plan.step(p.extents, tiles)
        values = {**dict.fromkeys("ABCW", 0), "table": table.address, "items": len(p.items)}
        return [(self._kernel, step, step.pack({**values, "alpha": alpha, "beta": beta}))]

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the product: the median of the samples in microseconds. The policy has one choice.

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
        """The results of comparing every element with the float64 reference, in all cases."""
        p = self.problem
        for inputs, alpha, beta, initial in CASES:
            arrays = random_group(p, seed, inputs)
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
            label = inputs if beta == 0 else f"{inputs}, alpha={alpha:g}, beta={beta:g}"
            yield CheckResult(label, group_deviation(p, arrays, out, inputs, alpha, beta))


def choice_us(
    problem: GroupedGemm,
    device: Device,
    runs: int = 3,
    variant: Variant = VARIANTS["tlp"],
    setting: Setting | None = None,
) -> float:
    """The microseconds in which the host chooses the tiles by the variant, the least of ``runs`` runs."""
    chosen, times = setting or setting_of(device, variant.name), []
    extents = problem.extents
    used = kernel_resources(problem, device, variant.method.tiles, chosen.bodies)
    chosen = chosen._replace(threshold=variant.threshold(problem, device, chosen))
    for _ in range(runs):
        began = time.perf_counter()
        if variant.one_tile:
            variant.choose(problem, device, chosen)
        else:
            choose_tiles(extents, device, chosen.threshold, used, variant.method)
        times.append(1e6 * (time.perf_counter() - began))
    return min(times)


class TlpPolicy:
    """The schedule of ``--schedule tlp``, or of another variant. Its settings are the threshold of a device, which
    Algorithm 1 compares TLP with, and the bodies of the kernel."""

    suite = "batchgemm"
    none_tuned = "every problem is jagged; schedule tlp is for lists of products"
    titles: tuple[str, ...] = "items by tile", "blocks", "idle blocks", "TLP", "occupancy"

    def __init__(self, variant: Variant = VARIANTS["tlp"]) -> None:
        self.variant, self.name = variant, variant.name

    def cells(self, row: dict[str, Any]) -> list[Any]:
        tiles = ", ".join(f"{t['items']} {t['tile']}" for t in row["tiles"])
        blocks = sum(t["blocks"] for t in row["tiles"])
        return [tiles, blocks, row["idle_blocks"], row["tlp"], f"{row['occupancy']:.2f}"]

    def settings(self, device: Device, database: Path) -> dict[str, Any]:
        return setting_of(device, self.name, database)._asdict()

    def settings_text(self, document: dict[str, Any]) -> str:
        limit = document["threshold"]
        return f"threshold of TLP: {'not tuned' if limit is None else limit}; bodies: {document['bodies']}"

    def choose(self, problem: GroupedGemm, device: Device, database: Path) -> TlpSchedule:
        setting = setting_of(device, self.name, database)
        return TlpSchedule.choose(problem, device, variant=self.variant, setting=setting)

    def choice_us(self, problem: GroupedGemm, device: Device, database: Path) -> float:
        setting = setting_of(device, self.name, database)
        return choice_us(problem, device, variant=self.variant, setting=setting)

    def launches(self, driver: Driver, choice: TlpSchedule) -> TlpBaseline:
        return TlpBaseline(driver, choice.problem, schedule=choice)

    def tunes(self, problem: GroupedGemm) -> bool:
        return not problem.jagged

    def every(self, problem: GroupedGemm, device: Device) -> Iterator[TlpSchedule]:
        return TlpSchedule.every(problem, device, self.variant)

    def tuned(
        self, measured: list[list[tuple[TlpSchedule, float]]], device: Device, database: Path
    ) -> tuple[dict[str, Any], Path, dict[str, Any]]:
        best = min((self._tuned(measured, bodies) for bodies in BODIES), key=lambda timed: timed[0])[1]
        known = {name: {v: s._asdict() for v, s in each.items()} for name, each in tuned_settings(database).items()}
        stored = {**known, device.name: {**known.get(device.name, {}), self.name: best._asdict()}}
        return best._asdict(), settings_file(database), stored

    def _tuned(self, measured: list[list[tuple[TlpSchedule, float]]], bodies: str) -> tuple[float, Setting]:
        """The mean of the logarithms of the times of a setting, and the setting: the one with these bodies and their
        best threshold."""
        groups = [[(choice.scheme.tlp, us) for choice, us in group if choice.bodies == bodies] for group in measured]
        limit = tune_threshold(groups)
        return log_mean(groups, limit), Setting(limit, bodies)
