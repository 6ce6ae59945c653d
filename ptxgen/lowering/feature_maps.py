"""Depthwise convolutions of whole feature maps. A feature map is one channel of one image or of one result.

In NCHW, adjacent feature maps are contiguous: a block copies several of them to shared memory as one run of bytes,
whatever the width of an image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

VECTOR = 16  #: bytes of the widest access to global memory
MAX_TAPS = 49  #: upper limit of the taps of a filter; its weights are held in registers


@dataclass(frozen=True)
class FeatureMapAxis:
    """One axis of a feature map.

    ``image``, ``results``: extents of the operand and of the result; ``taps``, ``dilation``: those of the filter;
    ``padding``: pixels of padding before the first pixel. In a forward convolution, tap r of result i reads pixel i ·
    ``stride`` + r · ``dilation`` - ``padding``, and ``ratio`` is 1. In an input gradient, it reads pixel (i +
    ``padding`` - r · ``dilation``) / ``ratio`` if the division is exact, and ``stride`` is 1.
    """

    image: int
    results: int
    taps: int
    stride: int
    dilation: int
    ratio: int
    padding: int
    gradient: bool

    @property
    def shift(self) -> int:
        """``padding`` modulo ``ratio`` for an input gradient, else 0."""
        return self.padding % self.ratio if self.gradient else 0

    @property
    def start(self) -> int:
        """The pixel from which ``offset`` counts."""
        return self.padding // self.ratio if self.gradient else -self.padding

    def tap_step(self, tap: int) -> int:
        """The distance from tap 0 to ``tap``, in pixels before the division by ``ratio``."""
        return -tap * self.dilation if self.gradient else tap * self.dilation

    def offset(self, result: int, tap: int) -> int | None:
        """The pixel that ``tap`` of ``result`` reads, counted from ``start``. None: there is none."""
        pixel, remainder = divmod(result * self.stride + self.shift + self.tap_step(tap), self.ratio)
        return None if remainder else pixel

    @property
    def constants(self) -> tuple[int, ...]:
        """The numbers that are constants in generated code."""
        return self.taps, self.stride, self.dilation, self.ratio, int(self.gradient)


@dataclass(frozen=True)
class FeatureMaps:
    """The feature maps of a convolution. ``count``: the number of maps; ``channels``: the number of filters, which
    successive maps use in turn; ``rows``, ``columns``: the axes of a map; ``element_bytes``, ``result_bytes``: bytes of
    an element of the operand and of the result. A weight gradient has the feature maps of its forward convolution; the
    result maps are its other operand."""

    count: int
    channels: int
    rows: FeatureMapAxis
    columns: FeatureMapAxis
    element_bytes: int
    result_bytes: int

    @property
    def constants(self) -> tuple[int, ...]:
        """The numbers that are constants in generated code."""
        return *self.rows.constants, self.rows.shift, *self.columns.constants

    @property
    def images(self) -> int:
        return self.count // self.channels

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def image_bytes(self) -> int:
        """The number of bytes of a feature map of the operand."""
        return self.rows.image * self.columns.image * self.element_bytes

    @property
    def result_map_bytes(self) -> int:
        """The number of bytes of a feature map of the result."""
        return self.rows.results * self.columns.results * self.result_bytes

    def region(self, maps: Any) -> Any:
        """The number of bytes of shared memory for a run of ``maps`` feature maps of the operand. A run keeps the
        offset modulo 16 bytes that it has in global memory."""
        return (maps * self.image_bytes + VECTOR - 1) // VECTOR * VECTOR + VECTOR

    def maps_in(self, size: Any) -> Any:
        """The most feature maps whose operand and results fit in ``size`` bytes of shared memory. If at least two
        groups of maps fit, where a group is the least number of maps with a multiple of 16 bytes, the number is a
        multiple of a group: most runs then begin at a multiple of 16 bytes."""
        pair = self.image_bytes + self.result_map_bytes
        fits = (size - 4 * VECTOR) // max(pair, 1)
        return self._in_groups(fits * (fits > 0))

    def _in_groups(self, maps: Any) -> Any:
        group = VECTOR // math.gcd(VECTOR, self.image_bytes, self.result_map_bytes)
        return maps - maps % group * (maps >= 2 * group)

    def strips(self, results: Any) -> Any:
        """The number of strips of ``results`` results, along columns, in a feature map."""
        return -(-self.rows.results // results) * self.columns.results

    def channels_in(self, size: Any, threads: Any, results: Any) -> Any:
        """The number of feature maps of one image in a block of a weight gradient: as many as fit in ``size`` bytes
        while each of their strips has a thread."""
        most = np.minimum(np.maximum(threads // np.maximum(self.strips(results), 1), 1), self.channels)
        return self._in_groups(np.minimum(self.maps_in(size), most))


__all__ = ["MAX_TAPS", "VECTOR", "FeatureMapAxis", "FeatureMaps"]
