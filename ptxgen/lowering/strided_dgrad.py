"""Phases of strided input gradients: with a stride, different taps of the filter reach different pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class DgradPhase:
    """One axis of one phase: the ``count`` pixels ``first``, first + stride, …, which the ``taps`` taps ``tap``,
    tap + hop, … reach. Pixel number i and tap number j read the gradient of result at + i - j·back."""

    first: int
    count: int
    tap: int
    hop: int
    taps: int
    at: int
    back: int


def dgrad_phases(extent: int, taps: int, stride: int, pad: int, dilation: int) -> list[DgradPhase]:
    """The phases of an axis: one for each remainder of the pixel by the stride."""
    common = math.gcd(stride, dilation)
    hop, back = stride // common, dilation // common
    out = []
    for first in range(min(stride, extent)):
        count = -(-(extent - first) // stride)
        found = [r for r in range(min(hop, taps)) if (first + pad - r * dilation) % stride == 0]
        if found:
            at = (first + pad - found[0] * dilation) // stride
            out.append(DgradPhase(first, count, found[0], hop, -(-(taps - found[0]) // hop), at, back))
        else:
            out.append(DgradPhase(first, count, 0, 1, 0, 0, 1))
    return out
