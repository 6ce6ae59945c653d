"""Depthwise convolutions as strips: each thread computes adjacent results along one axis of the image.

Lanes are along the contiguous axis of memory, strips along another axis. The results of a strip read overlapping
windows of pixels. The taps along the strip axis are unrolled; the offsets of the other taps come from a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import ShapeError
from ptxgen.lowering.feature_maps import FeatureMaps, feature_maps_of
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
from ptxgen.lowering.strided_dgrad import DgradPhase, dgrad_phases
from ptxgen.problem.conv import Conv

MAX_RESULTS = 64  #: upper limit of the results of a strip
MAX_COLUMNS = 8  #: upper limit of the strips of a patch


@dataclass(frozen=True)
class DigitStrides:
    """The strides of a digit: in image, result and filter, in elements, and in the coordinates of the image."""

    image: int
    result: int
    filter: int
    coordinates: tuple[int, ...]

    def scaled(self, n: int) -> DigitStrides:
        """The strides of every ``n``-th value of the digit."""
        return DigitStrides(self.image * n, self.result * n, self.filter * n, tuple(c * n for c in self.coordinates))


@dataclass(frozen=True)
class CrossAxis:
    """The axis that adjacent strips of a patch are along, the last of ``result_digits``: ``results``, taps, stride and
    dilation; ``pixel``: the strides of one pixel; ``tap_numbers``: the number in the filter of each tap along the strip
    and across it, the latter fastest."""

    results: int
    taps: int
    stride: int
    dilation: int
    pixel: DigitStrides
    tap_numbers: tuple[int, ...]


@dataclass(frozen=True)
class DepthwiseStrip:
    """The strips of a convolution. Strides and offsets are in elements unless stated otherwise.

    ``image``: the operand of the GEMM (a, b) that windows are read from; ``vec``: the widest vector of adjacent results
    that read adjacent pixels. ``taps``, ``stride``, ``dilation``: of the strip axis, in pixels; ``lanes``, ``results``:
    extents of the lane axis and of the strip axis; ``lane``, ``axis``: their strides. ``result_digits``: extents and
    strides of all other result axes; ``tap_digits``: those of the taps along the other axes. ``filter_strides``:
    between the taps along the strip axis, and between filters. ``image_start``, ``filter_start``, ``result_start``:
    offsets of the first pixel, tap and result. ``coordinate_start``: the coordinates of the first pixel; ``limits``:
    their extents.

    An input gradient with a stride has ``ratio`` results along the strip axis for each pixel of the operand, and result
    0 is result ``shift`` of its pixel. A result and a tap have a product if the division in ``pixel_of`` is exact. The
    other axes are divided into phases with different taps: ``other_phases`` has the strips of all but the first phase.

    A weight gradient (``wgrad``) multiplies gradients of results by pixels, and its filter strides are tap numbers. If
    lanes are not along channels, each block computes one of the ``groups`` filters; ``group`` has the strides from one
    group to the next.

    ``patch``: the same strips for threads that compute several adjacent ones, a patch of the image, if filters are
    contiguous and lanes are channels; its ``vec`` is that of filters, too, and its ``cross`` is the axis across the
    strips. ``widened`` gives the strips of patches: ``column`` is the number of strips of a patch, and the strides from
    one to the next.

    ``feature_maps``: the same convolution for blocks that hold whole feature maps in shared memory, if adjacent ones
    are contiguous.
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
        """The strips of patches with ``strips`` adjacent strips each."""
        *others, (extent, step) = self.result_digits
        digits = (*others, (-(-extent // strips), step.scaled(strips)))
        return replace(self, result_digits=digits, column=(strips, step))

    @property
    def grouped(self) -> bool:
        """Whether each lane has a filter of its own."""
        return self.lane.filter > 0

    @property
    def tap_count(self) -> int:
        """The number of taps of a filter."""
        return self.taps * self.outer_taps

    @property
    def tap_numbers(self) -> list[list[int]]:
        """The tap numbers of a weight gradient: one list for each outer tap, with the taps along the strip axis."""
        first = self._index_map(self.tap_digits, "filter").offsets
        return [[int(n) + r * self.filter_strides[0] for r in range(self.taps)] for n in first]

    def pixel_of(self, i: int, r: int) -> int | None:
        """The pixel of the strip's window that result ``i`` multiplies by tap ``r``; None: there is none."""
        if self.ratio == 1:
            return i * self.stride + r * self.dilation
        pixel, remainder = divmod(i + self.shift - r * self.dilation, self.ratio)
        return None if remainder else pixel - first_pixel(self.taps, self.dilation, self.ratio, self.shift)

    @property
    def kind(self) -> tuple[int, ...]:
        """The numbers that are constants of the kernel. The last one is the vector width."""
        facts: tuple[int, ...] = (self.taps, self.stride, self.dilation, self.ratio, self.shift % self.ratio)
        if self.patch is not None and (cross := self.patch.cross) is not None:
            facts = (*facts, cross.taps, cross.stride, cross.dilation, *cross.tap_numbers, self.patch.vec)
        if self.feature_maps is not None:
            facts = (*facts, *self.feature_maps.kind)
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
        """The packing of the coordinates of all results, including those of strips that extend past the last result."""
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
        """Coordinates packed into one word, without guard bits."""
        return sum(n << shift for n, shift in zip(axes, self.packing.shifts, strict=True)) % (1 << WORD)

    @cached_property
    def tables(self) -> tuple[OffsetTable, OffsetTable]:
        """The table of results (image, coordinates, result, filter) and the table of taps (image, coordinates, filter,
        0)."""
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


@dataclass(frozen=True)
class _Axis:
    """One axis of the image. ``extent``: of the operand; ``results``: of the result; ``taps``, ``stride``,
    ``dilation``: of the filter; ``begin``: the padding before the first pixel; ``padded``: whether windows may reach
    outside the operand. ``image_stride``, ``result_stride``, ``filter_stride``: in elements. ``filter_start``: the
    offset of the first tap (default: taps in reverse order if the stride is negative); ``result_start``: that of the
    first result."""

    extent: int
    results: int
    taps: int
    stride: int
    dilation: int
    begin: int
    padded: bool
    image_stride: int
    result_stride: int
    filter_stride: int
    filter_start: int | None = None
    result_start: int = 0

    @property
    def first_filter_offset(self) -> int:
        if self.filter_start is not None:
            return self.filter_start
        return (self.taps - 1) * max(-self.filter_stride, 0)


def first_pixel(taps: int, dilation: int, ratio: int, shift: int) -> int:
    """The first pixel that a strip reads if there are ``ratio`` results for each pixel."""
    return -(((taps - 1) * dilation - shift) // ratio)


def _axes(v: Conv) -> dict[str, _Axis]:
    """The axes depth, height and width. An input gradient with stride 1 is a convolution of the gradients of results
    with the taps in reverse order."""
    x, w, y = (v.steps(name) for name in "xwy")
    out = {}
    for n, (i, pixel, tap) in enumerate(zip("zpq", "dhw", "trs", strict=True)):
        taps, (begin, end) = (v.t, v.r, v.s)[n], v.pads[n]
        extents = (v.d, v.h, v.w)[n], v.results[n]
        steps = x[pixel], y[i]
        if v.direction == "input_grad":
            begin, end = ((taps - 1) * v.dilations[n] - pad for pad in (begin, end))
            extents, steps = extents[::-1], steps[::-1]
        back = -1 if v.direction == "input_grad" else 1
        stride = 1 if v.direction == "input_grad" else v.strides[n]
        out[i] = _Axis(*extents, taps, stride, v.dilations[n], begin, begin > 0 or end > 0, *steps, back * w[tap])
    return out


def _phased(axis: _Axis, stride: int, phase: DgradPhase) -> _Axis:
    """The axis of one phase of an input gradient with a stride. A phase without taps has an operand of extent 0."""
    tap = axis.filter_stride * phase.tap_step
    start = -axis.filter_stride * phase.tap
    if not phase.taps:
        return replace(
            axis,
            extent=0,
            results=phase.count,
            taps=1,
            padded=True,
            result_stride=axis.result_stride * stride,
            filter_start=0,
            result_start=phase.first * axis.result_stride,
        )
    return replace(
        axis,
        results=phase.count,
        taps=phase.taps,
        dilation=phase.result_step,
        begin=(phase.taps - 1) * phase.result_step - phase.at,
        padded=True,
        result_stride=axis.result_stride * stride,
        filter_stride=tap,
        filter_start=start - (phase.taps - 1) * tap,
        result_start=phase.first * axis.result_stride,
    )


def depthwise_strip_of(v: Conv) -> DepthwiseStrip | None:
    """The strips of a convolution. None: it is not depthwise, its elements have one byte, or it is summed in f16. With
    tf32 the kernels compute in f32: their time is that of memory."""
    depthwise = (v.c, v.k) == (v.groups, v.groups) and v.compute in ("f32", "tf32", "f64") and v.element.bytes > 1
    if not depthwise:
        return None
    axes, results = _axes(v), v.steps("x" if v.direction == "input_grad" else "y")
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {
        "n": results["n"],
        "g": results["c" if v.direction == "input_grad" else "k"],
        **{i: axis.result_stride for i, axis in axes.items()},
    }
    nontrivial = sorted((i for i in extents if extents[i] > 1), key=lambda i: steps[i])
    lane = nontrivial[0] if nontrivial else "q"
    strip_axis = min((i for i in "pqz" if i != lane), key=lambda i: -min(axes[i].taps, 2))
    if v.direction != "input_grad" or v.strides == (1, 1, 1):
        patch, feature_maps = _patch(v, axes, lane, strip_axis), feature_maps_of(v)
        return replace(_strip(v, axes, lane, strip_axis), patch=patch, feature_maps=feature_maps)
    parameters = dict(zip("zpq", zip(v.strides, v.dilations, v.pads, strict=True), strict=True))
    ratio, _, (pad, _) = parameters[strip_axis]
    choices = []
    for i, axis in axes.items():
        stride, dilation, (begin, _) = parameters[i]
        if i == strip_axis:
            lowest = first_pixel(axis.taps, dilation, stride, begin)
            window = (
                replace(axis, begin=-lowest, padded=True, filter_stride=-axis.filter_stride) if stride > 1 else axis
            )
            choices.append([window])
        else:
            phases = dgrad_phases(axis.results, axis.taps, stride, begin, dilation)
            choices.append([_phased(axis, stride, phase) for phase in phases] if stride > 1 else [axis])
    strips = [
        _strip(v, dict(zip("zpq", combination, strict=True)), lane, strip_axis, ratio, pad)
        for combination in product(*choices)
    ]
    first, *others = sorted(strips, key=lambda s: -s.outer_taps * s.rows * s.lanes)
    return replace(first, other_phases=tuple(others), feature_maps=feature_maps_of(v))


def _patch(v: Conv, axes: dict[str, _Axis], lane: str, strip_axis: str) -> DepthwiseStrip | None:
    """The strips of patches. None: lanes are not channels, the filters of adjacent lanes are not contiguous, taps are
    along three axes, or coordinates do not fit a word."""
    other = "p" if strip_axis == "q" else "q"
    contiguous = v.steps("w")["k"] == v.t * v.r * v.s == axes[strip_axis].taps * axes[other].taps
    if v.direction == "weight_grad" or v.layout != "NHWC" or lane != "g" or not contiguous:
        return None
    strip = _strip(v, axes, lane, strip_axis, across=other)
    along, cross = axes[strip_axis], axes[other]
    numbers = tuple(
        strip.filter_start + r * along.filter_stride + s * cross.filter_stride
        for r in range(along.taps)
        for s in range(cross.taps)
    )
    _, step = strip.result_digits[-1]
    pixel = DigitStrides(cross.image_stride, 0, 0, tuple(n // cross.stride for n in step.coordinates))
    strip = replace(
        strip,
        vec=math.gcd(strip.vec, v.aligned_filter // v.element.bytes),
        cross=CrossAxis(cross.results, cross.taps, cross.stride, cross.dilation, pixel, numbers),
    )
    try:
        _ = strip.widened(MAX_COLUMNS).packing
    except ShapeError:
        return None
    return strip


def _strip(
    v: Conv,
    axes: dict[str, _Axis],
    lane: str,
    strip_axis: str,
    ratio: int = 1,
    shift: int = 0,
    across: str = "",
) -> DepthwiseStrip:
    x, w, y = (v.steps(name) for name in "xwy")
    pixels, results, channels = (y, x, "kc") if v.direction == "input_grad" else (x, y, "ck")
    wgrad = v.direction == "weight_grad"
    if wgrad:
        w = {"s": 1, "r": v.s, "t": v.r * v.s, "k": v.t * v.r * v.s}
        axes = {i: replace(axis, filter_stride=w[tap]) for (i, axis), tap in zip(axes.items(), "trs", strict=True)}
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {"n": results["n"], "g": results[channels[1]], **{i: axis.result_stride for i, axis in axes.items()}}
    guarded = [i for i in "zpq" if i in (strip_axis, across) or axes[i].padded]

    def pixel(i: str) -> DigitStrides:
        if i in "ng":
            return DigitStrides(
                pixels["n" if i == "n" else channels[0]], steps[i], w["k"] if i == "g" else 0, (0,) * len(guarded)
            )
        axis = axes[i]
        return DigitStrides(
            axis.stride * axis.image_stride, axis.result_stride, 0, tuple(axis.stride * (i == j) for j in guarded)
        )

    def tap(i: str) -> DigitStrides:
        axis = axes[i]
        return DigitStrides(
            axis.dilation * axis.image_stride, 0, axis.filter_stride, tuple(axis.dilation * (i == j) for j in guarded)
        )

    along = axes[strip_axis]
    lane_strides, size = pixel(lane), v.element.bytes
    adjacent = (lane, v.layout) in (("g", "NHWC"), ("n", "CHWN")) and lane_strides.image == lane_strides.result == 1
    adjacent = adjacent and (lane == "g" or not wgrad)  # weight gradients reduce over all other lanes
    strides = [pixels["n"], pixels[channels[0]], *(axis.image_stride for axis in axes.values()), *steps.values()]
    aligned = max(min(v.aligned_input, v.aligned_output) // size, 1)
    vec = (
        math.gcd(16 // v.accumulator.bytes, aligned, extents[lane], *(n for n in strides if n != 1)) if adjacent else 1
    )
    return DepthwiseStrip(
        image="b" if v.swapped else "a",
        vec=vec,
        taps=along.taps,
        stride=along.stride,
        dilation=along.dilation,
        lanes=extents[lane],
        lane=lane_strides,
        results=along.results,
        axis=pixel(strip_axis),
        result_digits=tuple(
            (extents[i], pixel(i))
            for i in (*(i for i in "ngzpq" if i != across), *across)
            if i not in (lane, strip_axis, *("g" * wgrad))
        ),
        tap_digits=tuple((axes[i].taps, tap(i)) for i in "zpq" if i != strip_axis),
        filter_strides=(along.filter_stride, w["k"]),
        image_start=-sum(axis.begin * axis.image_stride for axis in axes.values()),
        filter_start=sum(axis.first_filter_offset for axis in axes.values()),
        coordinate_start=tuple(-axes[i].begin for i in guarded),
        limits=tuple(axes[i].extent for i in guarded),
        ratio=ratio,
        shift=shift,
        wgrad=wgrad,
        groups=v.groups,
        group=pixel("g") if wgrad else DigitStrides(0, 0, 0, ()),
        result_start=sum(axis.result_start for axis in axes.values()),
    )


@dataclass(frozen=True)
class Strips(MatrixAccess):
    """An operand of a depthwise convolution that is computed in strips. ``mode``: how auxiliary kernels address it;
    ``strip_kind``: the numbers of the strips that are constants of the kernel, the vector width last; ``step``:
    elements between adjacent rows, or columns if there is one row."""

    strip_kind: tuple[int, ...] = field(kw_only=True)
    strip: DepthwiseStrip = field(compare=False, repr=False, kw_only=True)
    step: int = field(compare=False, repr=False, kw_only=True)

    kind: ClassVar[str] = "strips"


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
    return p.with_accesses(lambda x: Strips(*x.numbers, strip_kind=strip.kind, strip=strip, step=_step(x)))


__all__ = [
    "MAX_RESULTS",
    "DepthwiseStrip",
    "DigitStrides",
    "StripTable",
    "Strips",
    "depthwise_strip_of",
    "strips",
    "strips_form",
]
