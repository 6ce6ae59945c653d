"""Convolutions and their gradients in float64, tap by tap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxgen.conv import Conv

Array = np.ndarray[Any, Any]

#: axes as they are computed with: images, channels, depth, height, width
ORDER = {"x": "ncdhw", "w": "kctrs", "y": "nkzpq"}


def ordered(v: Conv, tensor: str, stored: Array) -> Array:
    """A tensor as stored, of any shape, with the axes of ORDER, in float64."""
    extents = v.extents(tensor)
    axes = [list(extents).index(letter) for letter in ORDER[tensor]]
    wide: Array = stored.reshape(tuple(extents.values())).astype(np.float64)
    return wide.transpose(axes)


def restored(v: Conv, tensor: str, values: Array) -> Array:
    """The other way: as stored, in float64."""
    axes = [ORDER[tensor].index(letter) for letter in v.extents(tensor)]
    return np.ascontiguousarray(values.transpose(axes)).reshape(v.stored[v.tensors.index(tensor)])


def _windows(v: Conv) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """For each tap (t, r, s): it, the pixels of images that it meets, and the results that it meets them for."""
    spans = []
    for extent, taps, stride, dilation, pads, count in zip(
        (v.d, v.h, v.w), (v.t, v.r, v.s), v.strides, v.dilations, v.pads, v.results, strict=True
    ):
        axis = []
        for tap in range(taps):
            at = tap * dilation - pads[0]
            first = max(0, (stride - 1 - at) // stride)
            last = min(count - 1, (extent - 1 - at) // stride)
            pixels = slice(at + first * stride, at + last * stride + 1, stride)
            axis.append((tap, pixels, slice(first, last + 1)) if last >= first else (tap, slice(0), slice(0)))
        spans.append(axis)
    for chosen in itertools.product(*spans):
        yield tuple(c[0] for c in chosen), tuple(c[1] for c in chosen), tuple(c[2] for c in chosen)


def convolve(v: Conv, a: Array, b: Array) -> Array:
    """The sums of the problem's operands as stored, stored like its result."""
    first, second, result = v.tensors
    one, two = ordered(v, first, a), ordered(v, second, b)
    extents = v.extents(result)
    out = np.zeros([extents[letter] for letter in ORDER[result]])
    groups = v.groups
    x, w, y = ({first: one, second: two, result: out}[name] for name in "xwy")
    c, k = v.c // groups, v.k // groups
    x = x.reshape(v.n, groups, c, *x.shape[2:])  # n g c d h w
    w = w.reshape(groups, k, *w.shape[1:])  # g k c t r s
    y = y.reshape(v.n, groups, k, *y.shape[2:])  # n g k z p q
    if 0 in (x.size, w.size, y.size):
        return restored(v, result, out)
    every: Any = (slice(None),) * 3
    for tap, pixels, results in _windows(v):
        x_part, w_part, y_part = x[every + pixels], w[every + tap], y[every + results]
        if 0 in x_part.shape:
            continue
        if result == "y":
            y_part += np.einsum("ngcdhw,gkc->ngkdhw", x_part, w_part, optimize=True)
        elif result == "x":
            x_part += np.einsum("ngkdhw,gkc->ngcdhw", y_part, w_part, optimize=True)
        else:
            w_part += np.einsum("ngkdhw,ngcdhw->gkc", y_part, x_part, optimize=True)
    return restored(v, result, out)
