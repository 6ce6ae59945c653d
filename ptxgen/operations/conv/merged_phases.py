"""Strided input gradients of few channels whose dgrad phases are columns of C: all phases in one product, or the phases
along the width, in one product for each phase along the height.

These phases read the same pixels of the result gradient, each phase with its own taps. A product over the taps of all
phases loads these pixels once; its filters have zeros where a phase does not have a tap.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ptxgen.lowering.im2col_descriptor import Digits, Im2colDescriptor, Im2colPhase, packed
from ptxgen.lowering.packed_copy import Axis, Digit, PackedCopy
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.strided_dgrad import dgrad_phases

COLUMNS = 32  #: the most columns of C for all phases
#: phases along the width: the most columns of C, and the fewest taps along the width. With more columns, multiply-adds
#: take longer than the loads of pixels
WIDTH_COLUMNS, WIDTH_TAPS = 128, 5
PADDED = 1.25  #: phases along the width: the largest ratio of multiply-adds with zeros in filters to those without
SIZES = (2, 4)  #: element sizes that the packing kernel supports, in bytes
UNIT = 16  #: rows of the packed filters have a multiple of so many bytes
HEIGHT, WIDTH = 1, 2  #: indices into (depth, height, width)
PLANE = (WIDTH, HEIGHT)  #: the innermost axis first


def merged_phases(v: Conv, side: str, layout: str) -> Im2colDescriptor | None:
    """The descriptor of a strided input gradient with phases as columns of C. None: the phases are computed one by one,
    because there are many channels or an epilogue, extents are not multiples of the stride, or a common product would
    not load fewer pixels."""
    plane = v.t == v.d == 1 and not any(v.pads[0]) and v.dilations == (1, 1, 1)
    if not plane or v.epilogue_ops or v.element.bytes not in SIZES or 0 in (v.n, v.k, v.c) or not all(v.results):
        return None
    whole = {n: (v.h, v.w)[n - 1] % v.strides[n] == 0 for n in PLANE}
    offsets = {n: _offsets((v.r, v.s)[n - 1], v.strides[n], v.pads[n][0]) for n in PLANE}
    if all(whole.values()) and v.c * math.prod(v.strides) <= COLUMNS and _taps(offsets) < v.r * v.s:
        return _with_all_phases(v, side, layout, offsets)
    along, stride = offsets[WIDTH], v.strides[WIDTH]
    few = stride > 1 and v.c * stride <= WIDTH_COLUMNS and v.s >= WIDTH_TAPS
    if whole[WIDTH] and few and len(along) * stride <= PADDED * v.s:
        return _with_phases_along_width(v, side, layout, along)
    return None


def _with_all_phases(v: Conv, side: str, layout: str, offsets: dict[int, range]) -> Im2colDescriptor:
    """The descriptor of one product, whose columns are the phases."""
    x = v.steps("x")
    row = v.w * x["w"]
    positions = (v.w // v.strides[WIDTH], v.h // v.strides[HEIGHT])
    rows: Digits = ((v.n * positions[1], v.strides[HEIGHT] * row), (positions[0], v.strides[WIDTH] * x["w"]))
    cols: Digits = ((v.strides[HEIGHT], row), (v.strides[WIDTH] * v.c, 1))
    lower = (offsets[WIDTH][0], offsets[HEIGHT][0])
    first = tuple(v.pads[n][0] - v.strides[n] * offsets[n][0] for n in PLANE)
    taps, stride = (tuple(each) for each in zip(*((len(offsets[n]), v.strides[n]) for n in PLANE), strict=True))
    return replace(_window(v, side, layout, taps, first, stride), positions=positions, lower=lower, result=(rows, cols))


def _with_phases_along_width(v: Conv, side: str, layout: str, along: range) -> Im2colDescriptor:
    """The descriptor of a product for each phase along the height. Its columns are the phases along the width.
    ``along``: the positions of results along the width, as ``_offsets`` returns them."""
    x, stride = v.steps("x"), v.strides[HEIGHT]
    phases = dgrad_phases(v.h, v.r, stride, v.pads[HEIGHT][0], 1)
    positions = (v.w // v.strides[WIDTH], max(phase.count for phase in phases))
    low = min((phase.lowest for phase in phases if phase.taps), default=0)
    rows: Digits = (
        (v.n, x["n"]),
        (positions[1], stride * x["h"]),
        (positions[0], v.strides[WIDTH] * x["w"]),
    )
    # rows of taps are in reverse order, as the pixels that they multiply
    first = (v.pads[WIDTH][0] - v.strides[WIDTH] * along[0], v.r - 1)
    every = [
        Im2colPhase(
            (positions[0], phase.count),
            phase.first * x["h"],
            (len(along) * (phase.taps > 0), phase.taps),
            (0, (phase.lowest - low) * (phase.taps > 0)),
            (v.r - 1 - phase.tap - (phase.taps - 1) * phase.tap_step) * len(along) * (phase.taps > 0),
        )
        for phase in phases
    ]
    return replace(
        _window(v, side, layout, (len(along), v.r), first, (v.strides[WIDTH], 1)),
        positions=positions,
        lower=(along[0], low),
        result=(rows, ((v.strides[WIDTH] * v.c, 1),)),
        phases=tuple(sorted(every, key=lambda phase: -phase.tap_count)),
        tap_steps=(-1, -stride * len(along)),
    )


def _taps(offsets: dict[int, range]) -> int:
    return math.prod(len(along) for along in offsets.values())


def _filters(v: Conv, taps: tuple[int, ...], first: tuple[int, ...], stride: tuple[int, ...]) -> PackedCopy:
    """The packed filters. A row has the channels of one tap for one column of C; a column of C is a phase and a channel
    of the images. A phase is the remainders of a pixel's coordinates by the stride. Along each axis, tap t for
    remainder a is the filter's tap ``first`` + a - ``stride`` · t, or zeros if there is no such tap. Axes are listed
    innermost first."""
    w, unit = v.steps("w"), UNIT // v.element.bytes
    digits = (
        Digit(stride[1], 1),
        Digit(stride[0], 0),
        Digit(v.c, 2),
        Digit(taps[1], 1, -stride[1]),
        Digit(taps[0], 0, -stride[0]),
    )
    axes = Axis(w["s"], v.s, first[0]), Axis(w["r"], v.r, first[1]), Axis(w["c"])
    return PackedCopy(digits, axes, Axis(w["k"], v.k), -(-v.k // unit) * unit, zeros=True)


def _window(
    v: Conv, side: str, layout: str, taps: tuple[int, ...], first: tuple[int, ...], stride: tuple[int, ...]
) -> Im2colDescriptor:
    """The descriptor of the loads, without the fields that depend on the phases. ``taps``: the number of taps of a
    column along each axis; ``first``, ``stride``: as in ``_filters``."""
    pixels, filters = (v.q, v.p), _filters(v, taps, first, stride)
    return Im2colDescriptor(
        side,
        layout,
        v.k,
        v.n,
        pixels,
        packed(v.k, pixels),
        pixels,
        (0, 0),
        (1, 1),
        taps,
        (1, 1),
        row=filters.pitch,
        copies=(None, filters),
        merged_phases=math.prod(stride),
    )


def _offsets(taps: int, stride: int, pad: int) -> range:
    """The positions, along one axis, of the results to which pixels of any phase contribute, relative to the pixel's
    coordinate divided by the stride."""
    reached = [(a + pad - tap) // stride for a in range(stride) for tap in range(taps) if (a + pad - tap) % stride == 0]
    return range(min(reached), max(reached) + 1)
