"""The loads of convolutions: im2col tensor maps load windows of images, so that no kernel writes the im2col matrix."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.parts.addressing import multiplier
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.source import PixelBox, TensorMap
from ptxgen.families.wgmma.c_runs import RunLayout, run_layouts
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.families.wgmma.matrix.loads import MatrixLoads
from ptxgen.families.wgmma.operand_packing import TMA_ALIGNED
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, im2col, tma_n
from ptxgen.lowering.kernel_problem import KernelProblem

#: names of the parameters that each axis of the images has
PER_AXIS = ("positions", "lower_corner", "stride", "taps", "filter_extent", "dilation")


class Im2colPixels(OperandPath):
    """The path of images whose rows are pixels and whose K is contiguous. A unit is some channels of one tap."""

    tma_mode = "im2col"

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.tma_rank = loads.im2col.rank
        self.boxes = [Box(b.offset, 0, n) for n, b in enumerate(self.boxes)]
        self.pixel = "".join(f", %pixel{a}" for a in loads.axes)
        self.copy_operands = ", {" + ", ".join(f"%im2col_offset{a}" for a in loads.axes) + "}" + self.copy_operands

    @property
    def pixel_registers(self) -> str:
        """The registers of the first pixel of a slice of rows."""
        return f"%pixel<{self.tma_rank - 2}>, %image"

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%channel"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord{self.pixel}, %image"


class FilterTaps(OperandPath):
    """The path of filters. A filter consists of taps, and a tap of channels. Either channels are contiguous, which are
    along K, or filters are."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast, loads.outer(name))
        self.tma_rank = 3 + len(self.outer_coordinates)
        self.filter_tap = loads.filter_tap
        if self.kmajor:
            self.boxes = [Box(b.offset, 0, n) for n, b in enumerate(self.boxes)]
            self.box = (self.box[0], 1, self.box[1])
        else:
            unit_bytes = loads.unit * self.span
            self.boxes = [
                Box(b.offset + n * unit_bytes, b.inner, n) for n in range(self.depth // loads.unit) for b in self.boxes
            ]
            self.box = (self.box[0], 1, loads.unit)

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%channel" if self.kmajor else first

    def tap(self, b: Box) -> str:
        """The register with the number of a box's tap in the filter."""
        return "%box_tap" if self.tap_offset(b) else self.filter_tap

    def coordinates(self, b: Box, first: str) -> str:
        along = first if self.kmajor else "%channel"
        return ", ".join(["%inner_coord", self.tap(b), along, *self.outer_coordinates])


class Im2colColumns(OperandPath):
    """The path of images in weight gradients. K is the number of a pixel; the columns, taps times channels, are
    contiguous."""

    tma_mode = "im2col"

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.axes = loads.axes
        self.tma_rank = loads.im2col.rank
        self.pixel = "".join(f", %pixel{a}" for a in self.axes)
        #: first column of each box, from the tile's first
        self.columns = [b.inner for b in self.boxes]
        self.boxes = [Box(b.offset, 0) for b in self.boxes]

    def inner_coordinate(self, b: Box, first: str) -> str:
        return f"%channel{self.boxes.index(b)}"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord{self.pixel}, %image"

    def trailing_operands(self, b: Box) -> str:
        return f", {{{', '.join(self.offsets[self.boxes.index(b)])}}}{self.copy_operands}"

    @property
    def offset_count(self) -> int:
        return len(self.boxes) * len(self.axes)

    @property
    def offsets(self) -> list[list[str]]:
        """For each box, the registers of its tap's pixel offsets along each axis."""
        n = len(self.axes)
        return [[f"%im2col_offset{i * n + a}" for a in self.axes] for i in range(len(self.boxes))]


@dataclass(frozen=True)
class Im2colLoads(MatrixLoads):
    """The loads of a forward convolution, or of an input gradient with stride one. K is taps of channels."""

    template = "addr/im2col.mako"
    pixels = "addr/im2col_pixels.mako"  #: the template file for the pixels that a map loads

    @property
    def im2col(self) -> Im2colDescriptor:
        descriptor: Im2colDescriptor | None = im2col(self.problem)
        assert descriptor is not None
        return descriptor

    def outer(self, name: str) -> Sequence[str]:
        """The registers with the coordinates of an item of operand ``name``, which is not the images."""
        return self.item_coordinates(name) if self.im2col.groups else ()

    @property
    def item_box(self) -> tuple[int, ...]:
        """The extents of a box along items."""
        return (1,) if self.im2col.groups else ()

    def items(self, p: KernelProblem, pitch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The extents and the pitches along items, which are ``pitch`` bytes apart."""
        return ((p.batch,), (pitch,)) if self.im2col.groups else ((), ())

    @property
    def image(self) -> str:
        """The register with the last coordinate of a pixel: an image, or an item that is a group. %flat_index is the
        rest of a pixel's number after the digits along the axes are removed."""
        return f"%item_{self.im2col.side}" if self.im2col.groups else "%flat_index"

    @property
    def filter_tap(self) -> str:
        """The register with the number of the tap in the filter."""
        return "%filter_tap" if self.flipped else "%tap"

    @property
    def flipped(self) -> bool:
        """True if the first pixel is multiplied by the filter's last tap."""
        return self.im2col.flipped

    @property
    def unit(self) -> int:
        """The number of elements of K that one box loads."""
        return int(self.geometry.pipeline.unit)

    @property
    def units(self) -> int:  # type: ignore[override]
        return self.config.u // self.unit

    @property
    def axes(self) -> range:
        """The axes of the images, the innermost first."""
        return range(len(self.im2col.extents))

    @property
    def splits_k(self) -> bool:
        return self.config.kg * self.config.cluster_k > 1

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        operand_class = Im2colPixels if name == self.im2col.side else FilterTaps
        return operand_class(self, role, name, self.config, base, multicast)

    @property
    def dividers(self) -> list[str]:
        """The names of run-time numbers by which the kernel divides; each is passed as a multiplier and a shift."""
        positions = [f"positions{a}" for a in self.axes]
        return positions + (["units_per_tap", *(f"taps{a}" for a in self.axes[:-1])] if self.splits_k else [])

    @property
    def runs(self) -> list[RunLayout]:
        """The run layouts of the rows and of the columns of C; empty if C is a matrix."""
        return run_layouts(self.problem)

    @property
    def parameters(self) -> list[Parameters]:
        return [
            Parameters("u32", ("channels", "taps", "units_per_tap"), lambda x: self._counts(x.p)),
            *map(self._of_axis, self.axes),
            *map(self._of_divider, self.dividers),
            *(self._of_run(n, run) for n, run in enumerate(self.runs)),
        ]

    def _counts(self, p: KernelProblem) -> tuple[int, int, int]:
        x = im2col(p)
        # the coordinate after the last channel must be a multiple of 16 bytes too
        chunk = max(TMA_ALIGNED // p.element.bytes, 1)
        channels = x.channels if x.wgrad else -(-x.channels // chunk) * chunk
        return channels, x.tap_count, self.divisors(x)["units_per_tap"]

    def _of_axis(self, a: int) -> Parameters:
        def values(launched: Launched) -> Iterator[int]:
            x = im2col(launched.p)
            filter_extent = x.taps[a] * x.dilation[a]
            numbers = (x.positions[a], x.lower[a], x.steps[a], x.taps[a], filter_extent, x.dilation[a])
            return (n & 0xFFFFFFFF for n in numbers)

        return Parameters("u32", tuple(f"{name}{a}" for name in PER_AXIS), values)

    def _of_divider(self, name: str) -> Parameters:
        names = (f"magic_{name}", f"shift_{name}")
        return Parameters("u32", names, lambda x: multiplier(self.divisors(im2col(x.p))[name]))

    def _of_run(self, n: int, run: RunLayout) -> Parameters:
        return Parameters("u32", run.parameters, lambda x: run.values((im2col(x.p).result or ())[n]))

    def divisors(self, x: Im2colDescriptor) -> dict[str, int]:
        """The values of ``dividers`` and of other numbers, by name."""
        divisors = {"channels": x.channels, "units_per_tap": -(-x.channels // self.unit)}
        divisors.update((f"positions{a}", x.positions[a]) for a in self.axes)
        divisors.update((f"taps{a}", x.taps[a]) for a in self.axes)
        return divisors

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} x {x.box[-1]}" + (" pixels" if x.name == self.im2col.side else "")

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        descriptor, size = im2col(p), p.element.bytes
        assert descriptor is not None
        if isinstance(x, Im2colPixels | Im2colColumns):
            return im2col_map(descriptor, x, element_type, size)
        along = tma_n(p) if x.name == "b" else p.m
        inner, outer = (descriptor.channels, along) if x.kmajor else (along, descriptor.channels)
        taps = self.filter_taps(descriptor)
        pitches = tuple(descriptor.row * size * n for n in itertools.accumulate(taps, operator.mul, initial=1))
        whole = outer * pitches[-1]  # a packed item; others may be adjacent along a row
        items, item = self.items(p, whole if descriptor.copy(x.name) else p.offsets["ab".index(x.name)])
        box = (*x.box, *self.item_box)
        return TensorMap(x.name.upper(), element_type, (inner, *taps, outer, *items), (*pitches, *item), box, x.span)

    def filter_taps(self, descriptor: Im2colDescriptor) -> tuple[int, ...]:
        """The extents of the filter's tap axes in the tensor map of filters."""
        return (descriptor.tap_count * descriptor.row_taps,)

    @property
    def reversed_tap(self) -> list[str]:
        """The instruction that computes the filter's tap if taps are in reverse order."""
        return ["sub.u32 %filter_tap, %last_tap, %tap;"] if self.flipped else []


def im2col_map(descriptor: Im2colDescriptor, x: OperandPath, element_type: str, size: int) -> TensorMap:
    """The im2col tensor map of images, with the boxes of ``x``."""
    pitches = tuple(n * size for n in descriptor.pitches)
    extents = (descriptor.channels, *descriptor.extents, descriptor.count)
    pixel_box = PixelBox(descriptor.lower, descriptor.upper, descriptor.steps)
    return TensorMap(x.name.upper(), element_type, extents, tuple(pitches), x.box, x.span, pixel_box)
