"""Images as the TMA unit walks over them: what a convolution's product is beside its extents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Window:
    """An operand whose rows are pixels, and whose columns are taps of a filter times channels.

    ``side``: a or b, which operand of the product it is; ``layout``: of the product, as Gemm's; ``channels``: of a
    pixel, side by side in memory; ``count``: images, packed; ``extents``: pixels of each, the innermost axis first, as
    everywhere here; ``places``: where the filter is put along each axis, ``lower`` the first of them, ``steps`` from
    one to the next; ``taps``: of the filter, ``dilation`` pixels apart; ``flipped``: the filter's last tap meets the
    first pixel.
    """

    side: str
    layout: str
    channels: int
    count: int
    extents: tuple[int, ...]
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
        return replace(self, channels=channels, count=1, extents=ones, places=ones, lower=none, steps=ones,
                       taps=(taps, *ones[1:]), dilation=none)  # fmt: skip

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
