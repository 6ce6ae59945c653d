"""Implicit GEMM: the address of an operand's element is the sum of a row offset and a column offset.

``X[i, j]`` is at ``row(i) + column(j)``. For im2col operands its coordinates in the image are such sums too; if one is
outside the image, the element is zero. A row or column index is split into mixed-radix digits (image, height, width;
channel, filter row, filter column), each with a fixed stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import ShapeError
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.gemm import PACKED, STRIDES

Ints = NDArray[np.int64]

TABLE, WINDOW = "table", "window"
PADDING = 1024  #: entries of a table after its last index
WORD = 32  #: bits of the word that holds the coordinates of an index


@dataclass(frozen=True)
class IndexMap:
    """The offsets of an index. ``extents``: of its digits, the fastest last; ``steps``: the stride of each in elements;
    ``start``: the offset of index 0; ``moves``: for each coordinate the stride of each digit, and ``at`` its value at
    index 0."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    start: int = 0
    moves: tuple[tuple[int, ...], ...] = ()
    at: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return math.prod(self.extents)

    def _sums(self, steps: tuple[int, ...], start: int) -> Ints:
        """The sum of digit times stride for every index, plus ``start``."""
        out = np.full((), start, np.int64)
        for extent, step in zip(self.extents, steps, strict=True):
            out = out[..., None] + np.arange(extent, dtype=np.int64) * step
        return out.reshape(-1)

    @cached_property
    def offsets(self) -> Ints:
        """The offset of every index, in elements from the operand's start."""
        return self._sums(self.steps, self.start)

    def coordinate(self, axis: int) -> Ints:
        return self._sums(self.moves[axis], self.at[axis])

    def span(self, axis: int) -> tuple[int, int]:
        """The least and the largest value of a coordinate."""
        reach = [(e - 1) * s for e, s in zip(self.extents, self.moves[axis], strict=True) if e]
        return self.at[axis] + sum(min(x, 0) for x in reach), self.at[axis] + sum(max(x, 0) for x in reach)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The least and the largest offset."""
        far = [(e - 1) * s for e, s in zip(self.extents, self.steps, strict=True) if e]
        return self.start + sum(min(x, 0) for x in far), self.start + sum(max(x, 0) for x in far)

    @cached_property
    def digits(self) -> list[tuple[int, int]]:
        """(extent, stride) of each digit; digits of extent 1 are left out, and adjacent digits that have one common
        stride are merged."""
        out: list[tuple[int, int, tuple[int, ...]]] = []
        for n, (extent, step) in enumerate(zip(self.extents, self.steps, strict=True)):
            moves = tuple(m[n] for m in self.moves)
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
        """The stride of the index, 0 if it has one value; None: the offsets are not of constant stride from 0."""
        if self.start:
            return None
        return 0 if not self.digits else self.digits[0][1] if len(self.digits) == 1 else None

    def run(self) -> int:
        """How many elements are contiguous, or nearly so: those that a warp finds in the same sectors."""
        if not self.digits:
            return 1
        extent, step = self.digits[-1]
        return extent // abs(step) if step else 1


@dataclass(frozen=True)
class ImplicitOperand:
    """An operand of an implicit GEMM. ``along``: the index map of M or N (C: of M); ``down``: that of K (C: of N);
    ``limits``: the extent of each coordinate that kernels must check; ``kmajor``: whether vector accesses are along
    ``down``; ``found``: the address mode, STRIDED, TABLE or WINDOW."""

    along: IndexMap
    down: IndexMap
    limits: tuple[int, ...] = ()
    kmajor: bool = True
    found: str = TABLE

    @cached_property
    def tables(self) -> tuple[OffsetTable, OffsetTable]:
        """The offset tables of ``along`` and of ``down``."""
        return OffsetTable(self, self.along, True), OffsetTable(self, self.down, False)

    def require(self) -> None:
        """ShapeError: 32 bits do not hold its offsets or its coordinates."""
        low, high = (a + b for a, b in zip(self.along.reach, self.down.reach, strict=True))
        if max(-low, high) >= EXTENT_LIMIT:
            raise ShapeError(f"an operand spans {high + 1} elements; offsets must be at most {EXTENT_LIMIT - 1}")
        _ = self.packing

    def strided(self) -> int:
        """Its leading dimension, 0 if it is not a matrix with one."""
        a, b = self.along.stride, self.down.stride
        if self.limits or a is None or b is None:
            return 0
        major, minor, length = (a, b, self.down.count) if self.kmajor else (b, a, self.along.count)
        if minor not in (0, 1) or major < 0:
            return 0
        rows = self.along.count if self.kmajor else self.down.count
        return max(length, major, 1) if rows <= 1 or major >= length else 0

    def prefers_kmajor(self) -> bool:
        """Whether vector accesses are along K: if it is a matrix only that way, else if its contiguous runs are longer
        that way."""
        matrix = {kmajor: bool(replace(self, kmajor=kmajor).strided()) for kmajor in (False, True)}
        return matrix[True] if matrix[True] != matrix[False] else self.down.run() > self.along.run()

    def wide(self, most: int, item: int) -> int:
        """The widest aligned access, in elements, at most ``most``. ``item``: the batch stride."""
        inner, outer = (self.down, self.along) if self.kmajor else (self.along, self.down)
        if not inner.extents or not inner.digits or inner.digits[-1][1] != 1:
            return 1
        moved = any(
            any(m[n] for m in inner.moves)
            for n in range(len(inner.extents))
            if inner.extents[n] > 1 and inner.steps[n] < inner.digits[-1][0]
        )
        if moved and self.limits:
            return 1
        run, *rest = [inner.digits[-1][0], *(step for _, step in inner.digits[:-1])]
        return math.gcd(most, run, item, inner.start, outer.start, *rest, *(step for _, step in outer.digits))

    @cached_property
    def packing(self) -> CoordinatePacking:
        return CoordinatePacking.of(self)


@dataclass(frozen=True, eq=False)
class OffsetTable:
    """The table of an index map: for each index its offset and, for WINDOW, its coordinates in one word. ``guarded``:
    whether the words have the guard bits. PADDING entries follow, which kernels may prefetch."""

    operand: ImplicitOperand
    walk: IndexMap
    guarded: bool

    def words(self) -> NDArray[np.uint32]:
        columns = [self.walk.offsets]
        if self.operand.found == WINDOW:
            columns.append(self.operand.packing.pack(self.walk, self.guarded))
        out = np.zeros((self.walk.count + PADDING, len(columns)), np.uint32)
        out[: self.walk.count] = np.stack(columns, axis=1) % (1 << WORD)
        return out


@dataclass(frozen=True)
class CoordinatePacking:
    """Coordinates packed into one word, with a guard bit above each. The word of a row plus that of a column is
    ``low``; ``high`` - ``low`` counts from the far edge. A coordinate is inside if its guard bit is set in both.

    ``shifts``: the lowest bit of each coordinate; ``guard``: all guard bits; ``high``: as above.
    """

    shifts: tuple[int, ...]
    guard: int
    high: int

    @classmethod
    def of(cls, x: ImplicitOperand) -> CoordinatePacking:
        shifts, guard, high, at = [], 0, 0, 0
        for axis, extent in enumerate(x.limits):
            low, far = (a + b for a, b in zip(x.along.span(axis), x.down.span(axis), strict=True))
            reach = max(-low, far, extent - 1 - low, far - extent + 1, 1)
            bits = reach.bit_length()  # values from -2^bits to 2^bits - 1 keep within the guard and what is below it
            shifts.append(at)
            guard |= 1 << at + bits
            high += (2 << bits) + extent - 1 << at
            at += bits + 1
        if at > WORD:
            raise ShapeError(f"coordinates within {x.limits} need {at} bits; at most {WORD} are possible")
        return cls(tuple(shifts), guard, high % (1 << WORD))

    def pack(self, walk: IndexMap, guarded: bool) -> Ints:
        out = np.full(walk.count, self.guard if guarded else 0, np.int64)
        for axis, shift in enumerate(self.shifts):
            out += walk.coordinate(axis) << shift
        return out


@dataclass(frozen=True)
class GemmPart:
    """One of the GEMMs that a problem consists of: the operands, which have its extents."""

    a: ImplicitOperand
    b: ImplicitOperand
    c: ImplicitOperand

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.a.along.count, self.b.along.count, self.a.down.count


@dataclass(frozen=True)
class ImplicitGemm(KernelGemm):
    """A GEMM whose operands may be addressed through offset tables.

    ``m``, ``n``, ``k``: the largest extents of its parts. ``addr_a`` (b, c): STRIDED (a matrix with a leading
    dimension), TABLE (the offset of a row plus that of a column) or WINDOW (likewise, and zero outside the image);
    ``wide_a`` (b, c): the widest access in elements; ``parts``: the GEMMs to compute, the largest first; ``traffic``:
    the fewest bytes that must move.
    """

    wide_a: int = 1
    wide_b: int = 1
    wide_c: int = 1
    parts: tuple[GemmPart, ...] = field(default=(), compare=False, repr=False)
    traffic: int = field(default=0, compare=False)

    operation = "conv"
    batched_bias = True

    @property
    def vectors(self) -> tuple[int, int, int]:
        return self.wide_a, self.wide_b, self.wide_c

    def _normalize_batch_strides(self) -> None:
        """Keeps the batch strides as given: leading dimensions do not determine the packed ones."""

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.stride_a, self.stride_b, self.stride_c

    @property
    def shape_class(self) -> KernelGemm:
        return replace(self, im2col=None, stride_a=PACKED, stride_b=PACKED, stride_c=PACKED)

    @property
    def extent_gcd(self) -> tuple[int, int, int]:
        m, n, k = (math.gcd(*x) for x in zip(*(part.extents for part in self.parts), strict=True))
        return m, n, k

    @property
    def gemms(self) -> tuple[KernelGemm, ...]:
        if len(self.parts) < 2:
            return (self,)
        each = ((part, *part.extents) for part in self.parts)
        return tuple(replace(self, m=m, n=n, k=k, lda=0, ldb=0, ldc=0, parts=(part,)) for part, m, n, k in each)

    @property
    def flops(self) -> int:
        return 2 * self.batch * sum(math.prod(part.extents) for part in self.parts)

    @property
    def bytes(self) -> int:
        return self.traffic

    def key(self) -> str:
        words = (f"{name}={getattr(self, name)}" for name in ("addr_a", "addr_b", "addr_c"))
        return " ".join(["conv as", self.shape(), self.layout, self.dtype, *words])


def implicit_gemm_of(
    parts: Iterable[GemmPart],
    items: tuple[int, int, int, int],
    aligned: tuple[int, int, int],
    traffic: int,
    im2col: Im2colDescriptor | None = None,
    strip: Any = None,
    scalar_bias: bool = False,
    swapped: bool = False,
    **fields: Any,
) -> KernelGemm:
    """The kernel problem that consists of ``parts``; a plain GEMM, if all operands are matrices. ``items``: the batch
    and the batch strides; ``aligned``: the alignments of A, B and C; ``traffic``: bytes that must move;
    ``fields``: fields of Gemm."""
    ordered = sorted(parts, key=lambda part: -math.prod(part.extents))
    kmajor = {name: x.prefers_kmajor() for name, x in (("a", ordered[0].a), ("b", ordered[0].b))}
    ordered = [replace(part, **{n: replace(getattr(part, n), kmajor=v) for n, v in kmajor.items()}) for part in ordered]
    m, n, k = (max(x) for x in zip(*(part.extents for part in ordered), strict=True))
    fields.update(m=m, n=n, k=k, layout=("N" if kmajor["a"] else "T") + ("T" if kmajor["b"] else "N"))
    kinds = dtype(fields["dtype"]), dtype(fields["dtype"]), dtype(fields["out"])
    found: dict[str, Any] = {}
    for name, kind, start, item in zip("abc", kinds, aligned, items[1:], strict=True):
        operands = [getattr(part, name) for part in ordered]
        for x in operands:
            x.require()
        fields[f"aligned_{name}"] = start
        lds = {x.strided() for x in operands}
        matrix = len(ordered) == 1 and 0 not in lds
        if matrix:
            fields[f"ld{name}"] = lds.pop()
        found[f"addr_{name}"] = STRIDED if matrix else WINDOW if any(x.limits for x in operands) else TABLE
        for n, part in enumerate(ordered):
            ordered[n] = replace(part, **{name: replace(getattr(part, name), found=found[f"addr_{name}"])})
        found[f"wide_{name}"] = math.gcd(*(x.wide(max(1, start // kind.bytes), item) for x in operands))
    fields.update(zip(("batch", *STRIDES), items, strict=True))
    batched_bias = items[0] > 1 and "bias" in fields["epilogue"]
    if {found[f"addr_{name}"] for name in "abc"} == {STRIDED} and not batched_bias and not scalar_bias:
        return KernelGemm(**fields, swapped=swapped)
    if strip is not None:
        found.update(strip=strip, strip_kind=strip.kind)
    return ImplicitGemm(
        **fields,
        **found,
        parts=tuple(ordered),
        traffic=traffic,
        im2col=im2col,
        scalar_bias=scalar_bias,
        swapped=swapped,
    )
