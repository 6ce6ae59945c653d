"""The kernels around the products of a Winograd convolution: transforms of filters, images and products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ptxgen.codegen.arithmetic import Arithmetic
from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.c_access import CAccess
from ptxgen.codegen.c_kernels import CKernels
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.packing import POINTERS, ROW, Buffers, Packing
from ptxgen.codegen.parts import Allocator
from ptxgen.codegen.pdl import Pdl
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Step
from ptxgen.codegen.vectorized import WARP, ceil_div, log2
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.winograd import POINTS, TILE, WinogradGemm, WinogradTransform

THREADS = 128  #: per block of the transforms
WORD = 1 << 32
Ints = tuple[int, ...]


def transformed(p: KernelGemm) -> tuple[WinogradGemm, WinogradTransform]:
    """The products of a convolution, and the tensors that are transformed."""
    product = p if isinstance(p, WinogradGemm) else p.winograd
    assert isinstance(product, WinogradGemm)
    assert product.transform is not None
    return product, product.transform


def matrix_offsets(p: WinogradGemm) -> dict[str, int]:
    """Offsets of the 16 matrices A, B and C of the products in the workspace, and its bytes under the empty name."""
    sizes = (p.rows_a * p.lda, p.rows_b * p.ldb, p.m * p.ldc)
    at, out = 0, {}
    for name, size in zip("abc", sizes, strict=True):
        out[name] = at
        at += ceil_div(POINTS * size * p.element.bytes, ROW) * ROW
    return {**out, "": at}


def _u32(numbers: Sequence[int]) -> tuple[Argument, ...]:
    """Numbers as arguments; negative ones modulo 2 to the power of 32."""
    return tuple(("u32", n % WORD) for n in numbers)


@dataclass(frozen=True)
class ChannelsAndTiles:
    """How threads of a transform divide channels and tiles. ``lanes``: adjacent threads along channels, the others are
    along tiles; ``channels``: of a thread, ``lanes`` apart."""

    lanes: int
    channels: int

    @property
    def log2_lanes(self) -> int:
        return log2(self.lanes)

    @property
    def tiles(self) -> int:
        """Tiles of a block."""
        return THREADS // self.lanes

    @property
    def block_channels(self) -> int:
        """Channels of a block."""
        return self.lanes * self.channels

    def grid(self, tiles: int, channels: int) -> tuple[int, int, int]:
        return ceil_div(tiles, self.tiles), ceil_div(channels, self.block_channels), 1


def _threads(channels_adjacent: bool, channels: int) -> ChannelsAndTiles:
    return ChannelsAndTiles(WARP if channels_adjacent else 1, channels)


def _tile_numbers(p: WinogradGemm, t: WinogradTransform, matrix: str) -> tuple[int, ...]:
    """The numbers of the kernels over tiles: tiles, rows and columns of tiles of an image, steps of the matrix."""
    ld = p.ldc if matrix == "c" else p.lda if matrix == "a" else p.ldb
    steps = (ld, 1) if p.channels_adjacent else (1, ld)
    return (t.tile_count, *t.tiles, *steps)


@dataclass(frozen=True)
class WinogradPacking(Packing):
    """Transformed images and filters in the workspace, where the products are stored too."""

    template = "copy/winograd_transforms.mako"
    THREADS, ROW, POINTS, LOG2_WARP = THREADS, ROW, POINTS, log2(WARP)
    CHANNELS = 4  #: channels of a thread of the transform of images
    #: lanes of a warp of the transform of filters. Along channels they load adjacent filters (KCRS), along filters they
    #: store whole sectors
    LANES_FILTERS, LANES_CHANNELS = 8, WARP // 8
    LOG2_LANES_FILTERS, LOG2_LANES_CHANNELS = log2(LANES_FILTERS), log2(LANES_CHANNELS)
    BLOCK_FILTERS = THREADS // LANES_CHANNELS  #: filters of a block
    #: the parameters of the kernels after the addresses
    FILTER_NUMBERS = (
        *("filters", "channels", "matrix_filters", "matrix_channels"),
        *("filter_step", "channel_step", "row_step", "column_step", "first_tap", "matrix_offset128"),
    )
    IMAGE_NUMBERS = (
        *("tiles", "tile_rows", "tile_columns", "tile_step", "depth_step"),
        *("matrix_tiles", "channels", "matrix_channels", "height", "width", "first_row", "first_column"),
        *("image_step", "channel_step", "row_step", "column_step", "matrix_offset128"),
    )

    @property
    def names(self) -> list[str]:
        return ["a", "b"]

    @cached_property
    def product(self) -> WinogradGemm:
        return transformed(self.problem)[0]

    @property
    def image(self) -> str:
        """The operand that holds the images."""
        return self.product.image.upper()

    @property
    def filters(self) -> str:
        """The operand that holds the filters."""
        return "A" if self.image == "B" else "B"

    @cached_property
    def threads(self) -> ChannelsAndTiles:
        return _threads(self.product.channels_adjacent, self.CHANNELS)

    @cached_property
    def taps(self) -> Tile:
        return Tile("tap", "f32", (3, 3))

    @cached_property
    def patch(self) -> Tile:
        """Pixels of a patch, or elements of a transformed filter."""
        return Tile("elem", "f32", (4, 4))

    @cached_property
    def rows(self) -> Tile:
        """A patch or a filter after the transform of its columns."""
        return Tile("half", "f32", (4, 4))

    def product_problem(self, p: KernelGemm) -> KernelGemm:
        return transformed(p)[0]

    def allocate(self, p: KernelGemm, run: BatchRange, workspace: Allocator) -> Buffers:
        offsets = matrix_offsets(transformed(p)[0])
        size = offsets.pop("")
        workspace.claim(size, "transformed filters and images, products", ROW)
        return Buffers(offsets)

    @property
    def product_parameters(self) -> list[str]:
        return [", ".join(f".param .u32 offset128_{name}" for name in "abc")]

    def product_arguments(self, buffers: Buffers) -> tuple[Argument, ...]:
        return tuple(("u32", offset // ROW) for offset in buffers.packed.values())

    def steps(self, p: KernelGemm, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        q, t = transformed(p)
        filters, images = ("b", "a") if q.image == "a" else ("a", "b")
        matrix_filters, tiles = (q.n, q.m) if q.channels_adjacent else (q.m, q.n)
        filter_numbers = (
            *(t.filters, t.channels, matrix_filters, q.k),
            *(*t.filter_steps, t.filter_start, buffers.packed[filters] // ROW),
        )
        image_numbers = (
            *_tile_numbers(q, t, images),
            *(tiles, t.channels, q.k, t.height, t.width, *t.first),
            *(*t.image_steps, buffers.packed[images] // ROW),
        )
        blocks = (ceil_div(matrix_filters, self.BLOCK_FILTERS), ceil_div(q.k, self.LANES_CHANNELS), 1)
        kernels = (
            ("transform_filters", blocks, filters, filter_numbers),
            ("transform_images", self.threads.grid(tiles, q.k), images, image_numbers),
        )
        return tuple(self._step(q, *kernel) for kernel in kernels)

    def _step(self, p: WinogradGemm, name: str, grid: tuple[int, int, int], matrix: str, numbers: Ints) -> Step:
        """The launch of the kernel that writes the matrices A or B."""
        stride: Argument = ("u64", p.offsets["abc".index(matrix)])
        return Step(f"{self.entry}_{name}", grid, (THREADS, 1, 1), 0, (*self.pointers, stride, *_u32(numbers)))


@dataclass(frozen=True)
class ResultEpilogue:
    """How the templates of the epilogue store results: inside the result only, each in its own dtype."""

    computes_oob: bool = False
    pack_8bit: bool = False


@dataclass(frozen=True)
class ResultTransform:
    """The kernel that computes results from the products: a plan of its own for the templates of the epilogue.
    ``problem``: the convolution."""

    problem: KernelGemm
    arithmetic: Arithmetic
    c: CAccess
    fused_ops: FusedOps
    pdl: Pdl
    entry: str

    kernel: ClassVar[str] = "kernel/winograd_results.mako"
    epilogue: ClassVar[ResultEpilogue] = ResultEpilogue()
    THREADS, ROW, POINTS, TILE = THREADS, ROW, POINTS, TILE
    CHANNELS = 2  #: channels of a thread
    NUMBERS = (
        *("tiles", "tile_rows", "tile_columns", "tile_step", "depth_step"),
        *("channels", "height", "width", "image_step", "channel_step", "row_step", "column_step", "matrix_offset128"),
    )

    @cached_property
    def threads(self) -> ChannelsAndTiles:
        return _threads(transformed(self.problem)[0].channels_adjacent, self.CHANNELS)

    @cached_property
    def products(self) -> Tile:
        return Tile("elem", "f32", (4, 4))

    @cached_property
    def rows(self) -> Tile:
        """Products after the transform of their columns."""
        return Tile("half", "f32", (TILE, 4))

    @cached_property
    def results(self) -> Tile:
        return Tile("result", "f32", (TILE, TILE))

    def step(self, p: KernelGemm) -> Step:
        """The launch."""
        q, t = transformed(p)
        offset = matrix_offsets(q)["c"] // ROW
        numbers = (*_tile_numbers(q, t, "c"), t.filters, *t.results, *t.result_steps, offset)
        grid = self.threads.grid(t.tile_count, t.filters)
        stride: Argument = ("u64", q.offsets[2])
        arguments = (*POINTERS, *self.fused_ops.arguments, stride, *_u32(numbers), ("f32", "beta"))
        return Step(f"{self.entry}_transform_results", grid, (THREADS, 1, 1), 0, arguments)


@dataclass(frozen=True)
class WinogradCKernels(CKernels):
    """The transform of the products follows the main kernel."""

    results: ResultTransform

    def steps(self, main: Step, p: KernelGemm, run: BatchRange) -> tuple[Step, ...]:
        return main, self.results.step(p)
