"""The gradient of images under a stride: pixels that the same taps reach."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class DgradPhase:
    """One axis of one phase of the gradient of images: pixels ``first``, first + stride, …, ``count`` of them, which
    the taps ``tap``, tap + hop, …, ``taps`` of them, reach. Pixel i and tap j meet at result at + i - j·back."""

    first: int
    count: int
    tap: int
    hop: int
    taps: int
    at: int
    back: int


def dgrad_phases(extent: int, taps: int, stride: int, pad: int, dilation: int) -> list[DgradPhase]:
    """The pixels that see the same taps, for each remainder by the stride."""
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
