"""Convolutions and their gradients in float64: images unfolded into windows, by chunks, and one product of matrices.

A window that reaches past an image has zeros there, which are multiplied, as in kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ptxgen.problem.conv import Conv

Array = np.ndarray[Any, Any]
#: of some letters of a tensor, the indices that are meant; of the others all
Box = dict[str, slice]

#: axes as they are computed with: images, channels, depth, height, width
ORDER = {"x": "ncdhw", "w": "kctrs", "y": "nkzpq"}
HELD = 1 << 20  #: elements of windows that are unfolded at once


def whole(v: Conv, tensor: str) -> Box:
    return {letter: slice(0, extent) for letter, extent in v.extents(tensor).items()}


def places(v: Conv, box: Box) -> tuple[slice, ...]:
    """Where in the result, as stored, a box of it is."""
    every = whole(v, v.tensors[2]) | box
    return tuple(every[letter] for letter in every if v.deep or letter not in "dtz")


def fitting(extents: Sequence[int], count: int) -> list[int]:
    """Extents of a box of about ``count`` elements that lie together, the last axis fastest."""
    sizes: list[int] = []
    for extent in reversed(extents):
        sizes.insert(0, max(1, min(extent, count)))
        count //= sizes[0]
    return sizes


def _ordered(v: Conv, tensor: str, stored: Array, box: Box, absolute: bool) -> Array:
    """What a box has of a tensor as stored, of any shape, with the axes of ORDER, in float64."""
    extents = v.extents(tensor)
    cut = stored.reshape(tuple(extents.values()))[tuple(box.get(letter, slice(None)) for letter in extents)]
    wide = np.ascontiguousarray(cut.transpose([list(extents).index(x) for x in ORDER[tensor]])).astype(np.float64)
    return np.abs(wide) if absolute else wide


def _apart(v: Conv, tensor: str, values: Array, groups: int) -> Array:
    """A view with groups first, then images or filters, then channels."""
    n, c, *rest = values.shape
    if tensor == "w":
        return values.reshape(groups, n // groups, c, *rest)
    return values.reshape(n, groups, c // groups, *rest).transpose(1, 0, 2, 3, 4, 5)


def _taps(
    v: Conv, pixels: Sequence[slice], results: Sequence[slice], taps: Sequence[slice]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """For each of ``taps``: it, those of ``pixels`` that it meets, and those of ``results`` that it meets them for;
    each counted from where its range begins."""
    spans = []
    for axis, (seen, made, chosen) in enumerate(zip(pixels, results, taps, strict=True)):
        stride, begin, span = v.strides[axis], v.pads[axis][0], []
        for tap in range(chosen.start, chosen.stop):
            at = tap * v.dilations[axis] - begin - seen.start
            first = max(made.start, -(at // stride))
            last = min(made.stop - 1, (seen.stop - seen.start - 1 - at) // stride)
            if last >= first:
                met = slice(at + first * stride, at + last * stride + 1, stride)
                span.append((tap - chosen.start, met, slice(first - made.start, last + 1 - made.start)))
        spans.append(span)
    for met_by in itertools.product(*spans):
        yield tuple(m[0] for m in met_by), tuple(m[1] for m in met_by), tuple(m[2] for m in met_by)


def _ranges(v: Conv, box: Box) -> tuple[list[slice], list[slice]]:
    """(pixels, results) along depth, height and width that a box of the result needs, or has."""
    pixels = [slice(0, extent) for extent in (v.d, v.h, v.w)]
    results = [slice(0, extent) for extent in v.results]
    for axis, taps in enumerate((v.t, v.r, v.s)):
        stride, begin, reach = v.strides[axis], v.pads[axis][0], (taps - 1) * v.dilations[axis]
        if v.direction == "forward":
            made = results[axis] = box["zpq"[axis]]
            low, high = made.start * stride - begin, (made.stop - 1) * stride - begin + reach
            pixels[axis] = _within(pixels[axis], low, high)
        elif v.direction == "input_grad":
            seen = pixels[axis] = box["dhw"[axis]]
            low, high = -((reach - seen.start - begin) // stride), (seen.stop - 1 + begin) // stride
            results[axis] = _within(results[axis], low, high)
    return pixels, results


def _within(range_: slice, low: int, high: int) -> slice:
    start = min(max(range_.start, low), range_.stop)
    return slice(start, max(start, min(range_.stop, high + 1)))


def _channels(v: Conv, box: Box) -> tuple[int, Box, Box, Box]:
    """How many groups a box of the result belongs to, and which images and channels of x, w and y."""
    c, k, n = v.c // v.groups, v.k // v.groups, box.get("n", slice(0, v.n))
    if v.direction == "input_grad":
        inner, first, last = box["c"], box["c"].start // c, -(-box["c"].stop // c)
    else:
        inner, first, last = box["k"], box["k"].start // k, -(-box["k"].stop // k)
    every_c, every_k = slice(first * c, last * c), slice(first * k, last * k)
    own = slice(0, c)  # channels of filters, of which each group has all
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
    """The sums of the problem's operands as stored, stored like its result, in float64.

    ``box``: what of the result; of several groups it must have whole ones. ``absolute``: of absolute values.
    """
    result = v.tensors[2]
    box = whole(v, result) | (box or {})
    if 0 in (a.size, b.size, *v.extents(result).values()):
        return np.zeros([at.stop - at.start for at in places(v, box)])
    pixels, results = _ranges(v, box)
    groups, of_x, of_w, of_y = _channels(v, box)
    taps = [box.get(letter, slice(0, extent)) for letter, extent in zip("trs", (v.t, v.r, v.s), strict=True)]
    boxes = {
        "x": of_x | dict(zip("dhw", pixels, strict=True)),
        "w": of_w | dict(zip("trs", taps, strict=True)),
        "y": of_y | dict(zip("zpq", results, strict=True)),
    }
    tensors = {
        name: _ordered(v, name, stored, boxes[name], absolute) for name, stored in zip(v.tensors, (a, b), strict=False)
    }
    tensors[result] = out = np.zeros(
        [boxes[result][letter].stop - boxes[result][letter].start for letter in ORDER[result]]
    )
    x, w, y = (_apart(v, name, tensors[name], groups) for name in "xwy")
    if v.direction == "weight_grad" and v.groups > 1:
        x = x[:, :, box["c"]]  # those channels of every group
    if all(t.size for t in (x, w, y)):  # a box may see nothing but padding
        _multiply(v, x, w, y, (pixels, results, taps))
    stored = out.transpose([ORDER[result].index(letter) for letter in v.extents(result)])
    kept = [n for n, letter in zip(stored.shape, v.extents(result), strict=True) if v.deep or letter not in "dtz"]
    return np.ascontiguousarray(stored).reshape(kept)


def _multiply(v: Conv, x: Array, w: Array, y: Array, ranges: tuple[Sequence[slice], ...]) -> None:
    """Adds to the one of x (group, image, channel, depth, height, width), w (group, filter, channel, taps) and y that
    is the result what the other two make of it."""
    pixels, results, taps = ranges
    groups, filters, channels, *window = w.shape
    deep = channels * int(np.prod(window))
    flat_w = w.reshape(groups, filters, deep)
    places_y = (y.shape[1], *y.shape[3:])
    sizes = fitting(places_y, max(1, HELD // (groups * deep)))
    every: Any = slice(None)
    for start in itertools.product(*(range(0, extent, size) for extent, size in zip(places_y, sizes, strict=True))):
        n, *at = (slice(s, min(s + size, extent)) for s, size, extent in zip(start, sizes, places_y, strict=True))
        made = [slice(s.start + r.start, s.stop + r.start) for s, r in zip(at, results, strict=True)]
        part = y[every, n, every, *at].swapaxes(1, 2)  # group, filter, image, place
        images = x[:, n].swapaxes(1, 2)  # group, channel, image, pixel
        shape = (groups, channels, *window, *part.shape[2:])
        if v.direction == "input_grad":
            unfolded = (flat_w.swapaxes(1, 2) @ part.reshape(groups, filters, -1)).reshape(shape)
        else:
            unfolded = np.zeros(shape)
        for tap, met, place in _taps(v, pixels, made, taps):
            inside, seen = unfolded[every, every, *tap, every, *place], images[every, every, every, *met]
            if v.direction == "input_grad":
                seen += inside
            else:
                inside[...] = seen
        columns = unfolded.reshape(groups, deep, -1)
        if v.direction == "forward":
            part += (flat_w @ columns).reshape(part.shape)
        elif v.direction == "weight_grad":
            w += (part.reshape(groups, filters, -1) @ columns.swapaxes(1, 2)).reshape(w.shape)
