"""Packing of images and filters with few channels: a kernel copies them to padded pixels in padded rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.packing import ROW
from ptxgen.codegen.registers import Tile, braces
from ptxgen.families.wgmma.packing.channels import CHUNK, WORD, ChannelPacking, OperandCopy, image_copy
from ptxgen.lowering.im2col_descriptor import PaddedPixels


class PixelCopy:
    """Numbers of the kernel for one operand, whose elements have ``size`` bytes: a thread copies CHUNK bytes of the
    copy, which are one or several padded pixels of a row."""

    THREADS, CHUNK, ROW = AUX_KERNEL_THREADS, CHUNK, ROW
    bytes = 0
    #: parameters of a copy: rows, and the extent of their inner digit; strides of the two digits in elements; pixels of
    #: a row, their stride, and the stride of channels; pixels before them in the copy; chunks of a row of the copy;
    #: offset in the workspace in units of 128 bytes
    NAMES = (
        "rows",
        "inner_extent",
        "outer_stride",
        "inner_stride",
        "pixels",
        "pixel_stride",
        "channel_stride",
        "before",
        "row_chunks",
        "copy_offset128",
    )

    def __init__(self, name: str, copy: PaddedPixels, size: int) -> None:
        self.name, self.size, self.channels = name, size, copy.channels
        #: pixels of a chunk
        self.pixels = CHUNK // size // copy.padded
        self.loaded = Tile("element", f"b{8 * size}", (self.pixels, copy.padded))

    @property
    def words(self) -> list[str]:
        """The words of a chunk: a register each, or the two that hold its halves."""
        registers, each = self.loaded.all, WORD // self.size
        return [braces(registers[n : n + each]) for n in range(0, len(registers), each)]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(f"{n}_{self.name}" for n in self.NAMES)

    def numbers(self, copy: PaddedPixels, offset: int) -> tuple[int, ...]:
        """The values of ``parameters``."""
        return (
            copy.row_count,
            copy.extents[1],
            *copy.steps,
            copy.pixels,
            copy.pixel_step,
            copy.channel_step,
            copy.before,
            copy.width // self.pixels,
            offset // ROW,
        )

    def blocks(self, copy: PaddedPixels) -> int:
        return -(-copy.row_count * (copy.width // self.pixels) // AUX_KERNEL_THREADS)


@dataclass(frozen=True)
class PixelPacking(ChannelPacking):
    """Images and filters in rows of padded pixels."""

    template = "copy/pack_pixels.mako"
    kernel = "pack_pixels"

    @cached_property
    def operands(self) -> Sequence[OperandCopy]:
        size = self.problem.element.bytes
        copies = [(name, image_copy(self.problem, name)) for name in self.names]
        return [PixelCopy(name, copy, size) for name, copy in copies if isinstance(copy, PaddedPixels)]

    @property
    def summary(self) -> str:
        return "; a kernel pads the pixels of A and B first"
