"""Implicit GEMM: the address of an operand's element is the sum of a row offset and a column offset.

``X[i, j]`` is at ``row(i) + column(j)``. Image coordinates of im2col operands are such sums too; an element with a
coordinate outside the image is zero. A row or column index is split into mixed-radix digits (image, height, width;
channel, filter row, filter column), each with a fixed stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import ShapeError
from ptxgen.lowering.kernel_problem import STRIDED, GemmExtents, KernelProblem, MatrixAccess, Operand, array_of
from ptxgen.lowering.sink import StoreTile
from ptxgen.lowering.strided import Strided, matrix_product
from ptxgen.lowering.table import Table
from ptxgen.problem import dtypes
from ptxgen.problem.base import EXTENT_LIMIT

Ints = NDArray[np.int64]

TABLE, IM2COL = "table", "im2col"
PADDING = 1024  #: entries after the last index of a table, which kernels may load ahead
WORD = 32  #: bits of a word of packed coordinates


@dataclass(frozen=True)
class IndexMap:
    """The offsets of a row or column index. ``extents``: extents of its digits, fastest digit last; ``steps``: strides
    of the digits in elements; ``start``: the offset of index 0; ``coordinate_steps``: for each image coordinate, the
    strides of the digits in it; ``coordinate_start``: the coordinates of index 0."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    start: int = 0
    coordinate_steps: tuple[tuple[int, ...], ...] = ()
    coordinate_start: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return math.prod(self.extents)

    def _sums(self, steps: tuple[int, ...], start: int) -> Ints:
        """For every index: ``start`` plus the sum of each digit times its stride."""
        out = np.full((), start, np.int64)
        for extent, step in zip(self.extents, steps, strict=True):
            out = out[..., None] + np.arange(extent, dtype=np.int64) * step
        return out.reshape(-1)

    @cached_property
    def offsets(self) -> Ints:
        """The offset of every index, in elements from the operand's start."""
        return self._sums(self.steps, self.start)

    def coordinate(self, axis: int) -> Ints:
        return self._sums(self.coordinate_steps[axis], self.coordinate_start[axis])

    def coordinate_range(self, axis: int) -> tuple[int, int]:
        """The smallest and the largest value of a coordinate."""
        reach = [(e - 1) * s for e, s in zip(self.extents, self.coordinate_steps[axis], strict=True) if e]
        return self.coordinate_start[axis] + sum(min(x, 0) for x in reach), self.coordinate_start[axis] + sum(
            max(x, 0) for x in reach
        )

    @cached_property
    def offset_range(self) -> tuple[int, int]:
        """The smallest and the largest offset."""
        far = [(e - 1) * s for e, s in zip(self.extents, self.steps, strict=True) if e]
        return self.start + sum(min(x, 0) for x in far), self.start + sum(max(x, 0) for x in far)

    @cached_property
    def digits(self) -> list[tuple[int, int]]:
        """The pairs (extent, stride) of the digits with an extent above 1. Adjacent digits that step uniformly are
        merged."""
        out: list[tuple[int, int, tuple[int, ...]]] = []
        for n, (extent, step) in enumerate(zip(self.extents, self.steps, strict=True)):
            moves = tuple(m[n] for m in self.coordinate_steps)
            if extent == 1:
                continue
            if (
                out
                and out[-1][1] == extent * step
                and all(a == extent * b for a, b in zip(out[-1][2], moves, strict=True))
            ):
                out[-1] = out[-1][0] * extent, step, moves
            else:
                out.append((extent, step, moves))
        return [(extent, step) for extent, step, _ in out]

    @property
    def stride(self) -> int | None:
        """The constant stride of the offsets; 0 if there is one index. None: the stride is not constant, or ``start``
        is not 0."""
        if self.start:
            return None
        return 0 if not self.digits else self.digits[0][1] if len(self.digits) == 1 else None

    def contiguous_run(self) -> int:
        """The extent of the fastest digit divided by its stride: a measure of how many useful elements a warp reads
        from each sector."""
        if not self.digits:
            return 1
        extent, step = self.digits[-1]
        return extent // abs(step) if step else 1


