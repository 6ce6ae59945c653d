"""Float64 convolutions and their gradients: im2col in parts, each followed by a matrix product.

Pixels outside the image are zeros, which are multiplied, as in kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.operations.conv.problem import Conv

Array = np.ndarray[Any, Any]
#: a box of a tensor: a range of indices for some axes, all indices for the others
Box = dict[str, slice]

#: the order of axes during the computation: images, channels, depth, height, width
ORDER = {"x": "ncdhw", "w": "kctrs", "y": "nkzpq"}
UNFOLDED_ELEMENTS = 1 << 20  #: elements of the im2col matrix that exist at once


def product(v: Conv, arrays: Mapping[str, Array], region: Box | None = None) -> tuple[Array, Array]:
    """The float64 sums Σab and Σ|a||b| for each element of the result, or of a box of it, two for each element with a
    gated activation."""
    a, b = arrays["A"], arrays["B"]
    if v.gated:
        v, k = replace(v, epilogue=""), (region or {}).get("k")
        region = region if region is None or k is None else {**region, "k": slice(2 * k.start, 2 * k.stop)}
    return convolve(v, a, b, region, False), convolve(v, a, b, region, True)


def slices(v: Conv, region: Box | None = None) -> tuple[slice, ...]:
    return region_slices(v, region) if region else ()


def whole_tensor(v: Conv, tensor: str) -> Box:
    return {letter: slice(0, extent) for letter, extent in v.extents(tensor).items()}


def region_slices(v: Conv, box: Box) -> tuple[slice, ...]:
    """The slices of a box in the result as stored."""
    every = whole_tensor(v, v.tensors[2]) | box
    return tuple(every[letter] for letter in every if v.deep or letter not in "dtz")


def box_extents(extents: Sequence[int], count: int) -> list[int]:
    """The extents of a box of about ``count`` elements that are adjacent in memory, where the last axis is
    contiguous."""
    sizes: list[int] = []
    for extent in reversed(extents):
        sizes.insert(0, max(1, min(extent, count)))
        count //= sizes[0]
    return sizes


def _canonical(v: Conv, tensor: str, stored: Array, box: Box, absolute: bool) -> Array:
    """A box of a tensor, transposed to ORDER and converted to float64."""
    extents = v.extents(tensor)
    cut = stored.reshape(tuple(extents.values()))[tuple(box.get(letter, slice(None)) for letter in extents)]
    wide = np.ascontiguousarray(cut.transpose([list(extents).index(x) for x in ORDER[tensor]])).astype(np.float64)
    return np.abs(wide) if absolute else wide


def _split_groups(tensor: str, values: Array, groups: int) -> Array:
    """A view with groups first, then images or filters, then channels."""
    n, c, *rest = values.shape
    if tensor == "w":
        return values.reshape(groups, n // groups, c, *rest)
    return values.reshape(n, groups, c // groups, *rest).transpose(1, 0, 2, 3, 4, 5)


def _taps(
    v: Conv, pixels: Sequence[slice], results: Sequence[slice], taps: Sequence[slice]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """For each tap in ``taps``: its index, the pixels that it reads and the results to which it contributes. All
    indices are relative to the starts of ``taps``, ``pixels`` and ``results``."""
    spans = []
    for axis, (pixel_range, result_range, tap_range) in enumerate(zip(pixels, results, taps, strict=True)):
        stride, begin, span = v.strides[axis], v.pads[axis][0], []
        for tap in range(tap_range.start, tap_range.stop):
            at = tap * v.dilations[axis] - begin - pixel_range.start
            first = max(result_range.start, -(at // stride))
            last = min(result_range.stop - 1, (pixel_range.stop - pixel_range.start - 1 - at) // stride)
            if last >= first:
                read = slice(at + first * stride, at + last * stride + 1, stride)
                span.append(
                    (tap - tap_range.start, read, slice(first - result_range.start, last + 1 - result_range.start))
                )
        spans.append(span)
    for combination in itertools.product(*spans):
        yield tuple(x[0] for x in combination), tuple(x[1] for x in combination), tuple(x[2] for x in combination)


def _ranges(v: Conv, box: Box) -> tuple[list[slice], list[slice]]:
    """The ranges of pixels and the ranges of results, along depth, height and width, that a box of the result covers or
    depends on."""
    pixels = [slice(0, extent) for extent in (v.d, v.h, v.w)]
    results = [slice(0, extent) for extent in v.results]
    for axis, taps in enumerate((v.t, v.r, v.s)):
        stride, begin, reach = v.strides[axis], v.pads[axis][0], (taps - 1) * v.dilations[axis]
        if v.direction == "forward":
            result_range = results[axis] = box["zpq"[axis]]
            low, high = result_range.start * stride - begin, (result_range.stop - 1) * stride - begin + reach
            pixels[axis] = _within(pixels[axis], low, high)
        elif v.direction == "input_grad":
            pixel_range = pixels[axis] = box["dhw"[axis]]
            low, high = -((reach - pixel_range.start - begin) // stride), (pixel_range.stop - 1 + begin) // stride
            results[axis] = _within(results[axis], low, high)
    return pixels, results


def _within(range_: slice, low: int, high: int) -> slice:
    start = min(max(range_.start, low), range_.stop)
    return slice(start, max(start, min(range_.stop, high + 1)))


def _channels(v: Conv, box: Box) -> tuple[int, Box, Box, Box]:
    """The number of groups that a box of the result covers, and the boxes of x, w and y along the axes of images and
    channels."""
    c, k, n = v.c // v.groups, v.k // v.groups, box.get("n", slice(0, v.n))
    if v.direction == "input_grad":
        inner, first, last = box["c"], box["c"].start // c, -(-box["c"].stop // c)
    else:
        inner, first, last = box["k"], box["k"].start // k, -(-box["k"].stop // k)
    every_c, every_k = slice(first * c, last * c), slice(first * k, last * k)
    own = slice(0, c)  # the channels of filters are those of one group
    if v.direction == "input_grad":
        return (
            last - first,
            {"n": n, "c": inner},
            {"k": every_k, "c": inner if v.groups == 1 else own},
            {"n": n, "k": every_k},
        )
    if v.direction == "weight_grad":
        own, every_c = box["c"], box["c"] if v.groups == 1 else every_c
    return last - first, {"n": n, "c": every_c}, {"k": inner, "c": own}, {"n": n, "k": inner}


def convolve(v: Conv, a: Array, b: Array, box: Box | None = None, absolute: bool = False) -> Array:
    """The convolution or gradient in float64, in the layout of the result. ``a``, ``b``: the operands as stored.

    ``box``: the part of the result to compute; along channels it covers one group in part, or whole groups.
    ``absolute``: True: the absolute values of products are added.
    """
    result = v.tensors[2]
    box = whole_tensor(v, result) | (box or {})
    if 0 in (a.size, b.size, *v.extents(result).values()):
        return np.zeros([at.stop - at.start for at in region_slices(v, box)])
    pixels, results = _ranges(v, box)
    groups, of_x, of_w, of_y = _channels(v, box)
    taps = [box.get(letter, slice(0, extent)) for letter, extent in zip("trs", (v.t, v.r, v.s), strict=True)]
    boxes = {
        "x": of_x | dict(zip("dhw", pixels, strict=True)),
        "w": of_w | dict(zip("trs", taps, strict=True)),
        "y": of_y | dict(zip("zpq", results, strict=True)),
    }
    tensors = {
        name: _canonical(v, name, stored, boxes[name], absolute)
        for name, stored in zip(v.tensors, (a, b), strict=False)
    }
    tensors[result] = out = np.zeros(
        [boxes[result][letter].stop - boxes[result][letter].start for letter in ORDER[result]]
    )
    x, w, y = (_split_groups(name, tensors[name], groups) for name in "xwy")
    if v.direction == "weight_grad" and v.groups > 1:
        x = x[:, :, box["c"]]  # the same channels of every group
    if all(t.size for t in (x, w, y)):  # the windows of a box may cover only padding
        _multiply(v, x, w, y, (pixels, results, taps))
    stored = out.transpose([ORDER[result].index(letter) for letter in v.extents(result)])
    shape = [n for n, letter in zip(stored.shape, v.extents(result), strict=True) if v.deep or letter not in "dtz"]
    return np.ascontiguousarray(stored).reshape(shape)


def _multiply(v: Conv, x: Array, w: Array, y: Array, ranges: tuple[Sequence[slice], ...]) -> None:
    """Computes one of the tensors x, w and y from the other two, as the direction says, and adds the result to its
    array. Their axes are x (group, image, channel, depth, height, width), w (group, filter, channel, taps), y (group,
    image, filter, depth, height, width)."""
    pixels, results, taps = ranges
    groups, filters, channels, *filter_taps = w.shape
    deep = channels * int(np.prod(filter_taps))
    flat_w = w.reshape(groups, filters, deep)
    result_extents = (y.shape[1], *y.shape[3:])
    sizes = box_extents(result_extents, max(1, UNFOLDED_ELEMENTS // (groups * deep)))
    every: Any = slice(None)
    for start in itertools.product(
        *(range(0, extent, size) for extent, size in zip(result_extents, sizes, strict=True))
    ):
        n, *at = (slice(s, min(s + size, extent)) for s, size, extent in zip(start, sizes, result_extents, strict=True))
        result_range = [slice(s.start + r.start, s.stop + r.start) for s, r in zip(at, results, strict=True)]
        part = y[every, n, every, *at].swapaxes(1, 2)  # group, filter, image, position
        images = x[:, n].swapaxes(1, 2)  # group, channel, image, pixel
        shape = (groups, channels, *filter_taps, *part.shape[2:])
        if v.direction == "input_grad":
            unfolded = (flat_w.swapaxes(1, 2) @ part.reshape(groups, filters, -1)).reshape(shape)
        else:
            unfolded = np.zeros(shape)
        for tap, read, position in _taps(v, pixels, result_range, taps):
            unfolded_part, source = unfolded[every, every, *tap, every, *position], images[every, every, every, *read]
            if v.direction == "input_grad":
                source += unfolded_part
            else:
                unfolded_part[...] = source
        columns = unfolded.reshape(groups, deep, -1)
        if v.direction == "forward":
            part += (flat_w @ columns).reshape(part.shape)
        elif v.direction == "weight_grad":
            w += (part.reshape(groups, filters, -1) @ columns.swapaxes(1, 2)).reshape(w.shape)
