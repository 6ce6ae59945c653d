"""Convolutions whose filters have one channel, as kernels see them that slide: strips of results down an axis.

Lanes lie along what is contiguous in memory. A thread has results one behind the other along another axis of the image,
which share most of what they see of it; the taps of that axis are written out, those of the others are looked up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ptxgen.implicit import PADDING, WORD, Operand, Packing, Table, Walk
from ptxgen.sliding import Sliding

LONGEST = 64  #: results of a strip, at most


@dataclass(frozen=True)
class Moves:
    """What one step of a digit moves: elements of image, result and filter, coordinates of the image."""

    image: int
    result: int
    filter: int
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Strip:
    """``image``: the operand of the product (a, b) that windows slide over; ``wide``: results side by side that see
    pixels side by side, at most and everywhere; ``taps`` of the strip's axis, ``hop``
    pixels apart, ``step`` pixels from one result to the next; ``lanes``, ``results``: how many there are along each
    axis; ``rest``, ``cross``: extents and moves of the digits of all other results, and of all other taps;
    ``filter``: elements from a tap of the strip's axis, and from a filter, to the next; ``start``,
    ``first``: where the first result's image and the first tap's filter are."""

    image: str
    wide: int
    taps: int
    step: int
    hop: int
    lanes: int
    lane: Moves
    results: int
    along: Moves
    rest: tuple[tuple[int, Moves], ...]
    cross: tuple[tuple[int, Moves], ...]
    filter: tuple[int, int]
    start: int
    first: int
    at: tuple[int, ...]
    limits: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many results there are beside lanes and strips."""
        return self._walk(self.rest, "result").count

    @property
    def steps(self) -> int:
        """How many taps there are beside those of the strip's axis."""
        return self._walk(self.cross, "image").count

    @staticmethod
    def _walk(digits: tuple[tuple[int, Moves], ...], what: str, start: int = 0, at: tuple[int, ...] = ()) -> Walk:
        moves = tuple(tuple(m.axes[n] for _, m in digits) for n in range(len(at)))
        return Walk(tuple(n for n, _ in digits), tuple(getattr(m, what) for _, m in digits), start, moves, at)

    @cached_property
    def packing(self) -> Packing:
        """How coordinates share a word: those of all results, and of strips that reach past the last."""
        every = (*self.rest, (self.lanes, self.lane), (self.results + LONGEST, self.along))
        taps = (*self.cross, (self.taps, Moves(0, 0, 0, tuple(x // self.step * self.hop for x in self.along.axes))))
        zero = (0,) * len(self.limits)
        return Operand(self._walk(every, "image", 0, self.at), self._walk(taps, "image", 0, zero), self.limits).packing

    def word(self, axes: tuple[int, ...]) -> int:
        """Coordinates as a word without guards."""
        return sum(n << shift for n, shift in zip(axes, self.packing.shifts, strict=True)) % (1 << WORD)

    @cached_property
    def tables(self) -> tuple[Table, Table]:
        """Of results: image, coordinates, result, filter. Of taps: image, coordinates, filter, nothing."""
        return Joined.of(self, True), Joined.of(self, False)


@dataclass(frozen=True, eq=False)
class Joined(Table):
    """Four words of each number."""

    strip: Strip

    @classmethod
    def of(cls, strip: Strip, results: bool) -> Joined:
        digits = strip.rest if results else strip.cross
        at = strip.at if results else (0,) * len(strip.limits)
        walk = strip._walk(digits, "image", strip.start if results else 0, at)
        return cls(Operand(walk, walk), walk, results, strip)

    def words(self) -> NDArray[np.uint32]:
        s, digits = self.strip, self.strip.rest if self.guarded else self.strip.cross
        filters = s._walk(digits, "filter", 0 if self.guarded else s.first).offsets
        last = (s._walk(digits, "result").offsets, filters) if self.guarded else (filters, np.zeros_like(filters))
        columns = (self.walk.offsets, s.packing.pack(self.walk, self.guarded), *last)
        out = np.zeros((self.walk.count + PADDING, 4), np.uint32)
        out[: self.walk.count] = np.stack(columns, axis=1) % (1 << WORD)
        return out


@dataclass(frozen=True)
class _Axis:
    """One axis of images: ``extent`` of what is seen, ``results`` along it; ``seen``, ``given``, ``filter``: elements
    from one pixel, result, tap to the next; ``begin``: pixels that the first tap of the first result is outside."""

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


def _axes(v: Sliding) -> dict[str, _Axis]:
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
        out[i] = _Axis(*extents, taps, v.strides[n], v.dilations[n], begin, begin > 0 or end > 0, *steps, back * w[tap])
    return out


def strip_of(v: Sliding) -> Strip | None:
    """The strips of a convolution, if its filters have one channel and nothing but results lies along lanes."""
    alone = (v.c, v.k) == (v.groups, v.groups) and v.compute in ("f32", "f64")
    if not alone or not (v.direction == "forward" or (v.direction == "input_grad" and v.strides == (1, 1, 1))):
        return None
    x, w, y = (v.steps(name) for name in "xwy")
    seen, given, channels = (x, y, "ck") if v.direction == "forward" else (y, x, "kc")
    axes = _axes(v)
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {"n": given["n"], "g": given[channels[1]], **{i: axis.given for i, axis in axes.items()}}
    wide = sorted((i for i in extents if extents[i] > 1), key=lambda i: steps[i])
    lane = wide[0] if wide else "q"
    slide = min((i for i in "pqz" if i != lane), key=lambda i: -min(axes[i].taps, 2))
    guarded = [i for i in "zpq" if i == slide or axes[i].padded]

    def pixel(i: str) -> Moves:
        if i in "ng":
            return Moves(
                seen["n" if i == "n" else channels[0]], steps[i], w["k"] if i == "g" else 0, (0,) * len(guarded)
            )
        axis = axes[i]
        return Moves(axis.stride * axis.seen, axis.given, 0, tuple(axis.stride * (i == j) for j in guarded))

    def tap(i: str) -> Moves:
        axis = axes[i]
        return Moves(axis.dilation * axis.seen, 0, axis.filter, tuple(axis.dilation * (i == j) for j in guarded))

    down = axes[slide]
    own, size = pixel(lane), v.element.bytes
    side = (lane, v.layout) in (("g", "NHWC"), ("n", "CHWN")) and own.image == own.result == 1
    moved = [seen["n"], seen[channels[0]], *(axis.seen for axis in axes.values()), *steps.values()]
    aligned = max(min(v.aligned_input, v.aligned_output) // size, 1)
    beside = math.gcd(16 // v.accumulator.bytes, aligned, extents[lane], *(n for n in moved if n != 1)) if side else 1
    return Strip(
        image="b" if v.swapped else "a", wide=beside, taps=down.taps, step=down.stride, hop=down.dilation,
        lanes=extents[lane], lane=own, results=down.results, along=pixel(slide),
        rest=tuple((extents[i], pixel(i)) for i in "ngzpq" if i not in (lane, slide)),
        cross=tuple((axes[i].taps, tap(i)) for i in "zpq" if i != slide), filter=(down.filter, w["k"]),
        start=-sum(axis.begin * axis.seen for axis in axes.values()),
        first=sum((axis.taps - 1) * -axis.filter for axis in axes.values() if axis.filter < 0),
        at=tuple(-axes[i].begin for i in guarded), limits=tuple(axes[i].extent for i in guarded),
    )  # fmt: skip


__all__ = ["LONGEST", "Joined", "Moves", "Strip", "strip_of"]
