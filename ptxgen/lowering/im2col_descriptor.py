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
MOST_STRIDE = 8  #: the largest stride from position to position of an im2col map
#: the division of tiles into boxes of channels by tiled tensor maps depends on the channels modulo this number
BOX_CHANNELS = 3 * 256


def packed(channels: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The pitches of contiguous images, in elements: from pixel to pixel along each axis, and from image to image."""
    return tuple(itertools.accumulate(extents, operator.mul, initial=channels))


#: an index as mixed-radix digits: (extent, stride in elements) of each digit, the fastest digit last
Digits = tuple[tuple[int, int], ...]


def offset(digits: Digits, index: int) -> int:
    """The offset of ``index`` in elements; 0 if it is past the last index."""
    out = 0
    for extent, step in reversed(digits):
        index, digit = divmod(index, extent)
        out += digit * step
    return out


@dataclass(frozen=True)
class Im2colPhase:
    """One phase of a strided input gradient: the pixels of an image that have one remainder by the stride. Axes are
    listed innermost first.

    ``counts``: pixels of the phase along each axis; ``start``: offset of the first pixel in the result, in elements;
    ``taps``: filter taps along each axis that contribute to the phase, 0: none; ``shift``: from the descriptor's first
    position to the phase's first position, in pixels of the operand; ``filter_tap``: the number of the filter tap that
    multiplies the first pixel of a window.
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
    """How C, a strided input gradient, is stored as images of phases. Axes are listed innermost first.

    ``channels``: channels of C, which are contiguous in each pixel; ``extents``: pixels of C along each axis;
    ``strides``: strides of the convolution. The phase of remainders (a, b) by the strides has number ``phase_of[b ·
    strides[0] + a]``; -1: no pixel has these remainders.
    """

    channels: int
    extents: tuple[int, int]
    strides: tuple[int, int]
    phase_of: tuple[int, ...]


@dataclass(frozen=True)
class Im2colDescriptor:
    """An operand that TMA loads through an im2col tensor map. Its rows are pixels; its columns are taps times channels.
    Axes are listed innermost first.

    - ``side``: the operand, a or b; ``layout``: the layout of the GEMM.
    - ``channels``: channels of a pixel, contiguous in memory; ``count``: images; ``extents``: pixels of an image along
      each axis.
    - ``pitches``: elements from pixel to pixel along each axis, and from image to image.
    - ``positions``: positions of the filter along each axis; ``lower``: the first position; ``steps``: the stride from
      position to position.
    - ``taps``: taps of the filter along each axis; ``dilation``: pixels from tap to tap; ``flipped``: True if taps are
      in reverse order (input gradients).
    - ``row``: the leading dimension of the other operand, for one tap.
    - ``copies``: the packed copies of the images and of the other operand. None: the operand is not packed.
    - ``result``: the digits of the rows and columns of C. None: C is a matrix with a leading dimension.

    Strided input gradients. ``phases``: the phases, the one with most taps first; empty for other problems. All phases
    have the positions of the largest one, so that they have the same rows of C; ``taps`` are those of the whole filter.
    A phase uses every ``tap_steps``-th tap along each axis; two adjacent ones are ``dilation`` pixels of the operand
    apart. ``images``: set if a kernel can interleave images of phases to C. ``by_phase``: True if C is stored as images
    of phases, one for each phase that has taps: [phase][image][channel][position]. ``merged_phases``: the number of
    phases that are columns of C, for each channel.

    ``row_taps``: if above 1, a tap of the GEMM is this many taps of a filter row, which read the pixels of adjacent
    positions; the last ``row_taps`` - 1 positions of a row of pixels are their halo and have no row in C. These taps
    are a stride apart: a filter row of ``row_length`` taps is divided into parts, one for each remainder by the stride.
    ``exact``: True if no pixel may be multiplied by zero in place of a tap that a part lacks.

    ``unpacked``: the descriptor of the same product without a packed copy of the images, if tiled tensor maps can load
    them in place. ``tiled``: True for such a descriptor. Its first axis is contiguous, and ``pitches`` end with the
    pitch from channel to channel. In a tiled weight gradient, both operands have contiguous rows of equally many
    pixels, so K is contiguous; a stage has pixels of one row, and ``row`` is the pitch of the result gradients. In
    other tiled products, the rows of a box are adjacent along the first axis.

    ``by_image``: True for a weight gradient whose result gradients are contiguous along the pixels of an image, with
    pitch ``row`` from filter to filter: K is contiguous, and a stage has pixels of one image.

    ``groups``: True if items of the batch are groups of channels and filters, ``count`` of them; images are then the
    last axis. ``blocks``: for a weight gradient whose items are several groups each: filters of a group, channels of a
    group, groups of an item. Only blocks on the diagonal of C, whose filters and channels belong to one group, are
    stored.
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
    row_length: int = 1
    exact: bool = False
    unpacked: Im2colDescriptor | None = None
    tiled: bool = False
    by_image: bool = False
    groups: bool = False
    blocks: tuple[int, int, int] | None = None

    @property
    def wgrad(self) -> bool:
        """True if K is the index of a pixel, as in weight gradients."""
        kmajor = self.layout[0] == "N" if self.side == "a" else self.layout[1] == "T"
        return kmajor == self.tiled

    @property
    def tiled_form(self) -> Im2colDescriptor | None:
        """The descriptor of the same product whose images tiled tensor maps load in place. None: there is none."""
        return self if self.tiled else self.unpacked

    @property
    def kmajor(self) -> bool:
        """True if the other operand is K-major."""
        return self.layout[1] == "T" if self.side == "a" else self.layout[0] == "N"

    @property
    def contiguous_columns(self) -> bool:
        """True if all columns of C are stored and adjacent columns are adjacent in memory."""
        halo = self.row_taps > 1 and self.side == "b"
        return not halo and (self.result is None or self.result[1][-1][1] == 1)

    @property
    def computed_phases(self) -> tuple[Im2colPhase, ...]:
        """The phases that have taps; if none has taps, the first phase."""
        return tuple(phase for phase in self.phases if phase.tap_count) or self.phases[:1]

    @property
    def image_elements(self) -> int:
        """The number of elements of the image of one phase."""
        assert self.images is not None
        return self.count * self.images.channels * math.prod(self.positions)

    def stored_by_phase(self) -> Im2colDescriptor:
        """The descriptor of the product that stores C as images of phases."""
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
        """True if taps of a filter row read the pixels of adjacent positions, so that they can share one copy."""
        plain = not (self.wgrad or self.phases) and self.merged_phases == 1 and self.dilation[0] == 1
        return plain and self.taps_of_row > 1 and not (self.exact and self.taps[0] % self.steps[0])

    @property
    def taps_of_row(self) -> int:
        """The number of taps in a part of a filter row. These taps are a stride apart, so that they read the pixels of
        adjacent positions."""
        return -(-self.taps[0] // self.steps[0])

    @property
    def row_parts(self) -> int:
        """The number of parts of a filter row; the taps of a part are a stride apart."""
        return min(self.steps[0], self.taps[0])

    @property
    def halo_positions(self) -> tuple[int, ...]:
        """The positions along each axis, including the halo of a filter row."""
        return (self.positions[0] + self.taps_of_row - 1, *self.positions[1:])

    @property
    def halo_pixels(self) -> int:
        """The number of positions in all images, including the halo of a filter row."""
        return (1 if self.groups else self.count) * math.prod(self.halo_positions)

    def with_row_taps(self, ldc: int) -> Im2colDescriptor:
        """The descriptor of the product in which a tap is a part of a filter row. Its only phase has the positions
        without the halo. ``ldc``: the leading dimension of C, if C is a matrix."""
        assert self.shares_row_taps
        number = int(self.side == "b")
        rows, columns = self.result or (((1, ldc),), ((1, 1),))
        digits, other = (columns, rows) if number else (rows, columns)
        if self.result is None:
            digits = ((self.pixels, digits[0][1]),)
        filter_rows = (self.row_parts, *self.taps[1:])
        # filter taps from tap to tap; with a stride, filter rows
        strided = self.steps[0] > 1
        spans = itertools.accumulate(self.taps[1:-1], operator.mul, initial=1 if strided else self.taps[0])
        pixel_steps = [offset(digits, n) for n in itertools.accumulate(self.positions, operator.mul, initial=1)]
        *along, image = pixel_steps
        images: Digits = ((1, 0),) if self.groups else ((self.count, image),)
        pixels: Digits = (*images, *zip(reversed(self.halo_positions), reversed(along), strict=True))
        first = self.tap_count - self.taps[0] if self.flipped else 0
        origin = (0,) * len(self.taps)
        return replace(
            self,
            positions=self.halo_positions,
            taps=filter_rows,
            result=(other, pixels) if number else (pixels, other),
            phases=(Im2colPhase(self.positions, 0, filter_rows, origin, first),),
            tap_steps=tuple(n if self.flipped else -n for n in (int(not strided), *spans)),
            row_taps=self.taps_of_row,
            row_length=self.taps[0],
        )

    def copy(self, name: str) -> PackedCopy | None:
        """The packed copy of operand ``name`` (a, b). None: it is not packed."""
        return self.copies[name != self.side]

    def representative(self, channels: int, taps: int) -> Im2colDescriptor:
        """One descriptor for all descriptors that share cached candidates: those with this number of channels and
        taps."""
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
            steps=(self.steps[0], *ones[1:]) if shared else ones,
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
        """The descriptor with the taps of each filter row merged into one tap of more channels; ``self`` if a position
        reads outside the image or if this does not fill TMA boxes better. ``size``: bytes of an element."""
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
        """The rank of the image tensor: channels, axes, images."""
        return len(self.extents) + 2

    @property
    def tap_count(self) -> int:
        """The number of taps of the filter."""
        return math.prod(self.taps)

    @property
    def pixels(self) -> int:
        """The number of positions of an item, in all its images."""
        return (1 if self.groups else self.count) * math.prod(self.positions)

    @property
    def upper(self) -> tuple[int, ...]:
        """The last position along each axis, relative to the image's last pixel."""
        along = zip(self.extents, self.positions, self.lower, self.steps, strict=True)
        return tuple(low + (n - 1) * step - (extent - 1) for extent, n, low, step in along)

    @property
    def reach(self) -> tuple[int, ...]:
        """Pixels from the filter's first tap to its last along each axis; with phases: from the first position to the
        last tap."""
        if self.phases:
            return tuple(
                max(x.shift[a] + max(x.taps[a] - 1, 0) * step for x in self.phases)
                for a, step in enumerate(self.dilation)
            )
        return tuple((n - 1) * d for n, d in zip(self.taps, self.dilation, strict=True))


@dataclass(frozen=True)
class Im2col(MatrixAccess):
    """The access to A, B or C of a convolution whose images TMA loads by im2col. ``mode``: how auxiliary kernels
    address the operand."""

    descriptor: Im2colDescriptor = field(kw_only=True)

    capability: ClassVar[str] = "im2col"


def im2col(p: KernelProblem) -> Any:
    """The ``Im2colDescriptor`` of a problem; None: its operands have other accesses."""
    access = p.operands[0].access
    return access.descriptor if isinstance(access, Im2col) else None


def tma_n(p: KernelProblem) -> Any:
    """N of kernels that load by TMA. If the phases of a strided input gradient are merged, they are columns of C."""
    x = im2col(p)
    return p.n * (x.merged_phases if x is not None else 1)


def with_descriptor(p: KernelProblem, descriptor: Im2colDescriptor) -> KernelProblem:
    """The problem with another im2col descriptor in place of its own."""
    for x in "ABC":
        p = p.with_access(x, descriptor=descriptor)
    return p


def im2col_form(p: KernelProblem, descriptor: Im2colDescriptor) -> KernelProblem:
    """The form of ``p`` whose images TMA loads by im2col."""
    return p.with_accesses(lambda x: Im2col(*x.numbers, descriptor=descriptor))
