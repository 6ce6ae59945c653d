"""Lowers convolutions to implicit GEMMs: the mixed-radix digits of M, N and K, and their strides in each operand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ptxgen.errors import ShapeError
from ptxgen.lowering.depthwise_strips import strips_form
from ptxgen.lowering.im2col_descriptor import MOST_STRIDE, im2col, im2col_form, with_descriptor
from ptxgen.lowering.implicit_gemm import GemmPart, ImplicitOperand, IndexMap, implicit_gemm_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import StoreGated, StoreTile
from ptxgen.lowering.strided import CONTIGUOUS, matrix_product
from ptxgen.lowering.tap_products import tap_products_form
from ptxgen.operations.conv.channel_groups import groups_of_item, has_items, with_blocks
from ptxgen.operations.conv.depthwise_strips import depthwise_strip_of
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.strided_dgrad import dgrad_phases
from ptxgen.operations.conv.tap_products import tap_products_of
from ptxgen.operations.conv.tma_im2col import ALIGNED, im2col_of
from ptxgen.operations.conv.winograd import winograd_forms
from ptxgen.problem.base import arithmetic_dtype
from ptxgen.problem.dtypes import HALVES

#: axes of an image
AXES = ("d", "h", "w")


def lower_conv(v: Conv) -> KernelProblem:
    """The implicit GEMM of a convolution. ShapeError: an offset or a coordinate does not fit 32 bits."""
    try:
        return _implicit_gemm(_patches(v.one_pixel))
    except ShapeError as error:
        raise ShapeError(f"extents or padding are too large: {error} ({v.shape()})") from None


def _patches(v: Conv) -> Conv:
    """The convolution of stride 1 that computes the same as ``v``, if its filters divide images in NHWC into patches:
    the pixels of a row of a patch are the channels of one pixel, the rows of a patch are the height of an image, and
    the rows of patches its depth. ``v``, if TMA loads its pixels, whose channels are whole 16 bytes and whose strides
    are small."""
    divided = all(
        extent % taps == 0 and (extent == taps or stride == taps)
        for extent, taps, stride in zip((v.h, v.w), (v.r, v.s), v.strides[1:], strict=True)
    )
    plain = (v.layout, v.filters, v.groups, v.deep) == ("NHWC", "KRSC", 1, False) and v.dilations == (1, 1, 1)
    pixel, patches = v.c * v.element.bytes, divided and plain and not any(sum(v.pads, ()))
    loaded = pixel % ALIGNED == 0 and max(v.strides) <= MOST_STRIDE
    if loaded or not patches or pixel * v.s % ALIGNED or v.direction == "input_grad":
        return v
    return replace(v, c=v.c * v.s, d=v.h // v.r, h=v.r, w=v.w // v.s, s=1, stride=1)


def _implicit_gemm(v: Conv) -> KernelProblem:
    """The implicit GEMM, without the check of ``lower_conv``. The contiguous axes of the result are along columns of
    C."""
    x, w, y = (v.steps(name) for name in "xwy")
    first, second, third = v.tensors
    if _batched_pointwise(v):
        return _pointwise(v)
    group = {"c": v.c // v.groups, "k": v.k // v.groups}
    item = {"x": group["c"] * x["c"], "y": group["k"] * y["k"], "w": group["k"] * w["k"]}
    a, b = (second, first) if v.swapped else (first, second)
    start = {"x": v.aligned_input, "w": v.aligned_filter, "y": v.aligned_output}
    out = HALVES[v.out].name if v.gated else v.out
    sink = (StoreGated if v.gated else StoreTile)(
        out,
        arithmetic_dtype(v.compute, v.out).name,
        v.epilogue.replace("bias", "bias_row" if v.swapped else "bias_column"),
        scalar_bias=bool(v.fold) and "bias" in v.epilogue_ops,
        batched_bias="bias" in v.epilogue_ops,
    )
    make = _input_grad if v.direction == "input_grad" else _folded if v.fold else _forward
    parts = make(v, group, x, w, y)
    p = implicit_gemm_of(
        parts,
        (v.groups, item[a], item[b], item[third]),
        (start[a], start[b], start[third]),
        v.bytes,
        sink,
        v.swapped,
        dtype=v.dtype,
        compute=v.compute,
        deterministic=v.deterministic,
    )
    forms: list[KernelProblem] = []
    if "strided" not in p.needs or "offset_table" in p.needs:
        if (loaded := _loaded_form(v, p, parts[0].c)) is not None:
            forms.append(loaded)
        if (strip := depthwise_strip_of(v)) is not None:
            forms.append(strips_form(p, strip))
        if (products := tap_products_of(v)) is not None:
            forms.append(tap_products_form(p, products))
    return replace(p, forms=(*forms, *winograd_forms(v, p)))


def _loaded_form(v: Conv, p: KernelProblem, c: ImplicitOperand) -> KernelProblem | None:
    """The form of ``p`` whose images TMA loads; None: TMA cannot load them. ``c``: the result of the GEMM. Where groups
    share an item of the batch, the form is that of the convolution whose groups are the items."""
    item = groups_of_item(v) if has_items(v) else 1
    wide = _implicit_gemm(replace(v, groups=v.groups // item)) if item > 1 else None
    form = next((x for x in wide.forms if im2col(x) is not None), None) if wide is not None else None
    if form is None or im2col(form).merged_phases > 1:  # columns that are phases have no place for blocks of filters
        descriptor = im2col_of(v, c)
        return None if descriptor is None else im2col_form(p, descriptor)
    form = replace(with_descriptor(form, with_blocks(v, item, im2col(form))), moved=p.moved)
    if v.direction != "weight_grad":
        return form
    return form.with_access("C", ld=p.operand("C").access.ld, stride=item * p.operand("C").access.stride)


def _batched_pointwise(v: Conv) -> bool:
    """True if the convolution is computed as a batched GEMM with one product per image: it has 1x1 filters, the layout
    NCHW, several images, and images of a multiple of 16 bytes. In other cases one GEMM over all images fills tiles
    better."""
    pointwise = v.layout == "NCHW" and v.groups == 1 and v.n > 1 and (v.t, v.r, v.s) == v.strides == (1, 1, 1)
    pointwise &= not v.gated
    whole = v.d * v.h * v.w * v.element.bytes % ALIGNED == 0
    return pointwise and whole and v.direction != "weight_grad" and not any(sum(v.pads, ()))


def _pointwise(v: Conv) -> KernelProblem:
    """A batched GEMM with one product for each image. The filters have batch stride 0."""
    forward = v.direction == "forward"
    rows, deep = (v.k, v.c) if forward else (v.c, v.k)
    image, result = (v.aligned_input, v.aligned_output)[:: 1 if forward else -1]
    return matrix_product(
        rows,
        v.d * v.h * v.w,
        deep,
        ("N" if (v.filters == "CRSK") != forward else "T") + "N",
        v.dtype,
        v.compute,
        aligned=(v.aligned_filter, image, result),
        deterministic=v.deterministic,
        out=v.out,
        epilogue=v.epilogue.replace("bias", "bias_row"),
        batch=v.n,
        strides=(0, CONTIGUOUS, CONTIGUOUS),
        swapped=v.swapped,
    )


Steps = dict[str, int]


def _digits(v: Conv, tensor: str, channel: str) -> tuple[str, str]:
    """The letters of the axes of pixels, and the letters of the axes of taps and channels, both in the order of the
    layout."""
    spatial = {"x": "dhw", "y": "zpq"}[tensor]
    pixels = "".join(spatial if letter == "h" else letter for letter in v.layout.lower() if letter in "nh")
    taps = "".join("trs" if letter == "h" else channel for letter in v.layout.lower() if letter in "ch")
    return pixels, taps


def _index_map(
    extents: Steps, letters: str, steps: Steps, start: int = 0, coordinate_steps: Any = (), starts: Any = ()
) -> IndexMap:
    """The index map whose digits are the axes ``letters``. ``start``, ``starts``: the offset and the coordinates at
    index 0."""
    digits, strides = tuple(extents[i] for i in letters), tuple(steps[i] for i in letters)
    return IndexMap(digits, strides, start, tuple(coordinate_steps), tuple(starts))


def _forward(v: Conv, group: Steps, x: Steps, w: Steps, y: Steps) -> list[GemmPart]:
    """The parts of a forward convolution or weight gradient: an output pixel and a tap index the image operand."""
    pixels, taps = _digits(v, "y", "c")
    if v.direction == "weight_grad":  # columns of the gradient are contiguous
        taps = v.filters.lower().replace("r", "trs").replace("rss", "rs").replace("k", "")
    extent = {"n": v.n, **dict(zip("zpq", v.results, strict=True)), "c": group["c"], "t": v.t, "r": v.r, "s": v.s}
    strides = dict(zip("zpq", v.strides, strict=True))
    dilations = dict(zip("trs", v.dilations, strict=True))
    image = dict(zip("zpqtrs", "dhwdhw", strict=True))
    guarded = [i for i, pads in enumerate(v.pads) if any(pads)]
    start = -sum(pads[0] * x[axis] for pads, axis in zip(v.pads, AXES, strict=True))

    index_map = partial(_index_map, extent)
    factor = {**strides, **dilations}
    along_x = {i: x[i] if i in "nc" else factor[i] * x[image[i]] for i in pixels + taps}

    def coordinate_steps(letters: str) -> list[tuple[int, ...]]:
        return [tuple(factor[i] if image.get(i) == AXES[axis] else 0 for i in letters) for axis in guarded]

    limits = tuple((v.d, v.h, v.w)[axis] for axis in guarded)
    of_pixels = index_map(pixels, along_x, start, coordinate_steps(pixels), [-v.pads[axis][0] for axis in guarded])
    of_taps = index_map(taps, along_x, 0, coordinate_steps(taps), [0] * len(guarded))
    if v.direction == "forward":
        images = ImplicitOperand(of_pixels, of_taps, limits)
        filters = ImplicitOperand(IndexMap((group["k"],), (w["k"],)), index_map(taps, w))
        rows, columns = index_map(pixels, y), IndexMap((group["k"],), (y["k"],))
        if v.gated:  # C has twice as many columns, of halves of elements
            rows = index_map(pixels, {axis: 2 * step for axis, step in y.items()})
            columns = IndexMap((group["k"] // 2, 2), (2 * y["k"], 1))
        if v.swapped:
            return [GemmPart(filters, images, ImplicitOperand(columns, rows))]
        return [GemmPart(images, filters, ImplicitOperand(rows, columns))]
    images = ImplicitOperand(of_taps, of_pixels, limits)
    results = ImplicitOperand(IndexMap((group["k"],), (y["k"],)), index_map(pixels, y))
    rows, columns = IndexMap((group["k"],), (w["k"],)), index_map(taps, w)
    if v.swapped:
        return [GemmPart(results, images, ImplicitOperand(rows, columns))]
    return [GemmPart(images, results, ImplicitOperand(columns, rows))]


def _folded(v: Conv, group: Steps, x: Steps, w: Steps, y: Steps) -> list[GemmPart]:
    """The parts of a forward convolution in which ``fold`` adjacent output pixels are columns of C. These pixels share
    a row of the image operand; in the filter operand, the column of a pixel has the taps, shifted by the pixel's
    offset. A second GEMM computes the remaining pixels of each output row."""
    fold, (stride_z, stride_p, stride_q) = v.fold, v.strides
    z, p, q = v.results
    guarded = [i for i, pads in enumerate(v.pads) if any(pads)]
    limits = tuple((v.d, v.h, v.w)[axis] for axis in guarded)
    begin = [pads[0] for pads in v.pads]
    parts = []
    for first, count, wide in ((0, q // fold, fold), (q - q % fold, 1, q % fold)):
        if not wide:
            continue
        covered = stride_q * (wide - 1) + v.s
        rows, deep = (v.n, z, p, count), (group["c"], v.t, v.r, covered)
        # the stride of each digit along depth, height and width of an image
        along = {"d": (0, stride_z, 0, 0), "h": (0, 0, stride_p, 0), "w": (0, 0, 0, stride_q * wide)}
        down = {"d": (0, v.dilations[0], 0, 0), "h": (0, 0, v.dilations[1], 0), "w": (0, 0, 0, 1)}
        at = (-begin[0], -begin[1], stride_q * first - begin[2])
        start = sum(n * x[axis] for n, axis in zip(at, AXES, strict=True))
        image = ImplicitOperand(
            IndexMap(
                rows, _digit_strides(x, "n", 0, along), start, _guarded(along, guarded), tuple(at[i] for i in guarded)
            ),
            IndexMap(deep, _digit_strides(x, "c", 0, down), 0, _guarded(down, guarded), (0,) * len(guarded)),
            limits,
        )
        taps = ImplicitOperand(
            IndexMap((group["k"], wide), (w["k"], -stride_q * w["s"]), 0, ((0, -stride_q),), (0,)),
            IndexMap(deep, (w["c"], w["t"], w["r"], w["s"]), 0, ((0, 0, 0, 1),), (0,)),
            (v.s,),
        )
        of_rows = IndexMap(rows, (y["n"], y["z"], y["p"], wide), first)
        parts.append(GemmPart(image, taps, ImplicitOperand(of_rows, IndexMap((group["k"], wide), (y["k"], 1)))))
    return parts


def _digit_strides(
    steps: Steps, other: str, position: int, coordinate_steps: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The strides of the four digits in elements. The digit at ``position`` has the stride of the axis ``other``, the
    others those of the image axes along which they move."""
    out = [sum(move[n] * steps[axis] for axis, move in coordinate_steps.items()) for n in range(4)]
    out[position] = steps[other]
    return tuple(out)


