"""Measures the times in the tables and figures of Zhang et al. (``tlp_policy``).

These are a sweep of tiles and numbers of threads, and lists of products by the article's method, by the methods it is
compared with, and by libraries.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.operations.grouped import cutlass as cutlass_grouped
from ptxgen.operations.grouped import suites
from ptxgen.operations.grouped.cublas import CublasGrouped
from ptxgen.operations.grouped.cudnn import CudnnGrouped
from ptxgen.operations.grouped.cutlass import CutlassGrouped
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tile_kernel import WHOLE_K, tile_config
from ptxgen.operations.grouped.tlp_policy import Tile
from ptxgen.operations.grouped.tlp_schedule import VARIANTS, TlpBaseline, TlpSchedule, choice_us, setting_of
from ptxgen.problem.device import Device
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.tuning.measure.bench import Bench

#: Figure 3: nine tiles, of which the article's text names 8×8, 32×32 and 64×64, and four numbers of threads
SWEEP_TILES = ((8, 8), (8, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128))
SWEEP_THREADS = (64, 128, 256, 512)
DEPTH = 16  #: the depth of K of a tile
SWEEP_ITEMS = ((512, 512, 512),) * 64  #: the article says "many products with large extents", without numbers
#: the number of items of the lists by which Figure 7 shows the overhead of choosing tiles; the suite has shorter lists
MANY_ITEMS = 1024
TIMING = Timing(samples=3, target_ms=2.0)
CHECKED = 1 << 14  #: elements of a result that are compared
CALLS = 5  #: the number of runs of a loop that is timed on the host


# ---- Figure 3


@dataclass(frozen=True)
class SweepTime:
    """The time of ``SWEEP_ITEMS`` with a tile of ``m``×``n`` and a number of threads. ``us``: microseconds; None: the
    tile has no kernel, or the kernel failed; ``note``: why."""

    m: int
    n: int
    threads: int
    us: float | None
    gflops: float | None
    config_text: str = ""
    note: str = ""


def sweep(driver: Driver, items: Sequence[suites.Item] = SWEEP_ITEMS, timing: Timing = TIMING) -> Iterator[SweepTime]:
    """The time for each tile and each number of threads. As in the article, all threads compute: a thread has a part of
    the tile's elements, or several threads have the same elements, each for a part of K."""
    bench, problem = Bench(driver), GroupedGemm(tuple(items))
    for m, n in SWEEP_TILES:
        for threads in SWEEP_THREADS:
            try:
                config = tile_config(problem, driver.device, Tile(f"{m}x{n}", m, n, DEPTH, threads), WHOLE_K)
            except LaunchError as error:
                yield SweepTime(m, n, threads, None, None, note=str(error).partition(" for ")[0])
                continue
            row = bench.measure(problem, config, timing, elements=CHECKED)
            if row.outcome != "ok":
                yield SweepTime(m, n, threads, None, None, str(config), f"{row.outcome}: {row.message}")
            else:
                yield SweepTime(m, n, threads, row.us, problem.flops / row.us * 1e-3, str(config))


# ---- lists


@dataclass(frozen=True)
class ListCase:
    """A list of products. ``max_mn``, ``max_k``: the upper bounds of M and N, and of K; 0 for an Inception module;
    ``named``: True if the article names these bounds."""

    name: str
    problem: GroupedGemm
    max_mn: int = 0
    max_k: int = 0
    named: bool = False


@dataclass(frozen=True)
class ListTimes:
    """Times of a list. ``us``: microseconds by method; ``host_us``: by variant, the microseconds in which the host
    chooses tiles; ``occupancy``: by variant, as Equation 12 predicts it; ``tiles``: by variant, the number of items
    with each tile; ``notes``: why a method has no time."""

    name: str
    max_mn: int
    max_k: int
    named: bool
    items: int
    flops: float
    us: dict[str, float] = field(default_factory=dict)
    host_us: dict[str, float] = field(default_factory=dict)
    occupancy: dict[str, float] = field(default_factory=dict)
    tiles: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def list_cases(most_items: int = MANY_ITEMS) -> Iterator[ListCase]:
    """The lists of the suite ``batchgemm``, and lists of ``MANY_ITEMS`` items in the ranges of extents that the article
    names. ``most_items``: longer lists are left out."""
    for max_mn, max_k in suites.RANGES:
        named = (max_mn, max_k) in suites.NAMED_RANGES
        for count in (*suites.BATCH_SIZES, *([MANY_ITEMS] if named else [])):
            if count <= most_items:
                items = suites.random_items(count, max_mn, max_k)
                yield ListCase(f"{max_mn}/{max_k} x{count}", GroupedGemm(items), max_mn, max_k, named)
    for name, items in suites.INCEPTION.items():
        yield ListCase(name, GroupedGemm(items))


