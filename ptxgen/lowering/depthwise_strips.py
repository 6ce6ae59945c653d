"""Depthwise convolutions in strips: each thread computes a strip of adjacent results along one axis of the image.

Lanes are along the contiguous axis of memory, strips along another axis. The results of a strip read overlapping
windows of pixels. Kernels unroll the taps along the strip axis and read the offsets of the other taps from a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen.lowering.feature_maps import FeatureMaps
from ptxgen.lowering.implicit_gemm import (
    PADDING,
    WORD,
    CoordinatePacking,
    ImplicitOperand,
    IndexMap,
    OffsetTable,
    OffsetTables,
)
from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess

MAX_RESULTS = 64  #: upper limit of the results of a strip
MAX_COLUMNS = 8  #: upper limit of the strips of a patch


@dataclass(frozen=True)
class DigitStrides:
    """The strides of a mixed-radix digit: in the image, the result and the filter in elements, and in each image
    coordinate."""

    image: int
    result: int
    filter: int
    coordinates: tuple[int, ...]

    def scaled(self, n: int) -> DigitStrides:
        """The strides of every ``n``-th value of the digit."""
        return DigitStrides(self.image * n, self.result * n, self.filter * n, tuple(c * n for c in self.coordinates))


@dataclass(frozen=True)
class CrossAxis:
    """The axis across the strips of a patch: the last axis of ``result_digits``. ``results``, ``taps``, ``stride``,
    ``dilation``: those of this axis; ``pixel``: strides from one pixel to the next; ``tap_numbers``: the number in the
    filter of each pair (tap along the strip, tap across it), the latter fastest."""

    results: int
    taps: int
    stride: int
    dilation: int
    pixel: DigitStrides
    tap_numbers: tuple[int, ...]


@dataclass(frozen=True)
class DepthwiseStrip:
    """The strips of a convolution. Strides and offsets are in elements unless stated otherwise.

    - ``image``: the GEMM operand (a, b) that holds the image.
    - ``vec``: the widest vector of adjacent results that read adjacent pixels.
    - ``taps``, ``stride``, ``dilation``: those of the strip axis, in pixels.
    - ``lanes``, ``results``: extents of the lane axis and of the strip axis; ``lane``, ``axis``: their strides.
    - ``result_digits``: extents and strides of all other result axes; ``tap_digits``: those of the taps along the other
      axes.
    - ``filter_strides``: strides from tap to tap along the strip axis, and from filter to filter.
    - ``image_start``, ``filter_start``, ``result_start``: offsets of the first pixel, tap and result.
    - ``coordinate_start``: coordinates of the first pixel; ``limits``: extents of the coordinates.

    An input gradient with a stride has ``ratio`` results along the strip axis per pixel of the operand; ``shift`` is
    the place of result 0 among the results of its pixel. A result has a product with a tap if the division in
    ``pixel_of`` is exact. The other axes are divided into phases with different taps: ``other_phases`` has the strips
    of all phases but the first.

    A weight gradient (``wgrad``) multiplies result gradients by pixels; its filter strides are tap numbers. If lanes
    are not along channels, each block computes one of ``groups`` filters; ``group`` has the strides from one group to
    the next.

    ``patch``: the strips for threads that compute several adjacent strips, a patch of the image; it exists if filters
    are contiguous and lanes are channels. Its ``vec`` is also the vector width of filters, and ``cross`` is the axis
    across its strips. ``widened`` sets the number of strips of a patch; ``column`` is this number, with the strides
    from strip to strip.

    ``feature_maps``: the same convolution for blocks that hold whole feature maps in shared memory; it exists if
    adjacent feature maps are contiguous.
    """

    image: str
    vec: int
    taps: int
    stride: int
    dilation: int
    lanes: int
    lane: DigitStrides
    results: int
    axis: DigitStrides
    result_digits: tuple[tuple[int, DigitStrides], ...]
    tap_digits: tuple[tuple[int, DigitStrides], ...]
    filter_strides: tuple[int, int]
    image_start: int
    filter_start: int
    coordinate_start: tuple[int, ...]
    limits: tuple[int, ...]
    ratio: int = 1
    shift: int = 0
    result_start: int = 0
    other_phases: tuple[DepthwiseStrip, ...] = ()
    wgrad: bool = False
    groups: int = 1
    group: DigitStrides = DigitStrides(0, 0, 0, ())
    patch: DepthwiseStrip | None = None
    cross: CrossAxis | None = None
    column: tuple[int, DigitStrides] | None = None
    feature_maps: FeatureMaps | None = None

    @lru_cache(maxsize=64)  # noqa: B019 tables of equal strips are one object
    def widened(self, strips: int) -> DepthwiseStrip:
        """The strips of patches of ``strips`` adjacent strips."""
        *others, (extent, step) = self.result_digits
        digits = (*others, (-(-extent // strips), step.scaled(strips)))
        return replace(self, result_digits=digits, column=(strips, step))

    @property
    def grouped(self) -> bool:
        """True if each lane has a filter of its own."""
        return self.lane.filter > 0

    @property
    def tap_count(self) -> int:
        """The number of taps of a filter."""
        return self.taps * self.outer_taps

    @property
    def tap_numbers(self) -> list[list[int]]:
        """The tap numbers of a weight gradient: a list for each outer tap, with the numbers of the taps along the strip
        axis."""
        first = self._index_map(self.tap_digits, "filter").offsets
        return [[int(n) + r * self.filter_strides[0] for r in range(self.taps)] for n in first]

    def pixel_of(self, i: int, r: int) -> int | None:
        """The pixel, in the strip's window, that result ``i`` multiplies by tap ``r``. None: there is none."""
        if self.ratio == 1:
            return i * self.stride + r * self.dilation
        pixel, remainder = divmod(i + self.shift - r * self.dilation, self.ratio)
        return None if remainder else pixel - first_pixel(self.taps, self.dilation, self.ratio, self.shift)

    @property
    def constants(self) -> tuple[int, ...]:
        """The numbers that are constants in generated code. The last one is the vector width."""
        facts: tuple[int, ...] = (self.taps, self.stride, self.dilation, self.ratio, self.shift % self.ratio)
        if self.patch is not None and (cross := self.patch.cross) is not None:
            facts = (*facts, cross.taps, cross.stride, cross.dilation, *cross.tap_numbers, self.patch.vec)
        if self.feature_maps is not None:
            facts = (*facts, *self.feature_maps.constants)
        if not self.wgrad:
            return *facts, self.vec
        return *facts, self.grouped, *(n for tap in self.tap_numbers for n in tap), self.vec

    @property
    def rows(self) -> int:
        """The product of the extents of all result axes except the lane axis and the strip axis."""
        return self._index_map(self.result_digits, "result").count

    @property
    def outer_taps(self) -> int:
        """The number of taps along the axes other than the strip axis."""
        return self._index_map(self.tap_digits, "image").count

    @staticmethod
    def _index_map(
        digits: tuple[tuple[int, DigitStrides], ...], field: str, start: int = 0, at: tuple[int, ...] = ()
    ) -> IndexMap:
        moves = tuple(tuple(m.coordinates[n] for _, m in digits) for n in range(len(at)))
        return IndexMap(tuple(n for n, _ in digits), tuple(getattr(m, field) for _, m in digits), start, moves, at)

    @cached_property
    def packing(self) -> CoordinatePacking:
        """The packing of the coordinates of all results, including results of strips that extend past the last
        result."""
        every = (*self.result_digits, (self.lanes, self.lane), (self.results + MAX_RESULTS, self.axis))
        every = (*every, self.column) if self.column is not None else every
        taps = (
            *self.tap_digits,
            (self.taps, DigitStrides(0, 0, 0, tuple(x // self.stride * self.dilation for x in self.axis.coordinates))),
        )
        zero = (0,) * len(self.limits)
        return ImplicitOperand(
            self._index_map(every, "image", 0, self.coordinate_start),
            self._index_map(taps, "image", 0, zero),
            self.limits,
        ).packing

    def word(self, axes: tuple[int, ...]) -> int:
        """The coordinates ``axes`` packed into one word, without guard bits."""
        return sum(n << shift for n, shift in zip(axes, self.packing.shifts, strict=True)) % (1 << WORD)

    @cached_property
    def tables(self) -> tuple[OffsetTable, OffsetTable]:
        """The table of results, with the columns (image offset, coordinates, result offset, filter offset), and the
        table of taps, with the columns (image offset, coordinates, filter offset, 0)."""
        return StripTable.of(self, True), StripTable.of(self, False)


@dataclass(frozen=True, eq=False)
class StripTable(OffsetTable):
    """An offset table with four words for each index."""

    strip: DepthwiseStrip

    @classmethod
    def of(cls, strip: DepthwiseStrip, results: bool) -> StripTable:
        digits = strip.result_digits if results else strip.tap_digits
        at = strip.coordinate_start if results else (0,) * len(strip.limits)
        index_map = strip._index_map(digits, "image", strip.image_start if results else 0, at)
        return cls(ImplicitOperand(index_map, index_map), index_map, results, strip)

    def words(self) -> NDArray[np.uint32]:
        s, digits = self.strip, self.strip.result_digits if self.guarded else self.strip.tap_digits
        filters = s._index_map(digits, "filter", 0 if self.guarded else s.filter_start).offsets
        last = (
            (s._index_map(digits, "result", s.result_start).offsets, filters)
            if self.guarded
            else (filters, np.zeros_like(filters))
        )
        columns = (self.index_map.offsets, s.packing.pack(self.index_map, self.guarded), *last)
        out = np.zeros((self.index_map.count + PADDING, 4), np.uint32)
        out[: self.index_map.count] = np.stack(columns, axis=1) % (1 << WORD)
        return out


def first_pixel(taps: int, dilation: int, ratio: int, shift: int) -> int:
    """The first pixel that a strip reads if each pixel has ``ratio`` results."""
    return -(((taps - 1) * dilation - shift) // ratio)


@dataclass(frozen=True)
class Strips(MatrixAccess):
    """The access to an operand of a depthwise convolution in strips. ``mode``: how auxiliary kernels address the
    operand; ``strip_constants``: ``DepthwiseStrip.constants``; ``step``: elements from one row to the next, or from one
    column to the next if there is one row."""

    strip_constants: tuple[int, ...] = field(kw_only=True)
    strip: DepthwiseStrip = field(compare=False, repr=False, kw_only=True)
    step: int = field(compare=False, repr=False, kw_only=True)

    capability: ClassVar[str] = "strips"


def strips(p: KernelProblem) -> Any:
    """The ``DepthwiseStrip`` of a problem; None: its operands have other accesses."""
    access = p.operands[0].access
    return access.strip if isinstance(access, Strips) else None


def _step(x: MatrixAccess) -> int:
    if isinstance(x, OffsetTables):
        assert x.maps is not None
        return next((step for index_map in (x.maps.rows, x.maps.columns) for _, step in index_map.digits), 0)
    return int(x.ld) if x.rows > 1 else int(x.columns > 1)


def strips_form(p: KernelProblem, strip: DepthwiseStrip) -> KernelProblem:
    """``p`` computed in strips."""
    return p.with_accesses(lambda x: Strips(*x.numbers, strip_constants=strip.constants, strip=strip, step=_step(x)))


__all__ = [
    "MAX_RESULTS",
    "DepthwiseStrip",
    "DigitStrides",
    "StripTable",
    "Strips",
    "strips",
    "strips_form",
]