def _guarded(coordinate_steps: Mapping[str, tuple[int, ...]], guarded: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(coordinate_steps[AXES[axis]] for axis in guarded)


def _input_grad(v: Conv, group: Steps, x: Steps, w: Steps, y: Steps) -> list[GemmPart]:
    """The parts of an input gradient: one GEMM for each dgrad phase, over the taps that contribute to its pixels."""
    pixels, taps = _digits(v, "x", "k")
    axes = [
        dgrad_phases(extent, filter_, stride, pads[0], dilation)
        for extent, filter_, stride, pads, dilation in zip(
            (v.d, v.h, v.w), (v.t, v.r, v.s), v.strides, v.pads, v.dilations, strict=True
        )
    ]
    parts = []
    for phase in itertools.product(*axes):
        count = {"n": v.n, "k": group["k"], **dict(zip("dhw", (a.count for a in phase), strict=True))}
        count.update(zip("trs", (a.taps for a in phase), strict=True))
        # the stride of each axis in input gradients, in filters, in gradients of results
        to_x = {"n": x["n"], **{i: v.strides[n] * x[i] for n, i in enumerate("dhw")}}
        to_w = {"k": w["k"], **{i: phase[n].tap_step * w[i] for n, i in enumerate("trs")}}
        to_y = {"n": y["n"], "k": y["k"], **{i: y["zpq"[n]] for n, i in enumerate("dhw")}}
        to_y.update({i: -phase[n].result_step * y["zpq"[n]] for n, i in enumerate("trs")})
        start_x = sum(a.first * x[i] for a, i in zip(phase, "dhw", strict=True))
        start_w = sum(a.tap * w[i] for a, i in zip(phase, "trs", strict=True))
        start_y = sum(a.at * y[i] for a, i in zip(phase, "zpq", strict=True))
        guarded = [
            n
            for n, a in enumerate(phase)
            if a.taps and (a.at + a.count - 1 >= v.results[n] or a.at - (a.taps - 1) * a.result_step < 0)
        ]

        index_map = partial(_index_map, count)
        free = [tuple(int("dhw"[n] == i) for i in pixels) for n in guarded]
        back = [tuple(-phase[n].result_step if "trs"[n] == i else 0 for i in taps) for n in guarded]
        gradients = ImplicitOperand(
            index_map(pixels, to_y, start_y, free, [phase[n].at for n in guarded]),
            index_map(taps, to_y, 0, back, [0] * len(guarded)),
            tuple(v.results[n] for n in guarded),
        )
        filters = ImplicitOperand(IndexMap((group["c"],), (w["c"],)), index_map(taps, to_w, start_w))
        channels = IndexMap((group["c"],), (x["c"],))
        image = index_map(pixels, to_x, start_x)
        if v.swapped:
            parts.append(GemmPart(filters, gradients, ImplicitOperand(channels, image)))
        else:
            parts.append(GemmPart(gradients, filters, ImplicitOperand(image, channels)))
    return parts
