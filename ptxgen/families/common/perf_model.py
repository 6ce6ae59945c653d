"""The time of a kernel without a measurement: the latency and throughput model of the paper's section 5.2.

With n warps on a multiprocessor, an instruction of a class costs max(latency / n, 1 / throughput) cycles, and the class
with the highest cost decides (Volkov's model). ``predict`` counts instructions from the geometry, by each family's
formula; its times serve a tuner without measurements and are a feature of the model. ``from_stats`` uses the
instructions that the emulated device executed, and is that device's clock. None of these times is ever stored as a time
of real hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import SPLIT_MEMSET, Columns, Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.families import registry
from ptxgen.families.common import array_cache, perf_costs
from ptxgen.families.common.candidates import GatheredGeometry, GridRows, distinct
from ptxgen.families.common.geometry import geometry
from ptxgen.families.common.perf_blocks import Floats, Work
from ptxgen.families.common.perf_counts import Counts, from_stats
from ptxgen.families.common.space import BASES, Base, Candidates, cache_key, cost_model, families
from ptxgen.families.common.tile_family import TileFamily
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

ROWS_AT_ONCE = 1 << 15  #: rows computed at a time, so that temporaries stay in the cache
FEW = 1 << 12  #: the most rows of a base for which the costs of blocks are kept


def without_slices(c: Any) -> Any:
    """The columns ``c`` without K slices or shares, and with the default store policy, on which the cost of a
    block does not depend."""
    return c.replace(kg=1, splitk=SPLIT_MEMSET, stream_k=0, store_policy=0)


def work(p: KernelProblem, c: Columns, d: Device) -> Work:
    """The cost of one block of each configuration, whatever the extents. All configurations are of one family."""
    c, p = without_slices(c), registry.of(c).form(p)
    result: Work = registry.of(c).model.work(p, c, geometry(p, c), d)
    return result


@lru_cache(maxsize=BASES)
def _work_of_classes(b: Base) -> Work:
    """The cost of a block of the representative of each class of a base, cached in the process and on disk."""
    key = cache_key("work", b.family, b.problem, b.device)
    if (stored := array_cache.read(key)) is not None:
        return Work(**stored)
    work = _work_on_grid(b)
    array_cache.write_later(key, {f.name: getattr(work, f.name) for f in fields(work)})
    return work


@lru_cache(maxsize=8)
def _rows_of_classes(b: Base) -> tuple[GridRows, Geometry]:
    """The representatives of the classes of a base as rows of a grid, and the geometry of the grid. Most numbers depend
    on few dimensions of the grid. Its other rows may be illegal."""
    rows = b.columns.at(b.representatives).compact()
    rows = GridRows(without_slices(rows.grid), rows.rows)
    with np.errstate(all="ignore"):
        return rows, geometry(b.problem, rows.grid)


def _work_on_grid(b: Base) -> Work:
    """The result of ``work`` for the representatives, computed on their grid."""
    rows, g = _rows_of_classes(b)
    with np.errstate(all="ignore"):
        work = registry.FAMILIES[b.family.name].model.work(b.problem, rows.grid, g, b.device)
    columns = (getattr(work, f.name) for f in fields(work))
    return Work(*(rows.values(v) if v.ndim > 1 else v[: len(rows)] for v in columns))


def work_of_rows(b: Base, rows: NDArray[Any]) -> tuple[Work, NDArray[Any]]:
    """The costs of blocks, and for each of these rows of a base the index of its cost."""
    if b.is_representative(rows).all():
        return _work_of_classes(b), b.equivalence_class[rows]
    used, place = distinct(rows, len(b.columns))
    return blocks_of_rows(b, used)[2], place


def blocks_of_rows(b: Base, rows: NDArray[Any]) -> tuple[Columns, Geometry, Work]:
    """The configurations of distinct rows of a base, their geometry, and the costs of their blocks."""
    if b.is_representative(rows).all():
        classes = b.equivalence_class[rows]
        of_classes, g = _rows_of_classes(b)
        some: Any = GatheredGeometry(g, of_classes.at(classes))
        return b.columns.at(rows), some, _work_of_classes(b).take(classes)
    if len(rows) <= FEW:
        return _blocks_of_few(b, rows.astype(np.intp, copy=False).tobytes())
    return _blocks(b, rows)


def _blocks(b: Base, rows: NDArray[Any]) -> tuple[Columns, Geometry, Work]:
    c = without_slices(b.columns.take(rows))
    g = geometry(b.problem, c)
    return c, g, registry.of(c).model.work(b.problem, c, g, b.device)


@lru_cache(maxsize=8)
def _blocks_of_few(b: Base, rows: bytes) -> tuple[Columns, Geometry, Work]:
    """``blocks_of_rows`` for few rows, cached: both the times and the features of the last candidates of a search need
    it."""
    return _blocks(b, np.frombuffer(rows, np.intp))


def least_us(p: KernelProblem, d: Device) -> float:
    """A lower bound of the microseconds of ptxgen's kernels: the longer of the multiply-adds in the fastest family and
    the memory traffic. The model reads it as the feature ``roofline``; ``tuning.roofline`` has the bound of the
    device."""
    supported = (f for f in (registry.FAMILIES[f.name] for f in families(p, d)) if f.modelled(p) is p)
    rates = [family.rate(p, d) for family in supported if isinstance(family, TileFamily)]
    fastest = max(rates, default=perf_costs.fma_rate(p, d))
    longest: float = np.maximum(p.flops / (2.0 * d.clock * d.sms * fastest), p.bytes / (d.bandwidth * 1e3))
    return np.maximum(longest, 1e-3)  # type: ignore[no-any-return]


def least_us_of(p: KernelProblem, c: Columns, d: Device) -> Any:
    """The bound ``least_us`` of the problem form that the model reads for each configuration; one number if it is the
    same for all."""
    by_problem = registry.by_modelled(p) if p.forms else []
    if len(by_problem) < 2:
        return least_us(p, d)
    least = {family.code: least_us(q, d) for q, families_ in by_problem for family in families_}
    out = np.zeros(len(c), np.float32)
    for code, rows in by_family(c):
        out[rows] = least[code]
    return out


def by_family(c: Columns) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yields (code of a family, its rows in ``c``)."""
    if isinstance(c, Candidates):
        for part, where, _, _ in c.groups():
            yield part.base.family.code, np.arange(len(c))[where]
        return
    for code in np.unique(c.family):
        yield int(code), np.flatnonzero(c.family == code)


