"""Builds the im2col descriptor of a convolution whose images, or packed copies of them, TMA can load."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptxgen.lowering.im2col_descriptor import Digits, Im2colDescriptor, PackedCopy, packed
from ptxgen.lowering.implicit_gemm import ImplicitOperand, IndexMap
from ptxgen.problem.conv import Conv

ALIGNED = 16  #: alignment of rows and starts in bytes
COPIED = (2, 4)  #: sizes of elements that can be packed
DIGITS = 3  #: the most digits of a row of a copy

#: a digit of a row of a copy: extent, stride in the operand in elements, stride in the copy in rows
Digit = tuple[int, int, int]


def im2col_of(v: Conv, c: ImplicitOperand) -> Im2colDescriptor | None:
    """The im2col descriptor of a convolution, with packed copies if the layout needs them. ``c``: the result of the
    GEMM. None: TMA cannot load the images, or it is an input gradient with a stride."""
    if v.groups > 1 or v.fold or (v.direction == "input_grad" and v.strides != (1, 1, 1)):
        return None
    if v.layout == "CHWN" and (v.deep or any(v.pads[0])):
        return None  # the images are one more axis
    images = _images(v)
    filters = _gradients(v) if v.direction == "weight_grad" else _filters(v)
    copies = images[1], filters[1]
    if any(copies) and (v.element.bytes not in COPIED or 0 in (v.n, v.c, v.k)):
        if v.layout != "NHWC" or v.filters != "KRSC":
            return None
        copies = (None, None)  # elements of this size are not packed
    (along, pitch), (kmajor, row) = images[0], filters[0]
    side, layout = _layout(v, kmajor)
    axes = (2, 1, 0) if v.deep or any(v.pads[0]) else (2, 1)  # a single position may be outside the image

    def of(values: Sequence[int], more: int) -> tuple[int, ...]:
        found = tuple(values[n] for n in axes)
        return (more, *found) if along else found

    begin = [pads[0] for pads in v.pads]
    taps, extents, places, channels = (v.t, v.r, v.s), (v.d, v.h, v.w), v.results, v.c
    if v.direction == "input_grad":
        begin = [(n - 1) * step - pad for pad, n, step in zip(begin, taps, v.dilations, strict=True)]
        extents, places, channels = places, extents, v.k
    strides = v.strides
    if _sampled(v) and copies[0] is not None:
        extents, strides = places, (1, 1, 1)
    pixels = of(extents, v.n)
    window = Im2colDescriptor(
        side,
        layout,
        channels,
        1 if along else v.n,
        pixels,
        packed(pitch, pixels),
        of(places, v.n),
        of([-pad for pad in begin], 0),
        of(strides, 1),
        of(taps, 1),
        of(v.dilations, 1),
        v.direction == "input_grad",
        row,
        copies,
        _result(v, c),
    )
    return window if v.direction == "input_grad" else window.widened(v.element.bytes)


def _layout(v: Conv, kmajor: bool) -> tuple[str, str]:
    """(the operand that images are, the layout of the GEMM). ``kmajor``: K is contiguous in the other operand."""
    summed = v.direction == "weight_grad"
    if v.swapped:
        return "b", "TN"[kmajor] + "TN"[summed]
    return "a", "NT"[summed] + "NT"[kmajor]


def _whole(v: Conv, elements: int) -> bool:
    return elements * v.element.bytes % ALIGNED == 0


def _copy(v: Conv, start: int, depth: int, step: int, digits: list[Digit]) -> PackedCopy:
    """The packed copy of an operand. ``start``: alignment of its start in bytes. The digits are sorted by their stride
    in the operand; adjacent digits that have a common stride in both are merged."""
    found: list[Digit] = []
    for extent, move, row in sorted((x for x in digits if x[0] > 1), key=lambda x: -x[1]):
        if found and found[-1][1:] == (extent * move, extent * row):
            found[-1] = found[-1][0] * extent, move, row
        else:
            found.append((extent, move, row))
    outer, middle, inner = [(1, 0, 0)] * (DIGITS - len(found)) + found
    unit = max(ALIGNED // v.element.bytes, 1)
    wide = inner[1] == 1 and step != 1
    vec = math.gcd(unit, start // v.element.bytes, inner[0], middle[1], outer[1], step) if wide else 1
    extents, moves, rows = zip(outer, middle, inner, strict=True)
    return PackedCopy(depth, step, extents, moves, rows, -(-depth // unit) * unit, vec)


def _sampled(v: Conv) -> bool:
    """Whether filters have one tap: a copy then holds only the pixels that the tap reads."""
    return v.direction != "input_grad" and (v.d, v.t, v.r, v.s) == (1, 1, 1, 1) and not any(sum(v.pads, ()))


def _images(v: Conv) -> tuple[tuple[bool, int], PackedCopy | None]:
    """(whether the image index is one more axis, the pitch of a pixel in elements), the copy."""
    name, channel, axes = ("y", "k", "zpq") if v.direction == "input_grad" else ("x", "c", "dhw")
    start = v.aligned_output if v.direction == "input_grad" else v.aligned_input
    return _pixels(v, name, channel, axes, start)


def _pixels(v: Conv, name: str, channel: str, axes: str, start: int) -> tuple[tuple[bool, int], PackedCopy | None]:
    extents, steps = v.extents(name), v.steps(name)
    channels, along = extents[channel], v.layout == "CHWN"
    if v.layout == "NHWC" and start >= ALIGNED and _whole(v, channels):
        return (False, channels), None
    pixels = math.prod(extents[axis] for axis in axes)
    images = (v.n, steps["n"], 1 if along else pixels)
    lines = [(pixels, steps[axes[-1]], v.n if along else 1)]
    if _sampled(v) and name == "x":
        rows, columns = v.p, v.q
        images = (v.n, steps["n"], 1 if along else rows * columns)
        beside = v.n if along else 1
        lines = [(rows, steps["h"] * v.strides[1], columns * beside), (columns, steps["w"] * v.strides[2], beside)]
    copy = _copy(v, start, channels, steps[channel], [images, *lines])
    return (along, copy.pitch if v.element.bytes in COPIED else channels), copy


def _gradients(v: Conv) -> tuple[tuple[bool, int], PackedCopy | None]:
    """Of gradients of results: (whether pixels are contiguous, elements of a row), the copy."""
    pixels = math.prod(v.results) * v.n
    if v.layout == "CHWN" and v.aligned_output >= ALIGNED and _whole(v, pixels):
        return (True, pixels), None
    (_, pitch), copy = _pixels(v, "y", "k", "zpq", v.aligned_output)
    return (False, pitch), copy


def _filters(v: Conv) -> tuple[tuple[bool, int], PackedCopy | None]:
    """Of filters: (whether the reduced channels are contiguous, elements of a tap), the copy."""
    summed, other = "kc" if v.direction == "input_grad" else "ck"
    extents, steps, taps = v.extents("w"), v.steps("w"), v.t * v.r * v.s
    start = v.aligned_filter
    in_order = v.filters != "KCRS" or taps == 1
    legacy = v.layout == "NHWC" and v.filters == "KRSC"
    copy = _copy(
        v, start, extents[summed], steps[summed], [(extents[other], steps[other], taps), (taps, steps["s"], 1)]
    )
    for channel, kmajor in ((summed, True), (other, False)):
        beside = in_order and steps[channel] == 1 and extents[channel] > 1
        if beside and start >= ALIGNED and _whole(v, extents[channel]) and (kmajor or v.element.bytes == 2 or legacy):
            return (kmajor, extents[channel]), None
    if v.element.bytes not in COPIED:  # a rule reports the error
        return (summed == "c", extents["c"]), copy
    return (True, copy.pitch), copy


def _result(v: Conv, c: ImplicitOperand) -> tuple[Digits, Digits] | None:
    """The digits of rows and columns of C; None: C is a matrix with a leading dimension."""
    rows, columns = c.along, c.down
    if v.direction == "weight_grad":
        extents, steps = v.extents("w"), v.steps("w")
        taps, filters = (IndexMap(tuple(extents[i] for i in x), tuple(steps[i] for i in x)) for x in ("trsc", "k"))
        rows, columns = (filters, taps) if v.swapped else (taps, filters)
    if c.strided() and ImplicitOperand(rows, columns).strided() == c.strided():
        return None
    return _least(rows), _least(columns)


def _least(walk: IndexMap) -> Digits:
    return tuple(walk.digits) or ((1, 0),)
