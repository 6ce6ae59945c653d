"""The plan of a depthwise convolution whose threads compute several adjacent strips: a patch of the image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.families.depthwise.mainloop import StripLoop
from ptxgen.families.depthwise.plan import MEANINGS, StripEpilogue, StripParameters, access_bytes, words
from ptxgen.lowering.depthwise_strips import CrossAxis, DepthwiseStrip, strips
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem

Product = tuple[int, int]  #: (row of the sums, number of a tap)


@dataclass(frozen=True)
class FilterLoad:
    """A load of ``vec`` filter elements at an offset in bytes. ``registers``: the operand of the load."""

    offset: int
    registers: str


@dataclass(frozen=True)
class PatchLoop(StripLoop):
    """The loop without iterations: each pixel of the patch is loaded once and multiplied by every tap that reads it."""

    @property
    def strip(self) -> DepthwiseStrip:
        patch = super().strip.patch
        assert patch is not None
        return patch

    @property
    def cross(self) -> CrossAxis:
        cross = self.strip.cross
        assert cross is not None
        return cross

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.arithmetic.type, (self.config.strip_results * self.config.strip_columns, self.vec))

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of a patch")]

    def row(self, result: int, column: int) -> int:
        """The row of ``acc`` that holds a result of the strip in a column of the patch."""
        return column * self.config.strip_results + result

    @property
    def column_sums(self) -> list[list[list[str]]]:
        """The sums of adjacent lanes, by column of the patch and result of the strip."""
        c = self.config
        return [
            [[self.acc[self.row(i, column), v] for v in range(self.vec)] for i in range(c.strip_results)]
            for column in range(c.strip_columns)
        ]

    # ---- filters: those of a thread's lanes are contiguous

    @property
    def tap_count(self) -> int:
        return self.strip.taps * self.cross.taps

    @cached_property
    def weights(self) -> Tile:
        return Tile("weight", self.arithmetic.type, (self.tap_count, self.vec))

    @cached_property
    def filter_words(self) -> Tile:
        """The registers of 16-bit filter elements as loaded, two per word."""
        halves = self.size == 2 and self.vec > 1
        count = self.tap_count * self.vec
        return Tile("filter_word", "b32", (count // 2,)) if halves else Tile("filter_half", "b16", (count,))

    @cached_property
    def _flat_weights(self) -> list[str]:
        """The registers of the weights in the order of memory, by lane and tap."""
        return [self.weights[tap, lane] for lane in range(self.vec) for tap in range(self.tap_count)]

    @property
    def filter_loads(self) -> list[FilterLoad]:
        registers = self.filter_words.all if self.size == 2 else self._flat_weights
        each = len(registers) // self.tap_count
        parts = [registers[n * each : (n + 1) * each] for n in range(self.tap_count)]
        return [FilterLoad(n * self.vec * self.size, braces(p) if each > 1 else p[0]) for n, p in enumerate(parts)]

    @property
    def filter_type(self) -> str:
        """The type of a load of filters."""
        if self.size != 2:
            return width(self.vec, self.arithmetic.type)
        return width(max(1, self.vec // 2), self.filter_words.ptx_type)

    @property
    def filter_pairs(self) -> list[tuple[str, str, str]]:
        """For each word of two 16-bit filter elements: the word, and the registers of both weights."""
        flat = self._flat_weights
        return list(zip(self.filter_words.all, flat[::2], flat[1::2], strict=True))

    @property
    def filter_singles(self) -> list[tuple[str, str]]:
        """For each filter element that is loaded alone: its 16-bit register, and the register of the weight."""
        return list(zip(self.filter_words.all, self._flat_weights, strict=True))

    # ---- pixels

    @cached_property
    def patch_pixels(self) -> list[tuple[int, list[tuple[int, int, list[Product]]]]]:
        """For each column of pixels of the patch: its distance from the previous column, and its pixels as (row,
        distance from the preceding row, products)."""
        columns: dict[int, dict[int, list[Product]]] = {}
        cross, strip = self.cross, self.strip
        for column in range(self.config.strip_columns):
            for s in range(cross.taps):
                rows = columns.setdefault(column * cross.stride + s * cross.dilation, {})
                for result in range(self.config.strip_results):
                    for r in range(strip.taps):
                        product = self.row(result, column), cross.tap_numbers[r * cross.taps + s]
                        rows.setdefault(result * strip.stride + r * strip.dilation, []).append(product)
        out, previous = [], 0
        for at, pixels in sorted(columns.items()):
            order = sorted(pixels)
            out.append((at - previous, [(n, n - b, pixels[n]) for n, b in zip(order, [0, *order], strict=False)]))
            previous = at
        return out


@dataclass(frozen=True)
class PatchParameters(StripParameters):
    """The parameters of a launch, including those of the axis across strips. ``vec``: lanes of a thread."""

    vec: int

    CROSS_COUNTS = ("lane_threads", "column_blocks", "columns")
    CROSS_STRIDES = tuple(f"column_{place}_stride" for place in ("image", "coords", "result"))

    @property
    def _across(self) -> list[Parameters]:
        return [self._cross(n, name) for n, name in enumerate((*self.CROSS_COUNTS, *self.CROSS_STRIDES))]

    def _cross(self, n: int, name: str) -> Parameters:
        return Parameters("u32", (name,), lambda s: words(self._cross_numbers(s)[n : n + 1]))

    def _cross_numbers(self, s: DepthwiseStrip) -> tuple[int, ...]:
        """The values of ``CROSS_COUNTS`` and ``CROSS_STRIDES`` for the widened strips ``s``."""
        cross = s.cross
        assert cross is not None
        assert s.column is not None
        return (
            -(-s.lanes // self.vec),
            s.result_digits[-1][0],
            cross.results,
            cross.pixel.image,
            s.word(cross.pixel.coordinates),
            s.column[1].result,
        )


@dataclass(frozen=True)
class PatchScheduler(Part):
    """The tile scheduler: threads are numbered by lane, then by patch, so that no thread is idle if there are few
    channels."""

    config: Config

    grid_text = "(tiles of lanes and patches, strips)"

    def grid(self, s: DepthwiseStrip) -> tuple[int, int, int]:
        """The grid for the widened strips ``s``."""
        c = self.config
        threads = -(-s.lanes // c.vec_lane) * s.rows
        return -(-threads // c.block_lanes), -(-s.results // c.strip_results), 1


class DepthwisePatchPlan(Plan):
    """The plan: each thread computes a patch of results, adjacent strips of adjacent lanes."""

    kernel = "kernel/depthwise_patch.mako"

    def _compose(self) -> None:
        p, c = self.problem, self.config
        self.batch = Batch(False)  # items are among patches
        self.fused_ops = replace(FusedOps.of(p, False, self.device.sm), scalar_bias=False)
        self.scheduler: PatchScheduler = PatchScheduler(c)
        self.mainloop: PatchLoop = PatchLoop(p, c, self.arithmetic)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), c.vec_lane)
        self.epilogue: StripEpilogue = StripEpilogue(c, self.arithmetic, self.reduction, self.c, c.vec_lane)
        self.parameters: PatchParameters = PatchParameters(p, self.arithmetic, c.vec_lane)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return access_bytes(self.problem, self.config.vec_lane, self.config.vec_lane)

    parameter_meanings = MEANINGS

    @property
    def accesses(self) -> str:
        return self.mainloop.accesses

    @property
    def block_tile(self) -> str:
        c = self.config
        return f"{c.block_lanes} patches of {c.vec_lane} lanes x {c.strip_columns} strips x {c.strip_results} results"

    def _launch(self, problem: KernelProblem) -> Launch:
        if not problem.results:
            return Launch(())
        assert strips(problem) is not None
        assert strips(problem).patch is not None
        s: DepthwiseStrip = strips(problem).patch.widened(self.config.strip_columns)
        grid, arguments = self.scheduler.grid(s), self.parameters.rows.arguments(s)
        return Launch((Step(self.entry, grid, (self.threads, 1, 1), 0, arguments),))
