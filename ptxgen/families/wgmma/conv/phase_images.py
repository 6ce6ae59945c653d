"""Images of the phases of a strided input gradient: the main kernel stores them in the workspace, and an auxiliary
kernel interleaves them to rows of C.

The pixels of a phase are a stride apart in C. If pixels are contiguous in memory, as in NCHW, each 32-byte sector of C
has pixels of several phases, whose tiles are computed far apart in time. In an image, the pixels of a phase are
contiguous. The kernel that interleaves the images writes whole sectors of C, with zeros where a phase has no taps. If
beta is not zero, another kernel first copies C to the images, so that the main kernel adds it to its sums before they
are rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.c_kernels import CKernels
from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.parts.addressing import multiplier
from ptxgen.codegen.parts.parameters import Parameters, given
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Step
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, PhaseImages, im2col, with_descriptor
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.table import Table

CHUNK = 16  #: bytes of C that a thread stores at once
WORD = 4  #: bytes of a register
NONE = 0xFFFFFFFF  #: the offset that stands for a phase without taps, which has no image
MOST_BLOCKS = 1 << 12  #: most blocks of the kernel that copies C to images, which ends at once if beta is zero


def stores_by_phase(p: KernelProblem, c: Config) -> KernelProblem:
    """The problem that the main kernel computes: its C is the images of the phases if ``c`` interleaves them."""
    x = im2col(p)
    if not c.interleave_phases or x is None or x.by_phase:
        return p
    pairs = math.gcd(math.prod(x.positions), CHUNK // p.output.bytes)
    return with_descriptor(p, x.stored_by_phase()).with_access("C", vec=pairs)


@dataclass(frozen=True)
class ImageTable(Table):
    """The table of the images' first elements, by the remainders of a pixel's row and column by the strides. NONE: no
    image."""

    im2col: Im2colDescriptor

    def words(self) -> NDArray[np.uint32]:
        x, images = self.im2col, self.im2col.images
        assert images is not None
        starts = {n: phase.start for n, phase in enumerate(x.phases) if phase.tap_count}
        return np.array([starts.get(n, NONE) for n in images.phase_of], np.uint32)


class PixelAccess(NamedTuple):
    """An access to a segment of C or of an image. ``phase``, ``vector``: numbers of the phase and of the access;
    ``first``: its first element; ``offset``: in bytes; ``type``: the PTX type of the access; ``ptx_type``: the type of
    ``registers``; ``words``: (word, pair of elements) if the access is of words with two elements each."""

    phase: int
    vector: int
    first: int
    offset: int
    type: str
    ptx_type: str
    registers: list[str]
    words: list[tuple[str, str]]

    @property
    def operand(self) -> str:
        return braces(self.registers)

    @property
    def loaded(self) -> list[str]:
        return [f"%loaded{n}" for n in range(len(self.words))]


@dataclass(frozen=True)
class PhaseInterleaving(CKernels):
    """The kernel that interleaves images of phases to rows of C, and the kernel that copies C to the images. A thread
    has a segment of a row: whole chunks of C, and the same number of pixels of each phase."""

    template = "epilogue/interleave_phases.mako"
    names = ("copy_to_phases", "interleave_phases")
    #: parameters of both kernels; threads divide by those that have a magic number and a shift
    NUMBERS = (
        *("segments", "row_segments", "magic_row_segments", "shift_row_segments"),
        *("plane_rows", "magic_plane_rows", "shift_plane_rows", "stride", "magic_stride", "shift_stride"),
        *("rows", "columns", "image_rows", "image_columns"),
    )

    NONE = NONE
    #: blocks per multiprocessor for which registers are limited: without a limit, ptxas takes 32 and may spill
    BLOCKS_PER_SM = 6

    @property
    def im2col(self) -> Im2colDescriptor:
        descriptor: Im2colDescriptor | None = im2col(self.c.problem)
        assert descriptor is not None
        return descriptor

    @property
    def images(self) -> PhaseImages:
        images = self.im2col.images
        assert images is not None
        return images

    # ---- numbers of the kernels

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return self.c.bytes

    @property
    def stride(self) -> int:
        """The stride of the pixels of a phase in a row of C."""
        return self.images.strides[0]

    @property
    def segment(self) -> int:
        """The number of elements of a row of C that a thread has."""
        return math.lcm(self.stride, CHUNK // self.size)

    @property
    def pixels(self) -> int:
        """The number of elements of a segment in each phase."""
        return self.segment // self.stride

    @cached_property
    def c_vec(self) -> int:
        """The number of elements of an access to C."""
        return math.gcd(
            CHUNK // self.size, self.images.extents[0], self.c.problem.operand("C").access.aligned // self.size
        )

    @cached_property
    def image_vec(self) -> int:
        """The number of elements of an access to an image, with which the images' rows are aligned."""
        return math.gcd(CHUNK // self.size, self.pixels, self.im2col.positions[0])

    @property
    def image_vectors(self) -> int:
        """The number of accesses to a segment of an image."""
        return self.pixels // self.image_vec

    @property
    def table_bytes(self) -> int:
        """The number of bytes of the table entries of the images that have pixels in one row of C."""
        return WORD * self.stride

    @property
    def table_offsets(self) -> range:
        return range(0, self.table_bytes, WORD)

    @property
    def number_registers(self) -> str:
        """The registers of ``NUMBERS``."""
        return ", ".join(f"%{name}" for name in self.NUMBERS)

    @cached_property
    def image_accesses(self) -> list[PixelAccess]:
        """The accesses to the segments of all phases, phase by phase."""
        vectors = [(r, v) for r in range(self.stride) for v in range(self.image_vectors)]
        return [self._access(r, v, self.image_vec, self.in_image(r, v)) for r, v in vectors]

    @cached_property
    def c_accesses(self) -> list[PixelAccess]:
        """The accesses to a segment of C."""
        return [self._access(0, v, self.c_vec, self.in_c(v)) for v in range(self.segment // self.c_vec)]

    def _access(self, phase: int, vector: int, vec: int, elements: list[str]) -> PixelAccess:
        words, size = self.words(elements), vec * self.size
        registers, ptx_type = ([word for word, _ in words], "b32") if words else (elements, self.pixel.ptx_type)
        type = f"b{8 * size}" if size < WORD else width(size // WORD, "b32")
        return PixelAccess(phase, vector, vector * vec, vector * size, type, ptx_type, registers, words)

    # ---- registers

    @cached_property
    def pixel(self) -> Tile:
        """The registers of the elements of each phase."""
        return Tile("pixel", f"b{8 * self.size}", (self.stride, self.pixels))

    @cached_property
    def word(self) -> Tile:
        """The registers of the words of an access."""
        return Tile("word", "b32", (CHUNK // WORD,))

    def element(self, n: int) -> str:
        """The register of element ``n`` of a segment of C."""
        return self.pixel[n % self.stride, n // self.stride]

    def in_c(self, vector: int) -> list[str]:
        """The registers of the elements of an access to C."""
        return [self.element(vector * self.c_vec + n) for n in range(self.c_vec)]

    def in_image(self, phase: int, vector: int) -> list[str]:
        """The registers of the elements of an access to an image."""
        return [self.pixel[phase, vector * self.image_vec + n] for n in range(self.image_vec)]

    def words(self, elements: list[str]) -> list[tuple[str, str]]:
        """The word registers of an access, each with its pair of elements; empty if elements are accessed one by
        one."""
        if self.size == WORD or len(elements) == 1:
            return []
        return [(self.word[n // 2], braces(elements[n : n + 2])) for n in range(0, len(elements), 2)]

    # ---- launches

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        """Claims the images as the first region of the workspace, because the main kernel gets its address as that of
        C."""
        x = im2col(p)
        assert x is not None
        size = len(x.phases) * x.image_elements * p.output.bytes
        region = workspace.claim(size, "images of phases [phase][image][channel][position]")
        assert region.offset == 0

    @property
    def _parameters(self) -> list[Parameters]:
        return [
            given("u64", "C", "W"),
            Parameters("u64", ("image_table",), lambda x: (ImageTable(im2col(x.p)),)),
            Parameters("u32", self.NUMBERS, lambda x: self._numbers(x.p)),
            given(self.arithmetic.type, "beta"),
        ]

    def _numbers(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``NUMBERS``."""
        x = im2col(p)
        assert x.images is not None
        (columns, rows), (across, down) = x.images.extents, x.images.strides
        image_columns, image_rows = x.positions
        # rows of C with those that the largest phase has more
        row_segments, plane_rows = -(-image_columns * across // self.segment), image_rows * down
        segments = x.count * x.images.channels * plane_rows * row_segments
        return (
            *(segments, row_segments, *multiplier(row_segments), plane_rows, *multiplier(plane_rows)),
            *(down, *multiplier(down), rows, columns, image_rows, image_columns),
        )

    def steps(self, main: Step, launched: Launched) -> tuple[Step, ...]:
        blocks = -(-self._numbers(launched.p)[0] // self.THREADS)
        arguments = self.parameter_list.arguments(launched)
        copy, interleave = (
            Step(f"{self.entry}_{name}", (n, 1, 1), (self.THREADS, 1, 1), 0, arguments)
            for name, n in zip(self.names, (min(blocks, MOST_BLOCKS), blocks), strict=True)
        )
        return copy, main, interleave
