"""Explains why a problem gets its configuration: choice and runners-up, lower bound, occupancy, rejections, near
problems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ptxgen.codegen.config.config import Columns, Config, parse_config
from ptxgen.codegen.vectorized import WARP, register_cap
from ptxgen.families.common import space
from ptxgen.families.common.geometry import geometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem, parse
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.choice.winners import current_digest
from ptxgen.tuning.roofline import memory_us, roofline_us
from ptxgen.tuning.selection import Selection, require
from ptxgen.tuning.store import fastest, tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.records import stale_reason

NEAREST = 5  #: near problems that are listed


@dataclass(frozen=True)
class Floor:
    """The roofline floor. ``us``: the least time in microseconds, which ``bound`` attributes to memory or arithmetic;
    ``memory_us``: the time of the bytes at the peak bandwidth of the device."""

    us: float
    memory_us: float
    flops: int
    bytes: int

    @property
    def bound(self) -> str:
        return "memory" if self.memory_us >= self.us else "arithmetic"


@dataclass(frozen=True)
class Residency:
    """How a kernel fills the device. ``registers``: registers per thread, as ptxas reported them
    (``registers_measured``) or estimated; ``limits``: for each resource, the blocks per multiprocessor that it allows;
    ``resident``: the least of the limits; ``binding``: the resources with this limit; ``occupancy``: resident warps
    over the most that a multiprocessor holds; ``waves``: the blocks of the launch over the blocks that the device runs
    at once; for a ``persistent`` kernel, the tiles per resident block."""

    threads: int
    registers: int
    registers_measured: bool
    shared: int
    blocks: int
    limits: dict[str, int]
    resident: int
    binding: tuple[str, ...]
    occupancy: float
    waves: float
    persistent: bool


@dataclass(frozen=True)
class Candidate:
    """A configuration that was considered. ``predicted_us``: the time that the model predicts; ``measured_us``: the
    stored time of the kernel that this version generates, NaN if there is none. Both are in microseconds."""

    selection: Selection
    predicted_us: float
    measured_us: float
    residency: Residency

    @property
    def us(self) -> float:
        """The measured time, else the predicted one."""
        return self.predicted_us if math.isnan(self.measured_us) else self.measured_us


@dataclass(frozen=True)
class Near:
    """A problem of the same types and layout, measured on ``device``. ``distance``: the sum over m, n, k and batch of
    |log2| of the ratio of extents."""

    problem: Problem
    distance: float
    config: Config
    us: float
    device: str


@dataclass(frozen=True)
class Explanation:
    """Why a problem has its configuration. ``candidates``: the choice, then its runners-up; ``legal``: the number of
    legal configurations; ``rejected``: by rule, the number of candidates that it rejected; ``dominated``: the families
    with legal configurations that a trained model does not search; ``model``: the name of the model, and the device
    that it was trained on; ``vendor_us``: the time of the vendor's best candidate in microseconds, NaN if unknown."""

    problem: Problem
    device: Device
    candidates: tuple[Candidate, ...]
    model: str
    floor: Floor
    legal: int
    rejected: dict[str, int]
    dominated: tuple[str, ...]
    nearest: tuple[Near, ...]
    vendor_us: float = float("nan")


def _dominated(p: KernelProblem, device: Device) -> tuple[str, ...]:
    """The families that compute ``p`` and that a search leaves out."""
    searched = [f.name for f in space.searched_families(p, device)]
    return tuple(f.name for f in space.families(p, device) if f.name not in searched)


def explain(
    problem: Problem,
    device: Device,
    database: Database | None = None,
    count: int = 5,
    vendor_us: Mapping[Problem, float] | None = None,
) -> Explanation:
    """Explains the choice of ``select``. ``count``: the number of candidates; ``vendor_us``: known times of the
    vendor's library in microseconds.

    ConfigError: no configuration is legal. Needs no GPU.
    """
    choices, model, p = require(problem, device, database, k=count), model_for(device, database), lower(problem)
    measured = measurements(problem, device, [s.config for s in choices], database)
    predicted = {s.config: s.us for s in choices if s.origin in ("model", "analytic")}
    others = [s.config for s in choices if s.config not in predicted]
    if others:
        predicted |= dict(zip(others, map(float, model.predict(problem, Columns.of(others))), strict=True))
    candidates = []
    for choice in choices:
        m = measured.get(choice.config)
        registers = m.registers if m is not None else -1
        us = m.us if m is not None else float("nan")
        kernel = residency(problem, choice.config, device, registers)
        candidates.append(Candidate(choice, predicted[choice.config], us, kernel))
    rejected = space.explain(p, device)
    return Explanation(
        problem,
        device,
        tuple(candidates),
        f"model ({model.measured_on})" if model.trained else "performance model",
        floor(problem, device),
        len(space.candidates(p, device)),
        dict(sorted(rejected.items(), key=lambda row: (-row[1], row[0]))),
        _dominated(p, device) if model.trained else (),
        near(problem, device.name, database) or near(problem, model.measured_on, database),
        (vendor_us or {}).get(problem, float("nan")),
    )


