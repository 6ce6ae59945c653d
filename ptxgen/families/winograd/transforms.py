"""The kernels around the products of a Winograd convolution: transforms of filters (or result gradients), of images,
and of products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ptxgen.codegen.launches.c_kernels import CKernels
from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.c_access import CAccess
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, addresses, given
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.parts.pdl import Pdl
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Last, Log2, ceil_div, log2
from ptxgen.families.winograd.interpolation import Interpolation
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW
from ptxgen.lowering.winograd import TAPS, Winograd, WinogradTransform, winograd

THREADS = 128  #: threads per block of the transforms
IMAGE_CHANNELS = {2: 4, 4: 2}  #: tile -> channels of a thread in the transforms of images and of gradients
RESULT_CHANNELS = {2: 2, 4: 1}  #: tile -> channels of a thread in the transform of products
#: tile -> blocks per multiprocessor for which registers are limited in the transform of products, 0: no limit. Without
#: a limit, ptxas chose 40 registers for GELU with tiles of 4x4 on sm_80, and spilled
RESULT_CTAS = {2: 0, 4: 6}
#: adjacent threads along channels, if pixels are adjacent in memory and channels in the matrices: these threads store
#: whole sectors, and threads along tiles load whole sectors
SECTOR_CHANNELS = 8
PRODUCTS = 0  #: offset of the matrices C in the workspace, in bytes
WORD = 1 << 32
Ints = tuple[int, ...]
Names = tuple[str, ...]


def algorithm(p: KernelProblem) -> Winograd:
    """The Winograd algorithm of which ``p`` is the products."""
    transforms = winograd(p)
    assert transforms is not None
    return transforms


def tensors(p: KernelProblem) -> WinogradTransform:
    """The tensors that are transformed."""
    transform = algorithm(p).transform
    assert transform is not None
    return transform


def with_results(p: KernelProblem) -> KernelProblem:
    """The problem of the products, with the sink of their convolution."""
    sink = algorithm(p).sink
    assert sink is not None
    return replace(p, sink=sink)


def _modulo(numbers: Ints) -> Ints:
    """The numbers as 32-bit words; a negative number is taken modulo 2^32."""
    return tuple(n % WORD for n in numbers)


@dataclass(frozen=True)
class ChannelsAndTiles:
    """How the threads of a transform divide channels and tiles. ``lanes``: adjacent threads along channels; the other
    threads are along tiles; ``channels``: channels of a thread, ``lanes`` apart; ``digits``: the digits of a tile
    number, fastest first."""

    lanes: int
    channels: int
    digits: tuple[str, str, str]

    log2_lanes = Log2("lanes")

    @property
    def tiles(self) -> int:
        """The number of tiles of a block."""
        return THREADS // self.lanes

    @property
    def block_channels(self) -> int:
        """The number of channels of a block."""
        return self.lanes * self.channels

    def grid(self, tiles: int, channels: int) -> tuple[int, int, int]:
        return ceil_div(tiles, self.tiles), ceil_div(channels, self.block_channels), 1

    @property
    def channel_offsets(self) -> range:
        """The distances from a thread's first channel to each of its channels."""
        return range(0, self.block_channels, self.lanes)

    last_lane = Last("lanes")


def _minimal_filtering(p: Winograd) -> str:
    results, taps = (TAPS[1], p.tile) if p.weight_grad else (p.tile, TAPS[1])
    return f"math/winograd_f{results}x{results}_{taps}x{taps}.mako"


def other_operand(p: Winograd) -> str:
    """The operand of the GEMMs that does not hold the images but filters or result gradients."""
    return "a" if p.image == "b" else "b"


def _tile_number_names(p: Winograd) -> Names:
    """The first parameters of a kernel over tiles: number of tiles, extents of the two fastest digits, strides of the
    matrix."""
    first, second, _ = p.tile_digits
    return "tiles", f"{second}s", f"{first}s", "tile_step", "depth_step"


def _tile_numbers(p: Winograd, images: int, rows: int, columns: int, steps: Ints) -> Ints:
    """The values of the parameters in ``_tile_number_names``, for images of ``rows`` by ``columns`` tiles."""
    extents = {"image": images, "tile_row": rows, "tile_column": columns}
    first, second, _ = p.tile_digits
    return (images * rows * columns, extents[second], extents[first], *steps)


def _matrix_numbers(q: KernelProblem, matrix: str) -> Ints:
    """The values of the parameters in ``_tile_number_names``, for all tiles of a convolution and matrix A, B or C."""
    p, t, ld = algorithm(q), tensors(q), q.operand(matrix.upper()).access.ld
    return _tile_numbers(p, t.images, *t.tiles, (1, ld) if p.tiles_adjacent else (ld, 1))


