"""The plan of a depthwise convolution whose blocks hold whole feature maps in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import CAddressing, multiplier
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, addresses, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Launch, Step
from ptxgen.families.depthwise.mainloop import StripLoop
from ptxgen.families.depthwise.plan import StripEpilogue, access_bytes, words
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.feature_maps import FeatureMaps
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem

Product = tuple[int, int]  #: (result of a strip, row of a tap)


class Word(NamedTuple):
    """The type and the bytes of an element in memory."""

    ptx_type: str
    bytes: int

    @classmethod
    def of(cls, size: int) -> Word:
        return cls(f"b{8 * size}", size)


class ColumnTap(NamedTuple):
    """A tap along a row. ``step``: columns from the first tap; ``limit``: the register with the number of image rows if
    the tap's column is inside the image, else with 0; ``pointer``: the register with the tap's address, or with that of
    the first tap; ``address``: the address of its pixel."""

    step: int
    limit: str
    pointer: str
    address: str


@dataclass(frozen=True)
class FeatureMapLoop(StripLoop):
    """The loop over strips, each a part of a column of a feature map. All taps are unrolled. ``cp_async``: True if
    cp.async copies images to shared memory; ``threads``: threads of a block."""

    cp_async: bool
    threads: int

    @property
    def feature_maps(self) -> FeatureMaps:
        assert self.strip.feature_maps is not None
        return self.strip.feature_maps

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.arithmetic.type, (self.config.strip_results,))

    @cached_property
    def weights(self) -> Tile:
        return Tile("weight", self.arithmetic.type, (self.feature_maps.rows.taps, self.feature_maps.columns.taps))

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of a strip")]

    @property
    def shared_map(self) -> list[str]:
        return ["feature maps of images, at their offset from a multiple of 16 bytes", "then those of results"]

    @property
    def word(self) -> Word:
        """The type of an element as loaded."""
        return Word.of(self.size)

    @property
    def run_step(self) -> int:
        """The number of bytes that the block copies at once from a contiguous run."""
        return 16 * self.threads

    # ---- filters

    @property
    def filter_bytes(self) -> int:
        return self.feature_maps.taps * self.size

    @property
    def filter_loads(self) -> list[tuple[str, int]]:
        """For each tap of a filter: the register of its weight, and its offset."""
        return [(weight, n * self.size) for n, weight in enumerate(self.weights.all)]

    # ---- columns: a thread has one result column, and each tap reads one column of the image

    @cached_property
    def column_limits(self) -> Tile:
        """For each tap along a row, a register with the number of image rows if the tap reads a column inside the
        image, else 0."""
        return Tile("column_rows", "b32", (self.feature_maps.columns.taps,))

    @cached_property
    def column_addresses(self) -> Tile:
        """The registers with the shared-memory address of the next pixel: one for all taps, or one per tap if the
        columns that taps read depend on a division."""
        return Tile(
            "pixel_addr", "b32", (self.feature_maps.columns.taps if self.feature_maps.columns.ratio > 1 else 1,)
        )

    @cached_property
    def column_taps(self) -> list[ColumnTap]:
        """The taps along a row."""
        columns, first = self.feature_maps.columns, self.column_addresses[0]
        steps = [columns.tap_step(s) for s in range(columns.taps)]
        return [
            ColumnTap(
                step,
                self.column_limits[s],
                self.column_addresses[s] if columns.ratio > 1 else first,
                self.column_addresses[s] if columns.ratio > 1 else f"{first}+{step * self.size}",
            )
            for s, step in enumerate(steps)
        ]

    # ---- rows

    @property
    def row_step(self) -> int:
        """The number of rows of the image from one strip to the next."""
        rows = self.feature_maps.rows
        return self.config.strip_results * rows.stride // rows.ratio

    @cached_property
    def pixel_rows(self) -> list[tuple[int, list[Product]]]:
        """For each row of a strip's windows: its distance in rows from the preceding one (for the first: from the
        start), and the products of a pixel of the row."""
        rows: dict[int, list[Product]] = {}
        for result in range(self.config.strip_results):
            for tap in range(self.feature_maps.rows.taps):
                row = self.feature_maps.rows.offset(result, tap)
                if row is not None:
                    rows.setdefault(row, []).append((result, tap))
        order = sorted(rows)
        return [(row - before, rows[row]) for row, before in zip(order, [0, *order], strict=False)]


@dataclass(frozen=True)
class FeatureMapEpilogue(StripEpilogue):
    """The epilogue: each thread stores its strip of results in shared memory, and the block stores its run of
    results."""

    template = "epilogue/depthwise_feature_maps.mako"
    via_smem = True

    @property
    def word(self) -> Word:
        """The type of a result as stored."""
        return Word.of(self.c.bytes)


@dataclass(frozen=True)
class FeatureMapParameters(KernelParameters):
    """The parameters of kernels that copy feature maps to shared memory."""

    problem: KernelProblem
    config: Config
    arithmetic: Arithmetic

    #: feature maps in all and of a block; filters; extents; offset of the results in shared memory; the row and the
    #: column of the image that result 0 begins at; strips of a feature map
    NUMBERS = (
        *("maps", "block_maps", "channels", "image_rows", "image_columns", "result_rows", "result_columns"),
        *("result_region", "row_start", "column_start", "map_strips"),
    )
    DIVISORS = ("map_strips", "result_columns", "channels")  #: the numbers by which a thread divides

    @property
    def names(self) -> list[str]:
        """The names of all numbers that are parameters."""
        return [*self.NUMBERS, *(f"{part}_{name}" for name in self.DIVISORS for part in ("magic", "shift"))]

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.problem),
            Parameters("u32", tuple(self.names), lambda p: words(self._numbers(p))),
            given(self.arithmetic.type, "alpha", "beta"),
        ]

    def _numbers(self, p: FeatureMaps) -> tuple[int, ...]:
        c, rows, columns = self.config, p.rows, p.columns
        maps = int(p.maps_in(c.feature_map_bytes))
        map_strips = -(-rows.results // c.strip_results) * columns.results
        column_start = columns.padding if columns.gradient else -columns.padding
        return (
            *(p.count, maps, p.channels, rows.image, columns.image, rows.results, columns.results),
            *(int(p.region(maps)), rows.start, column_start, map_strips),
            *(n for divisor in (map_strips, columns.results, p.channels) for n in multiplier(divisor)),
        )


@dataclass(frozen=True)
class FeatureMapScheduler(Part):
    """The tile scheduler: a block computes adjacent feature maps."""

    config: Config

    grid_text = "(groups of adjacent feature maps)"

    def grid(self, p: FeatureMaps) -> tuple[int, int, int]:
        return -(-p.count // int(p.maps_in(self.config.feature_map_bytes))), 1, 1


#: pattern of parameter names -> meaning, for the header of a module
FEATURE_MAP_MEANINGS = {
    "maps|images": "feature maps; images",
    "block_maps": "feature maps of a block",
    "channels": "channels",
    "map_threads|map_strips": "threads and strips of a feature map",
    "(image|result)_(rows|columns)": "extents of images and results",
    "result_region": "offset of the results in shared memory, in bytes",
    "(row|column)_start": "row and column of the image at which result 0 begins",
}


class FeatureMapPlan(Plan):
    """The plan: blocks copy adjacent feature maps to shared memory, and store results through shared memory, so that
    global accesses have 16 bytes whatever the width of an image."""

    kernel = "kernel/depthwise_feature_maps.mako"

    def _compose(self) -> None:
        p, c = self.problem, self.config
        self.batch = Batch(False)  # items are feature maps
        self.fused_ops = replace(FusedOps.of(p, False, self.device.sm), scalar_bias=False)
        self.scheduler: FeatureMapScheduler = FeatureMapScheduler(c)
        self.mainloop: FeatureMapLoop = FeatureMapLoop(p, c, self.arithmetic, self.device.sm >= 80, self.threads)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), 1)
        self.epilogue: FeatureMapEpilogue = FeatureMapEpilogue(c, self.arithmetic, self.reduction, self.c, 1)
        self.parameters: FeatureMapParameters = FeatureMapParameters(p, c, self.arithmetic)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return access_bytes(self.problem, 1)

    parameter_meanings = FEATURE_MAP_MEANINGS
    accesses = "accesses of 16 bytes of images and results"

    @property
    def block_tile(self) -> str:
        c = self.config
        return f"feature maps that fit {c.feature_map_bytes} bytes, strips of {c.strip_results} results"

    def _launch(self, problem: KernelProblem) -> Launch:
        if not problem.results:
            return Launch(())
        assert strips(problem) is not None
        p: FeatureMaps = strips(problem).feature_maps
        grid, arguments = self.scheduler.grid(p), self.parameters.rows.arguments(p)
        return Launch((Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments),))
