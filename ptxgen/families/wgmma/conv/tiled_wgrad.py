"""The loads, without packing, of weight gradients whose pixels are contiguous: tiled tensor maps load both operands."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma.conv.im2col_loads import Im2colLoads
from ptxgen.families.wgmma.geometry import loads_tiled, tiled_channels
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, im2col, with_descriptor
from ptxgen.lowering.kernel_problem import KernelProblem


class TiledGradients(OperandPath):
    """The path of result gradients: a box has pixels of a row by filters."""

    def __init__(
        self, loads: TiledWgradLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        outer = len(loads.axes) - 1
        self.tma_rank = outer + 3
        self.rows = "".join(f", %position{a}" for a in loads.axes[1:])
        self.box = (self.box[0], *(1,) * outer, self.box[1], 1)

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%position0"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord{self.rows}, {first}, %image"


class TiledImages(OperandPath):
    """The path of images: a box has pixels of a row by channels of one tap."""

    def __init__(
        self, loads: TiledWgradLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        outer, channels = len(loads.axes) - 1, int(tiled_channels(loads.problem, self.slice_extent))
        self.outer, self.tma_rank = outer, outer + 3
        self.box = (self.box[0], *(1,) * outer, channels, 1)
        #: first column of each box of channels, counted from the first column of the slice
        self.columns = list(range(0, self.slice_extent, channels))
        boxes = [(n, Box(b.offset + x * self.span, b.inner)) for b in self.boxes for n, x in enumerate(self.columns)]
        self.boxes = [b for _, b in boxes]
        self.number = {b.offset: n for n, b in boxes}

    @property
    def column_steps(self) -> list[int]:
        """For each box of channels, its distance from the preceding box in columns."""
        return [n - before for n, before in zip(self.columns, [0, *self.columns], strict=False)]

    @property
    def box_rows(self) -> list[list[tuple[int, str]]]:
        """For each box of channels and outer axis: the axis, and the register of the image row that a tap reads."""
        outer = self.outer
        return [[(a + 1, f"%row{n * outer + a}") for a in range(outer)] for n in range(len(self.columns))]

    @property
    def axis_rows(self) -> list[tuple[int, list[str]]]:
        """For each outer axis: its number, and the registers of ``box_rows``."""
        return [(a + 1, [rows[a][1] for rows in self.box_rows]) for a in range(self.outer)]

    @property
    def place_registers(self) -> str:
        """The registers with the pixels of a stage and the channels of boxes."""
        n, boxes = self.outer + 1, len(self.columns)
        rows = f", %row<{boxes * self.outer}>, %all_steps<{n}>" if self.outer else ""
        return f"%position<{n}>, %image, %channel<{boxes}>{rows}"

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%position0"

    def coordinates(self, b: Box, first: str) -> str:
        number = self.number[b.offset]
        rows = "".join(f", %row{number * self.outer + a}" for a in range(self.outer))
        return f"%inner_coord{rows}, %channel{number}, %image"


@dataclass(frozen=True)
class TiledWgradLoads(Im2colLoads):
    """The loads of weight gradients without packing: a stage has adjacent pixels of a row."""

    template = "addr/wgrad_tiled.mako"
    units = 1

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        operand_class = TiledImages if name == self.im2col.side else TiledGradients
        return operand_class(self, role, name, self.config, base, multicast)

    @property
    def one_tap(self) -> bool:
        """True if filters have one tap, so that a column of C is a channel."""
        return self.im2col.tap_count == 1

    @property
    def dividers(self) -> list[str]:
        rows = [f"positions{a}" for a in self.axes[1:]]
        return ["channels", "stages_per_row", *rows, *(f"taps{a}" for a in self.axes[1:-1])]

    def divisors(self, x: Im2colDescriptor) -> dict[str, int]:
        return {**super().divisors(x), "stages_per_row": -(-x.positions[0] // self.config.u)}

    @property
    def parameters(self) -> list[Parameters]:
        stages = Parameters("u32", ("stages_per_row",), lambda x: (self.divisors(im2col(x.p))["stages_per_row"],))
        return [*super().parameters, stages]

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} pixels x {x.box[-2]}"

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        descriptor = im2col(p)
        assert descriptor is not None
        pixels, channels = descriptor.extents, descriptor.channels
        if x.name != descriptor.side:
            pixels, channels = descriptor.positions, p.n if x.name == "b" else p.m
        extents = (*pixels, channels)
        pitches = tuple(itertools.accumulate(extents, operator.mul, initial=p.element.bytes))[1:]
        return TensorMap(x.name.upper(), element_type, (*extents, descriptor.count), pitches, x.box, x.span)

    @property
    def count_registers(self) -> str:
        """The registers of the numbers that are kernel parameters."""
        return "%channels, %stages_per_row" + ("" if self.one_tap else ", %taps")


def unpacked(p: KernelProblem, c: Config) -> KernelProblem:
    """The problem without packed copies of its operands, if ``c`` loads them in place; else ``p``."""
    if im2col(p) is None or im2col(p).unpacked is None or not loads_tiled(p, c):
        return p
    return with_descriptor(p, im2col(p).unpacked)
