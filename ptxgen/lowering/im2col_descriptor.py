"""The im2col descriptor: the facts of a convolution from which kernels build TMA tensor maps."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, replace

BOX = 128  #: the most bytes of channels that one TMA load copies


def packed(channels: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Pitches of packed images."""
    return tuple(itertools.accumulate(extents, operator.mul, initial=channels))


#: an index as mixed-radix digits: (extent, stride in elements) of each, the fastest last
Digits = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PackedCopy:
    """A packed copy of an operand, in rows of channels with a pitch of ``pitch`` elements.

    ``depth``: channels, ``step`` elements apart in the operand. A row's number has three digits: their ``extents``,
    their strides in the operand in elements (``steps``) and in the copy in rows (``rows``); the last digit has the
    smallest stride in the operand. ``vec``: elements of the widest load along it.
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
        """Whether channels are contiguous in the operand."""
        return self.step == 1

    def like(self) -> PackedCopy:
        """The representative of copies with the same accesses."""
        ones = (1, 1, 1)
        return PackedCopy(1, min(self.step, 2), ones, ones, ones, 1, self.vec)


@dataclass(frozen=True)
class Im2colDescriptor:
    """An operand that TMA loads as im2col: its rows are pixels, its columns are taps of a filter times channels.

    Axes are listed innermost first. ``side``: the operand, a or b; ``layout``: of the GEMM; ``channels``: of a pixel,
    contiguous in memory; ``count``: images; ``extents``: pixels of an image along each axis; ``pitches``: elements from
    pixel to pixel along each axis, and from image to image; ``places``: positions of the filter along each axis,
    ``lower``: the first of them, ``steps``: their stride; ``taps``: of the filter, ``dilation`` pixels apart;
    ``flipped``: the last tap of the filter reads the first pixel.

    ``row``: the leading dimension of the other operand, for one tap; ``copies``: the packed copies of the images and of
    the other operand, if their layout needs one; ``result``: the digits of rows and columns of C, if C is not a matrix
    with a leading dimension.
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
        """Whether K is the pixel index (weight gradients)."""
        return self.layout[0] == "T" if self.side == "a" else self.layout[1] == "N"

    @property
    def kmajor(self) -> bool:
        """Whether K is contiguous in the other operand."""
        return self.layout[1] == "T" if self.side == "a" else self.layout[0] == "N"

    @property
    def beside(self) -> bool:
        """Whether columns of C are contiguous."""
        return self.result is None or self.result[1][-1][1] == 1

    def copy(self, name: str) -> PackedCopy | None:
        """The copy of operand ``name``, a or b."""
        return self.copies[name != self.side]

    def like(self, channels: int, taps: int) -> Im2colDescriptor:
        """The representative of descriptors with this many channels and taps."""
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
        """The descriptor with the taps of a row merged into one tap of more channels, if no position reads outside the
        image and TMA boxes are filled better. ``size``: bytes of an element."""
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
        """The rank of the tensor: channels, axes, images."""
        return len(self.extents) + 2

    @property
    def tapped(self) -> int:
        """The number of taps of the filter."""
        return math.prod(self.taps)

    @property
    def pixels(self) -> int:
        """Rows: positions of the filter in all images."""
        return self.count * math.prod(self.places)

    @property
    def upper(self) -> tuple[int, ...]:
        """The last position along each axis, relative to the image's last pixel."""
        along = zip(self.extents, self.places, self.lower, self.steps, strict=True)
        return tuple(low + (n - 1) * step - (extent - 1) for extent, n, low, step in along)

    @property
    def reach(self) -> tuple[int, ...]:
        """Pixels from the filter's first tap to its last."""
        return tuple((n - 1) * d for n, d in zip(self.taps, self.dilation, strict=True))
