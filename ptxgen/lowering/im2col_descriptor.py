"""The im2col descriptor: extents, strides and positions from which plans build TMA tensor maps."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess
from ptxgen.lowering.packed_copy import PackedCopy

BOX = 128  #: upper limit of the bytes of channels in a TMA box
BOX_CHANNELS = 3 * 256  #: channels modulo this decide how tiles are divided into tiled boxes of channels


def packed(channels: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The pitches of packed images, in elements."""
    return tuple(itertools.accumulate(extents, operator.mul, initial=channels))


#: an index as mixed-radix digits: (extent, stride in elements) of each, the fastest last
Digits = tuple[tuple[int, int], ...]


def offset(digits: Digits, index: int) -> int:
    """The offset of an index in elements; 0 past the last one."""
    out = 0
    for extent, step in reversed(digits):
        index, digit = divmod(index, extent)
        out += digit * step
    return out


@dataclass(frozen=True)
class Im2colPhase:
    """One phase of a strided input gradient: the pixels of an image with one remainder by the stride. Axes are listed
    innermost first.

    ``counts``: pixels of an image along each axis; ``start``: the first of them in the result, in elements; ``taps``:
    along each axis, those that contribute to them, none if 0; ``shift``: from the descriptor's first position to that
    of the phase, in pixels of the operand; ``filter_tap``: the number of the filter tap that multiplies the first pixel
    of a window.
    """

    counts: tuple[int, ...]
    start: int
    taps: tuple[int, ...]
    shift: tuple[int, ...]
    filter_tap: int

    @property
    def tap_count(self) -> int:
        return math.prod(self.taps)


@dataclass(frozen=True)
class PhaseImages:
    """How the pixels of C, a strided input gradient, are in images of their phases. Axes are listed innermost first.

    ``channels``: of C, whose pixels are contiguous in each; ``extents``: its pixels along each axis; ``strides``: those
    of the convolution. The phase of remainders (a, b) by the strides has number ``phase_of[b · strides[0] + a]``; -1:
    no pixel has these remainders.
    """

    channels: int
    extents: tuple[int, int]
    strides: tuple[int, int]
    phase_of: tuple[int, ...]


