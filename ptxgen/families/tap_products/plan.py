"""The plan of a kernel that adds products of taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.epilogue import Epilogue
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, addresses, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.tap_products.geometry import MMA_CHANNELS, MMA_COLUMNS, TapGeometry, geometry
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem
from ptxgen.lowering.tap_products import TapProducts, tap_products

GROUP, GROUPS = 4, 8  #: lanes that load a pixel together with mma.sync, and pixels of a warp that are loaded at once
MMA_WORDS = 4  #: words of one access, and accumulators of one instruction, of a lane with mma.sync


class PixelLoad(NamedTuple):
    """A load of adjacent channels of one pixel of a thread. ``inside``: the predicate that tells if the pixel is in the
    image; ``address``, ``offset``: the register with its address, and bytes from it; ``operand``, ``words``: the
    registers that the load fills, as operand and as a list."""

    inside: str
    address: str
    offset: int
    operand: str
    words: list[str]


class TapLoad(NamedTuple):
    """A load of taps from shared memory: the operand, and the offset in bytes."""

    operand: str
    offset: int


class Channel(NamedTuple):
    """What fma multiplies of one channel: loads of its taps; (sum, pixel, tap) of each product."""

    taps: list[TapLoad]
    products: list[tuple[str, str, str]]


class MmaProduct(NamedTuple):
    """The operands of one instruction: sums, pixels, taps."""

    sums: str
    pixels: str
    taps: str


@dataclass(frozen=True)
class Access:
    """Adjacent channels of the pixels of a thread, loaded by one access to each pixel. ``channel``: the first of them
    in an iteration; ``loads``: one for each pixel.

    With fma, registers are converted by ``pairs`` (even channel, odd channel, word), ``singles`` (channel, half) and
    ``moves`` (channel, register), then multiplied channel by channel. With mma.sync, ``taps`` has the loads of taps of
    all these channels, and ``products`` the instructions."""

    channel: int
    loads: list[PixelLoad]
    pairs: list[tuple[str, str, str]]
    singles: list[tuple[str, str]]
    moves: list[tuple[str, str]]
    channels: list[Channel]
    taps: list[TapLoad]
    products: list[MmaProduct]


@dataclass(frozen=True)
class TapLoop(Part):
    """The loop over channels."""

    problem: KernelProblem
    config: Config
    arithmetic: Arithmetic
    geometry: TapGeometry

    @property
    def taps(self) -> TapProducts:
        taps = tap_products(self.problem)
        assert taps is not None
        return taps

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return self.problem.element.bytes

    @property
    def images(self) -> str:
        """The register with the address of the pixels."""
        return "%A" if self.taps.image == "a" else "%B"

    @property
    def filters(self) -> str:
        """The register with the address of the filters."""
        return "%B" if self.taps.image == "a" else "%A"

    @property
    def mma(self) -> bool:
        return bool(self.config.tap_mma)

    @property
    def slot(self) -> str:
        """The slot that loads pixels and multiplies them."""
        return "math/taps_mma.mako" if self.mma else "math/taps_fma.mako"

    # ---- the pixels of a thread

    @property
    def count(self) -> int:
        """The number of pixels of which a thread loads channels: its own, or with mma.sync those of its group of
        lanes."""
        return self.config.thread_pixels * (GROUP if self.mma else 1)

    @property
    def pixel_step(self) -> int:
        """The distance between adjacent pixels of a thread, in the order of the tile's pixels."""
        return GROUPS if self.mma else self.config.block_threads

    @property
    def later_places(self) -> list[tuple[str, int]]:
        """The registers of a thread's pixels after the first, and the distance of each from the first."""
        return [(self.places[j], j * self.pixel_step) for j in range(1, self.count)]

    @property
    def places_of_pixels(self) -> list[tuple[str, str, str]]:
        """For each pixel of a thread: the registers with its number in the tile, with its address, and the predicate
        that tells if it is in the image."""
        return list(zip(self.places.all, self.addresses.all, self.inside.all, strict=True))

    @property
    def warp_pixels(self) -> int:
        """The number of pixels of a warp with mma.sync."""
        return WARP * self.config.thread_pixels

    @cached_property
    def addresses(self) -> Tile:
        """The registers with the addresses of the next channels of a thread's pixels."""
        return Tile("pixel_addr", "b64", (self.count,))

    @cached_property
    def inside(self) -> Tile:
        """The predicates that tell which pixels of a thread are in the image."""
        return Tile("inside", "pred", (self.count,))

    @cached_property
    def places(self) -> Tile:
        """The registers with the numbers of a thread's pixels in the tile."""
        return Tile("place", "b32", (self.count,))

    # ---- loads

    @property
    def vec(self) -> int:
        return self.config.vec_channel

    @property
    def channel_step(self) -> int:
        """The number of channels of one access of a thread, with those of its group of lanes."""
        return MMA_CHANNELS if self.mma else self.vec

    @property
    def accesses_of_pixel(self) -> int:
        """The number of accesses to a pixel in an iteration."""
        return self.config.u // self.channel_step

    @cached_property
    def word_type(self) -> str:
        """The type of a register as loaded."""
        return f"b{8 * min(self.vec * self.size, 4)}" if self.size == 2 else self.arithmetic.type

    @cached_property
    def words(self) -> Tile:
        """The registers of pixels as loaded: pixel, access, word."""
        each = max(self.vec // 2, 1) if self.size == 2 else self.vec
        return Tile("word", self.word_type, (self.count, self.accesses_of_pixel, each))

    @property
    def load_type(self) -> str:
        return width(self.words.shape[-1], self.words.ptx_type)

    @property
    def zero(self) -> str:
        return "0" if self.size == 2 else self.arithmetic.zero

    @cached_property
    def accesses(self) -> list[Access]:
        """The accesses of an iteration."""
        return [self._access(number) for number in range(self.accesses_of_pixel)]

    def _access(self, number: int) -> Access:
        loads = self._loads(number)
        pairs, singles, moves = [], [], []
        for j, load in enumerate([] if self.mma else loads):
            pixels = [self.pixels[j, n] for n in range(self.vec)]
            if self.size > 2:
                moves += list(zip(pixels, load.words, strict=True))
            elif self.vec > 1:
                pairs += list(zip(pixels[::2], pixels[1::2], load.words, strict=True))
            else:
                singles += list(zip(pixels, load.words, strict=True))
        first = number * self.channel_step
        channels = [] if self.mma else [self._channel(first, n) for n in range(self.vec)]
        taps, products = (self._mma_taps(first), self._mma_products(number)) if self.mma else ([], [])
        return Access(first, loads, pairs, singles, moves, channels, taps, products)

    def _loads(self, number: int) -> list[PixelLoad]:
        each = self.words.shape[-1]
        offset = number * self.channel_step * self.size if self.taps.channels_last else 0
        return [
            PixelLoad(
                self.inside[j],
                self.addresses[j],
                offset,
                self.words.vector(j, number, 0, n=each),
                [self.words[j, number, i] for i in range(each)],
            )
            for j in range(self.count)
        ]

    def _channel(self, first: int, n: int) -> Channel:
        """Channel ``n`` of an access whose first channel is number ``first`` of the iteration."""
        vector, columns, at = 16 // self.arithmetic.bytes, int(self.geometry.columns), (first + n) * self._filter_pitch
        taps = [
            TapLoad(self.weights.vector(i, n=vector), at + i * self.arithmetic.bytes) for i in range(0, columns, vector)
        ]
        products = range(self.taps.products)
        return Channel(
            taps, [(self.acc[j, i], self.pixels[j, n], self.weights[i]) for j in range(self.count) for i in products]
        )

    @property
    def moved_by_access(self) -> list[str]:
        """The registers with addresses that move by a channel after each access: an access has one channel."""
        return [] if self.taps.channels_last else self.addresses.all

    @property
    def moved_by_iteration(self) -> list[str]:
        """The registers with addresses that move by the channels of an iteration after it."""
        return self.addresses.all if self.taps.channels_last else []

    @property
    def iteration_bytes(self) -> int:
        """The bytes of a pixel's channels of an iteration, if they are contiguous."""
        return self.config.u * self.size

    # ---- filters in shared memory

    @property
    def filter_bytes(self) -> int:
        """The bytes of a tap in shared memory."""
        return self.size if self.mma else self.arithmetic.bytes

    @property
    def filter_elements(self) -> int:
        """The taps in shared memory, with zeros."""
        return int(self.geometry.columns) * self.config.filter_channels

    @property
    def filter_row(self) -> int:
        """The number of taps in a row of shared memory: those of a channel, or with mma.sync the channels of a tap."""
        return self.config.filter_channels if self.mma else int(self.geometry.columns)

    # ---- fma

    @cached_property
    def acc(self) -> Tile:
        """The products of a thread: pixel, product; with mma.sync: 16 pixels, 8 products, accumulators of a lane."""
        if self.mma:
            columns = int(self.geometry.columns) // MMA_COLUMNS
            return Tile("acc", "f32", (self.count // 2, columns, MMA_WORDS))
        return Tile("acc", self.arithmetic.type, (self.count, self.taps.products))

    @cached_property
    def pixels(self) -> Tile:
        """The registers of converted channels: pixel, channel of an access."""
        return Tile("pixel", self.arithmetic.type, (self.count, self.vec))

    @cached_property
    def halves(self) -> Tile:
        return Tile("half", "b16", (2,))

    @cached_property
    def weights(self) -> Tile:
        """The registers of the taps of one channel; with mma.sync, of eight channels of one product for each
        instruction."""
        if self.mma:
            return Tile("weight", "b32", (int(self.geometry.columns) // MMA_COLUMNS, MMA_WORDS))
        return Tile("weight", self.arithmetic.type, (int(self.geometry.columns),))

    @property
    def weight_type(self) -> str:
        return width(16 // self.arithmetic.bytes, self.arithmetic.type)

    @property
    def _filter_pitch(self) -> int:
        return int(self.geometry.filter_pitch)

    @property
    def weight_step(self) -> int:
        """Bytes in shared memory from the taps of an iteration to those of the next."""
        return self.config.u * (self.size if self.mma else self._filter_pitch)

    # ---- mma

    log2_vector = 3  #: log2 of the channels that a lane loads at once with mma.sync

    @property
    def lane_pitch_bytes(self) -> int:
        """Bytes in shared memory from the first product of a lane to that of the next: it has two of each eight."""
        return 2 * self.pitch_bytes

    def _mma_taps(self, first: int) -> list[TapLoad]:
        """The loads of the taps of an access whose first channel is number ``first`` of the iteration: eight products
        each."""
        rows = MMA_COLUMNS * self._filter_pitch
        return [TapLoad(self.weights[n, :], n * rows + first * self.size) for n in range(self.weights.shape[0])]

    def _mma_products(self, number: int) -> list[MmaProduct]:
        """The instructions of an access. A lane has eight channels of a pixel: words 0 and 1 are the channels of the
        first instruction, words 2 and 3 those of the second. Taps are in the same order."""
        out = []
        for step in (0, 2):
            for m in range(self.acc.shape[0]):
                rows = (2 * m, 2 * m + 1)
                pixels = braces([self.words[row, number, step + k] for k in (0, 1) for row in rows])
                for n in range(self.acc.shape[1]):
                    out.append(MmaProduct(self.acc[m, n, :], pixels, self.weights.vector(n, step, n=2)))
        return out

    @property
    def instruction(self) -> str:
        element = self.problem.dtype
        return f"mma.sync.aligned.m16n8k16.row.col.f32.{element}.{element}.f32"

    # ---- products in shared memory

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one product of a pixel to the next in shared memory."""
        return int(self.geometry.pitch) * self.arithmetic.bytes

    @property
    def sum_stores(self) -> list[tuple[str, str, int, str]]:
        """The stores of products to shared memory: the predicate, the address of the thread's first product of the
        pixel, the offset in bytes, the register."""
        if not self.mma:
            products = range(self.taps.products)
            return [self._sum_store(j, n, self.acc[j, n]) for j in range(self.count) for n in products]
        tiles, columns, _ = self.acc.shape
        return [
            self._sum_store(2 * m + row, MMA_COLUMNS * n + e, self.acc[m, n, 2 * row + e])
            for m in range(tiles)
            for row in (0, 1)
            for n in range(columns)
            for e in (0, 1)
        ]

    def _sum_store(self, pixel: int, product: int, register: str) -> tuple[str, str, int, str]:
        return self.inside[pixel], self.places[pixel], product * self.pitch_bytes, register

    @property
    def tap_offsets(self) -> list[int]:
        """For each tap, the offset in bytes of its product with the pixel that it reads."""
        t, across = self.taps, int(self.geometry.region_width)
        return [
            (r * t.rows.dilation * across + s * t.columns.dilation) * self.arithmetic.bytes
            + (r * t.columns.taps + s) * t.filters * self.pitch_bytes
            for r in range(t.rows.taps)
            for s in range(t.columns.taps)
        ]

    @property
    def first_tap(self) -> int:
        return self.tap_offsets[0]

    @property
    def later_taps(self) -> list[int]:
        return self.tap_offsets[1:]

    @property
    def row_bytes(self) -> int:
        """Bytes in shared memory from the first pixel of a row of results to that of the next."""
        return self.taps.rows.stride * int(self.geometry.region_width) * self.arithmetic.bytes

    @property
    def column_bytes(self) -> int:
        return self.taps.columns.stride * self.arithmetic.bytes

    @property
    def tile_results(self) -> int:
        """The number of results of a tile."""
        return self.config.tile_height * self.config.tile_width * self.taps.filters

    # ---- header

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "products of the thread's pixels")]

    @property
    def shared_map(self) -> list[str]:
        taps = f"then taps of {self.config.filter_channels} channels: "
        return ["products of pixels: product, pixel", taps + ("product, channel" if self.mma else "channel, product")]


@dataclass(frozen=True)
class TapEpilogue(Epilogue):
    """The epilogue: each thread adds the products of results, and stores one result after the other."""

    template = "epilogue/tap_sums.mako"
    via_smem = True

    @cached_property
    def vector(self) -> Tile:
        """The register of a result."""
        return Tile("result", self.arithmetic.type, (1,))

    @property
    def filter_coordinates(self) -> list[tuple[str, int]]:
        """The registers with row and column for the operands of fused operations. They are two objects, because the
        slots compare them by identity."""
        return [(name, 0) for name in ("%filter", "%filter")]


@dataclass(frozen=True)
class TapParameters(KernelParameters):
    """The parameters of a launch."""

    problem: KernelProblem
    config: Config
    arithmetic: Arithmetic

    COUNTS = ("channels", "image_rows", "image_columns", "result_rows", "result_columns", "tiles", "tiles_across")
    STARTS = ("row_padding", "column_padding", "filter_start")
    #: strides of images from one image, channel, row and column to the next; of filters; of results
    STRIDES = (
        *(f"{step}_image_stride" for step in ("image", "channel", "row", "column")),
        *(f"{step}_filter_stride" for step in ("channel", "filter", "row", "column")),
        *(f"{step}_result_stride" for step in ("image", "filter", "row", "column")),
    )

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.COUNTS, *self.STARTS, *self.STRIDES)

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.problem),
            Parameters("u32", self.names, self._numbers),
            given(self.arithmetic.type, "alpha", "beta"),
        ]

    def _numbers(self, p: KernelProblem) -> Iterator[int]:
        t, g = tap_products(p), geometry(p, self.config)
        assert t is not None
        rows, columns = t.rows, t.columns
        numbers = (
            *(t.channels, rows.pixels, columns.pixels, rows.results, columns.results),
            *(g.tiles_down * g.tiles_across, g.tiles_across),
            *(rows.padding, columns.padding, t.filter_start),
            *(*t.image_strides, rows.pixel_stride, columns.pixel_stride),
            *(*t.filter_strides, rows.filter_stride, columns.filter_stride),
            *(*t.result_strides, rows.result_stride, columns.result_stride),
        )
        return (int(n) % (1 << 32) for n in numbers)


@dataclass(frozen=True)
class TapScheduler(Part):
    """The tile scheduler: a block computes a tile of results of one image."""

    grid_text = "(tiles of results of all images)"


#: pattern of parameter names -> meaning, for the header of a module
MEANINGS = {
    "channels": "channels of images",
    "(image|result)_(rows|columns)": "extents of images and results",
    "tiles(_across)?": "tiles of an image, tiles along its width",
    "(row|column)_padding": "pixels of padding before the first row and column",
    "filter_start": "offset of the first tap in the filters",
    "(image|channel|filter|row|column)_(image|filter|result)_stride": "offsets from one image, channel, filter, row or"
    " column to the next, in images, in filters, in results",
}


class TapPlan(Plan):
    """The plan: blocks multiply the pixels of a tile by the taps of all filters, and add the products in shared
    memory."""

    kernel = "kernel/tap_products.mako"
    geometry: TapGeometry

    def _compose(self) -> None:
        p, c = self.problem, self.config
        self.batch = Batch(False)  # images are among tiles
        self.fused_ops = replace(FusedOps.of(p, False, self.device.sm), scalar_bias=False)
        self.scheduler: TapScheduler = TapScheduler()
        self.mainloop: TapLoop = TapLoop(p, c, self.arithmetic, self.geometry)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), 1)
        self.epilogue: TapEpilogue = TapEpilogue(c, self.arithmetic, self.reduction, self.c)
        self.parameters: TapParameters = TapParameters(p, c, self.arithmetic)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        size, output = self.problem.element.bytes, self.problem.output.bytes
        wide, taps = self.config.vec_channel * size, self.mainloop.taps
        return (wide, size, output) if taps.image == "a" else (size, wide, output)

    parameter_meanings = MEANINGS

    @property
    def accesses(self) -> str:
        return f"accesses of {self.config.vec_channel} channels of images"

    @property
    def block_tile(self) -> str:
        return f"{self.config.tile_height} x {self.config.tile_width} results of an image"

    def _launch(self, problem: KernelProblem) -> Launch:
        if not problem.results:
            return Launch(())
        blocks = int(geometry(problem, self.config).blocks)
        arguments = self.parameters.rows.arguments(problem)
        return Launch((Step(self.entry, (blocks, 1, 1), (self.threads, 1, 1), self.shared, arguments),))
