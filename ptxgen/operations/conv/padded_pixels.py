"""Copies of images and filters with few channels, in which the taps of a filter row are adjacent in memory."""

from __future__ import annotations

from ptxgen.lowering.packed_copy import Axis, Digit, PackedCopy
from ptxgen.operations.conv.problem import Conv

UNIT = 16  #: bytes: TMA steps between pixels and between rows are multiples of it
CHANNELS = (1, 2, 4, 8)  #: the possible numbers of channels of a padded pixel


def padded_pixels(v: Conv) -> tuple[PackedCopy, PackedCopy] | None:
    """The copies of images and filters of a forward convolution whose pixels, with all channels, have at most UNIT
    bytes. None: pixels have more, the filters have one column of taps, columns of taps are not adjacent, or the layout
    is CHWN. Rows of images begin and end with the columns of the padding. The step from one result to the next must be
    a multiple of UNIT bytes; with a stride of two, pixels may have half of UNIT."""
    size, stride = v.element.bytes, v.strides[2]
    if v.direction != "forward" or v.layout == "CHWN" or v.s == 1 or v.dilations[2] > 1:
        return None
    fitting = (n for n in CHANNELS if v.c <= n and n * size <= UNIT and n * size * stride % UNIT == 0)
    padded = next(fitting, 0)
    if not padded:
        return None
    x, w = v.steps("x"), v.steps("w")
    whole = UNIT // size // padded  # pixels
    width, taps = (-(-n // whole) * whole for n in ((v.q - 1) * stride + v.s, v.s))
    images = _padded(v.c, padded, x["c"], (v.n, x["n"]), (v.d * v.h, x["h"]), Axis(x["w"], v.w, -v.pads[2][0]), width)
    return images, _padded(v.c, padded, w["c"], (v.k, w["k"]), (v.t * v.r, w["r"]), Axis(w["s"], v.s, 0), taps)


def _padded(
    channels: int, padded: int, step: int, outer: tuple[int, int], inner: tuple[int, int], along: Axis, width: int
) -> PackedCopy:
    """The copy as rows of ``width`` pixels along an axis, in which each pixel is padded with zeros to ``padded``
    channels. ``outer``, ``inner``: (extent, stride) of the two digits of a row number."""
    digits, axes = (Digit(outer[0], 0), Digit(inner[0], 1)), (Axis(outer[1]), Axis(inner[1]))
    return PackedCopy(digits, axes, along, width, Axis(step, channels), padded, zeros=True)
