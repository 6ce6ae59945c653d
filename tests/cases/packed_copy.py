"""Packed copies by their description alone."""

import numpy as np


def packed(copy, array):
    """The copy of ``array``, and where it has elements: rows of places of elements. Padding is 0."""
    flat, shape = array.reshape(-1), (*(d.extent for d in copy.digits), copy.width, copy.padded)
    out, inside = np.zeros(shape, array.dtype), np.zeros(shape, bool)
    for index in np.ndindex(*shape):
        positions = [axis.first or 0 for axis in copy.axes]
        along = (copy.along.first or 0) + index[-2]
        for d, value in zip(copy.digits, index, strict=False):
            positions[d.axis] += d.step * value
            along += d.along * value
        positions += [along, index[-1]]
        axes = (*copy.axes, copy.along, copy.within)
        if all(x.extent is None or 0 <= at < x.extent for x, at in zip(axes, positions, strict=True)):
            out[index], inside[index] = flat[sum(x.stride * at for x, at in zip(axes, positions, strict=True))], True
    return out, inside
