"""The loads of convolutions whose stages hold pixels that all taps of a filter row read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.families.wgmma.conv.im2col_loads import FilterTaps, Im2colLoads, Im2colPixels
from ptxgen.families.wgmma.conv.phases import PhasedLoads
from ptxgen.families.wgmma.geometry import STEP, stage_depth
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, im2col, with_descriptor
from ptxgen.lowering.kernel_problem import KernelProblem


class RowTapPixels(Im2colPixels):
    """The path of images whose pixels all taps of a filter row read from shared memory: a box has a tile and its halo.
    The rows of tap n begin n pixels later. wgmma swizzles by addresses, so an operand may begin at any row."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(loads, role, name, config, base, multicast)
        self.box = (self.box[0], self.box[1] + loads.im2col.row_taps - 1)
        self.tx_bytes = self.box[0] * self.box[1] * self.element

    def k_step_offset(self, k: int) -> int:
        tap, inner = divmod(k * STEP, self.span)
        return tap * self.span + inner


class RowTapFilters(FilterTaps):
    """The path of the filters of a row of taps, which a stage has in the order of the pixels that they multiply."""

    def __init__(
        self, loads: RowTapLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(loads, role, name, config, base, multicast)
        last, stride = loads.im2col.row_taps - 1, loads.im2col.steps[0]
        self.tap_offsets = {b.offset: last - b.unit if loads.flipped else b.unit * stride for b in self.boxes}
        self.boxes = [Box(b.offset, b.inner) for b in self.boxes]
        #: the coordinate of a filter row, where taps that it lacks are zeros
        self.filter_row = loads.filter_row
        if self.filter_row:
            self.filter_tap = "%tap_pixel0"
            self.tma_rank += 1
            self.box = (*self.box[:1], 1, *self.box[1:])

    def tap_offset(self, b: Box) -> int:
        return self.tap_offsets[b.offset]

    def coordinates(self, b: Box, first: str) -> str:
        inner, tap, *others = super().coordinates(b, first).split(", ")
        return ", ".join([inner, tap, *self.filter_row, *others])


@dataclass(frozen=True)
class RowTapLoads(PhasedLoads):
    """The loads of a convolution whose stages have a row of filter taps. K is rows of taps times channels."""

    template = "addr/row_taps.mako"
    units = 1

    @property
    def filter_row(self) -> tuple[str, ...]:
        """The register with the number of a filter row, if a row has several parts, else empty. The first tap of part
        %tap_pixel0 has the number %tap_pixel0 in the row."""
        return ("%filter_tap",) if self.im2col.steps[0] > 1 else ()

    @property
    def stepped_axes(self) -> range:
        """The axes along which a stage has another tap than the stage before."""
        return self.axes if self.filter_row else self.axes[1:]

    def filter_taps(self, descriptor: Im2colDescriptor) -> tuple[int, ...]:
        rows = descriptor.tap_count // descriptor.taps[0]
        return (descriptor.row_length, rows) if self.filter_row else (descriptor.row_length * rows,)

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name == self.im2col.side:
            return RowTapPixels(self, role, name, self.config, base, multicast)
        deep = self.config.replace(u=stage_depth(self.config))
        return RowTapFilters(self, role, name, deep, base, multicast)


def with_row_taps(p: KernelProblem, c: Config) -> KernelProblem:
    """The problem whose taps are rows of filter taps, with a halo of pixels, if ``c`` has ``row_taps`` above 1; else
    ``p``."""
    x = im2col(p)
    if c.row_taps == 1 or x is None or x.row_taps > 1:
        return p
    shared = x.with_row_taps(p.operand("C").access.ld)
    if x.side == "a":
        return with_descriptor(p.with_extents("A", m=x.halo_pixels), shared)
    # two adjacent columns of C are either two adjacent pixels of a row or both outside
    pairs = math.gcd(x.positions[0], x.halo_positions[0], p.vectors[2])
    return with_descriptor(p.with_extents("BC", n=x.halo_pixels).with_access("C", vec=pairs), shared)
