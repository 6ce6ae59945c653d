"""Depthwise convolutions as strips: each thread computes adjacent results along one axis of the image.

Lanes are along the contiguous axis of memory. The results of a strip, along another axis, share most of the pixels that
they read. The taps of the strip's axis are unrolled; the offsets of the other taps come from a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ptxgen.lowering.implicit_gemm import PADDING, WORD, CoordinatePacking, ImplicitOperand, IndexMap, OffsetTable
from ptxgen.lowering.strided_dgrad import DgradPhase, dgrad_phases
from ptxgen.problem.conv import Conv

LONGEST = 64  #: the most results of a strip


@dataclass(frozen=True)
class DigitStrides:
    """The strides of a digit: in image, result and filter in elements, and in the coordinates of the image."""

    image: int
    result: int
    filter: int
    axes: tuple[int, ...]


@dataclass(frozen=True)
class DepthwiseStrip:
    """``image``: the operand of the product (a, b) that windows slide over; ``wide``: results side by side that see
    pixels side by side, at most and everywhere; ``taps`` of the strip's axis, ``hop``
    pixels apart, ``step`` pixels from one result to the next; ``lanes``, ``results``: how many there are along each
    axis; ``rest``, ``cross``: extents and moves of the digits of all other results, and of all other taps;
    ``filter``: elements from a tap of the strip's axis, and from a filter, to the next; ``start``,
    ``first``: where the first result's image and the first tap's filter are.

    Of a gradient of images under a stride there are ``ratio`` results a pixel of what is seen, the first of them
    ``shift`` places on: a result and a tap meet at a pixel where those divide. ``result``: where the first one is;
    ``others``: the strips of all other results, whose other axes see other taps.

    Of a gradient of filters (``summed``) what is multiplied are results and what they see, and filters count taps from
    0: those of each of the ``groups``, which ``group`` moves, beside lanes that are none."""

    image: str
    wide: int
    taps: int
    step: int
    hop: int
    lanes: int
    lane: DigitStrides
    results: int
    along: DigitStrides
    rest: tuple[tuple[int, DigitStrides], ...]
    cross: tuple[tuple[int, DigitStrides], ...]
    filter: tuple[int, int]
    start: int
    first: int
    at: tuple[int, ...]
    limits: tuple[int, ...]
    ratio: int = 1
    shift: int = 0
    result: int = 0
    others: tuple[DepthwiseStrip, ...] = ()
    summed: bool = False
    groups: int = 1
    group: DigitStrides = DigitStrides(0, 0, 0, ())

    @property
    def grouped(self) -> bool:
        """Whether each lane has its own filter."""
        return self.lane.filter > 0

    @property
    def tapped(self) -> int:
        """The number of taps of a filter."""
        return self.taps * self.steps

    @property
    def numbers(self) -> list[list[int]]:
        """Of a weight gradient: the numbers of the taps, for each tap of the other axes those of the strip's axis."""
        first = self._walk(self.cross, "filter").offsets
        return [[int(n) + r * self.filter[0] for r in range(self.taps)] for n in first]

    def met(self, i: int, r: int) -> int | None:
        """The pixel of a strip that result ``i`` reads for tap ``r``, or None."""
        if self.ratio == 1:
            return i * self.step + r * self.hop
        place, over = divmod(i + self.shift - r * self.hop, self.ratio)
        return None if over else place - lowest(self.taps, self.hop, self.ratio, self.shift)

    @property
    def kind(self) -> tuple[int, ...]:
        """The facts that a kernel is compiled for."""
        told = (self.taps, self.step, self.hop, self.ratio, self.shift % self.ratio)
        if not self.summed:
            return *told, self.wide
        return *told, self.grouped, *(n for tap in self.numbers for n in tap), self.wide

    @property
    def rows(self) -> int:
        """The product of the extents of all result axes except those of lanes and strips."""
        return self._walk(self.rest, "result").count

    @property
    def steps(self) -> int:
        """The number of taps of the other axes."""
        return self._walk(self.cross, "image").count

    @staticmethod
    def _walk(
        digits: tuple[tuple[int, DigitStrides], ...], what: str, start: int = 0, at: tuple[int, ...] = ()
    ) -> IndexMap:
        moves = tuple(tuple(m.axes[n] for _, m in digits) for n in range(len(at)))
        return IndexMap(tuple(n for n, _ in digits), tuple(getattr(m, what) for _, m in digits), start, moves, at)

    @cached_property
    def packing(self) -> CoordinatePacking:
        """The packing of coordinates, of all results and of strips that extend past the last one."""
        every = (*self.rest, (self.lanes, self.lane), (self.results + LONGEST, self.along))
        taps = (
            *self.cross,
            (self.taps, DigitStrides(0, 0, 0, tuple(x // self.step * self.hop for x in self.along.axes))),
        )
        zero = (0,) * len(self.limits)
        return ImplicitOperand(
            self._walk(every, "image", 0, self.at), self._walk(taps, "image", 0, zero), self.limits
        ).packing

    def word(self, axes: tuple[int, ...]) -> int:
        """Coordinates packed into a word without guard bits."""
        return sum(n << shift for n, shift in zip(axes, self.packing.shifts, strict=True)) % (1 << WORD)

    @cached_property
    def tables(self) -> tuple[OffsetTable, OffsetTable]:
        """The tables of results (image, coordinates, result, filter) and of taps (image, coordinates, filter, 0)."""
        return StripTable.of(self, True), StripTable.of(self, False)


@dataclass(frozen=True, eq=False)
class StripTable(OffsetTable):
    """A table with four words for each index."""

    strip: DepthwiseStrip

    @classmethod
    def of(cls, strip: DepthwiseStrip, results: bool) -> StripTable:
        digits = strip.rest if results else strip.cross
        at = strip.at if results else (0,) * len(strip.limits)
        walk = strip._walk(digits, "image", strip.start if results else 0, at)
        return cls(ImplicitOperand(walk, walk), walk, results, strip)

    def words(self) -> NDArray[np.uint32]:
        s, digits = self.strip, self.strip.rest if self.guarded else self.strip.cross
        filters = s._walk(digits, "filter", 0 if self.guarded else s.first).offsets
        last = (
            (s._walk(digits, "result", s.result).offsets, filters)
            if self.guarded
            else (filters, np.zeros_like(filters))
        )
        columns = (self.walk.offsets, s.packing.pack(self.walk, self.guarded), *last)
        out = np.zeros((self.walk.count + PADDING, 4), np.uint32)
        out[: self.walk.count] = np.stack(columns, axis=1) % (1 << WORD)
        return out


@dataclass(frozen=True)
class _Axis:
    """One axis of images: ``extent`` of what is seen, ``results`` along it; ``seen``, ``given``, ``filter``: elements
    from one pixel, result, tap to the next; ``begin``: pixels that the first tap of the first result is outside;
    ``first``: elements to the first tap's filter, of taps from the last to the first unless it says where; ``result``:
    to the first result."""

    extent: int
    results: int
    taps: int
    stride: int
    dilation: int
    begin: int
    padded: bool
    seen: int
    given: int
    filter: int
    first: int | None = None
    result: int = 0

    @property
    def start(self) -> int:
        if self.first is not None:
            return self.first
        return (self.taps - 1) * max(-self.filter, 0)


def lowest(taps: int, hop: int, ratio: int, shift: int) -> int:
    """The first pixel that a strip reads, with ``ratio`` results for each pixel."""
    return -(((taps - 1) * hop - shift) // ratio)


def _axes(v: Conv) -> dict[str, _Axis]:
    """Depth, height, width. The gradient of images, under strides of one, sees gradients of results by the taps from
    the last to the first."""
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
    """An axis of the gradient of images under a stride: the results of a phase alone. One that no tap reaches sees
    nothing."""
    tap = axis.filter * phase.hop
    start = -axis.filter * phase.tap
    if not phase.taps:
        return replace(
            axis,
            extent=0,
            results=phase.count,
            taps=1,
            padded=True,
            given=axis.given * stride,
            first=0,
            result=phase.first * axis.given,
        )
    return replace(
        axis,
        results=phase.count,
        taps=phase.taps,
        dilation=phase.back,
        begin=(phase.taps - 1) * phase.back - phase.at,
        padded=True,
        given=axis.given * stride,
        filter=tap,
        first=start - (phase.taps - 1) * tap,
        result=phase.first * axis.given,
    )


def depthwise_strip_of(v: Conv) -> DepthwiseStrip | None:
    """The strips of a convolution, if it is depthwise and its elements have at least two bytes; else None."""
    alone = (v.c, v.k) == (v.groups, v.groups) and v.compute in ("f32", "f64") and v.element.bytes > 1
    if not alone:
        return None
    axes, given = _axes(v), v.steps("x" if v.direction == "input_grad" else "y")
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {
        "n": given["n"],
        "g": given["c" if v.direction == "input_grad" else "k"],
        **{i: axis.given for i, axis in axes.items()},
    }
    wide = sorted((i for i in extents if extents[i] > 1), key=lambda i: steps[i])
    lane = wide[0] if wide else "q"
    slide = min((i for i in "pqz" if i != lane), key=lambda i: -min(axes[i].taps, 2))
    if v.direction != "input_grad" or v.strides == (1, 1, 1):
        return _strip(v, axes, lane, slide)
    each = dict(zip("zpq", zip(v.strides, v.dilations, v.pads, strict=True), strict=True))
    ratio, _, (pad, _) = each[slide]
    choices = []
    for i, axis in axes.items():
        stride, hop, (begin, _) = each[i]
        if i == slide:
            back = lowest(axis.taps, hop, stride, begin)
            own = replace(axis, begin=-back, padded=True, filter=-axis.filter) if stride > 1 else axis
            choices.append([own])
        else:
            found = dgrad_phases(axis.results, axis.taps, stride, begin, hop)
            choices.append([_phased(axis, stride, phase) for phase in found] if stride > 1 else [axis])
    made = [_strip(v, dict(zip("zpq", some, strict=True)), lane, slide, ratio, pad) for some in product(*choices)]
    first, *others = sorted(made, key=lambda s: -s.steps * s.rows * s.lanes)
    return replace(first, others=tuple(others))


def _strip(v: Conv, axes: dict[str, _Axis], lane: str, slide: str, ratio: int = 1, shift: int = 0) -> DepthwiseStrip:
    x, w, y = (v.steps(name) for name in "xwy")
    seen, given, channels = (y, x, "kc") if v.direction == "input_grad" else (x, y, "ck")
    summed = v.direction == "weight_grad"
    if summed:
        w = {"s": 1, "r": v.s, "t": v.r * v.s, "k": v.t * v.r * v.s}
        axes = {i: replace(axis, filter=w[tap]) for (i, axis), tap in zip(axes.items(), "trs", strict=True)}
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {"n": given["n"], "g": given[channels[1]], **{i: axis.given for i, axis in axes.items()}}
    guarded = [i for i in "zpq" if i == slide or axes[i].padded]

    def pixel(i: str) -> DigitStrides:
        if i in "ng":
            return DigitStrides(
                seen["n" if i == "n" else channels[0]], steps[i], w["k"] if i == "g" else 0, (0,) * len(guarded)
            )
        axis = axes[i]
        return DigitStrides(axis.stride * axis.seen, axis.given, 0, tuple(axis.stride * (i == j) for j in guarded))

    def tap(i: str) -> DigitStrides:
        axis = axes[i]
        return DigitStrides(axis.dilation * axis.seen, 0, axis.filter, tuple(axis.dilation * (i == j) for j in guarded))

    down = axes[slide]
    own, size = pixel(lane), v.element.bytes
    side = (lane, v.layout) in (("g", "NHWC"), ("n", "CHWN")) and own.image == own.result == 1
    side = side and (lane == "g" or not summed)  # what is summed has no neighbours
    moved = [seen["n"], seen[channels[0]], *(axis.seen for axis in axes.values()), *steps.values()]
    aligned = max(min(v.aligned_input, v.aligned_output) // size, 1)
    beside = math.gcd(16 // v.accumulator.bytes, aligned, extents[lane], *(n for n in moved if n != 1)) if side else 1
    return DepthwiseStrip(
        image="b" if v.swapped else "a",
        wide=beside,
        taps=down.taps,
        step=down.stride,
        hop=down.dilation,
        lanes=extents[lane],
        lane=own,
        results=down.results,
        along=pixel(slide),
        rest=tuple((extents[i], pixel(i)) for i in "ngzpq" if i not in (lane, slide, *("g" * summed))),
        cross=tuple((axes[i].taps, tap(i)) for i in "zpq" if i != slide),
        filter=(down.filter, w["k"]),
        start=-sum(axis.begin * axis.seen for axis in axes.values()),
        first=sum(axis.start for axis in axes.values()),
        at=tuple(-axes[i].begin for i in guarded),
        limits=tuple(axes[i].extent for i in guarded),
        ratio=ratio,
        shift=shift,
        summed=summed,
        groups=v.groups,
        group=pixel("g") if summed else DigitStrides(0, 0, 0, ()),
        result=sum(axis.result for axis in axes.values()),
    )


__all__ = ["LONGEST", "DepthwiseStrip", "DigitStrides", "StripTable", "depthwise_strip_of"]