@dataclass(frozen=True)
class ImplicitOperand:
    """An operand of an implicit GEMM. ``rows``: the index map of M or N (for C: of M); ``columns``: the index map of K
    (for C: of N); ``limits``: extents of the coordinates that kernels must check; ``kmajor``: True if vector accesses
    are along ``columns``; ``addressing``: the address mode, STRIDED, TABLE or IM2COL."""

    rows: IndexMap
    columns: IndexMap
    limits: tuple[int, ...] = ()
    kmajor: bool = True
    addressing: str = TABLE

    @cached_property
    def tables(self) -> tuple[OffsetTable, OffsetTable]:
        """The offset tables of ``rows`` and of ``columns``."""
        return OffsetTable(self, self.rows, True), OffsetTable(self, self.columns, False)

    def require(self) -> None:
        """ShapeError: an offset or the packed coordinates do not fit 32 bits."""
        low, high = (a + b for a, b in zip(self.rows.offset_range, self.columns.offset_range, strict=True))
        if max(-low, high) >= EXTENT_LIMIT:
            raise ShapeError(f"an operand spans {high + 1} elements; offsets must be at most {EXTENT_LIMIT - 1}")
        _ = self.packing

    def strided(self) -> int:
        """The leading dimension; 0: the operand is not a matrix with one."""
        a, b = self.rows.stride, self.columns.stride
        if self.limits or a is None or b is None:
            return 0
        major, minor, length = (a, b, self.columns.count) if self.kmajor else (b, a, self.rows.count)
        if minor not in (0, 1) or major < 0:
            return 0
        rows = self.rows.count if self.kmajor else self.columns.count
        return max(length, major, 1) if rows <= 1 or major >= length else 0

    def prefers_kmajor(self) -> bool:
        """True if vector accesses should be along K: the operand has a leading dimension only in that direction, or its
        contiguous runs along K are longer."""
        matrix = {kmajor: bool(replace(self, kmajor=kmajor).strided()) for kmajor in (False, True)}
        return (
            matrix[True]
            if matrix[True] != matrix[False]
            else self.columns.contiguous_run() > self.rows.contiguous_run()
        )

    def widest_access(self, limit: int, batch_stride: int) -> int:
        """The widest aligned vector access, in elements, at most ``limit``."""
        inner, outer = (self.columns, self.rows) if self.kmajor else (self.rows, self.columns)
        if not inner.extents or not inner.digits or inner.digits[-1][1] != 1:
            return 1
        moved = any(
            any(m[n] for m in inner.coordinate_steps)
            for n in range(len(inner.extents))
            if inner.extents[n] > 1 and inner.steps[n] < inner.digits[-1][0]
        )
        if moved and self.limits:
            return 1
        run, *rest = [inner.digits[-1][0], *(step for _, step in inner.digits[:-1])]
        return math.gcd(limit, run, batch_stride, inner.start, outer.start, *rest, *(step for _, step in outer.digits))

    @cached_property
    def packing(self) -> CoordinatePacking:
        return CoordinatePacking.of(self)


@dataclass(frozen=True, eq=False)
class OffsetTable(Table):
    """The table of an index map: for each index a word with its offset and, in IM2COL mode, a word with its packed
    coordinates. ``guarded``: True if the coordinate words have guard bits. PADDING entries follow the last index."""

    operand: ImplicitOperand
    index_map: IndexMap
    guarded: bool

    def words(self) -> NDArray[np.uint32]:
        columns = [self.index_map.offsets]
        if self.operand.addressing == IM2COL:
            columns.append(self.operand.packing.pack(self.index_map, self.guarded))
        out = np.zeros((self.index_map.count + PADDING, len(columns)), np.uint32)
        for n, column in enumerate(columns):
            out[: self.index_map.count, n] = column.astype(np.uint32)  # modulo 2 to the power of WORD
        return out


@dataclass(frozen=True)
class CoordinatePacking:
    """Image coordinates packed into one word, with a guard bit above each. A kernel adds the words of a row and of a
    column and gets the word ``low``; ``high`` - ``low`` holds the distances from the far edge. A coordinate is inside
    the image if its guard bit is set in both words.

    ``shifts``: the lowest bit of each coordinate; ``guard``: the mask of the guard bits; ``high``: the word above.
    """

    shifts: tuple[int, ...]
    guard: int
    high: int

    @property
    def guard_and_high(self) -> tuple[int, int]:
        return self.guard, self.high

    @classmethod
    def of(cls, x: ImplicitOperand) -> CoordinatePacking:
        shifts, guard, high, at = [], 0, 0, 0
        for axis, extent in enumerate(x.limits):
            low, far = (
                a + b for a, b in zip(x.rows.coordinate_range(axis), x.columns.coordinate_range(axis), strict=True)
            )
            reach = max(-low, far, extent - 1 - low, far - extent + 1, 1)
            bits = reach.bit_length()  # values from -2^bits to 2^bits - 1 fit the guard bit and the bits below it
            shifts.append(at)
            guard |= 1 << at + bits
            high += (2 << bits) + extent - 1 << at
            at += bits + 1
        if at > WORD:
            raise ShapeError(f"coordinates within {x.limits} need {at} bits; at most {WORD} are possible")
        return cls(tuple(shifts), guard, high % (1 << WORD))

    def pack(self, index_map: IndexMap, guarded: bool) -> Ints:
        out = np.full(index_map.count, self.guard if guarded else 0, np.int64)
        for axis, shift in enumerate(self.shifts):
            out += index_map.coordinate(axis) << shift
        return out


