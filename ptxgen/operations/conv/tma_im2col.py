"""Builds the im2col descriptor of a convolution, by which TMA loads the images or packed copies of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ptxgen.lowering.im2col_descriptor import (
    Digits,
    Im2colDescriptor,
    Im2colPhase,
    PhaseImages,
    packed,
)
from ptxgen.lowering.implicit_gemm import ImplicitOperand, IndexMap
from ptxgen.lowering.packed_copy import Axis, Digit, PackedCopy
from ptxgen.operations.conv.channel_groups import has_items, with_items
from ptxgen.operations.conv.merged_phases import merged_phases
from ptxgen.operations.conv.padded_pixels import padded_pixels
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.strided_dgrad import DgradPhase, dgrad_phases

ALIGNED = 16  #: alignment of rows and addresses that TMA requires, in bytes
COPIED = (2, 4)  #: element sizes that packing kernels support, in bytes
DIGITS = 3  #: the most digits of a row number of a copy
TILED_CHANNELS = 8  #: channels must be a multiple of this if tiles of C may have several taps in tiled boxes
INTERLEAVED = 4  #: the largest stride along a row of C whose phases a kernel interleaves
OFFSETS = 1 << 31  #: offsets in elements are below this limit
#: element size in bytes -> rows of the smallest box of images that are contiguous along the rows of the GEMM. With four
#: bytes, A comes from registers
BOX_ROWS = {2: 16, 4: 32}

#: a digit of a copy (pixels, images, taps or filters): its extent, its stride in the operand in elements, its stride in
#: the copy in rows
Rows = tuple[int, int, int]


def im2col_of(v: Conv, c: ImplicitOperand) -> Im2colDescriptor | None:
    """The im2col descriptor of a convolution, with packed copies if the layout needs them. ``c``: the result of the
    GEMM. None: TMA cannot load the images."""
    phased = v.direction == "input_grad" and v.strides != (1, 1, 1)
    if v.fold or (v.groups > 1 and not has_items(v)):
        return None
    if v.layout == "CHWN" and (v.deep or any(v.pads[0])):
        return None  # the image index would be a fourth spatial axis
    images = _images(v)
    filters = _gradients(v) if v.direction == "weight_grad" else _filters(v)
    copies = images[1], filters[1]
    if any(copies) and (v.element.bytes not in COPIED or 0 in (v.n, v.c, v.k)):
        if v.layout != "NHWC" or v.filters != "KRSC":
            return None
        copies = (None, None)  # no packing kernel for this element size
    rows = padded_pixels(v) if copies[0] is not None and v.groups == 1 else None
    if rows is not None:
        return _with_padded_pixels(v, c, rows)
    (along, pitch), (kmajor, row) = images[0], filters[0]
    side, layout = _layout(v, kmajor)
    axes = _axes(v)
    if phased and images[1] is None and v.groups == 1:
        merged = merged_phases(v, *_layout(v, True))
        if merged is not None:
            return merged

    def of(values: Sequence[int], more: int) -> tuple[int, ...]:
        spatial = tuple(values[n] for n in axes)
        return (more, *spatial) if along else spatial

    begin = [pads[0] for pads in v.pads]
    taps, extents, positions, channels = (v.t, v.r, v.s), (v.d, v.h, v.w), v.results, v.c
    if v.direction == "input_grad":
        begin = [(n - 1) * step - pad for pad, n, step in zip(begin, taps, v.dilations, strict=True)]
        extents, positions, channels = positions, extents, v.k
    strides = v.strides
    whole = of(extents, v.n)
    if _sampled(v) and copies[0] is not None:
        extents, strides = positions, (1, 1, 1)
    pixels = of(extents, v.n)
    im2col = Im2colDescriptor(
        side,
        layout,
        channels,
        1 if along else v.n,
        pixels,
        packed(pitch, pixels),
        of(positions, v.n),
        of([-pad for pad in begin], 0),
        of(strides, 1),
        of(taps, 1),
        of(v.dilations, 1),
        v.direction == "input_grad",
        row,
        copies,
        None if phased else _result(v, c),
        by_image=_by_image(v),
        exact=v.exact_nonfinite,
    )
    if phased:
        im2col = _with_phases(v, im2col, of)
    if v.groups > 1:
        return with_items(v, im2col)
    if v.direction == "weight_grad":
        return replace(im2col.merge_row_taps(v.element.bytes), unpacked=_unpacked(v, im2col))
    if v.direction == "forward":
        direct = replace(im2col, extents=whole, steps=of(v.strides, 1))
        return replace(im2col.merge_row_taps(v.element.bytes), unpacked=_tiled_images(v, direct))
    return replace(im2col, unpacked=_tiled_images(v, im2col))


def _tiled_images(v: Conv, im2col: Im2colDescriptor) -> Im2colDescriptor | None:
    """The descriptor of a convolution or an input gradient in CHWN whose images are not packed: tiled tensor maps load
    them, contiguous along the rows of the GEMM. ``im2col``: the descriptor with packed images. None: the number of
    images is not a multiple of 16 bytes or of the rows of the smallest box, or an array is not aligned."""
    start = v.aligned_output if v.direction == "input_grad" else v.aligned_input
    if v.layout != "CHWN" or start < ALIGNED or v.element.bytes not in COPIED or 0 in (v.n, v.c, v.k):
        return None
    if v.n % BOX_ROWS[v.element.bytes]:
        return None
    layout = im2col.layout[0] + "N" if im2col.side == "b" else "T" + im2col.layout[1]
    pitches, copies = packed(1, im2col.extents), (None, im2col.copies[1])
    return replace(im2col, layout=layout, pitches=pitches, copies=copies, tiled=True)


def _unpacked(v: Conv, im2col: Im2colDescriptor) -> Im2colDescriptor | None:
    """The descriptor of a weight gradient whose operands are not packed. ``im2col``: the descriptor with packed
    operands. None: tiled tensor maps cannot load the operands.

    The first coordinate of a box must be a multiple of 16 bytes. In CHWN it is the image, which does not depend on the
    tap. In NCHW it is the pixel of a row; therefore filters must have one column, and there must be no stride or
    padding along a row. Rows must be multiples of 16 bytes, too; all pixels form one row if the filter reads each of
    them once. A box of images has channels of one tap."""
    if v.direction != "weight_grad" or v.layout == "NHWC" or 0 in (v.n, v.c, v.k):
        return None
    if v.layout == "NCHW" and (v.s, v.strides[2], v.pads[2]) != (1, 1, (0, 0)):
        return None
    axes, images = _axes(v), (v.n,) * (v.layout == "CHWN")
    extents, positions = ((*images, *(values[n] for n in axes)) for values in ((v.d, v.h, v.w), v.results))
    lower, taps, dilation = im2col.lower, im2col.taps, im2col.dilation
    # a packed copy may have the pixels of its one tap only
    steps = (*(1 for _ in images), *(v.strides[n] for n in axes))
    if (v.t, v.r, v.s) == v.strides == (1, 1, 1) and not any(sum(v.pads, ())):
        extents = positions = (math.prod(extents),)
        lower, steps, taps, dilation = (0,), (1,), (1,), (1,)
    aligned = min(v.aligned_input, v.aligned_output) >= ALIGNED and _whole(v, extents[0])
    if not aligned or (math.prod(taps) > 1 and v.c % TILED_CHANNELS):
        return None
    return replace(
        im2col,
        layout="NT",
        extents=extents,
        pitches=packed(1, extents),
        positions=positions,
        lower=lower,
        steps=steps,
        taps=taps,
        dilation=dilation,
        row=math.prod(positions),
        copies=(None, None),
        tiled=True,
        by_image=False,
    )


def _axes(v: Conv) -> tuple[int, ...]:
    """The spatial axes of the descriptor, innermost first: width 2, height 1 and, if there is depth or padding along
    it, depth 0."""
    return (2, 1, 0) if v.deep or any(v.pads[0]) else (2, 1)


def _with_padded_pixels(v: Conv, c: ImplicitOperand, copies: tuple[PackedCopy, PackedCopy]) -> Im2colDescriptor:
    """The descriptor of a forward convolution with few channels. The taps of a filter row are read as channels of one
    tap, so the windows of adjacent results overlap in memory."""
    images, filters = copies
    side, layout = _layout(v, True)
    axes = _axes(v)

    def of(values: Sequence[int], columns: int) -> tuple[int, ...]:
        return columns, *(values[n] for n in axes[1:])

    pitches = packed(images.padded, of((v.d, v.h, v.w), images.width))[1:]
    return Im2colDescriptor(
        side,
        layout,
        v.s * images.padded,
        v.n,
        of((v.d, v.h, v.w), v.q),
        (images.padded * v.strides[2], *pitches),
        of(v.results, v.q),
        of([-pads[0] for pads in v.pads], 0),
        of(v.strides, 1),
        of((v.t, v.r, v.s), 1),
        of(v.dilations, 1),
        row=filters.pitch,
        copies=copies,
        result=_result(v, c),
    )


def _with_phases(
    v: Conv, im2col: Im2colDescriptor, of: Callable[[Sequence[int], int], tuple[int, ...]]
) -> Im2colDescriptor:
    """The descriptor of a strided input gradient, from ``im2col``, which describes the result gradients. ``of``: maps
    values along depth, height and width, and the value along images, to values along the axes of the descriptor."""
    x, filter_taps = v.steps("x"), (v.t, v.r, v.s)
    phases = [
        dgrad_phases((v.d, v.h, v.w)[n], filter_taps[n], v.strides[n], v.pads[n][0], v.dilations[n]) for n in range(3)
    ]
    common = [math.gcd(v.strides[n], v.dilations[n]) for n in range(3)]
    positions = of([max(phase.count for phase in phases[n]) for n in range(3)], v.n)
    lower = [min((phase.lowest for phase in phases[n] if phase.taps), default=0) for n in range(3)]
    pixel_steps = of([v.strides[n] * x["dhw"[n]] for n in range(3)], x["n"])
    pixels = ((im2col.count, x["n"]), *zip(reversed(positions), reversed(pixel_steps), strict=True))
    channels = ((v.c, x["c"]),)

    def phase_of(chosen: tuple[DgradPhase, ...]) -> Im2colPhase:
        multiplies = all(phase.taps for phase in chosen)
        last = [phase.tap + (phase.taps - 1) * phase.tap_step for phase in chosen]
        return Im2colPhase(
            of([phase.count for phase in chosen], v.n),
            sum(phase.first * x[axis] for phase, axis in zip(chosen, "dhw", strict=True)),
            of([phase.taps * multiplies for phase in chosen], int(multiplies)),
            of([(phase.lowest - low) * multiplies for phase, low in zip(chosen, lower, strict=True)], 0),
            multiplies * sum(last[n] * math.prod(filter_taps[n + 1 :]) for n in range(3)),
        )

    chosen = list(itertools.product(*phases))
    every = [phase_of(each) for each in chosen]
    order = sorted(range(len(every)), key=lambda n: -every[n].tap_count)
    im2col = replace(
        im2col,
        positions=positions,
        lower=of(lower, 0),
        steps=of((1, 1, 1), 1),
        dilation=of([v.dilations[n] // common[n] for n in range(3)], 1),
        tap_steps=of([v.strides[n] // common[n] * math.prod(filter_taps[n + 1 :]) for n in range(3)], 0),
        result=(channels, pixels) if v.swapped else (pixels, channels),
        phases=tuple(every[n] for n in order),
    )
    firsts = [(chosen[n][1].first, chosen[n][2].first) for n in order]
    return replace(im2col, images=_phase_images(v, im2col, firsts))


def _phase_images(v: Conv, im2col: Im2colDescriptor, firsts: list[tuple[int, int]]) -> PhaseImages | None:
    """Describes how the images of phases are interleaved to C. ``firsts``: (row, column) of the first pixel of each
    phase. None: pixels of C are not contiguous, an epilogue follows, or the images or C are too large."""
    (_, down, across), (rows, columns) = v.strides, (v.h, v.w)
    flat = len(im2col.extents) == 2 and v.groups == 1
    plain = flat and v.layout == "NCHW" and v.output.bytes in COPIED and not v.epilogue_ops
    if not plain or not 1 < across <= INTERLEAVED or 0 in (v.n, v.c, v.h, v.w):
        return None
    numbers = {first: n for n, first in enumerate(firsts)}
    phase_of = tuple(numbers.get((b, a), -1) for b in range(down) for a in range(across))
    images = PhaseImages(v.c, (columns, rows), (across, down), phase_of)
    whole = replace(im2col, images=images)
    padded = v.n * v.c * math.prod(whole.positions) * down * across
    return images if max(padded, len(whole.phases) * whole.image_elements) < OFFSETS else None


def _layout(v: Conv, kmajor: bool) -> tuple[str, str]:
    """The operand that has the images, "a" or "b", and the layout of the GEMM. ``kmajor``: K is contiguous in the other
    operand."""
    wgrad = v.direction == "weight_grad"
    if v.swapped:
        return "b", "TN"[kmajor] + "TN"[wgrad]
    return "a", "NT"[wgrad] + "NT"[kmajor]


def _whole(v: Conv, elements: int) -> bool:
    return elements * v.element.bytes % ALIGNED == 0


def _copy(v: Conv, start: int, depth: int, step: int, digits: list[Rows]) -> PackedCopy:
    """The packed copy of an operand. ``start``: the alignment of the operand in bytes. Digits that follow each other
    both in the operand and in the copy are merged."""
    merged: list[Rows] = []
    for extent, stride, row in sorted((x for x in digits if x[0] > 1), key=lambda x: -x[1]):
        if merged and merged[-1][1:] == (extent * stride, extent * row):
            merged[-1] = merged[-1][0] * extent, stride, row
        else:
            merged.append((extent, stride, row))
    outer, middle, inner = whole = [(1, 0, 0)] * (DIGITS - len(merged)) + merged
    unit = max(ALIGNED // v.element.bytes, 1)
    wide = inner[1] == 1 and step != 1
    vec = math.gcd(unit, start // v.element.bytes, inner[0], middle[1], outer[1], step) if wide else 1
    ordered = sorted(whole, key=lambda x: (x[0] > 1, -x[2]))
    rows = tuple(Digit(extent, n) for n, (extent, _, _) in enumerate(ordered))
    axes = tuple(Axis(stride) for _, stride, _ in ordered)
    return PackedCopy(rows, axes, Axis(step, depth), -(-depth // unit) * unit, vec=vec)


def _sampled(v: Conv) -> bool:
    """True if filters have one tap and there is no padding: a copy then has only the pixels that this tap reads."""
    return v.direction != "input_grad" and (v.d, v.t, v.r, v.s) == (1, 1, 1, 1) and not any(sum(v.pads, ()))


def _images(v: Conv) -> tuple[tuple[bool, int], PackedCopy | None]:
    """How TMA loads the images: (True if the image index is one of the axes, the pitch of a pixel in elements), and the
    packed copy, or None."""
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
        stride = v.n if along else 1
        lines = [(rows, steps["h"] * v.strides[1], columns * stride), (columns, steps["w"] * v.strides[2], stride)]
    copy = _copy(v, start, channels, steps[channel], [images, *lines])
    return (along, copy.pitch if v.element.bytes in COPIED else channels), copy


def _by_image(v: Conv) -> bool:
    """True if wgmma reads the result gradients K-major without packing: in NCHW the pixels of an image, which are K,
    are contiguous. With elements of four bytes, one operand must be K-major."""
    return v.direction == "weight_grad" and v.layout == "NCHW" and v.element.bytes == 4 and 0 not in (v.n, v.c, v.k)


def _gradients(v: Conv) -> tuple[tuple[bool, int], PackedCopy | None]:
    """How TMA loads the result gradients of a weight gradient: (True if pixels are contiguous, elements of a row), and
    the packed copy, or None."""
    if _by_image(v):
        pixels = math.prod(v.results)
        if v.aligned_output >= ALIGNED and _whole(v, pixels):
            return (True, pixels), None
        rows = _copy(v, v.aligned_output, pixels, 1, [(v.n * v.k, pixels, 1)])
        return (True, rows.pitch), rows
    pixels = math.prod(v.results) * v.n
    if v.layout == "CHWN" and v.aligned_output >= ALIGNED and _whole(v, pixels):
        return (True, pixels), None
    (_, pitch), copy = _pixels(v, "y", "k", "zpq", v.aligned_output)
    return (False, pitch), copy


def _filters(v: Conv) -> tuple[tuple[bool, int], PackedCopy | None]:
    """How TMA loads the filters: (True if the reduced channels are contiguous, elements of a tap), and the packed copy,
    or None."""
    reduced, other = "kc" if v.direction == "input_grad" else "ck"
    extents, steps, taps = v.extents("w"), v.steps("w"), v.t * v.r * v.s
    start = v.aligned_filter
    in_order = v.filters != "KCRS" or taps == 1
    legacy = v.layout == "NHWC" and v.filters == "KRSC"
    copy = _copy(
        v, start, extents[reduced], steps[reduced], [(extents[other], steps[other], taps), (taps, steps["s"], 1)]
    )
    for channel, kmajor in ((reduced, True), (other, False)):
        contiguous = in_order and steps[channel] == 1 and extents[channel] > 1
        if (
            contiguous
            and start >= ALIGNED
            and _whole(v, extents[channel])
            and (kmajor or v.element.bytes == 2 or legacy)
        ):
            return (kmajor, extents[channel]), None
    if v.element.bytes not in COPIED:  # a rule rejects it
        return (reduced == "c", extents["c"]), copy
    return (True, copy.pitch), copy


def _result(v: Conv, c: ImplicitOperand) -> tuple[Digits, Digits] | None:
    """The digits of the rows and columns of C; None: C is a matrix with a leading dimension."""
    rows, columns = c.rows, c.columns
    if v.direction == "weight_grad":
        extents, steps = v.extents("w"), v.steps("w")
        taps, filters = (IndexMap(tuple(extents[i] for i in x), tuple(steps[i] for i in x)) for x in ("trsc", "k"))
        rows, columns = (filters, taps) if v.swapped else (taps, filters)
    if c.strided() and ImplicitOperand(rows, columns).strided() == c.strided():
        return None
    return _digits(rows), _digits(columns)


def _digits(index_map: IndexMap) -> Digits:
    return tuple(index_map.digits) or ((1, 0),)
