"""The candidate configurations of one kernel family. Rules, not this module, decide which candidates are legal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache, reduce
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import (
    AXIS,
    FAMILIES,
    PACK,
    PDL_WITHIN,
    SPLIT_FLAG,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Columns,
    Config,
)
from ptxgen.codegen.geometry import Geometry
from ptxgen.families import registry
from ptxgen.families.common.geometry import geometry
from ptxgen.families.common.rules import reducible, rules_of
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem
from ptxgen.problem.device import Device

Ints = NDArray[np.int64]

#: numbers of blocks per multiprocessor for which K slice counts are chosen
WAVES = (1, 2, 3, 4, 6, 8)

NEUTRAL = 1 << 15  #: an extent that no rule rejects


@lru_cache(maxsize=32)
def neutral(p: KernelProblem) -> KernelProblem:
    """The problem with neutral extents, which is equal for all problems of the same types, layout, alignment and
    address modes. If the problem is not a product of matrices: its representative."""
    p = p.representative
    if not isinstance(p.extents, GemmExtents):
        return p
    p = p.with_extents(m=NEUTRAL, n=NEUTRAL, k=NEUTRAL, batch=1)
    for x in (*p.operands, *p.outputs):
        p = p.with_access(x.name, stride=0, aligned=x.access.vec * x.element.bytes)
    return p


class CandidateSpace:
    """The candidate space of one family.

    - ``axes``: axis -> values that a search on hardware tries around a good configuration, and that the sampler draws.
    - ``tile``: the axes that determine the number of blocks; ``cell``: the axes that ``cells`` sets from the extents.
    - ``class_axes``: the axes in which rows of one equivalence class differ, best values first.
    - ``derived``: axes computed from others, on which equivalence classes do not depend.
    - ``widened``: axes whose value in a candidate may exceed the one in its kernel.

    Other fields are names of rules, grouped by what the rules read; tests check the groups. ``fixed``: the problem and
    the device only; ``tile_rules``: only axes that ``shapes`` sets; ``shape_rules``: other axes, too, but only geometry
    that the axes of ``shapes`` determine; ``extent_rules``: an extent or a number of slices; ``slice_rules``: those of
    the remaining rules that read an axis of ``slice_options`` (None: all may).
    """

    name: str
    axes: Mapping[str, tuple[int, ...]]
    tile: tuple[str, ...]
    cell: tuple[str, ...] = ()
    class_axes: Mapping[str, tuple[int, ...]]
    derived: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    fixed: tuple[str, ...]
    tile_rules: tuple[str, ...]
    shape_rules: tuple[str, ...] = ()
    slice_rules: tuple[str, ...] | None = None
    extent_rules: tuple[str, ...]

    @property
    def code(self) -> int:
        """The value of the ``family`` axis."""
        return FAMILIES.index(self.name)

    def form(self, p: KernelProblem) -> KernelProblem:
        """The form of a problem that the other methods expect: ``Family.form``."""
        return registry.FAMILIES[self.name].form(p)

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class; by default the function ``neutral``."""
        return neutral(p)

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """Groups of axes that the sampler draws independently -> the value tuples of the group. Axes are in one group
        if few combinations of their values are legal."""
        return {(n,): [(v,) for v in values] for n, values in self.axes.items()}

    def is_dominated(self, p: KernelProblem, others: Collection[str]) -> bool:
        """True if a search on ``p`` leaves this family out. ``others``: the other families that compute ``p``. The
        family is dominated if one of these was as fast in measurements of such problems, or if its own kernels have no
        measurements. Samplers draw from dominated families, too, and so get measurements."""
        return False

    @property
    def key(self) -> str:
        """The key of the space: two spaces with the same key have the same rows."""
        return self.name

    def searched(self, p: KernelProblem) -> CandidateSpace:
        """The space of a search on ``p``: this one, or one that lacks rows which no search on ``p`` considers. Samplers
        draw from this space."""
        return self

    def dominated_tiles(self, p: KernelProblem, tiles: Columns) -> NDArray[np.bool_] | None:
        """A mask of the tiles that a search on ``p`` leaves out, because others were faster in measurements of such
        problems; None: it leaves out none. Samplers draw from these tiles, too."""
        return None

    # ---- the rows of a base, which extents do not affect; ``p`` is the representative of a class

    def tiles(self, p: KernelProblem) -> Columns:
        """Every combination of the axes ``tile``."""
        raise NotImplementedError

    def shapes(self, p: KernelProblem) -> Columns:
        """Tiles of blocks, warps and threads. If the result is a grid, the rules of tiles are evaluated on its
        dimensions."""
        raise NotImplementedError

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        """Lists of values of the other axes: copy modes, stages, epilogues. The space combines each shape with one
        entry of each list, in all combinations."""
        raise NotImplementedError

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        """Sets the axes that are computed from the others. Rows may still be illegal."""
        return c

    def slice_options(self, p: KernelProblem) -> list[dict[str, int]]:
        """Values of the slice axes, one for each set of slice counts that are legal for the same rows. Empty: the
        legality of a row does not depend on slices."""
        return []

    def accepts(self, option: dict[str, int], c: Columns) -> Any:
        """A mask of the rows of ``c`` that are candidates with ``option``, one of ``slice_options``."""
        raise NotImplementedError

    # ---- cells: the axes that extents affect

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """Every tile combined with its slices of K, ordered by tile, and for each combination the rule that it breaks
        (-1: legal, -2: a duplicate)."""
        raise NotImplementedError

    # ---- one configuration

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        """The same kernels with every axis that has no effect at its default. Rows of ``c`` must be legal."""
        raise NotImplementedError

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        """For each neighbour of ``config``, the axes that change and their new values."""
        raise NotImplementedError

    def balanced(self, p: KernelProblem, config: Config) -> dict[str, int]:
        """The changes of axes that give multiprocessors equal work if ``p`` skips many tiles, while ``config`` is the
        configuration of a problem that skips none."""
        return {}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """The configurations that result from ``config`` with ``changes``, after changes of other axes that these
        require."""
        raise NotImplementedError


