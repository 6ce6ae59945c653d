"""The features of the model: logarithms of numbers of the problem, the configuration and the performance model.

The feature matrix has three blocks of columns: features of the configuration alone (cached for a class of problems),
features of extents and slices (one row per tile and slice count), and features of both. The rows of a million
candidates are gathered from these, not recomputed. Every axis of a registered family is a feature; a family may add
others (``Family.features``), and so may an operation (``Operation.features``). A model reads features by name; an axis
that a family lacks has its default.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import AXIS, PACK, REALIGN, Columns
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import float32
from ptxgen.errors import InputError
from ptxgen.families import registry
from ptxgen.families.common import perf_costs, perf_model
from ptxgen.families.common.candidates import GridRows, distinct
from ptxgen.families.common.feature_values import log
from ptxgen.families.common.geometry import WARP, geometry
from ptxgen.families.common.space import Base, Candidates, Part
from ptxgen.families.registry import Family
from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.operation import operations

Floats = NDArray[np.float32]

#: features that depend on the configuration alone, in addition to its axes
_OWN = (
    "threads",
    "shared",
    "registers",
    "resident_blocks",
    "resident_warps",
    "tile_intensity",
    "thread_intensity",
    "issuer_products",
    "loads_a",
    "loads_b",
    "issue_cycles",
    "latency_cycles",
    "store_cycles",
    "reduction_cycles",
    "peak_rate",
    "math_fraction",
    "bytes_per_product",
    "smem_fraction",
    "bytes_in_flight",
)
#: features that depend on extents and slices
_EXTENT = (
    "kg",
    "splitk",
    "raster_group",
    "store_policy",
    "m",
    "n",
    "k",
    "tiles",
    "blocks",
    "iterations",
    "padding",
    "operand_bytes",
    "reduction_bytes",
    "problem_intensity",
    "flops",
    "roofline",
    "element",
    "accumulator",
    "kmajor_a",
    "kmajor_b",
    "l2_evict_first",
    "output",
    "significand_bits",
    "epilogue_ops",
    "row_alignment_a",
    "row_alignment_b",
    "row_alignment_c",
    "tiles_m",
    "tiles_n",
)
#: the features of ``_EXTENT`` that depend on tiles and slices; the others depend on the problem alone
_SLICED = {"kg", "splitk", "raster_group", "store_policy", "l2_evict_first", "operand_bytes", "reduction_bytes"}
_TILED = {"tiles", "tiles_m", "tiles_n", "blocks", "iterations", "padding"}
#: features of the device, for models that are trained on measurements of several devices
_FACTS = ("sms", "clock", "bandwidth", "l2", "shared_sm", "fma64")
DEVICE = tuple(f"device_{fact}" for fact in _FACTS)
PROBLEM = frozenset((*_EXTENT, *DEVICE)) - _SLICED - _TILED
#: features that depend on both the configuration and the extents
_BOTH = ("waves", "wave_efficiency", "blocks_sm", "thread_work", "bytes_loaded", "predicted_us", "over_roofline")
#: features whose values are codes, which have no order
CODES = (
    "family",
    "operand_path",
    "splitk",
    "mma_order",
    "l2_evict_first",
    "element",
    "accumulator",
    "output",
    "task_sink",
)
#: features that are logarithms, besides the axes that count something
_LOGARITHMS = frozenset(
    (
        *("threads", "shared", "resident_blocks", "resident_warps", "tile_intensity", "thread_intensity"),
        *("issuer_products", "loads_a", "loads_b", "issue_cycles", "latency_cycles", "store_cycles"),
        *("reduction_cycles", "peak_rate", "math_fraction", "bytes_per_product", "smem_fraction", "bytes_in_flight"),
        *("m", "n", "k", "kg", "tiles", "tiles_m", "tiles_n", "blocks", "iterations", "operand_bytes"),
        *("reduction_bytes", "problem_intensity", "flops", "roofline", "waves", "thread_work", "bytes_loaded"),
        *("predicted_us", "over_roofline", "row_alignment_a", "row_alignment_b", "row_alignment_c", *DEVICE),
    )
)

ROWS_AT_ONCE = 1 << 13  #: rows filled at a time, so that the part of the matrix being written stays in the cache


def of_operations() -> tuple[str, ...]:
    """The names of the features that operations define."""
    return tuple(dict.fromkeys(name for operation in operations() for name in operation.features))


@lru_cache(maxsize=8)
def _names(families: tuple[Family, ...], of_problems: tuple[str, ...], every: bool) -> tuple[str, ...]:
    fixed = {"family", "operand_path", *_OWN, *_EXTENT, *_BOTH}
    axes = {a.name: a for f in families for a in f.axes if a.name not in fixed}
    if taken := sorted((set(of_problems) - set(_EXTENT)) & {*axes, *fixed}):
        raise InputError(f"operations give features {', '.join(taken)}; these are features of configurations")
    given = (*(name for f in families for name in f.features), *of_problems)
    others = dict.fromkeys(name for name in given if name not in {*axes, *fixed})
    cells = {name for f in families for name in f.candidates.cell}
    own = [a for a in axes.values() if a.name not in cells and (every or a.feature)]
    counts, codes = ([a.name for a in own if a.counts is counted] for counted in (True, False))
    late = [a.name for a in axes.values() if a.name in cells and (every or a.feature)]
    device = DEVICE if every else ()
    return (*counts, "family", *codes, "operand_path", *others, *_OWN, *_EXTENT, *device, *late, *_BOTH)


def all_names() -> tuple[str, ...]:
    """The names of all features that can be computed: axes of registered families, further features of families and
    operations, features of all configurations, features of the device."""
    return _names(tuple(registry.FAMILIES.values()), of_operations(), True)


def default_names() -> tuple[str, ...]:
    """The names of the default features of a model of one device: all but those of the device and the axes whose
    ``feature`` is False."""
    return _names(tuple(registry.FAMILIES.values()), of_operations(), False)


def without_logarithms(x: Floats, names: tuple[str, ...]) -> Floats:
    """The features with numbers in place of their logarithms."""
    logarithms = [n in _LOGARITHMS or (n in AXIS and AXIS[n].counts and n not in _EXTENT) for n in names]
    return np.where(logarithms, np.exp2(np.where(logarithms, x, np.float32(0))), x)


def trained_names(measured: Set[str]) -> tuple[str, ...]:
    """The names of the features for training on measurements of the operations ``measured``: the default ones without
    features that only other operations define, which would be constant."""
    given = {name for operation in operations() if operation.name in measured for name in operation.features}
    absent = set(of_operations()) - {*_EXTENT, *given}
    return tuple(name for name in default_names() if name not in absent)


def operation_names_of(operation: str, families: Set[str]) -> tuple[str, ...]:
    """The names of the features of a model of one operation, trained on measurements of ``families``: the default ones
    and all axes of the families, without features that only other operations define."""
    axes = {a.name for f in registry.FAMILIES.values() if f.name in families for a in f.axes}
    known = {*trained_names({operation}), *axes}
    return tuple(name for name in all_names() if name in known)


@dataclass(frozen=True)
class _Blocks:
    """The names of the features by block of columns. ``runs``: adjacent features of one block: (index of the block, its
    columns, the columns of the matrix); together they are the features in the order of the names."""

    own: tuple[str, ...]
    extent: tuple[str, ...]
    both: tuple[str, ...]
    runs: tuple[tuple[int, slice, slice], ...]

    @property
    def width(self) -> int:
        return len(self.own) + len(self.extent) + len(self.both)


def _blocks(names: tuple[str, ...]) -> _Blocks:
    return _blocks_of(names, tuple(registry.FAMILIES.values()), of_operations())


@lru_cache(maxsize=8)
def _blocks_of(names: tuple[str, ...], families: tuple[Family, ...], of_problems: tuple[str, ...]) -> _Blocks:
    late = {*_EXTENT, *DEVICE, *of_problems, *(name for f in families for name in f.candidates.cell)}
    numbers = [2 if name in _BOTH else 1 if name in late else 0 for name in names]
    own, extent, both = (tuple(n for n, i in zip(names, numbers, strict=True) if i == block) for block in range(3))
    runs, filled, begin = [], [0, 0, 0], 0
    for block, group in groupby(numbers):
        size = len(list(group))
        runs.append((block, slice(filled[block], filled[block] + size), slice(begin, begin + size)))
        filled[block], begin = filled[block] + size, begin + size
    return _Blocks(own, extent, both, tuple(runs))


def _configured(family: Family, c: Columns, name: str) -> Any:
    """The feature of an axis: the logarithm of a count, or the value of a code or a switch. That of rows of a grid is
    computed on the grid."""
    if isinstance(c, GridRows):
        return c.number_or_values(_configured(family, c.grid, name))
    values = family.column(c, name)
    if isinstance(values, np.ndarray) and values.strides == (0,) and len(values):
        values = values[0]  # of all rows
    return log(values) if name in AXIS and AXIS[name].counts else float32(values)


def _operand_path(c: Columns) -> Any:
    """The operand paths as bits: 1: A is packed, 2: B is packed, 4: A is realigned, 8: B is realigned."""
    a, b = c.operand_path_a, c.operand_path_b
    return float32((a == PACK) + 2 * (b == PACK) + 4 * (a == REALIGN) + 8 * (b == REALIGN))


def _own(names: tuple[str, ...], p: KernelProblem, c: Columns, g: Geometry, w: perf_model.Work, d: Device) -> list[Any]:
    """The columns of the features ``names`` that depend on the configuration alone. Of ``p`` it reads only the fields
    that all problems of the class share."""
    family = registry.of(c)
    warps = np.maximum(g.threads // WARP, 1)
    known = {
        **dict.fromkeys(_OWN, 0),
        "threads": log(g.threads),
        "shared": log(g.shared),
        "registers": float32(g.registers),
        "resident_blocks": log(w.resident),
        "resident_warps": log(w.resident * warps),
        **family.own_features(p, c, g, w, d),
        "family": c.family,
        "operand_path": _operand_path(c),
    }
    return [known[n] if n in known else _configured(family, c, n) for n in names]


def _stacked(rows: int, columns: list[Any]) -> Floats:
    """The matrix of ``rows`` rows with these columns; a number is a column of equal entries."""
    out = np.empty((rows, len(columns)), np.float32)
    out[:] = [0 if np.ndim(column) else column for column in columns]
    for i, column in enumerate(columns):
        if np.ndim(column):
            out[:, i] = column
    return out


def _row_alignment(p: KernelProblem, operand: str) -> Any:
    """log2 of the alignment of the rows of an operand, in bytes, at most a cache line."""
    x = p.operand(operand)
    start = x.access.aligned
    bits = x.access.ld * x.element.bytes | (perf_costs.LINE if start >= 16 else start)
    return (bits & -bits).bit_length() - 1


def _of_matrices(p: KernelProblem) -> dict[str, Any]:
    """The features of a product of matrices. They are 0 for other problems."""
    return {
        "m": log(p.m),
        "n": log(p.n),
        "k": log(p.k),
        "kmajor_a": p.layout[0] == "N",
        "kmajor_b": p.layout[1] == "T",
        "epilogue_ops": len(p.sink.ops),
        "row_alignment_a": _row_alignment(p, "A"),
        "row_alignment_b": _row_alignment(p, "B"),
        "row_alignment_c": _row_alignment(p, "C"),
    }


def _extent(names: tuple[str, ...], p: KernelProblem, c: Columns, g: Geometry, d: Device, roofline: float) -> list[Any]:
    """The columns of the features ``names`` that depend on extents and slices. Of ``c`` it reads only tiles and
    slices."""
    family = registry.of(c)
    known = {
        **dict.fromkeys((*_EXTENT, *of_operations()), 0),
        "splitk": c.splitk,
        "raster_group": c.raster_group,
        "store_policy": c.store_policy,
        "blocks": log(g.blocks),
        "problem_intensity": log(p.flops / max(p.bytes, 1)),
        "flops": log(p.flops),
        "roofline": log(roofline),
        "element": p.element.bytes,
        "accumulator": p.accumulator.bytes,
        "l2_evict_first": family.column(c, "l2_evict_first"),
        "output": p.output.bytes,
        "significand_bits": -math.log2(p.element.roundoff) if p.element.roundoff else 8,
        **(_of_matrices(p) if isinstance(p.extents, GemmExtents) else {}),
        **family.extent_features(p, c, g),
        **{name: log(getattr(d, fact)) for name, fact in zip(DEVICE, _FACTS, strict=True)},
        **dict(p.features),
    }
    return [known[n] if n in known else _configured(family, c, n) for n in names]


def _both(
    d: Device, blocks: Floats, iterations: Floats, own: tuple[Floats, ...], us: Floats, roofline: float
) -> tuple[Any, ...]:
    """The features that depend on the numbers of blocks and iterations, such as waves. ``own``: the result of
    ``_thread``."""
    fits, thread, moved = own
    waves = blocks / (fits * np.float32(d.sms))
    most = np.ceil(blocks / np.float32(d.sms))
    log_us = np.log2(us)
    return (
        np.log2(np.maximum(waves, np.float32(1e-6))),
        waves / np.maximum(np.ceil(waves), 1),
        np.minimum(most, fits),
        np.log2(thread * iterations),
        np.log2(moved * iterations * np.maximum(most, 1)),
        log_us,
        log_us - float32(np.log2(roofline)),
    )


def _own_of_rows(b: Base, rows: NDArray[Any], names: tuple[str, ...]) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
    """For distinct rows of a base: the features ``names`` of the configuration alone, and the result of ``_thread``."""
    parts, of_row = [], []
    for at in range(0, len(rows), 1 << 15):
        some = rows[at : at + (1 << 15)]
        c, g, w = perf_model.blocks_of_rows(b, some)
        parts.append(_stacked(len(c), _own(names, b.problem, c, g, w, b.device)))
        of_row.append(_thread(b.problem, c, w))
    fits, thread, moved = (np.concatenate(x) for x in zip(*of_row, strict=True))
    return np.concatenate(parts), (fits, thread, moved)


def _thread(p: KernelProblem, c: Columns, w: perf_model.Work) -> tuple[Floats, Floats, Floats]:
    """Returns three columns: resident blocks per multiprocessor; multiply-adds of a thread per iteration; bytes that a
    thread loads per iteration."""
    each, moved = registry.of(c).iteration_work(c, w)
    return w.resident, float32(each), moved


def features(
    p: KernelProblem, c: Columns, d: Device, us: Floats | None = None, names: tuple[str, ...] | None = None
) -> Floats:
    """The feature matrix: one row per configuration, one column per name; float32, C-contiguous. Rows of ``c`` must be
    legal.

    ``us``: ``perf_model.predict(p, c, d)``, if it is known. ``names``: some of ``all_names``; None: ``default_names``.
    """
    us = perf_model.predict(p, c, d) if us is None else us
    blocks = _blocks(names or default_names())
    x = np.empty((len(c), blocks.width), np.float32)
    if isinstance(c, Candidates):
        for part, where, rows, cells in c.groups():
            seen = registry.FAMILIES[part.base.family.name].modelled(p)
            table = _Table(blocks, seen, part, d, rows, cells)
            for at in range(0, len(rows), ROWS_AT_ONCE):
                these = slice(at, at + ROWS_AT_ONCE)
                if isinstance(where, slice):  # filled in place
                    place = slice(where.start + at, min(where.start + at + ROWS_AT_ONCE, where.stop))
                    table.fill(x[place], these, us[place])
                else:
                    block = np.empty((len(rows[these]), blocks.width), np.float32)
                    table.fill(block, these, us[where[these]])
                    x[where[these]] = block
        return x
    for _, rows_of in perf_model.by_family(c):
        mine = c.take(rows_of)
        values = row(p, mine, d, us[rows_of], names or default_names())
        x[rows_of] = _stacked(len(mine), list(values.values()))
    return x


def row(p: KernelProblem, c: Columns, d: Device, us: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The features ``names`` of configurations of one family by name, each a column or a number. ``us``: the predicted
    times."""
    p = registry.of(c).modelled(p)
    blocks, roofline = _blocks(names), perf_model.least_us(p, d)
    w, one, g = perf_model.work(p, c, d), perf_model.without_slices(c), geometry(p, c)
    own = dict(zip(blocks.own, _own(blocks.own, p, one, geometry(p, one), w, d), strict=True))
    extent = dict(zip(blocks.extent, _extent(blocks.extent, p, c, g, d, roofline), strict=True))
    values = _both(d, float32(g.blocks), float32(registry.of(c).iterations(p, c, g)), _thread(p, c, w), us, roofline)
    known = {**own, **extent, **dict(zip(_BOTH, values, strict=True))}
    return {name: known[name] for name in names}