def list_times(
    driver: Driver,
    cases: Sequence[ListCase],
    choose: Callable[[GroupedGemm], Config],
    database: Path,
    timing: Timing = TIMING,
) -> Iterator[ListTimes]:
    """The times of each list with three kinds of methods: the configuration that ``choose`` gives (named ``ptxgen``),
    the variants of the article's method with the settings beside ``database``, and the installed libraries.
    LaunchError: a result is wrong."""
    for case in cases:
        bench = Bench(driver)
        operands = bench.operand_sets_for(case.problem, timing)
        p = case.problem
        times = ListTimes(case.name, case.max_mn, case.max_k, case.named, len(p.items), float(p.flops))
        row = bench.measure(case.problem, choose(case.problem), timing, elements=CHECKED)
        if row.outcome == "ok":
            times.us["ptxgen"] = row.us
        else:
            times.notes["ptxgen"] = f"{row.outcome}: {row.message}"
        _variant_times(driver, case.problem, operands, database, timing, times)
        if isinstance(driver, CudaDriver):
            _library_times(driver, case, operands, timing, times)
        operands.release()
        yield times


def _variant_times(
    driver: Driver, problem: GroupedGemm, operands: OperandSets, database: Path, timing: Timing, times: ListTimes
) -> None:
    """Adds the times of all variants to ``times``. Variants that launch the same blocks share one measurement."""
    known: dict[tuple[object, ...], float] = {}
    for name, variant in VARIANTS.items():
        setting = setting_of(driver.device, name, database)
        schedule = TlpSchedule.choose(problem, driver.device, variant=variant, setting=setting)
        tiles = schedule.scheme.tiles
        same = (tuple(tiles.tolist()), variant.method.tiles, schedule.bodies, variant.grid)
        if same not in known:
            launches = TlpBaseline(driver, problem, schedule=schedule)
            operands.poison()
            launches.run(launches.steps(operands.sets[0]))
            driver.synchronize()
            deviation = operands.deviation(CHECKED)
            if not deviation.ok:
                raise LaunchError(f"{problem.key()[:80]}: the result of schedule {name} is wrong: {deviation}")
            known[same] = launches.best(operands.sets, timing).best
        times.us[name] = known[same]
        times.host_us[name] = choice_us(problem, driver.device, variant=variant, setting=setting)
        times.occupancy[name] = schedule.occupancy
        counts = np.bincount(tiles, minlength=len(variant.method.tiles))
        times.tiles[name] = {t.name: int(n) for t, n in zip(variant.method.tiles, counts, strict=True) if n}


def _library_times(
    driver: CudaDriver, case: ListCase, operands: OperandSets, timing: Timing, of_list: ListTimes
) -> None:
    """Adds the times of libraries to ``of_list``: cuBLAS's grouped call, a loop of cuBLAS calls in a CUDA graph and
    from the host, CUTLASS's grouped kernel, and, for Inception modules, cuDNN."""

    def cublas() -> Mapping[str, float]:
        with CublasGrouped(driver, case.problem) as library:
            times = {f"cublas_{name}": us for name, us in library.times(operands.sets, timing).items()}
            loop = [driver.elapsed(lambda: library.run("loop", operands.sets[0])) for _ in range(CALLS)]
            return {**times, "cublas_calls": statistics.median(loop)}

    def cutlass() -> Mapping[str, float]:
        library = CutlassGrouped(driver, case.problem)
        for tile in range(len(cutlass_grouped.TILES)):
            operands.poison()
            library.run(library.make(tile, operands.sets[0]))
            driver.synchronize()
            deviation = operands.deviation(CHECKED)
            if not deviation.ok:
                raise LaunchError(f"the result of tile {tile} is wrong: {deviation}")
        us = library.best(operands.sets, timing).best
        library.close()
        return {"cutlass": us}

    def cudnn() -> Mapping[str, float]:
        return {"cudnn": CudnnGrouped(driver, case.problem).best(operands.sets, timing).best}

    libraries: dict[str, Callable[[], Mapping[str, float]]] = {"cublas": cublas, "cutlass": cutlass}
    libraries |= {} if case.max_mn else {"cudnn": cudnn}
    for name, times in libraries.items():
        try:
            of_list.us.update(times())
        except (LaunchError, UnavailableError) as error:
            of_list.notes[name] = str(error)


def settings_on(device: Device, database: Path) -> dict[str, dict[str, Any]]:
    """The settings of all variants on a device, by name."""
    return {name: setting_of(device, name, database)._asdict() for name in VARIANTS}