def predict(p: KernelProblem, c: Config | Columns, d: Device) -> Any:
    """The predicted microseconds of all launches of ``c`` on ``p``: a float for one configuration, a float32 column for
    many. Rows must be legal."""
    if isinstance(c, Config):
        return float(predict(p, Columns.of([c]), d)[0])
    if isinstance(c, Candidates):
        return _with_all_launches(p, c, _gathered(p, c, d))
    out = np.zeros(len(c), np.float32)
    for _, rows in by_family(c):
        out[rows] = microseconds(p, c.take(rows), d)
    return _with_all_launches(p, c, out)


def _with_all_launches(p: KernelProblem, c: Columns, us: Floats) -> Floats:
    """The microseconds of all launches. ``us``: the time of the largest GEMM of ``p``. A family that reads offset
    tables launches a kernel for each phase of a strided input gradient; other families compute all phases in one
    launch."""
    flops = [x.extents.flops for x in p.gemms]
    if len(flops) < 2 or not max(flops):
        return us
    several = [f.code for f in registry.FAMILIES.values() if "offset_table" in f.form(p).needs]
    return np.where(np.isin(c.family, several), us * np.float32(sum(flops) / max(flops)), us)


def microseconds(p: KernelProblem, c: Columns, d: Device) -> Any:
    """The result of ``predict`` for configurations of one family, for the largest GEMM of ``p``."""
    formula, p = cost_model(p, registry.of(c).name), registry.of(c).form(p)
    x = formula.cell(p, c, geometry(p, c), d)
    return formula.microseconds(p, d, work(p, c, d), slice(None), x, slice(None))


def _gathered(p: KernelProblem, c: Candidates, d: Device) -> Floats:
    """The result of ``predict`` for candidates, from the tables that they index, for the largest GEMM of ``p``."""
    out = np.empty(len(c), np.float32)
    for part, where, rows, cells in c.groups():
        formula = cost_model(p, part.base.family.name)
        w, place = work_of_rows(part.base, rows)
        x = part.costs
        us = np.empty(len(rows), np.float32)
        for at in range(0, len(rows), ROWS_AT_ONCE):
            these = slice(at, at + ROWS_AT_ONCE)
            us[these] = formula.microseconds(part.problem, d, w, place[these], x, cells[these])
        out[where] = us
    return out


__all__ = [
    "Counts",
    "Floats",
    "Work",
    "blocks_of_rows",
    "by_family",
    "from_stats",
    "least_us",
    "least_us_of",
    "microseconds",
    "perf_costs",
    "predict",
    "without_slices",
    "work",
    "work_of_rows",
]
