"""The kernel problems of Winograd's algorithms for a convolution."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import matrix_product
from ptxgen.lowering.winograd import (
    LEAST_CHANNELS,
    LEAST_PIXELS,
    MOST_PADDING,
    TAPS,
    TILES,
    UNIT,
    TransformedMatrix,
    Winograd,
    WinogradTransform,
)
from ptxgen.operations.conv.problem import Conv
from ptxgen.settings import settings


def winograd_forms(v: Conv, p: KernelProblem) -> tuple[KernelProblem, ...]:
    """The forms of a convolution or gradient by each of Winograd's algorithms that can compute it. ``p``: the implicit
    GEMM."""
    return tuple(form for tile in TILES if (form := winograd_form(v, p, tile)) is not None)


def winograd_form(v: Conv, p: KernelProblem, tile: int) -> KernelProblem | None:
    """The form of a convolution or gradient by the algorithm with tiles of ``tile`` rows and columns of results. None:
    the algorithm does not support the filters, strides, types, groups, depth axis, padding or activation; it has few
    channels, or is a weight gradient of few pixels; or PTXGEN_WINOGRAD is off."""
    gradient, weights = v.direction == "input_grad", v.direction == "weight_grad"
    channels, filters = (v.k, v.c) if gradient else (v.c, v.k)
    plain = v.groups == 1 and v.strides == v.dilations == (1, 1, 1) and (v.t, v.r, v.s) == TAPS and not v.deep
    types = v.dtype == v.compute == v.out == "f32"
    if not (plain and types) or any(v.pads[0]) or v.fold or v.gated:
        return None
    if settings().winograd == "off":
        return None
    if min(channels, filters) < LEAST_CHANNELS[tile] or 0 in (v.n, v.h, v.w, *v.results):
        return None
    if weights and min(v.h, v.w, *v.results[1:]) < LEAST_PIXELS[tile]:
        return None
    pads = [2 - n if gradient else n for n in (*v.pads[1], *v.pads[2])]
    if not weights and max(pads) > MOST_PADDING.get(tile, max(pads)):
        return None
    x, w, y = (v.steps(name) for name in "xwy")
    image, filter_, result = (_of_axes(x, "nchw"), _of_axes(w, "kcrs"), _of_axes(y, "nkpq"))
    extents, results, start = (v.h, v.w), v.results[1:], 0
    first = (-pads[0], -pads[2])
    if gradient:  # a convolution of the gradient of results with the rotated filters
        image, result, extents, results = result, image, results, extents
        start = 2 * (w["r"] + w["s"])
        filter_ = (w["c"], w["k"], -w["r"], -w["s"])
    adjacent = v.layout == "NHWC"
    transform = WinogradTransform(
        v.n,
        channels,
        filters,
        *extents,
        tile,
        (results[0], results[1]),
        first,
        image,
        filter_,
        start,
        result,
    )
    rows, columns, depth = (_up(n) for n in (filters, transform.tile_count, channels))
    if weights:
        columns, depth = depth, columns
    images_first = not v.swapped  # the operands of the GEMMs are in the order of those of the convolution
    if images_first:
        rows, columns = columns, rows
    algorithm = Winograd(
        tile,
        image="a" if images_first else "b",
        channels_adjacent=adjacent,
        images_adjacent=v.layout == "CHWN",
        weight_grad=weights,
        transform=transform,
        sink=p.sink,
        nonfinite=v.exact_nonfinite,
    )
    products = matrix_product(
        rows,
        columns,
        depth,
        "TN" if weights or not adjacent else "NN",
        v.dtype,
        v.compute,
        out=v.out,
        batch=algorithm.points,
        deterministic=v.deterministic,
        swapped=v.swapped,
    )
    form = products.with_accesses(lambda x: TransformedMatrix(*x.numbers, algorithm=algorithm))
    return replace(form, name=p.name)


def _up(n: int) -> int:
    return -(-n // UNIT) * UNIT


def _of_axes(steps: dict[str, int], axes: str) -> tuple[int, int, int, int]:
    a, b, c, d = (steps[letter] for letter in axes)
    return a, b, c, d
