"""Packing of images and filters with few channels: a kernel copies them to padded pixels in padded rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.packing import ROW, Buffers, MappedOperand, Packing
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Argument, Step, TensorMap
from ptxgen.families.wgmma.operand_packing import copy_bytes
from ptxgen.lowering.im2col_descriptor import PaddedPixels
from ptxgen.lowering.kernel_gemm import KernelGemm

CHUNK = 16  #: bytes that a thread stores at once
WORD = 4  #: bytes of a register


class PixelCopy:
    """Numbers of the kernel for one operand, whose elements have ``size`` bytes: a thread copies CHUNK bytes of the
    copy, which are one or several padded pixels of a row."""

    CHUNK, ROW = CHUNK, ROW
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
    def parameters(self) -> list[str]:
        return [f"{n}_{self.name}" for n in self.NAMES]

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


def pixel_copy(p: KernelGemm, name: str) -> PaddedPixels:
    """The copy of an operand."""
    copy = p.im2col.copy(name) if p.im2col is not None else None
    assert isinstance(copy, PaddedPixels)
    return copy


@dataclass(frozen=True)
class PixelPacking(Packing):
    """Images and filters in rows of padded pixels."""

    template = "copy/pack_pixels.mako"
    packs_empty = True
    THREADS = AUX_KERNEL_THREADS
    names = ["a", "b"]

    @cached_property
    def operands(self) -> list[PixelCopy]:
        size = self.problem.element.bytes
        return [PixelCopy(name, pixel_copy(self.problem, name), size) for name in self.names]

    @property
    def summary(self) -> str:
        return "; a kernel pads the pixels of A and B first"

    @property
    def parameters(self) -> list[str]:
        """The parameters of the kernel after the addresses, in lines."""
        lines = [", ".join(f".param .u32 {name}" for name in x.parameters) for x in self.operands]
        return [".param .u32 blocks_a,", *(f"{line}," for line in lines[:-1]), lines[-1]]

    def tensor_map(
        self, p: KernelGemm, run: BatchRange, x: MappedOperand, kind: str, direct: TensorMap, buffers: Buffers
    ) -> TensorMap:
        return replace(direct, operand="W", offset=buffers.packed[x.name])

    def buffer_bytes(self, p: KernelGemm, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: copy_bytes(p, pixel_copy(p, name)) for name in self.names}, {}

    def steps(self, p: KernelGemm, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        copies = [pixel_copy(p, x.name) for x in self.operands]
        blocks = [x.blocks(copy) for x, copy in zip(self.operands, copies, strict=True)]
        numbers = [blocks[0]]
        for x, copy in zip(self.operands, copies, strict=True):
            numbers += x.numbers(copy, buffers.packed[x.name])
        arguments: tuple[Argument, ...] = (*self.pointers, *(("u32", n) for n in numbers))
        return (Step(f"{self.entry}_pack_pixels", (sum(blocks), 1, 1), (self.THREADS, 1, 1), 0, arguments),)