class _Table:
    """The two small tables of candidates of one part: features of the rows of its base, and features of its cells."""

    def __init__(
        self,
        blocks: _Blocks,
        p: KernelProblem,
        part: Part,
        d: Device,
        rows: NDArray[np.int32],
        cells: NDArray[np.int32],
    ) -> None:
        self.names, self.device, self.roofline = blocks, d, perf_model.least_us(p, d)
        used, self.rows = distinct(rows, len(part.base.columns))
        self.own, self.of_row = _own_of_rows(part.base, used, blocks.own)
        used, self.cells = distinct(cells, len(part.cells))
        c, g = part.table, part.geometry
        columns = (
            *_extent(blocks.extent, p, c, g, d, self.roofline),
            float32(g.blocks),
            float32(registry.of(c).iterations(p, c, g)),
        )
        *values, launched, iterations = part.of_cells(columns, used)
        self.extent = _stacked(len(used), values)
        self.blocks, self.iterations = (np.broadcast_to(x, len(used)) for x in (launched, iterations))

    def fill(self, out: Floats, these: slice, us: Floats) -> None:
        """Fills ``out`` with the features of the candidates ``these``."""
        rows, cells = self.rows[these], self.cells[these]
        each = tuple(x[rows] for x in self.of_row)
        blocks, iterations = self.blocks[cells], self.iterations[cells]
        values = dict(zip(_BOTH, _both(self.device, blocks, iterations, each, us, self.roofline), strict=True))
        both = _stacked(len(out), [values[name] for name in self.names.both])
        tables = self.own[rows], self.extent[cells], both
        for block, columns, place in self.names.runs:
            out[:, place] = tables[block][:, columns]