@dataclass(frozen=True)
class TileTransform:
    """The kernel ``name`` that transforms a patch of pixels for each tile. ``tensor``: the tensor that has the pixels;
    ``operand``: the operand, A or B, that it becomes; ``extent``: rows (and columns) of the patch; ``pixels``,
    ``formula``: texts for comments."""

    name: str
    tensor: str
    operand: str
    extent: int
    pixels: str
    formula: str


@dataclass(frozen=True)
class WinogradPacking(Packing):
    """The transforms of the operands to the workspace: images and filters, or images and result gradients."""

    template = "copy/winograd_transforms.mako"
    THREADS, ROW, LOG2_WARP = THREADS, ROW, log2(WARP)
    #: lanes of a warp in the transform of filters. Lanes along channels load adjacent filters (KCRS), lanes along
    #: filters store whole sectors
    LANES_FILTERS, LANES_CHANNELS = 8, WARP // 8
    LOG2_LANES_FILTERS, LOG2_LANES_CHANNELS = log2(LANES_FILTERS), log2(LANES_CHANNELS)
    BLOCK_FILTERS = THREADS // LANES_CHANNELS  #: filters of a block
    #: the parameters of the kernel for filters after the addresses
    FILTER_NUMBERS = (
        *("filters", "channels", "matrix_filters", "matrix_channels"),
        *("filter_step", "channel_step", "row_step", "column_step", "first_tap", "matrix_offset128"),
    )
    PIXEL_NUMBERS = (
        *("matrix_tiles", "channels", "matrix_channels", "height", "width", "first_row", "first_column"),
        *("image_step", "channel_step", "row_step", "column_step", "matrix_offset128"),
    )

    @property
    def names(self) -> list[str]:
        return ["a", "b"]

    @cached_property
    def product(self) -> Winograd:
        return algorithm(self.problem)

    @property
    def tile_numbers(self) -> Names:
        """The parameters of the transforms of pixels, after the addresses."""
        return (*_tile_number_names(self.product), *self.PIXEL_NUMBERS)

    @property
    def filters(self) -> list[str]:
        """A list with the operand that holds filters; empty if there is none."""
        return [] if self.product.weight_grad else [other_operand(self.product).upper()]

    @property
    def gradients(self) -> list[TileTransform]:
        """A list with the kernel that transforms result gradients; empty if no operand holds them."""
        if not self.product.weight_grad:
            return []
        operand, formula = other_operand(self.product).upper(), "G d, then (G d) G^T"
        return [
            TileTransform(
                "transform_gradients", "gradients", operand, self.product.tile, "the gradients of a tile", formula
            )
        ]

    @property
    def images(self) -> TileTransform:
        """The kernel that transforms patches of images."""
        operand, formula = self.product.image.upper(), "B^T d, then (B^T d) B"
        return TileTransform("transform_images", "images", operand, self.product.patch, "a patch", formula)

    @property
    def tensors(self) -> str:
        """A text for a comment: the names of both transformed tensors."""
        return "gradients and images" if self.product.weight_grad else "filters and images"

    log2_tile = Log2("product.tile")

    @property
    def minimal_filtering(self) -> str:
        """The template file of the transforms that differ between the algorithms."""
        return _minimal_filtering(self.product)

    @property
    def patch_points(self) -> str:
        """The template file of the transform of patches, which forward convolutions and weight gradients share."""
        return f"math/winograd_patch_{self.product.patch}x{self.product.patch}.mako"

    @cached_property
    def threads(self) -> ChannelsAndTiles:
        p = self.product
        lanes = WARP if p.channels_adjacent else 1 if p.tiles_adjacent else SECTOR_CHANNELS
        return ChannelsAndTiles(lanes, IMAGE_CHANNELS[p.tile], p.tile_digits)

    @cached_property
    def taps(self) -> Tile:
        return Tile("tap", "f32", (3, 3))

    @cached_property
    def patch(self) -> Tile:
        """The registers of a patch's pixels, or of a transformed filter's elements."""
        return Tile("elem", "f32", (self.product.patch, self.product.patch))

    @cached_property
    def rows(self) -> Tile:
        """The registers of a patch or a filter after the transform of its columns."""
        return Tile("half", "f32", (self.product.patch, self.product.patch))

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        packed, points = {}, algorithm(p).points
        for x in p.operands:
            size = points * x.access.rows * x.access.ld * x.element.bytes
            packed[x.name.lower()] = workspace.claim(size, f"transformed {x.name}", ROW).offset
        return Buffers({**packed, "c": PRODUCTS})

    @property
    def product_parameters(self) -> list[Parameters]:
        names = tuple(f"offset128_{name}" for name in "abc")
        return [Parameters("u32", names, lambda x: (offset // ROW for offset in x.buffers.packed.values()))]

    @property
    def kernels(self) -> dict[str, ParameterList]:
        """Name of a kernel -> its parameters, in the order of the launches."""
        image, other = self.product.image, other_operand(self.product)
        if self.product.weight_grad:
            first = {"transform_gradients": self._numbers(other, self.tile_numbers, self._gradient_values)}
        else:
            first = {"transform_filters": self._numbers(other, self.FILTER_NUMBERS, self._filter_values)}
        return {**first, "transform_images": self._numbers(image, self.tile_numbers, self._image_values)}

    def _numbers(self, matrix: str, names: Names, values: Callable[[Launched], Ints]) -> ParameterList:
        """The parameters of the kernel that writes matrix A or B."""
        stride = Parameters("u64", ("matrix_bytes",), lambda x: (x.p.offsets["abc".index(matrix)],))
        numbers = Parameters("u32", names, lambda x: _modulo(values(x)))
        return ParameterList((*addresses(self.problem), stride, numbers))

    def _extents(self, p: KernelProblem) -> tuple[int, int, int]:
        """The numbers of tiles, channels and filters in the matrices."""
        q = algorithm(p)
        filters, tiles = (p.n, p.m) if q.image == "a" else (p.m, p.n)
        return (p.k, tiles, filters) if q.weight_grad else (tiles, p.k, filters)

    def _image_values(self, launched: Launched) -> Ints:
        p, q, t = launched.p, algorithm(launched.p), tensors(launched.p)
        tiles, channels, _ = self._extents(p)
        return (
            *_matrix_numbers(p, q.image),
            *(tiles, t.channels, channels, t.height, t.width, *t.first),
            *(*t.image_steps, launched.buffers.packed[q.image] // ROW),
        )

    def _gradient_values(self, launched: Launched) -> Ints:
        p, t, other = launched.p, tensors(launched.p), other_operand(algorithm(launched.p))
        tiles, _, filters = self._extents(p)
        return (
            *_matrix_numbers(p, other),
            *(tiles, t.filters, filters, *t.results, 0, 0),
            *(*t.result_steps, launched.buffers.packed[other] // ROW),
        )

    def _filter_values(self, launched: Launched) -> Ints:
        p, t, other = launched.p, tensors(launched.p), other_operand(algorithm(launched.p))
        return (
            *(t.filters, t.channels, self._extents(p)[2], p.k),
            *(*t.filter_steps, t.filter_start, launched.buffers.packed[other] // ROW),
        )

    def _grid(self, p: KernelProblem, kernel: str) -> tuple[int, int, int]:
        tiles, channels, filters = self._extents(p)
        if kernel == "transform_filters":
            return ceil_div(filters, self.BLOCK_FILTERS), ceil_div(p.k, self.LANES_CHANNELS), 1
        return self.threads.grid(tiles, filters if kernel == "transform_gradients" else channels)

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        grids = {name: self._grid(launched.p, name) for name in self.kernels}
        return tuple(
            Step(f"{self.entry}_{name}", grids[name], (THREADS, 1, 1), 0, rows.arguments(launched))
            for name, rows in self.kernels.items()
        )


@dataclass(frozen=True)
class ResultEpilogue:
    """The epilogue settings with which templates store results: only inside the result, each in the type of C."""

    computes_oob: bool = False
    pack_8bit: bool = False


@dataclass(frozen=True)
class ResultTransform:
    """The plan of the kernel that computes results from the products; epilogue templates use it. ``problem``: the
    products, with the sink of the convolution; ``sums_slices``: True if there are several K slices to add."""

    problem: KernelProblem
    arithmetic: Arithmetic
    c: CAccess
    fused_ops: FusedOps
    pdl: Pdl
    entry: str
    sums_slices: bool

    kernel: ClassVar[str] = "kernel/winograd_results.mako"
    epilogue: ClassVar[ResultEpilogue] = ResultEpilogue()
    interpolation: ClassVar[Interpolation] = Interpolation()
    THREADS, ROW = THREADS, ROW
    NUMBERS = (
        *("channels", "height", "width", "image_step", "channel_step", "row_step", "column_step", "matrix_offset128"),
    )

    @cached_property
    def product(self) -> Winograd:
        return algorithm(self.problem)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the parameters after the addresses."""
        numbers = (*_tile_number_names(self.product), *self.NUMBERS)
        return (*numbers, "slices") if self.sums_slices else numbers

    @cached_property
    def threads(self) -> ChannelsAndTiles:
        p = self.product
        return ChannelsAndTiles(1 if p.tiles_adjacent else WARP, RESULT_CHANNELS[p.tile], p.tile_digits)

    @property
    def min_ctas_per_sm(self) -> int:
        """The number of blocks per multiprocessor for which registers are limited, if the epilogue has only operations
        without operands; 0: no limit. With a limit, ptxas hoists the loads of operands until it spills."""
        fused = bool(self.problem.sink.ops)
        return RESULT_CTAS[self.product.tile] if fused and not self.fused_ops.operands else 0

    @property
    def extent(self) -> int:
        """The rows (and columns) of results that the products of one channel and tile give."""
        return TAPS[1] if self.product.weight_grad else self.product.tile

    log2_tile = Log2("product.tile")

    @property
    def minimal_filtering(self) -> str:
        return _minimal_filtering(self.product)

    @cached_property
    def products(self) -> Tile:
        return Tile("elem", "f32", (self.product.patch, self.product.patch))

    @cached_property
    def addends(self) -> Tile:
        """The registers of the products of another K slice."""
        return Tile("addend", "f32", (self.product.patch, self.product.patch))

    @cached_property
    def rows(self) -> Tile:
        """The registers of the products after the transform of their columns."""
        return Tile("half", "f32", (self.extent, self.product.patch))

    @cached_property
    def results(self) -> Tile:
        return Tile("result", "f32", (self.extent, self.extent))

    def parameter_list(self, slices: int = 1) -> ParameterList:
        """The parameters of the kernel. ``slices``: the number of K slices, whose products are consecutive."""
        stride = Parameters("u64", ("matrix_bytes",), lambda p: p.offsets[2:])
        numbers = Parameters("u32", self.numbers, lambda p: _modulo(self._values(p, slices)))
        return ParameterList((*addresses(self.problem), stride, numbers, given("f32", "beta")))

    def _extents(self, p: KernelProblem) -> tuple[int, int]:
        """The numbers of tiles and of channels of the results."""
        q, t = algorithm(p), tensors(p)
        if not q.weight_grad:
            return t.tile_count, t.filters
        # an image of one tile for each row of C, a channel for each column
        return (t.channels, t.filters) if q.image == "a" else (t.filters, t.channels)

    def _values(self, p: KernelProblem, slices: int) -> Ints:
        """The values of the parameters in ``numbers``."""
        q, t = algorithm(p), tensors(p)
        tiles, channels = self._extents(p)
        numbers: Ints = (*_matrix_numbers(p, "c"), channels, *t.results, *t.result_steps)
        if q.weight_grad:
            by_tile, by_channel, *steps = t.filter_steps
            if q.image == "a":
                by_tile, by_channel = by_channel, by_tile
            one_tile = _tile_numbers(q, tiles, 1, 1, (p.operand("C").access.ld, 1))
            numbers = (*one_tile, channels, *TAPS[1:], by_tile, by_channel, *steps)
        return (*numbers, PRODUCTS // ROW, *([slices] if self.sums_slices else []))

    def step(self, p: KernelProblem, slices: int) -> Step:
        """The launch of the kernel. ``slices``: the number of K slices, whose products are consecutive."""
        grid, arguments = self.threads.grid(*self._extents(p)), self.parameter_list(slices).arguments(p)
        return Step(f"{self.entry}_transform_results", grid, (THREADS, 1, 1), 0, arguments)

    @property
    def number_registers(self) -> str:
        return ", ".join(f"%{name}" for name in self.numbers)


@dataclass(frozen=True)
class WinogradCKernels(CKernels):
    """The auxiliary kernel after the main kernel: it adds K slices and transforms the products."""

    results: ResultTransform

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        """Claims the beginning of the workspace for the products, or for the sums of each slice."""
        size = self.scheduler.slices(p) * items * p.m * p.operand("C").access.ld * self.arithmetic.bytes
        assert workspace.claim(size, "products [slice][point][M][N]", ROW).offset == PRODUCTS

    def steps(self, main: Step, launched: Launched) -> tuple[Step, ...]:
        return main, self.results.step(launched.p, self.scheduler.slices(launched.p))
