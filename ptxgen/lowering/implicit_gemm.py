"""Products whose operands are no matrices in memory: an element lies where two offsets lead, a row's and a column's.

``X[i, j]`` lies at ``row(i) + column(j)`` and, where a window slides over images, counts as zero if any of its
coordinates, which are such sums too, is outside the image. A row's or a column's number is read as digits (image,
height, width; channel, filter row, filter column), each of which moves a fixed distance.
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
from ptxgen.lowering.im2col_descriptor import Window
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.gemm import PACKED, STRIDES

Ints = NDArray[np.int64]

TABLE, WINDOW = "table", "window"
PADDING = 1024  #: numbers of a table behind its last
WORD = 32  #: bits that hold all coordinates of one offset


@dataclass(frozen=True)
class Walk:
    """How one number moves through memory. ``extents``: of its digits, the last runs fastest; ``steps``: elements
    that each moves by; ``start``: of number 0; ``moves``: for each coordinate, how each digit moves it, and ``at``
    its value at number 0."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    start: int = 0
    moves: tuple[tuple[int, ...], ...] = ()
    at: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return math.prod(self.extents)

    def _sums(self, steps: tuple[int, ...], start: int) -> Ints:
        """The sum of digit times step of every number, from ``start``."""
        out = np.full((), start, np.int64)
        for extent, step in zip(self.extents, steps, strict=True):
            out = out[..., None] + np.arange(extent, dtype=np.int64) * step
        return out.reshape(-1)

    @cached_property
    def offsets(self) -> Ints:
        """Elements from the operand's start, of every number."""
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
        """(extent, step), digits of one value left out, and neighbours that are one digit to memory and coordinates
        taken together."""
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
        """Elements from each number to the next, 0 where there is one; None: that differs."""
        if self.start:
            return None
        return 0 if not self.digits else self.digits[0][1] if len(self.digits) == 1 else None

    def run(self) -> int:
        """How many elements lie side by side, or nearly so: what a warp's accesses meet in one sector."""
        if not self.digits:
            return 1
        extent, step = self.digits[-1]
        return extent // abs(step) if step else 1


@dataclass(frozen=True)
class Operand:
    """``along``: how it is walked along M or N (C: along M); ``down``: along K (C: along N); ``limits``: the extent of
    each coordinate that has to be looked at; ``kmajor``: accesses lie along ``down``; ``found``: how kernels do that,
    STRIDED, TABLE or WINDOW."""

    along: Walk
    down: Walk
    limits: tuple[int, ...] = ()
    kmajor: bool = True
    found: str = TABLE

    @cached_property
    def tables(self) -> tuple[Table, Table]:
        """What kernels look up: of M or N, of K (C: of M, of N)."""
        return Table(self, self.along, True), Table(self, self.down, False)

    def require(self) -> None:
        """ShapeError: the words of kernels hold neither its offsets nor its coordinates."""
        low, high = (a + b for a, b in zip(self.along.reach, self.down.reach, strict=True))
        if max(-low, high) >= EXTENT_LIMIT:
            raise ShapeError(f"an operand reaches over {high + 1} elements; kernels count to {EXTENT_LIMIT - 1}")
        _ = self.packing

    def strided(self) -> int:
        """The leading dimension of the matrix that it is, 0 if it is none."""
        a, b = self.along.stride, self.down.stride
        if self.limits or a is None or b is None:
            return 0
        major, minor, length = (a, b, self.down.count) if self.kmajor else (b, a, self.along.count)
        if minor not in (0, 1) or major < 0:
            return 0
        rows = self.along.count if self.kmajor else self.down.count
        return max(length, major, 1) if rows <= 1 or major >= length else 0

    def lies_along_k(self) -> bool:
        """Whether accesses shall lie along K: where only that makes a matrix of it, else where it has longer runs."""
        matrix = {kmajor: bool(replace(self, kmajor=kmajor).strided()) for kmajor in (False, True)}
        return matrix[True] if matrix[True] != matrix[False] else self.down.run() > self.along.run()

    def wide(self, most: int, item: int) -> int:
        """The widest access, in elements up to ``most``, that its elements allow anywhere; ``item``: from one item of
        a batch to the next."""
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
    def packing(self) -> Packing:
        return Packing.of(self)


@dataclass(frozen=True, eq=False)
class Table:
    """What a kernel looks up of each number of a walk: an offset, and of windows a word of coordinates. ``guarded``: of
    the walk whose words have the guard bits. Behind the last number there are PADDING more, for reads ahead."""

    operand: Operand
    walk: Walk
    guarded: bool

    def words(self) -> NDArray[np.uint32]:
        columns = [self.walk.offsets]
        if self.operand.found == WINDOW:
            columns.append(self.operand.packing.pack(self.walk, self.guarded))
        out = np.zeros((self.walk.count + PADDING, len(columns)), np.uint32)
        out[: self.walk.count] = np.stack(columns, axis=1) % (1 << WORD)
        return out


@dataclass(frozen=True)
class Packing:
    """Coordinates in one word, a guard bit above each. The word of a row plus that of a column is ``low``; ``high``
    less ``low`` counts from the far edge; a coordinate is inside where neither has lost its guard.

    ``shifts``: where each coordinate begins; ``guard``: all guard bits; ``high``: as above.
    """

    shifts: tuple[int, ...]
    guard: int
    high: int

    @classmethod
    def of(cls, x: Operand) -> Packing:
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
            raise ShapeError(f"coordinates inside {x.limits} need {at} bits; kernels hold them in {WORD}")
        return cls(tuple(shifts), guard, high % (1 << WORD))

    def pack(self, walk: Walk, guarded: bool) -> Ints:
        out = np.full(walk.count, self.guard if guarded else 0, np.int64)
        for axis, shift in enumerate(self.shifts):
            out += walk.coordinate(axis) << shift
        return out


@dataclass(frozen=True)
class Part:
    """One product that a problem consists of: its extents and where its operands are."""

    a: Operand
    b: Operand
    c: Operand

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
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)
    traffic: int = field(default=0, compare=False)

    operation = "conv"
    batched_bias = True

    @property
    def vectors(self) -> tuple[int, int, int]:
        return self.wide_a, self.wide_b, self.wide_c

    def _settle_items(self) -> None:
        """Keeps the batch strides as given: leading dimensions do not determine the packed ones."""

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.stride_a, self.stride_b, self.stride_c

    @property
    def shape_class(self) -> KernelGemm:
        return replace(self, window=None, stride_a=PACKED, stride_b=PACKED, stride_c=PACKED)

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


def product(
    parts: Iterable[Part],
    items: tuple[int, int, int, int],
    aligned: tuple[int, int, int],
    traffic: int,
    window: Window | None = None,
    strip: Any = None,
    scalar_bias: bool = False,
    swapped: bool = False,
    **fields: Any,
) -> KernelGemm:
    """The product that consists of ``parts``: a plain one where it is one, of matrices. ``fields``: of Gemm."""
    ordered = sorted(parts, key=lambda part: -math.prod(part.extents))
    kmajor = {name: x.lies_along_k() for name, x in (("a", ordered[0].a), ("b", ordered[0].b))}
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
        window=window,
        scalar_bias=scalar_bias,
        swapped=swapped,
    )
