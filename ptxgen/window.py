"""Images as the TMA unit walks over them: what a convolution's product is beside its extents."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, replace

BOX = 128  #: bytes of channels that a copy brings at the most


def packed(channels: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Pitches of images without gaps."""
    return tuple(itertools.accumulate(extents, operator.mul, initial=channels))


@dataclass(frozen=True)
class Window:
    """An operand whose rows are pixels, and whose columns are taps of a filter times channels.

    ``side``: a or b, which operand of the product it is; ``layout``: of the product, as Gemm's; ``channels``: of a
    pixel, side by side in memory; ``count``: images; ``extents``: pixels of each, the innermost axis first, as
    everywhere here; ``pitches``: elements from pixel to pixel along each axis, and from image to image; ``places``:
    where the filter is put along each axis, ``lower`` the first of them, ``steps`` from one to the next; ``taps``: of
    the filter, ``dilation`` pixels apart; ``flipped``: the filter's last tap meets the first pixel.
    """

    side: str
    layout: str
    channels: int
    count: int
    extents: tuple[int, ...]
    pitches: tuple[int, ...]
    places: tuple[int, ...]
    lower: tuple[int, ...]
    steps: tuple[int, ...]
    taps: tuple[int, ...]
    dilation: tuple[int, ...]
    flipped: bool = False

    def like(self, channels: int, taps: int) -> Window:
        """A stand-in: as many channels and taps, and nothing else to mind."""
        ones = (1,) * len(self.extents)
        none = (0,) * len(self.extents)
        return replace(self, channels=channels, count=1, extents=ones, pitches=(*none, 0), places=ones, lower=none,
                       steps=ones, taps=(taps, *ones[1:]), dilation=none)  # fmt: skip

    def widened(self, size: int) -> Window:
        """The same with a row of taps as one, its channels side by side, where no place has pixels outside the image
        and boxes are better filled; ``size``: bytes of an element."""
        taps, channels = self.taps[0], self.channels
        inside = self.lower[0] == 0 and self.upper[0] + self.reach[0] <= 0 and self.dilation[0] == 1
        if self.flipped or not inside or -(-taps * channels * size // BOX) >= taps * -(-channels * size // BOX):
            return self
        pitches = (self.pitches[0] * self.steps[0], *self.pitches[1:])
        return replace(self, channels=taps * channels, extents=(self.places[0], *self.extents[1:]), pitches=pitches,
                       steps=(1, *self.steps[1:]), taps=(1, *self.taps[1:]))  # fmt: skip

    @property
    def rank(self) -> int:
        """Of the tensor: channels, axes, images."""
        return len(self.extents) + 2

    @property
    def tapped(self) -> int:
        """Taps of the filter."""
        return math.prod(self.taps)

    @property
    def pixels(self) -> int:
        """Rows: places in all images."""
        return self.count * math.prod(self.places)

    @property
    def upper(self) -> tuple[int, ...]:
        """The last place along each axis, counted from the image's last pixel."""
        along = zip(self.extents, self.places, self.lower, self.steps, strict=True)
        return tuple(low + (n - 1) * step - (extent - 1) for extent, n, low, step in along)

    @property
    def reach(self) -> tuple[int, ...]:
        """Pixels from the filter's first tap to its last."""
        return tuple((n - 1) * d for n, d in zip(self.taps, self.dilation, strict=True))