def violations(
    f: CandidateSpace,
    p: KernelProblem,
    c: Columns,
    d: Device,
    names: tuple[str, ...] | None,
    skip: tuple[str, ...] = (),
) -> Ints:
    """For each row the first rule that it breaks, as ``rules.rejections``. ``names``: the rules to check, None: all;
    ``skip``: rules not to check."""
    result = np.full(len(c), -1, np.int64)
    if not len(c):
        return result  # columns without rows have no family, so no geometry
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        for i, rule in rules_of(f.name):
            if (names is None or rule.name in names) and rule.name not in skip:
                result[(result < 0) & ~np.broadcast_to(rule.holds(p, c, g, d), len(c))] = i
    return result


class Grid(Columns):
    """Every shape combined with every variant, as an array. The last dimension (or the last dimensions, if shapes form
    a grid) is the shape; each other dimension is the entry of one list of variants.

    A column has size 1 along the dimensions on which it does not depend. NumPy broadcasts, so arithmetic on columns
    that depend on the shape alone is done once for each shape.
    """

    def __init__(self, columns: dict[str, NDArray[np.int64]], size: tuple[int, ...]) -> None:
        super().__init__(columns, math.prod(size))
        self.size = size

    @classmethod
    def combined(cls, values: Sequence[Mapping[str, Any]]) -> Grid:
        """The grid of all combinations of one entry per table, with one dimension per table. The columns of one table
        have equal length."""
        size = tuple(max(map(len, columns.values())) for columns in values)
        shape = [tuple(n if i == j else 1 for j in range(len(size))) for i, n in enumerate(size)]
        columns = {
            n: np.asarray(v, np.int64).reshape(s) for t, s in zip(values, shape, strict=True) for n, v in t.items()
        }
        return cls(columns, size)

    @classmethod
    def crossed(cls, shapes: Columns, variants: list[list[dict[str, int]]]) -> Grid:
        """The grid of every shape with one entry of each list, in all combinations."""
        size = (*map(len, variants), *(shapes.size if isinstance(shapes, Grid) else (len(shapes),)))
        columns = {n: v[:1] if v.strides == (0,) else v for n, v in shapes.columns.items()}
        out = {n: v.reshape(*(1,) * len(variants), *v.shape) for n, v in columns.items()}
        for i, entries in enumerate(variants):
            dimensions = [-1 if i == j else 1 for j in range(len(size))]
            out.update({n: np.array([e[n] for e in entries], np.int64).reshape(dimensions) for n in entries[0]})
        return cls(out, size)

    def column(self, name: str) -> NDArray[np.int64]:
        if name in self.columns:
            return self.columns[name]
        return _one_number(AXIS[name].default if name != "family" else 0, len(self.size))

    def replace(self, **columns: Any) -> Grid:
        return Grid(
            {**self.columns, **{n: self._expanded(np.asarray(v, np.int64)) for n, v in columns.items()}}, self.size
        )

    def _expanded(self, column: NDArray[Any]) -> NDArray[Any]:
        """The column with all dimensions of the grid; missing leading dimensions get size 1."""
        return column.reshape((1,) * (len(self.size) - column.ndim) + column.shape)

    def options(self, options: list[dict[str, int]]) -> Grid:
        """The rows combined with each entry of ``options``; the entries are a new first dimension."""
        first = {n: np.array([option[n] for option in options], np.int64) for n in options[0]}
        columns = {n: v.reshape(-1, *(1,) * len(self.size)) for n, v in first.items()}
        return Grid({n: v[None] for n, v in self.columns.items()} | columns, (len(options), *self.size))

    def around(self, mask: NDArray[np.bool_]) -> tuple[Grid, tuple[Any, ...]]:
        """Returns the subgrid of the shapes with rows of ``mask`` and the range of each other dimension that has them;
        and the index of the subgrid in an array with the dimensions of the grid."""
        others = (tuple(j for j in range(mask.ndim) if j != i) for i in range(mask.ndim))
        *used, shapes = (np.flatnonzero(mask.any(axis=axes)) for axes in others)
        ranges = [slice(int(i[0]), int(i[-1]) + 1) if len(i) else slice(0) for i in used]
        columns = {
            n: v[tuple(part if m > 1 else slice(None) for part, m in zip(ranges, v.shape[:-1], strict=True))]
            for n, v in self.columns.items()
        }
        size = (*(len(range(m)[part]) for part, m in zip(ranges, self.size[:-1], strict=True)), self.size[-1])
        return Grid(columns, size).shapes(shapes), (*ranges, shapes)

    def shapes(self, which: slice | NDArray[Any]) -> Grid:
        """The subgrid of the shapes that a slice, a mask or a list of indices selects."""
        columns = {n: v[..., which] if v.shape[-1] > 1 else v for n, v in self.columns.items()}
        return Grid(columns, (*self.size[:-1], len(np.arange(self.size[-1])[which])))

    def parts(self) -> Iterable[tuple[slice, Grid]]:
        """Yields the grid in parts of about PART rows, so that temporaries fit the cache: (slice of shapes,
        subgrid)."""
        step = max(PART // max(math.prod(self.size[:-1]), 1), 1)
        for at in range(0, self.size[-1], step):
            yield slice(at, at + step), self.shapes(slice(at, at + step))

    def flat(self) -> Columns:
        """The rows as plain columns, in C order."""
        whole = {n: np.broadcast_to(v, self.size) for n, v in self.columns.items() if v.size > 1}
        one = {n: np.broadcast_to(v.sum(), len(self)) for n, v in self.columns.items() if v.size == 1}
        return Columns({**one, **{n: v.ravel() for n, v in whole.items()}}, len(self))


@lru_cache(maxsize=1 << 8)
def _one_number(number: int, dimensions: int) -> NDArray[np.int64]:
    """A read-only grid column that has the same number in all rows."""
    out = np.full((1,) * dimensions, number, np.int64)
    out.flags.writeable = False
    return out


class FlatGrid(Columns):
    """The rows of a grid of slices and tiles as plain columns; the slices of a tile are contiguous. A column is
    expanded when it is first read; geometry and costs are computed on the grid."""

    def __init__(self, grid: Grid, geometry: Geometry | None = None) -> None:
        """Wraps ``grid``. ``geometry``: the geometry of the grid, if it is known."""
        self.grid, self.length, self.geometry = grid, len(grid), geometry
        self._ready: dict[str, NDArray[np.int64]] = {}

    @property
    def columns(self) -> dict[str, NDArray[np.int64]]:  # type: ignore[override]
        return {n: self.column(n) for n in self.grid.columns}

    def column(self, name: str) -> NDArray[np.int64]:
        if name not in self._ready:
            self._ready[name] = self.expanded(self.grid.column(name))
        return self._ready[name]

    def replace(self, **columns: Any) -> FlatGrid:
        return FlatGrid(self.grid.replace(**columns))

    def expanded(self, values: Any) -> Any:
        """The plain column for ``values``, an array with the dimensions of the grid."""
        return np.broadcast_to(values, self.grid.size).T.ravel()

    def at(self, rows: NDArray[Any]) -> GridRows:
        """The rows ``rows`` of the plain columns."""
        options, tiles = self.grid.size
        tile = rows // options
        return GridRows(self.grid, (rows - tile * options) * tiles + tile)


class GridRows(Columns):
    """Some rows of a grid. A column is gathered when it is first read: the grid takes a fraction of the memory."""

    def __init__(self, grid: Grid, rows: NDArray[Any]) -> None:
        """Selects rows of ``grid``. ``rows``: indices in the order of ``Grid.flat``."""
        self.grid, self.rows, self.length = grid, rows, len(rows)
        self._places: dict[tuple[int, ...], NDArray[Any]] = {}
        self._ready: dict[str, NDArray[np.int64]] = {}

    @property
    def columns(self) -> dict[str, NDArray[np.int64]]:  # type: ignore[override]
        return {n: self.column(n) for n in self.grid.columns}

    def column(self, name: str) -> NDArray[np.int64]:
        if name not in self._ready:
            self._ready[name] = self.values(self.grid.column(name))
        return self._ready[name]

    def values(self, column: NDArray[Any]) -> NDArray[Any]:
        """The values of these rows in ``column``, an array with the dimensions of the grid. A column of one number is
        broadcast."""
        if column.size <= 1:  # none: there are no rows
            return np.broadcast_to(column.sum(dtype=column.dtype), self.length)
        if column.shape not in self._places:
            self._places[column.shape] = places(self.rows, self.grid.size, column.shape)
        return column.ravel().take(self._places[column.shape])

    def number_or_values(self, column: Any) -> Any:
        """``values`` of a column; a number, or a column of one number, is a number."""
        return self.values(column) if np.size(column) > 1 else np.ravel(column)[0]

    def at(self, rows: NDArray[Any]) -> GridRows:
        """Some of these rows."""
        return GridRows(self.grid, self.rows[rows])

    def compact(self) -> GridRows:
        """These rows, in ascending order, as rows of the smallest subgrid (``Grid.around``)."""
        mask = np.zeros(self.grid.size, np.bool_)
        mask.ravel()[self.rows] = True
        grid, place = self.grid.around(mask)
        return GridRows(grid, np.flatnonzero(mask[place]).astype(np.int32))

    def numbers(self, i: int) -> dict[str, int]:
        place = np.unravel_index(int(self.rows[i]), self.grid.size)
        of_shape = {
            shape: tuple(at if n > 1 else 0 for at, n in zip(place, shape, strict=True))
            for shape in {v.shape for v in self.grid.columns.values()}
        }
        return {n: int(v[of_shape[v.shape]]) for n, v in self.grid.columns.items()}

    def take(self, rows: NDArray[Any]) -> Columns:
        some = self.at(rows)
        return Columns(some.columns, some.length)


def distinct(rows: NDArray[Any], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the distinct values of ``rows`` in ascending order, and for each entry of ``rows`` its index among them.
    ``count``: exclusive upper limit of the values."""
    used = np.zeros(count, np.bool_)
    used[rows] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[rows]


def places(rows: NDArray[Any], size: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """The indices, in an array of ``shape``, of rows that ``rows`` numbers in an array of ``size``. A dimension of
    ``shape`` is that of ``size``, or 1. Divisions by one number take less time than ``np.unravel_index``."""
    runs: list[tuple[int, bool]] = []  # (entries, True: these are dimensions of ``shape``), the last dimension first
    for n, m in zip(reversed(size), reversed(shape), strict=True):
        if runs and (m > 1) == runs[-1][1]:
            runs[-1] = runs[-1][0] * n, m > 1
        elif n > 1:
            runs.append((n, m > 1))
    out, stride = np.zeros_like(rows), 1
    for i, (entries, has) in enumerate(runs):
        higher: Any = rows // entries if i + 1 < len(runs) else 0
        if has:
            out += (rows - higher * entries) * stride
            stride *= entries
        rows = higher
    return out


class GatheredGeometry:
    """The geometry of some rows of a grid, with the attributes of a ``Geometry``. A number is gathered when it is
    read."""

    def __init__(self, of: Any, rows: GridRows) -> None:
        """Wraps ``of``, the geometry of the grid of ``rows``."""
        self._of, self._rows = of, rows

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if isinstance(value, np.ndarray):
            return self._rows.values(value)
        return GatheredGeometry(value, self._rows) if is_dataclass(value) else value


def first_violations(
    f: CandidateSpace, p: KernelProblem, c: Grid, d: Device, names: tuple[str, ...], g: Any = None
) -> Ints:
    """For each row of the grid the first of the rules ``names`` that it breaks, with the dimensions of ``c``; -1: none.
    ``g``: the geometry of ``c``, if it is known."""
    result = np.full(c.size, -1, np.int64)
    with np.errstate(all="ignore"):
        g = geometry(p, c) if g is None else g
        for i, rule in rules_of(f.name):
            if rule.name in names and not np.all(holds := rule.holds(p, c, g, d)):
                result[(result < 0) & np.logical_not(holds)] = i
    return result


def breaks(broken: Ints, name: str) -> NDArray[np.bool_]:
    """A mask of the rows whose first broken rule is ``name``, a rule that all families have. ``broken``: indices of
    rules."""
    mask: NDArray[np.bool_] = broken == next(i for i, rule in enumerate(registry.RULES) if rule.name == name)
    return mask


PART = 1 << 19  #: the number of rows of a part of a grid


def legal_rows(
    f: CandidateSpace,
    p: KernelProblem,
    c: Grid,
    d: Device,
    names: tuple[str, ...] | None = None,
    skip: tuple[str, ...] = (),
) -> NDArray[np.bool_]:
    """A mask, with the dimensions of ``c``, of the rows that satisfy the rules ``names`` (None: all) except
    ``skip``."""
    result = np.zeros(c.size, np.bool_)
    with np.errstate(all="ignore"):
        for shapes, part in c.parts():
            result[..., shapes] = satisfied(f, p, part, geometry(p, part), d, names, skip)
    return result


def satisfied(
    f: CandidateSpace,
    p: KernelProblem,
    c: Grid,
    g: Any,
    d: Device,
    names: tuple[str, ...] | None = None,
    skip: tuple[str, ...] = (),
) -> Any:
    """The mask of ``legal_rows``, for a known geometry ``g``. It has size 1 along dimensions on which no rule
    depends."""
    held: dict[tuple[int, ...], Any] = {}
    for _, rule in rules_of(f.name):
        if (names is None or rule.name in names) and rule.name not in skip:
            mask = rule.holds(p, c, g, d)
            size = np.shape(mask)  # masks of equal dimensions first: few operations are on whole grids
            held[size] = held[size] & mask if size in held else mask
    return reduce(and_, sorted(held.values(), key=np.size), np.True_)


def picked(c: Columns, rows: NDArray[Any]) -> Columns:
    """The rows of ``c.take(rows)``; broadcast columns stay broadcast."""
    size = int(rows.sum()) if rows.dtype == bool else len(rows)
    return Columns(
        {n: np.broadcast_to(v[:1].sum(), size) if v.strides == (0,) else v[rows] for n, v in c.columns.items()}, size
    )


def whole_waves(tiles: Any, d: Device) -> Ints:
    """K slice counts that fill whole waves of blocks, one row for each entry of ``tiles``, a number of tiles. The last
    column is 1."""
    tiles = np.maximum(np.atleast_1d(np.asarray(tiles, np.int64)), 1)
    counts = [np.maximum(d.sms * w // tiles, 1) for w in WAVES]
    return np.stack([*counts, np.ones_like(tiles)], axis=-1)


def default_splitk(p: KernelProblem, kg: Any) -> Any:
    """The ``splitk`` value of candidates; the search on hardware also tries the others."""
    several = SPLIT_LAST_CTA if grouped(p) else SPLIT_FLAG if reducible(p) else SPLIT_WORKSPACE
    return np.where(np.asarray(kg) > 1, several, SPLIT_MEMSET)


def effective_pdl(p: KernelProblem, c: Columns) -> Any:
    """The axis ``pdl`` with ``within_launch`` removed where a launch has one kernel: only packing and reductions add
    more kernels."""
    several = (
        (c.operand_path_a == PACK)
        | (c.operand_path_b == PACK)
        | (p.compute == "f32_bf16x6")
        | ((c.splitk == SPLIT_WORKSPACE) & (c.kg > 1))
    )
    return np.where((c.pdl == PDL_WITHIN) & np.logical_not(several), 0, c.pdl)


def moves_much(p: KernelProblem, d: Device) -> bool:
    """True if one product of ``p`` moves more than a fifth of the L2 cache. Only then candidates with many tiles have
    raster groups. Of 95 pairs of kernels for smaller problems on an H200, groups took 5.7 % more time on average (11 %
    less to 15 % more), because of the two divisions that find a block's tile; of 128 pairs for larger ones 2 % less
    (40 % less to 11 % more)."""
    return bool(5 * p.bytes > p.batch * d.l2)


def splitk_pairs(axes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Legal pairs of ``kg`` and ``splitk``."""
    return [(kg, split) for kg in axes["kg"] for split in (axes["splitk"] if kg > 1 else (SPLIT_MEMSET,))]


def single_axis_changes(f: CandidateSpace) -> Iterator[dict[str, int]]:
    """Yields every change of a single axis."""
    for name, values in f.axes.items():
        yield from ({name: v} for v in values)


def multiplies_by(families: Collection[str], instruction: str) -> bool:
    """True if one of ``families`` computes all its products by ``instruction``."""
    return any(registry.FAMILIES[name].instructions == (instruction,) for name in families)


def default(name: str) -> int:
    return AXIS[name].default
