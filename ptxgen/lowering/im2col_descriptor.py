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


#: of numbers that lie in memory: (extent, step in elements) of each digit, the last runs fastest
Digits = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PackedCopy:
    """A copy of an operand in rows of channels, each ``pitch`` elements from the next.

    ``depth``: channels, ``step`` elements from one to the next in the operand; ``extents``: of the three digits of a
    place, ``steps``: elements that each moves by in the operand, ``rows``: rows in the copy, where the last is the one
    whose places lie closest in the operand; ``vec``: elements of the widest load along it.
    """

    depth: int
    step: int
    extents: tuple[int, int, int]
    steps: tuple[int, int, int]
    rows: tuple[int, int, int]
    pitch: int
    vec: int = 1

    @property
    def places(self) -> int:
        return math.prod(self.extents)

    @property
    def size(self) -> int:
        """Elements of the copy."""
        return self.places * self.pitch

    @property
    def straight(self) -> bool:
        """Whether channels lie side by side before."""
        return self.step == 1

    def like(self) -> PackedCopy:
        """A stand-in: accesses as wide, and nothing else to mind."""
        ones = (1, 1, 1)
        return PackedCopy(1, min(self.step, 2), ones, ones, ones, 1, self.vec)


@dataclass(frozen=True)
class Im2colDescriptor:
    """An operand whose rows are pixels, and whose columns are taps of a filter times channels.

    ``side``: a or b, which operand of the product it is; ``layout``: of the product, as Gemm's; ``channels``: of a
    pixel, side by side in memory; ``count``: images; ``extents``: pixels of each, the innermost axis first, as
    everywhere here; ``pitches``: elements from pixel to pixel along each axis, and from image to image; ``places``:
    where the filter is put along each axis, ``lower`` the first of them, ``steps`` from one to the next; ``taps``: of
    the filter, ``dilation`` pixels apart; ``flipped``: the filter's last tap meets the first pixel.

    ``row``: elements from one row of the other operand to the next, of as many taps as it has side by side; ``copies``:
    of the images and of the other operand, where these lie otherwise; ``result``: how rows and columns of C lie, where
    it is no matrix.
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
    row: int = 0
    copies: tuple[PackedCopy | None, PackedCopy | None] = (None, None)
    result: tuple[Digits, Digits] | None = None

    @property
    def summed(self) -> bool:
        """Whether K runs over pixels."""
        return self.layout[0] == "T" if self.side == "a" else self.layout[1] == "N"

    @property
    def kmajor(self) -> bool:
        """Whether K is contiguous in the other operand."""
        return self.layout[1] == "T" if self.side == "a" else self.layout[0] == "N"

    @property
    def beside(self) -> bool:
        """Whether columns of C lie side by side."""
        return self.result is None or self.result[1][-1][1] == 1

    def copy(self, name: str) -> PackedCopy | None:
        """The copy of operand ``name``, a or b."""
        return self.copies[name != self.side]

    def like(self, channels: int, taps: int) -> Im2colDescriptor:
        """A stand-in: as many channels and taps, and nothing else to mind."""
        ones = (1,) * len(self.extents)
        none = (0,) * len(self.extents)
        images, other = (copy and copy.like() for copy in self.copies)
        rows, columns = (tuple((1, min(step, 2)) for _, step in digits) for digits in self.result or ((), ()))
        return replace(
            self,
            channels=channels,
            count=1,
            extents=ones,
            pitches=(*none, 0),
            places=ones,
            lower=none,
            steps=ones,
            taps=(taps, *ones[1:]),
            dilation=none,
            row=0,
            copies=(images, other),
            result=self.result and (rows, columns),
        )

    def widened(self, size: int) -> Im2colDescriptor:
        """The same with a row of taps as one, its channels side by side, where no place has pixels outside the image
        and boxes are better filled; ``size``: bytes of an element."""
        taps, channels = self.taps[0], self.channels
        inside = self.lower[0] == 0 and self.upper[0] + self.reach[0] <= 0 and self.dilation[0] == 1
        inside = inside and self.pitches[0] == channels and (self.summed or (self.kmajor and self.row == channels))
        if self.flipped or not inside or -(-taps * channels * size // BOX) >= taps * -(-channels * size // BOX):
            return self
        pitches = (self.pitches[0] * self.steps[0], *self.pitches[1:])
        return replace(
            self,
            channels=taps * channels,
            extents=(self.places[0], *self.extents[1:]),
            pitches=pitches,
            steps=(1, *self.steps[1:]),
            taps=(1, *self.taps[1:]),
            row=self.row if self.summed else taps * self.row,
        )

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
