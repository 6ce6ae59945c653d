"""The main loop of a depthwise kernel: a thread's strip, the pixels of its windows, and their products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import OUT_OF_IMAGE_LUT
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.vectorized import Last, Log2
from ptxgen.lowering.depthwise_strips import DepthwiseStrip, strips
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class StripLoop(Part):
    """What the loops of all depthwise schedules share: loads of ``vec`` adjacent pixels at once."""

    problem: KernelProblem
    config: Config
    arithmetic: Arithmetic

    OUT_OF_IMAGE_LUT = OUT_OF_IMAGE_LUT

    @property
    def strip(self) -> DepthwiseStrip:
        assert strips(self.problem) is not None
        strip: DepthwiseStrip = strips(self.problem)
        return strip

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return self.problem.element.bytes

    @property
    def images(self) -> str:
        """The register with the address of the images."""
        return "%A" if self.strip.image == "a" else "%B"

    @property
    def filters(self) -> str:
        """The register with the address of the other operand: filters, or result gradients."""
        return "%B" if self.strip.image == "a" else "%A"

    # ---- header

    @property
    def accesses(self) -> str:
        """A text for the header: the widths of global accesses."""
        return f"accesses of {self.vec} elements of images and results"

    @property
    def block_tile(self) -> str:
        """A text for the header: the results of a block."""
        return f"{self.config.block_rows} rows x {self.lanes} x {self.config.strip_results} results"

    # ---- threads

    @property
    def vec(self) -> int:
        """The number of adjacent results along the lane axis; a thread computes a strip for each."""
        return self.config.vec_lane

    @property
    def lanes(self) -> int:
        """The number of adjacent results of a block along the lane axis."""
        return self.config.block_lanes * self.vec

    #: log2 of the threads of a block along the lane axis
    log2_lanes = Log2("config.block_lanes")
    log2_block = Log2("lanes")

    # ---- pixels

    @cached_property
    def pixels(self) -> Tile:
        """The registers of pixels in the type of the arithmetic."""
        return Tile("pixel", self.arithmetic.type, (self.vec,))

    @cached_property
    def words(self) -> Tile:
        """The registers of 16-bit pixels as loaded, two per word."""
        halves = self.size == 2 and self.vec > 1
        return Tile("word", "b32", (self.vec // 2,)) if halves else Tile("word", "b16", (1,))

    @cached_property
    def halves(self) -> Tile:
        return Tile("half", "b16", (2,))

    @property
    def loaded(self) -> Tile:
        """The registers that a load fills."""
        return self.words if self.size == 2 else self.pixels

    @property
    def load_type(self) -> str:
        """The type of a load."""
        return width(self.loaded.size, self.loaded.ptx_type)

    @property
    def load_vector(self) -> str:
        """The operand of a load."""
        return self.loaded.vector(0, n=self.loaded.size)

    @cached_property
    def window_pixels(self) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """The pixels of a strip's windows, each as (row, distance in rows from the preceding pixel, (result, tap) of
        each product)."""
        pixels: dict[int, list[tuple[int, int]]] = {}
        for i in range(self.config.strip_results):
            for r in range(self.strip.taps):
                row = self.strip.pixel_of(i, r)
                if row is not None:
                    pixels.setdefault(row, []).append((i, r))
        rows = sorted(pixels)
        return [(row, row - before, pixels[row]) for row, before in zip(rows, [0, *rows], strict=False)]

    last_block_lane = Last("config.block_lanes")
    last_of_lanes = Last("lanes")

    @property
    def loaded_zero(self) -> str:
        return "0" if self.size == 2 else self.arithmetic.zero

    @property
    def pixel_pairs(self) -> list[tuple[str, str, str]]:
        """For each word of two 16-bit pixels: the registers of both pixels, and the word."""
        return list(zip(self.pixels.all[::2], self.pixels.all[1::2], self.words.all, strict=True))


@dataclass(frozen=True)
class TapLoop(StripLoop):
    """The loop over the taps along other axes; the taps along the strip are unrolled."""

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.arithmetic.type, (self.config.strip_results, self.vec))

    @cached_property
    def weights(self) -> Tile:
        """The registers of the filter's taps along the strip."""
        return Tile("weight", self.arithmetic.type, (self.strip.taps, self.vec))

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of a strip")]


@dataclass(frozen=True)
class WgradLoop(StripLoop):
    """The loop over strips of result gradients, each of which is multiplied by the pixels of its windows."""

    @property
    def results(self) -> str:
        """The register with the address of the result gradients."""
        return self.filters

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.arithmetic.type, (self.strip.tap_count, self.vec))

    @cached_property
    def result_grads(self) -> Tile:
        return Tile("grad", self.arithmetic.type, (self.config.strip_results, self.vec))

    @cached_property
    def tap_offsets(self) -> Tile:
        """The registers with offset and packed coordinates of the taps along other axes."""
        return Tile("tap_offset", "b32", (self.strip.outer_taps, 2))

    @property
    def tap_loads(self) -> list[tuple[str, str, int]]:
        """For each tap along other axes: (register of the offset, register of the packed coordinates, place in the
        table)."""
        return [(self.tap_offsets[k, 0], self.tap_offsets[k, 1], 16 * k) for k in range(self.strip.outer_taps)]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of all taps")]

    @property
    def shared_map(self) -> list[str]:
        return ["sums: tap, thread"]
