"""The loads, without packing, of convolutions whose images are contiguous along the rows of the GEMM: in CHWN, the
contiguous axis is the image index, which no tap moves."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma.conv.im2col_loads import FilterTaps, Im2colLoads
from ptxgen.families.wgmma.conv.phases import PhasedLoads
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem


class TiledPixels(OperandPath):
    """The path of images whose GEMM rows are contiguous: a box has adjacent rows of one pixel, for some channels of one
    tap."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        axes = loads.axes
        self.outer = axes[1:]
        self.tma_rank = len(axes) + 2
        self.box = (self.box[0], *(1 for _ in self.outer), loads.unit, 1)
        rows, unit_bytes = self.boxes, loads.unit * self.span
        #: first row of each box of a unit, counted from the first row of the slice
        self.first_rows = [b.inner for b in rows]
        self.boxes = [Box(b.offset + n * unit_bytes, 0, n) for n in range(self.depth // loads.unit) for b in rows]
        self.number = {b.offset: n % len(rows) for n, b in enumerate(self.boxes)}

    @property
    def pixel_registers(self) -> str:
        """The registers with the first pixel of each box, and with the pixel of a box at a tap."""
        pixels = ", ".join(f"%box{n}_pixel<{len(self.outer) + 1}>" for n in range(len(self.first_rows)))
        return f"{pixels}, %image<{len(self.first_rows)}>, %box_pixel<{len(self.outer) + 1}>"

    def inner_coordinate(self, b: Box, first: str) -> str:
        return f"%box{self.number[b.offset]}_pixel0"

    def sums(self, b: Box) -> list[tuple[str, str, str]]:
        n = self.number[b.offset]
        return [(f"%box_pixel{a}", f"%box{n}_pixel{a}", f"%tap_pixel{a}") for a in self.outer]

    def coordinates(self, b: Box, first: str) -> str:
        pixel = "".join(f", %box_pixel{a}" for a in self.outer)
        return f"%inner_coord{pixel}, %channel, %image{self.number[b.offset]}"


@dataclass(frozen=True)
class TiledLoads(Im2colLoads):
    """The loads of a forward convolution, or of an input gradient with stride one."""

    pixels = "addr/tiled_pixels.mako"

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        operand_class = TiledPixels if name == self.im2col.side else FilterTaps
        return operand_class(self, role, name, self.config, base, multicast)

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} rows of a pixel x {x.box[-2]}" if isinstance(x, TiledPixels) else super().box_text(x)

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        descriptor = im2col(p)
        if not isinstance(x, TiledPixels):
            return super().tensor_map(p, x, element_type)
        extents = (*descriptor.extents, descriptor.channels)
        pitches = tuple(itertools.accumulate(extents, operator.mul, initial=p.element.bytes))[1:]
        return TensorMap(x.name.upper(), element_type, (*extents, descriptor.count), pitches, x.box, x.span)


@dataclass(frozen=True)
class TiledPhasedLoads(TiledLoads, PhasedLoads):
    """The loads of a strided input gradient."""
