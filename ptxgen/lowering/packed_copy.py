"""The packed copy of an operand: which element of the copy holds which element of the operand.

A copy consists of rows of equal length, one after the other. The index of an element of the copy has mixed-radix
digits: those of the row number (``digits``, the fastest last), the place in the row and, if a place has several
elements, the element in the place. Each digit moves along one axis of the operand. The position on an axis is ``first``
plus the sum of digit times step over the digits that move along it. The copy holds the operand's element at these
positions; positions along an axis are ``stride`` elements apart. An element with a position outside its axis is
padding.

    ==========================  ==========================================  =======================================
    copy                        digits of a row number                      digits of a row
    ==========================  ==========================================  =======================================
    rows of a matrix            row, maybe more than there are              column, padded to whole 128 bytes
    transposed matrix           column                                      row, padded to whole 128 bytes
    rows of channels            image and pixel, or filter and tap          channel, padded to whole 16 bytes
    padded pixels               image and row, or filter and row of taps    pixel, padded on both sides; channel
    filters of merged phases    phase along each axis, channel of C, tap    channel; the position of a tap is
                                along each axis                             first + phase - stride · tap
    filters of several groups   item, group, filter and tap                 channel of the item; its position is that
                                                                            minus the channels of groups before
    ==========================  ==========================================  =======================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

ROW = 128  #: alignment of packed rows and buffers in bytes


@dataclass(frozen=True)
class Axis:
    """An axis of an operand. ``stride``: elements from one position to the next; ``extent``: the number of positions,
    None if no digit leaves the axis; ``first``: the position if all digits are zero, None if it is 0 for every
    problem."""

    stride: int
    extent: int | None = None
    first: int | None = None


@dataclass(frozen=True)
class Digit:
    """A digit with ``extent`` values. Each increment moves ``step`` positions along axis number ``axis``, and ``along``
    positions along the row."""

    extent: int
    axis: int
    step: int = 1
    along: int = 0


@dataclass(frozen=True)
class PackedCopy:
    """A packed copy. ``digits``: the digits of a row number, which move along ``axes``; a row has ``width`` places
    along the axis ``along``, and a place has ``padded`` elements along the axis ``within``.

    ``zeros``: True if padding is zeros, else padding is undefined; ``vec``: elements of the widest load of adjacent
    rows, for copies whose row elements are not adjacent in the operand.
    """

    digits: tuple[Digit, ...]
    axes: tuple[Axis, ...]
    along: Axis
    width: int
    within: Axis = Axis(1, 1)
    padded: int = 1
    zeros: bool = False
    vec: int = 1

    @property
    def row_count(self) -> int:
        return math.prod(d.extent for d in self.digits)

    @property
    def pitch(self) -> int:
        """The number of elements of a row of the copy."""
        return self.width * self.padded

    @property
    def size(self) -> int:
        """The number of elements of the copy."""
        return self.row_count * self.pitch

    @property
    def depth(self) -> int:
        """The number of operand positions along a row."""
        assert self.along.extent is not None
        return self.along.extent

    @property
    def contiguous(self) -> bool:
        """True if the elements of a row are adjacent in the operand."""
        return self.along.stride == 1 and self.padded == 1

    @property
    def span(self) -> int:
        """The number of elements of the operand from the first to the last copied element, if rows are contiguous."""
        return sum((d.extent - 1) * self.axes[d.axis].stride for d in self.digits) + self.depth

    @property
    def in_operand_order(self) -> tuple[PackedCopy, list[int]]:
        """The copy with its digits in the order of the operand, and the stride of each digit in rows of the copy.
        Digits of extent 1 come first."""
        strides = [math.prod(d.extent for d in self.digits[n + 1 :]) for n in range(len(self.digits))]
        pairs = list(zip(self.digits, strides, strict=True))
        pairs.sort(key=lambda x: (x[0].extent > 1, -self.axes[x[0].axis].stride))
        return replace(self, digits=tuple(d for d, _ in pairs)), [stride for _, stride in pairs]

    def representative(self) -> PackedCopy:
        """One description for all copies that kernels make by the same accesses, for caches of candidates."""
        axes = tuple(replace(x, stride=1, extent=x.extent and 1, first=x.first and 0) for x in self.axes)
        along = replace(self.along, stride=min(self.along.stride, 2), extent=1, first=self.along.first and 0)
        digits, within = (
            tuple(Digit(1, d.axis, along=d.along and -1) for d in self.digits),
            replace(self.within, stride=1),
        )
        return replace(self, digits=digits, axes=axes, along=along, width=1, within=within)


def matrix_rows(rows: int, columns: int, ld: int, pitch: int, filled: int | None = None) -> PackedCopy:
    """The copy of a matrix with leading dimension ``ld`` to rows of ``pitch`` elements. ``filled``: the number of rows
    of a copy whose padding, rows below the last one included, is zeros."""
    if filled is None:
        return PackedCopy((Digit(rows, 0),), (Axis(ld),), Axis(1, columns), pitch)
    return PackedCopy((Digit(filled, 0),), (Axis(ld, rows),), Axis(1, columns), pitch, zeros=True)
