"""Strided input gradients of few channels as one product: the phases of the stride are columns of C.

All phases read the same pixels of the gradient of results, each with its own taps. A product over the taps that any
phase has loads these pixels once for all phases; its filters have zeros where a phase lacks a tap.
"""

from __future__ import annotations

import math

from ptxgen.lowering.im2col_descriptor import Digits, Im2colDescriptor, MergedFilters, packed
from ptxgen.problem.conv import Conv

COLUMNS = 32  #: the most columns of C
SIZES = (2, 4)  #: element sizes that the packing kernel supports, in bytes
UNIT = 16  #: bytes that rows of the packed filters are a multiple of
PLANE = (2, 1)  #: the axes, of depth, height and width: the innermost first


def merged_phases(v: Conv, side: str, layout: str) -> Im2colDescriptor | None:
    """The descriptor of a strided input gradient whose phases are columns of C. None: the phases are computed one by
    one, because they have many channels, other extents or shared taps only, or because of an epilogue."""
    columns = v.c * math.prod(v.strides)
    plane = v.t == v.d == 1 and not any(v.pads[0]) and v.dilations == (1, 1, 1)
    whole = all((v.h, v.w)[n - 1] % v.strides[n] == 0 for n in PLANE)
    if not (plane and whole) or v.epilogue_ops or v.element.bytes not in SIZES or not 0 < columns <= COLUMNS:
        return None
    if 0 in (v.n, v.k) or not all(v.results):
        return None
    filter_taps = (v.t, v.r, v.s)
    offsets = [_offsets(filter_taps[n], v.strides[n], v.pads[n][0]) for n in PLANE]
    taps = tuple(len(along) for along in offsets)
    if math.prod(taps) >= v.r * v.s:
        return None
    w, x = v.steps("w"), v.steps("x")
    lower = tuple(along[0] for along in offsets)
    unit = UNIT // v.element.bytes
    filters = MergedFilters(
        depth=v.k,
        step=w["k"],
        column_count=v.c,
        column_step=w["c"],
        taps=(taps[0], taps[1]),
        first=(v.pads[2][0] - v.strides[2] * lower[0], v.pads[1][0] - v.strides[1] * lower[1]),
        stride=(v.strides[2], v.strides[1]),
        extents=(v.s, v.r),
        tap_steps=(w["s"], w["r"]),
        pitch=-(-v.k // unit) * unit,
    )
    pixels = (v.q, v.p)
    positions = (v.w // v.strides[2], v.h // v.strides[1])
    row = v.w * x["w"]
    rows: Digits = ((v.n * positions[1], v.strides[1] * row), (positions[0], v.strides[2] * x["w"]))
    cols: Digits = ((v.strides[1], row), (v.strides[2] * v.c, 1))
    return Im2colDescriptor(
        side,
        layout,
        v.k,
        v.n,
        pixels,
        packed(v.k, pixels),
        positions,
        lower,
        (1, 1),
        taps,
        (1, 1),
        row=filters.pitch,
        copies=(None, filters),
        result=(rows, cols),
    )


def _offsets(taps: int, stride: int, pad: int) -> range:
    """The positions of results that the pixels of any phase contribute to, relative to a pixel's quotient by the
    stride."""
    reached = [(a + pad - tap) // stride for a in range(stride) for tap in range(taps) if (a + pad - tap) % stride == 0]
    return range(min(reached), max(reached) + 1)
