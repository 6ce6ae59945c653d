"""The loads, without packing, of convolutions in NCHW: a warpgroup gathers pixels, which may begin at any element, and
writes them where TMA would have put them. Strides, padding and dilation change addresses and predicates only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import Parameters, given
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import Mask, ceil_div, log2
from ptxgen.families.wgmma.conv.im2col_loads import FilterTaps, Im2colLoads
from ptxgen.families.wgmma.geometry import GATHER_BATCH, WARPGROUP
from ptxgen.families.wgmma.layout import Multicast, OperandPath, in_batches
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem


class GatheredElement(NamedTuple):
    """An element that a thread gathers. ``register``: it holds the element; ``box``: the number of its box; ``row``:
    its channel, counted from the thread's first of the unit; ``round``: its round; ``address``: where it is in shared
    memory."""

    register: str
    box: int
    row: int
    round: int
    address: str

    @property
    def source(self) -> str:
        """The register with the address of the element."""
        return "%element_addr" if self.round else f"%channel_addr{self.box}"


class GatheredPixels(OperandPath):
    """The path of images whose GEMM rows, the pixels, are gathered. A row of a box in shared memory has the pixels of
    one channel. A thread has one pixel of each box, and every few channels of it; adjacent threads have adjacent
    pixels, so that a warp reads adjacent elements where the stride is one."""

    map_count = 0
    threads = WARPGROUP

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        assert multicast is None
        self.tx_bytes = 0
        self.axes, self.unit = loads.axes, loads.unit
        #: first pixel of each box, counted from the first of the tile; pixels of a box
        self.first_pixels, self.pixels = [b.inner for b in self.boxes], self.box[0]
        self.log2_pixels = log2(self.pixels)
        #: channels from one round of a thread to the next, and rounds of a unit
        self.round_rows = WARPGROUP // self.pixels
        self.rounds = self.unit // self.round_rows
        #: the swizzle of a row: bits of its number that are exchanged with those of a chunk of 16 bytes
        self.swizzle_shift, self.swizzle_mask = 7 - log2(self.span), self.span // 16 - 1
        #: for each set of rounds whose rows have one swizzle, the bits of an address that it inverts
        self.inverted = list(dict.fromkeys(self._inverted(n) for n in range(self.rounds)))
        #: elements of a unit, and their registers: a batch is loaded while the other one is stored
        self.places = [(n, i) for n in range(len(self.boxes)) for i in range(self.rounds)]
        self.batch = len(self.places) // (2 * ceil_div(len(self.places), 2 * GATHER_BATCH))
        self.loaded = Tile("gathered", "b16", (2, self.batch))

    pixel_mask = Mask("pixels")

    def _inverted(self, n: int) -> int:
        """The bits of an address that the swizzle of the rows of round ``n`` inverts."""
        return 16 * (n * self.round_rows >> self.swizzle_shift & self.swizzle_mask)

    @property
    def pixel_registers(self) -> str:
        """The registers with the position and the image of a thread's pixel in each box."""
        boxes = range(len(self.boxes))
        pixels = ", ".join(f"%box{n}_pixel<{len(self.axes)}>" for n in boxes)
        return f"{pixels}, %image_offset<{len(boxes)}>"

    def batches(self, unit: int) -> list[list[GatheredElement]]:
        """The elements of a unit of K in an even number of batches of equal size, whose registers alternate."""
        return [
            [self._element(unit, self.loaded[b % 2, j], n, i) for j, (n, i) in enumerate(batch)]
            for b, batch in enumerate(in_batches(self.places, self.batch))
        ]

    @property
    def first_batch(self) -> list[GatheredElement]:
        """The batch that a thread loads before the first stage of a tile is free."""
        return self.batches(0)[0]

    @cached_property
    def turns(self) -> list[list[tuple[list[GatheredElement], list[GatheredElement]]]]:
        """For each batch of each unit: the next batch, which is loaded first, and the batch, which is stored. The next
        batch of the last one of a unit is the first of the next unit."""
        units = [self.batches(unit) for unit in range(self.depth // self.unit)]
        return [list(zip([*batches[1:], batches[0]], batches, strict=True)) for batches in units]

    def _element(self, unit: int, register: str, n: int, i: int) -> GatheredElement:
        row = i * self.round_rows
        offset = self.base + self.boxes[n].offset + (unit * self.unit + row) * self.span
        address = f"%gather_to{self.inverted.index(self._inverted(i))}+{offset}"
        return GatheredElement(register, n, row, i, address)


@dataclass(frozen=True)
class GatheredLoads(Im2colLoads):
    """The loads of a forward convolution, or of an input gradient with stride one, of images that are gathered."""

    pixels = "addr/gathered_pixels.mako"
    copies = "copy/gathered_stages.mako"
    gathers = True

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        operand_class = GatheredPixels if name == self.im2col.side else FilterTaps
        return operand_class(self, role, name, self.config, base, multicast)

    @property
    def addressed(self) -> tuple[str, ...]:
        return (self.im2col.side.upper(),)

    @property
    def parameters(self) -> list[Parameters]:
        extents = tuple(f"image_extent{a}" for a in self.axes)
        pitches = tuple(f"image_pitch{a}" for a in self.axes)
        return [
            given("u64", *self.addressed),
            *super().parameters,
            Parameters("u32", extents, lambda x: im2col(x.p).extents),
            Parameters("u32", (*pitches, "channel_pitch", "image_channels"), lambda x: self._pitches(x.p)),
        ]

    def _pitches(self, p: KernelProblem) -> tuple[int, ...]:
        descriptor = im2col(p)
        return (*descriptor.pitches, descriptor.channels)

    def box_text(self, x: OperandPath) -> str:
        if isinstance(x, GatheredPixels):
            return f"{x.box[0]} gathered pixels x {x.box[1]}"
        return super().box_text(x)
