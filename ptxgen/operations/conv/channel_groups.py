"""Makes groups of several channels the items of a batch. TMA loads the pixels of a group through an im2col map whose
last coordinate is the group; the images are an axis of pixels of this map.

Groups with few channels share an item, so that boxes have whole lines of channels. The filters of an item are then
packed as blocks on a diagonal, with zeros elsewhere; of a weight gradient, only these blocks are stored."""

from __future__ import annotations

import math
from dataclasses import replace

from ptxgen.lowering.im2col_descriptor import BOX, Digits, Im2colDescriptor, Im2colPhase
from ptxgen.lowering.packed_copy import Axis, Digit, PackedCopy
from ptxgen.operations.conv.problem import Conv

CORNER = 15  #: an im2col map of three axes may have so many pixels past the last one
STAGE = 256  #: the most pixels of a stage


def has_items(v: Conv) -> bool:
    """True if an im2col map can have the groups of ``v`` as its last coordinate."""
    aligned = all(n // v.groups * v.element.bytes % 16 == 0 for n in (v.c, v.k))
    flat = v.layout != "CHWN" and not v.deep and not any(v.pads[0])
    whole = v.groups > 1 and not v.fold and 0 not in (v.n, v.c, v.k)
    # rows of a weight gradient are filters; in NCHW and f32, result gradients have no rows of a group's filters
    rows = v.direction != "weight_grad" or (v.swapped and (v.layout == "NHWC" or v.element.bytes == 2))
    return whole and rows and flat and aligned


def groups_of_item(v: Conv) -> int:
    """The number of groups that share an item: as many as a TMA box has channels for. With ``exact_nonfinite`` it is
    one, because zeros beside the filters would multiply channels of other groups."""
    most = BOX // v.element.bytes // max(v.c // v.groups, v.k // v.groups, 1)
    exact = v.exact_nonfinite and v.direction != "weight_grad"
    return 1 if exact else max(n for n in range(1, max(most, 1) + 1) if v.groups % n == 0)


def images_axis(v: Conv) -> int:
    """The extent of the axis of images. For a weight gradient it is larger than the number of images, so that the last
    stage reads past the last image instead of pixels of the next group."""
    if v.direction != "weight_grad":
        return v.n
    return v.n + min(-(-STAGE // max(math.prod(v.results), 1)), CORNER)


def with_items(v: Conv, im2col: Im2colDescriptor) -> Im2colDescriptor:
    """The descriptor ``im2col``, which is for all channels, changed to items that are groups."""
    channels = (v.k if v.direction == "input_grad" else v.c) // v.groups
    if im2col.copies[1] is not None and v.direction != "weight_grad":
        im2col = _with_filters(v, 1, im2col)
    phases = tuple(_of_images(phase, v.n) for phase in im2col.phases)
    return replace(
        im2col,
        channels=channels,
        count=v.groups,
        extents=(*im2col.extents, v.n),
        pitches=(*im2col.pitches, channels),
        positions=(*im2col.positions, images_axis(v)),
        lower=(*im2col.lower, 0),
        steps=(*im2col.steps, 1),
        taps=(*im2col.taps, 1),
        dilation=(*im2col.dilation, 1),
        result=_with_images(v, im2col.result) if phases else im2col.result,
        phases=phases,
        tap_steps=(*im2col.tap_steps, 0) if phases else (),
        groups=True,
    )


def _of_images(phase: Im2colPhase, images: int) -> Im2colPhase:
    """The phase with ``images`` as its last axis."""
    taps = (*phase.taps, int(phase.tap_count > 0))
    return replace(phase, counts=(*phase.counts, images), taps=taps, shift=(*phase.shift, 0))


def _with_images(v: Conv, result: tuple[Digits, Digits] | None) -> tuple[Digits, Digits]:
    """The digits of C of one item, from ``result``, those of all channels: images become an axis of the pixels,
    channels are those of one group."""
    assert result is not None
    pixels, ((channels, step),) = result[::-1] if v.swapped else result
    digits: tuple[Digits, Digits] = ((1, 0), *pixels), ((channels // v.groups, step),)
    return digits[::-1] if v.swapped else digits


def with_blocks(v: Conv, item: int, im2col: Im2colDescriptor) -> Im2colDescriptor:
    """The descriptor ``im2col`` for items of ``item`` groups of ``v`` each, which are computed as one group with blocks
    of filters on a diagonal."""
    if v.direction != "weight_grad":
        return _with_filters(v, item, im2col)
    w, taps, filters, channels = v.steps("w"), v.r * v.s, v.k // v.groups, v.c // v.groups
    rows = (item, filters * w["k"] - channels * w["c"]), (filters, w["k"])
    columns = (taps, w["s"]), (item * channels, w["c"])
    return replace(im2col, result=(rows, columns), blocks=(filters, channels, item))


def _with_filters(v: Conv, item: int, im2col: Im2colDescriptor) -> Im2colDescriptor:
    """The descriptor ``im2col`` with packed filters: a row consists of taps, each with the channels of ``item``
    groups."""
    w, taps, filters, channels = v.steps("w"), v.r * v.s, v.k // v.groups, v.c // v.groups
    digits = Digit(v.groups // item, 0), Digit(item, 1, along=-channels), Digit(filters, 2), Digit(taps, 3)
    axes = Axis(item * filters * w["k"]), Axis(filters * w["k"]), Axis(w["k"]), Axis(w["s"])
    copy = PackedCopy(digits, axes, Axis(w["c"], channels, 0), item * channels, zeros=True)
    of_images, kmajor = im2col.layout["ab".index(im2col.side)], v.direction == "forward"  # else channels are those of C
    layout = "TN"[kmajor] + of_images if im2col.side == "b" else of_images + "NT"[kmajor]
    merged = taps // im2col.tap_count  # adjacent taps may be one tap with more channels
    return replace(im2col, layout=layout, copies=(im2col.copies[0], copy), row=merged * copy.pitch)
