"""The loads of weight gradients whose images are loaded by im2col tensor maps. K is pixels."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import multiplier
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma.conv.im2col_loads import Im2colColumns, Im2colLoads
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, im2col
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class WgradLoads(Im2colLoads):
    """The loads of weight gradients. K is pixels."""

    template = "addr/wgrad_im2col.mako"
    units = 1

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name != self.im2col.side:
            return OperandPath(role, name, self.geometry, self.config, base, multicast, self.outer(name))
        return Im2colColumns(self, role, name, self.config, base, multicast)

    @property
    def dividers(self) -> list[str]:
        return ["channels", *(f"positions{a}" for a in self.axes), *(f"taps{a}" for a in self.axes[:-1])]

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        if isinstance(x, Im2colColumns):
            return super().tensor_map(p, x, element_type)
        assert im2col(p) is not None
        along = p.n if x.name == "b" else p.m
        extents = (p.k, along) if x.kmajor else (along, p.k)
        items, item = self.items(p, along * p.element.bytes)
        pitches = (im2col(p).row * p.element.bytes, *item)
        return TensorMap(x.name.upper(), element_type, (*extents, *items), pitches, (*x.box, *self.item_box), x.span)

    @property
    def block_parameters(self) -> tuple[str, ...]:
        """The kernel parameters for the stored blocks of C: dividers by the filters of a group, by its channels, and by
        the channels of an item; the groups of an item."""
        names = ("group_rows", "group_columns", "item_columns") if self.im2col.blocks else ()
        dividers = tuple(f"{number}_{name}" for name in names for number in ("magic", "shift"))
        return (*dividers, "groups_of_item") if names else ()

    def _blocks(self, x: Im2colDescriptor) -> list[int]:
        """The values of ``block_parameters``."""
        assert x.blocks is not None
        filters, channels, groups = x.blocks
        return [*itertools.chain(*map(multiplier, (filters, channels, channels * groups))), groups]

    @property
    def parameters(self) -> list[Parameters]:
        if not self.im2col.blocks:
            return super().parameters
        blocks = Parameters("u32", self.block_parameters, lambda x: self._blocks(im2col(x.p)))
        return [*super().parameters, blocks]

    @property
    def digit_count(self) -> int:
        """The number of digits of a pixel's number, including its image."""
        return len(self.axes) + 1


class ImageGradients(OperandPath):
    """The path of result gradients: a box has pixels of an image by filters."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.tma_rank = 3
        self.box = (*self.box, 1)

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%position"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord, {first}, %image"


@dataclass(frozen=True)
class ImageWgradLoads(WgradLoads):
    """The loads of weight gradients whose K is pixels, with those of each image padded to whole stages."""

    template = "addr/wgrad_by_image.mako"

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name == self.im2col.side:
            return super().operand(role, name, base, multicast)
        return ImageGradients(self, role, name, self.config, base, multicast)

    @property
    def dividers(self) -> list[str]:
        return [*super().dividers, "stages_per_image"]

    def divisors(self, x: Im2colDescriptor) -> dict[str, int]:
        stages = -(-math.prod(x.positions) // self.config.u)
        return {**super().divisors(x), "stages_per_image": stages}

    @property
    def parameters(self) -> list[Parameters]:
        names = ("stages_per_image", "image_pixels")
        return [*super().parameters, Parameters("u32", names, lambda x: self._images(im2col(x.p)))]

    def _images(self, x: Im2colDescriptor) -> tuple[int, int]:
        return self.divisors(x)["stages_per_image"], math.prod(x.positions)

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} pixels x {x.box[1]}" if isinstance(x, ImageGradients) else super().box_text(x)

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        if not isinstance(x, ImageGradients):
            return super().tensor_map(p, x, element_type)
        descriptor = im2col(p)
        assert descriptor is not None
        filters, row = p.n if x.name == "b" else p.m, descriptor.row * p.element.bytes
        extents = (math.prod(descriptor.positions), filters, descriptor.count)
        return TensorMap(x.name.upper(), element_type, extents, (row, row * filters), x.box, x.span)