@dataclass(frozen=True)
class Im2colDescriptor:
    """An operand that TMA loads through an im2col tensor map. Rows are pixels; columns are taps times channels.

    Axes are listed innermost first. ``side``: the operand, a or b; ``layout``: of the GEMM; ``channels``: of a pixel,
    contiguous in memory; ``count``: images; ``extents``: pixels of an image along each axis; ``pitches``: elements from
    pixel to pixel along each axis, and from image to image; ``positions``: positions of the filter along each axis,
    ``lower``: the first of them, ``steps``: their stride; ``taps``: of the filter, ``dilation`` pixels apart;
    ``flipped``: taps are in reverse order (input gradients).

    ``row``: the leading dimension of the other operand, for one tap; ``copies``: the packed copies of the images and of
    the other operand, if their layout needs one; ``result``: the digits of rows and columns of C, if C is not a matrix
    with a leading dimension.

    ``phases``: those of a strided input gradient, the one with most taps first; none otherwise. All have the positions
    of the largest one, so that the rows of C are the same in every phase; ``taps`` are those of the filter. A phase
    has every ``tap_steps``-th tap along each axis; two neighbours are ``dilation`` pixels of the operand apart.
    ``images``: set if a kernel can interleave images of the phases to C; ``by_phase``: C is these images, one of each
    phase that has taps, one after the other: [phase][image][channel][position].

    ``merged_phases``: the number of phases that are columns of C, for each channel.

    ``row_taps``: if above 1, a tap is a row of so many filter taps, which read the pixels of adjacent positions; the
    last ``row_taps`` - 1 positions of a row of pixels are its halo, and have no row in C.

    ``unpacked``: the descriptor of the same product without a packed copy of the images, if tiled tensor maps can load
    them from where they are. ``tiled``: this is such a descriptor; its first axis is contiguous, and ``pitches`` end
    with that from channel to channel. For weight gradients, both operands have contiguous rows of as many pixels, so
    that K is contiguous; stages count the pixels of each row, and ``row`` is that of the gradients of results.
    Otherwise the rows of a box are adjacent along the first axis.

    ``by_image``: a weight gradient whose gradients of results are contiguous along the pixels of an image, with a pitch
    of ``row`` from filter to filter: K is contiguous, and stages count the pixels of each image.

    ``groups``: items of the batch are groups of channels and filters, ``count`` of them. Images are the last axis.
    ``blocks``: for a weight gradient of items that are several groups each, the filters of a
    group, its channels, and the groups of an item. Only the blocks of C on the diagonal, whose filters and channels are
    of one group, are stored.
    """

    side: str
    layout: str
    channels: int
    count: int
    extents: tuple[int, ...]
    pitches: tuple[int, ...]
    positions: tuple[int, ...]
    lower: tuple[int, ...]
    steps: tuple[int, ...]
    taps: tuple[int, ...]
    dilation: tuple[int, ...]
    flipped: bool = False
    row: int = 0
    copies: tuple[PackedCopy | None, PackedCopy | None] = (None, None)
    result: tuple[Digits, Digits] | None = None
    phases: tuple[Im2colPhase, ...] = ()
    tap_steps: tuple[int, ...] = ()
    images: PhaseImages | None = None
    by_phase: bool = False
    merged_phases: int = 1
    row_taps: int = 1
    unpacked: Im2colDescriptor | None = None
    tiled: bool = False
    by_image: bool = False
    groups: bool = False
    blocks: tuple[int, int, int] | None = None

    @property
    def wgrad(self) -> bool:
        """True if K is the pixel index (weight gradients)."""
        kmajor = self.layout[0] == "N" if self.side == "a" else self.layout[1] == "T"
        return kmajor == self.tiled

    @property
    def tiled_form(self) -> Im2colDescriptor | None:
        """The descriptor of the product whose images tiled maps load from where they are."""
        return self if self.tiled else self.unpacked

    @property
    def kmajor(self) -> bool:
        """True if K is contiguous in the other operand."""
        return self.layout[1] == "T" if self.side == "a" else self.layout[0] == "N"

    @property
    def contiguous_columns(self) -> bool:
        """True if adjacent columns of C are adjacent in memory, and both are stored."""
        halo = self.row_taps > 1 and self.side == "b"
        return not halo and (self.result is None or self.result[1][-1][1] == 1)

    @property
    def computed_phases(self) -> tuple[Im2colPhase, ...]:
        """The phases that have taps, or one phase without taps if there are no others."""
        return tuple(phase for phase in self.phases if phase.tap_count) or self.phases[:1]

    @property
    def image_elements(self) -> int:
        """Elements of the image of a phase."""
        assert self.images is not None
        return self.count * self.images.channels * math.prod(self.positions)

    def stored_by_phase(self) -> Im2colDescriptor:
        """The descriptor of a product that stores images of the phases."""
        assert self.images is not None
        pixels, channels = math.prod(self.positions), self.images.channels
        of_channels: Digits = ((channels, pixels),)
        of_pixels: Digits = ((self.count, channels * pixels), (pixels, 1))
        phases = [replace(phase, start=n * self.image_elements) for n, phase in enumerate(self.computed_phases)]
        return replace(
            self,
            result=(of_channels, of_pixels) if self.side == "b" else (of_pixels, of_channels),
            phases=tuple(phases),
            by_phase=True,
        )

    @property
    def shares_row_taps(self) -> bool:
        """True if the taps of a filter row read the pixels of adjacent positions."""
        plain = not (self.wgrad or self.phases or self.groups) and self.merged_phases == 1
        return plain and self.taps[0] > 1 and self.steps[0] == 1 and self.dilation[0] == 1

    @property
    def halo_positions(self) -> tuple[int, ...]:
        """The positions along each axis, with the halo of a filter row."""
        return (self.positions[0] + self.taps[0] - 1, *self.positions[1:])

    @property
    def halo_pixels(self) -> int:
        """The number of rows with the halo of a filter row."""
        return self.count * math.prod(self.halo_positions)

    def with_row_taps(self, ldc: int) -> Im2colDescriptor:
        """The descriptor of a product whose taps are rows of filter taps: one phase, of the pixels without the halo.
        ``ldc``: the leading dimension of C, if C is a matrix."""
        assert self.shares_row_taps
        number = int(self.side == "b")
        rows, columns = self.result or (((1, ldc),), ((1, 1),))
        digits, other = (columns, rows) if number else (rows, columns)
        if self.result is None:
            digits = ((self.pixels, digits[0][1]),)
        filter_rows = (1, *self.taps[1:])
        spans = list(itertools.accumulate(self.taps[:-1], operator.mul, initial=1))  # filter taps from tap to tap
        pixel_steps = [offset(digits, n) for n in itertools.accumulate(self.positions, operator.mul, initial=1)]
        *along, image = pixel_steps
        pixels: Digits = ((self.count, image), *zip(reversed(self.halo_positions), reversed(along), strict=True))
        first = self.tap_count - self.taps[0] if self.flipped else 0
        origin = (0,) * len(self.taps)
        return replace(
            self,
            positions=self.halo_positions,
            taps=filter_rows,
            result=(other, pixels) if number else (pixels, other),
            phases=(Im2colPhase(self.positions, 0, filter_rows, origin, first),),
            tap_steps=tuple(n if self.flipped else -n for n in spans),
            row_taps=self.taps[0],
        )

    def copy(self, name: str) -> PackedCopy | None:
        """The packed copy of operand ``name`` (a, b)."""
        return self.copies[name != self.side]

    def representative(self, channels: int, taps: int) -> Im2colDescriptor:
        """One descriptor for all that have this number of channels and taps, for caches of candidates."""
        ones = (1,) * len(self.extents)
        none = (0,) * len(self.extents)
        shared = self.shares_row_taps
        images, other = (copy and copy.representative() for copy in self.copies)
        rows, columns = (tuple((1, min(step, 2)) for _, step in digits) for digits in self.result or ((), ()))
        along = taps if not self.tiled or self.tap_count > 1 else 1  # a box of one tap may have any channels
        unpacked = self.unpacked
        if unpacked is not None:
            of_boxes = math.gcd(unpacked.channels, BOX_CHANNELS) if self.wgrad else channels
            unpacked = unpacked.representative(of_boxes, taps)
        along_row = math.gcd(self.positions[0], BOX_CHANNELS) if self.tiled and not self.wgrad else 1
        return replace(
            self,
            channels=channels,
            count=1,
            extents=ones,
            pitches=(*none, 0),
            positions=(along_row, *ones[1:]),
            lower=none,
            steps=ones,
            taps=(self.taps[0], taps, *ones[2:]) if shared else (along, *ones[1:]),
            dilation=(int(shared), *none[1:]),
            row=0,
            copies=(images, other),
            result=self.result and (rows, columns),
            phases=self.phases and (Im2colPhase(ones, 0, (taps, *ones[1:]), none, 0),),
            tap_steps=self.tap_steps and ones,
            images=self.images and PhaseImages(1, (1, 1), (1, 1), (0,)),
            unpacked=unpacked,
            blocks=self.blocks and (1, 1, 1),
        )

    def merge_row_taps(self, size: int) -> Im2colDescriptor:
        """The descriptor with the taps of a filter row merged into one tap with more channels, if no position reads
        outside the image and this fills TMA boxes better. ``size``: bytes of an element."""
        taps, channels = self.taps[0], self.channels
        inside = self.lower[0] == 0 and self.upper[0] + self.reach[0] <= 0 and self.dilation[0] == 1
        inside = inside and self.pitches[0] == channels and (self.wgrad or (self.kmajor and self.row == channels))
        if self.flipped or not inside or -(-taps * channels * size // BOX) >= taps * -(-channels * size // BOX):
            return self
        pitches = (self.pitches[0] * self.steps[0], *self.pitches[1:])
        return replace(
            self,
            channels=taps * channels,
            extents=(self.positions[0], *self.extents[1:]),
            pitches=pitches,
            steps=(1, *self.steps[1:]),
            taps=(1, *self.taps[1:]),
            row=self.row if self.wgrad else taps * self.row,
        )

    @property
    def rank(self) -> int:
        """The rank of the tensor: channels, axes, images."""
        return len(self.extents) + 2

    @property
    def tap_count(self) -> int:
        """The number of taps of the filter."""
        return math.prod(self.taps)

    @property
    def pixels(self) -> int:
        """The number of rows of an item: filter positions in all images."""
        return (1 if self.groups else self.count) * math.prod(self.positions)

    @property
    def upper(self) -> tuple[int, ...]:
        """The last position along each axis, relative to the image's last pixel."""
        along = zip(self.extents, self.positions, self.lower, self.steps, strict=True)
        return tuple(low + (n - 1) * step - (extent - 1) for extent, n, low, step in along)

    @property
    def reach(self) -> tuple[int, ...]:
        """Pixels from the filter's first tap to its last; of phases, from the first position to the last tap."""
        if self.phases:
            return tuple(
                max(x.shift[a] + max(x.taps[a] - 1, 0) * step for x in self.phases)
                for a, step in enumerate(self.dilation)
            )
        return tuple((n - 1) * d for n, d in zip(self.taps, self.dilation, strict=True))


@dataclass(frozen=True)
class Im2col(MatrixAccess):
    """An operand of a problem whose images TMA loads as im2col: the images, the other operand, or C. ``mode``: how
    auxiliary kernels address it."""

    descriptor: Im2colDescriptor = field(kw_only=True)

    capability: ClassVar[str] = "im2col"


def im2col(p: KernelProblem) -> Any:
    """The ``Im2colDescriptor`` of a problem; None: its operands have other accesses."""
    access = p.operands[0].access
    return access.descriptor if isinstance(access, Im2col) else None


def tma_n(p: KernelProblem) -> Any:
    """Columns of C of a kernel that loads by TMA: phases of a strided input gradient may be columns."""
    x = im2col(p)
    return p.n * (x.merged_phases if x is not None else 1)


def with_descriptor(p: KernelProblem, descriptor: Im2colDescriptor) -> KernelProblem:
    """The problem with another im2col descriptor."""
    for x in "ABC":
        p = p.with_access(x, descriptor=descriptor)
    return p


def im2col_form(p: KernelProblem, descriptor: Im2colDescriptor) -> KernelProblem:
    """``p`` with images that TMA loads as im2col."""
    return p.with_accesses(lambda x: Im2col(*x.numbers, descriptor=descriptor))
