"""The phases of strided input gradients.

With a stride, the taps that contribute to a pixel depend on the remainder of its coordinate by the stride. The pixels
of one remainder form a phase, which is a convolution with stride 1 and part of the taps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class DgradPhase:
    """One axis of a dgrad phase. The phase has ``count`` pixels, ``first``, first + stride, …, and ``taps`` taps,
    ``tap``, tap + ``tap_step``, …. Its pixel i and tap j read the gradient of result ``at`` + i - j·``result_step``."""

    first: int
    count: int
    tap: int
    tap_step: int
    taps: int
    at: int
    result_step: int

    @property
    def lowest(self) -> int:
        """The lowest index of the results that the first pixel reads."""
        return self.at - (self.taps - 1) * self.result_step


def dgrad_phases(extent: int, taps: int, stride: int, pad: int, dilation: int) -> list[DgradPhase]:
    """The phases of an axis, one for each remainder by the stride."""
    common = math.gcd(stride, dilation)
    tap_step, result_step = stride // common, dilation // common
    out = []
    for first in range(min(stride, extent)):
        count = -(-(extent - first) // stride)
        first_taps = [r for r in range(min(tap_step, taps)) if (first + pad - r * dilation) % stride == 0]
        if first_taps:
            at = (first + pad - first_taps[0] * dilation) // stride
            out.append(
                DgradPhase(
                    first, count, first_taps[0], tap_step, -(-(taps - first_taps[0]) // tap_step), at, result_step
                )
            )
        else:
            out.append(DgradPhase(first, count, 0, 1, 0, 0, 1))
    return out