@dataclass(frozen=True)
class GemmPart:
    """The operands of one of a problem's GEMMs; they determine its extents."""

    a: ImplicitOperand
    b: ImplicitOperand
    c: ImplicitOperand

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.a.rows.count, self.b.rows.count, self.a.columns.count


@dataclass(frozen=True)
class OffsetTables(MatrixAccess):
    """The access to an operand by offset tables: an element is at the offset of its row plus the offset of its column.
    ``maps``: the index maps of the part with the largest extents; ``mode``: TABLE, or IM2COL if elements outside the
    image are zero. No kernel reads ``ld``, which is that of contiguous rows."""

    maps: ImplicitOperand | None = field(default=None, compare=False, repr=False)

    capability: ClassVar[str] = "offset_table"


def implicit_gemm_of(
    parts: Iterable[GemmPart],
    items: tuple[int, int, int, int],
    aligned: tuple[int, int, int],
    traffic: int,
    sink: StoreTile,
    swapped: bool = False,
    **fields: Any,
) -> KernelProblem:
    """The kernel problem with these parts. It is a plain matrix product if every operand has a leading dimension.

    ``items``: the batch and the batch strides; ``aligned``: alignments of A, B and C; ``traffic``: lower bound of the
    bytes moved; ``fields``: dtype, compute, deterministic.
    """
    ordered = sorted(parts, key=lambda part: -math.prod(part.extents))
    kmajor = {name: x.prefers_kmajor() for name, x in (("a", ordered[0].a), ("b", ordered[0].b))}
    ordered = [replace(part, **{n: replace(getattr(part, n), kmajor=v) for n, v in kmajor.items()}) for part in ordered]
    m, n, k = (max(x) for x in zip(*(part.extents for part in ordered), strict=True))
    layout = ("N" if kmajor["a"] else "T") + ("T" if kmajor["b"] else "N")
    dtype, compute = fields["dtype"], fields["compute"]
    modes, lds, accesses = {}, {}, {}
    axes = {"a": (m, k), "b": (n, k), "c": (m, n)}
    for name, element_type, start, item in zip("abc", (dtype, dtype, sink.out), aligned, items[1:], strict=True):
        operands: list[ImplicitOperand] = [getattr(part, name) for part in ordered]
        for x in operands:
            x.require()
        forms = {x.strided() for x in operands}
        matrix = len(ordered) == 1 and 0 not in forms
        modes[name] = STRIDED if matrix else IM2COL if any(x.limits for x in operands) else TABLE
        for i, part in enumerate(ordered):
            ordered[i] = replace(part, **{name: replace(getattr(part, name), addressing=modes[name])})
        vec = math.gcd(*(x.widest_access(max(1, start // dtypes.dtype(element_type).bytes), item) for x in operands))
        mn, depth = axes[name]
        stored = (mn, depth) if operands[0].kmajor else (depth, mn)
        lds[name] = forms.pop() if matrix else None
        numbers = (operands[0].kmajor, *stored, lds[name] or max(stored[1], 1), item, start, vec)
        accesses[name] = Strided(*numbers) if matrix else OffsetTables(*numbers, modes[name])
    if set(modes.values()) == {STRIDED} and not sink.scalar_bias and not (sink.batched_bias and items[0] > 1):
        return matrix_product(
            m,
            n,
            k,
            layout,
            out=sink.out,
            epilogue=sink.epilogue,
            ld=(lds["a"], lds["b"], lds["c"]),
            aligned=aligned,
            batch=items[0],
            strides=items[1:],
            swapped=swapped,
            **fields,
        )

    def of_part(part: GemmPart, extents: tuple[int, int, int]) -> KernelProblem:
        """The problem with the offset tables of ``part`` and these extents."""
        made = {}
        for name, x in accesses.items():
            made[name] = replace(x, maps=getattr(part, name)) if isinstance(x, OffsetTables) else x
        operands = [
            Operand(name.upper(), element_type, made[name], array_of(name.upper(), swapped))
            for name, element_type in zip("abc", (dtype, dtype, sink.out), strict=True)
        ]
        return KernelProblem(
            f"conv_{dtype}_{layout.lower()}",
            GemmExtents(*extents, items[0]),
            tuple(operands[:2]),
            tuple(operands[2:]),
            compute,
            sink,
            deterministic=fields["deterministic"],
            moved=traffic,
        )

    whole = of_part(ordered[0], (m, n, k))
    if len(ordered) == 1:
        return whole
    each = (
        of_part(part, (m, n, k)).with_extents("ABC", **dict(zip("mnk", part.extents, strict=True))) for part in ordered
    )
    return replace(whole, parts=tuple(each))
