"""Copies of images and filters with few channels, in which the taps of a filter row are adjacent in memory."""

from __future__ import annotations

from ptxgen.lowering.im2col_descriptor import PaddedPixels
from ptxgen.operations.conv.problem import Conv

UNIT = 16  #: bytes: TMA steps from pixel to pixel and from row to row by multiples of it
CHANNELS = (1, 2, 4, 8)  #: of a padded pixel


def padded_pixels(v: Conv) -> tuple[PaddedPixels, PaddedPixels] | None:
    """The copies of images and filters of a forward convolution, if a pixel with all its channels has no more than
    UNIT bytes. None: it has more, the filters have one column of taps, columns are not adjacent, or the layout is CHWN.

    Rows of images begin and end with the columns of the padding. The step from one result to the next is a multiple of
    UNIT, for which a stride of two takes pixels of half of it."""
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
    images = (v.n, v.d * v.h), (x["n"], x["h"])
    filters = (v.k, v.t * v.r), (w["k"], w["r"])
    return (
        PaddedPixels(v.c, padded, x["c"], v.w, x["w"], v.pads[2][0], width, *images),
        PaddedPixels(v.c, padded, w["c"], v.s, w["s"], 0, taps, *filters),
    )