def measurements(
    problem: Problem, device: Device, configs: Sequence[Config], database: Database | None
) -> dict[Config, Measurement]:
    """The fastest measurement of each of ``configs``, among those in the user's database and the shipped winner.
    Measurements of kernels that this version does not generate are left out."""
    shipped = tuning_files.lookup(problem, device.name)
    rows = [] if shipped is None else [shipped]
    if database is not None:
        clock = tuning_files.clock_of(device.name)
        rows += database.measurements(problem=problem, device=device.name, clock=clock, outcome="ok")
    fastest: dict[Config, Measurement] = {}
    for m in sorted((m for m in rows if m.config in configs), key=lambda m: m.us):
        if m.config not in fastest and not stale_reason(m, lambda p, c: current_digest(p, c, device)):
            fastest[m.config] = m
    return fastest


def floor(problem: Problem, device: Device) -> Floor:
    """The roofline floor of ``problem``."""
    p = lower(problem)
    return Floor(roofline_us(p, device), memory_us(p, device), p.flops, p.bytes)


def residency(problem: Problem, config: Config, device: Device, registers: int = -1) -> Residency:
    """How the kernel of ``config`` fills ``device``. ``registers``: registers per thread as ptxas reported them; -1:
    unknown."""
    g = geometry(lower(problem), config)
    threads, shared, blocks = int(g.threads), int(g.shared), int(g.blocks)
    estimate = min(int(g.registers), int(register_cap(device, threads, config.min_ctas_per_sm)))
    used = registers if registers > 0 else estimate
    limits = {name: int(n) for name, n in device.block_limits(threads, used, shared).items()}
    resident = max(min(limits.values()), 1)  # the estimate may exceed what ptxas needs
    return Residency(
        threads,
        used,
        registers > 0,
        shared,
        blocks,
        limits,
        resident,
        tuple(name for name, n in limits.items() if n <= resident),
        resident * -(-threads // WARP) * WARP / device.threads_sm,
        blocks / (resident * device.sms),
        bool(getattr(config, "persistent", 0)),
    )


def near(problem: Problem, device: str, database: Database | None, count: int = NEAREST) -> tuple[Near, ...]:
    """The nearest other problems of the same operation, types and layout that have a measured time in the user's
    database or among the shipped results. ``device``: the name of the device."""
    winners = tuning_files.shipped_winners(device)
    shipped = fastest.read(tuning_files.fastest_path(device))
    keys = fastest.comparable({**dict.fromkeys(shipped), **dict.fromkeys(winners)}, problem)
    others: dict[Problem, Measurement | None] = dict.fromkeys(_comparable(problem, map(parse, keys)))
    if database is not None:
        rows = {m.problem: m for m in database.fastest(device, tuning_files.clock_of(device))}
        others.update({p: rows[p] for p in _comparable(problem, rows)})
    nearest = sorted((_distance(p, problem), p.key(), p) for p in others)[:count]
    out = []
    for distance, key, p in nearest:
        if (m := others[p] or winners.get(key)) is not None:
            out.append(Near(p, distance, m.config, m.us, device))
        else:
            out.append(Near(p, distance, parse_config(shipped[key].config), shipped[key].us, device))
    return tuple(out)


def _distance(p: Problem, q: Problem) -> float:
    """The sum over m, n, k and batch of |log2| of the ratio of extents."""
    return sum(abs(math.log2(x / y)) for x, y in zip(_extents(p), _extents(q), strict=True))


@lru_cache(maxsize=1 << 15)
def _extents(p: Problem) -> tuple[int, ...]:
    """The extents of the kernel problem (of a GEMM m, n, k) and the batch, each at least 1."""
    x = lower(p).extents
    return tuple(max(int(extent), 1) for extent in (*x.sizes, x.batch))


def _comparable(problem: Problem, others: Iterable[Problem]) -> list[Problem]:
    """The other problems of the same operation, types and layout."""
    names = ("operation", "layout", "dtype", "compute", "out")
    return [p for p in others if p != problem and all(getattr(p, n) == getattr(problem, n) for n in names)]
