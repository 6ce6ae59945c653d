"""The plan of depthwise weight gradients whose blocks hold whole feature maps in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import CAddressing, multiplier
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.epilogue import Epilogue
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, addresses, given
from ptxgen.codegen.parts.part import Allocator, Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import WARP, Mask
from ptxgen.families.depthwise.feature_map_plan import FEATURE_MAP_MEANINGS, FeatureMapLoop
from ptxgen.families.depthwise.plan import access_bytes, words
from ptxgen.families.depthwise.wgrad_plan import TapSums
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.feature_maps import FeatureMaps
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem


def channels_of_block(p: FeatureMaps, c: Config) -> int:
    """The number of adjacent channels in a block."""
    return int(p.channels_in(c.feature_map_bytes, c.block_lanes, c.strip_results))


@dataclass(frozen=True)
class FeatureMapWgradLoop(FeatureMapLoop):
    """The loop over strips of result gradients, each a part of a column of a feature map, which is multiplied by the
    pixels of its windows. All taps are unrolled."""

    SUM_LANES: ClassVar[int] = 8  #: lanes that add the sums of one tap of a channel, a power of two

    @property
    def peer_lanes(self) -> list[int]:
        """The lane distances at which lanes add each other's sums, in order."""
        return [1 << i for i in reversed(range(self.SUM_LANES.bit_length() - 1))]

    @property
    def results(self) -> str:
        """The register with the address of the result gradients."""
        return self.filters

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.arithmetic.type, (self.feature_maps.rows.taps, self.feature_maps.columns.taps))

    @cached_property
    def result_grads(self) -> Tile:
        return Tile("grad", self.arithmetic.type, (self.config.strip_results,))

    @cached_property
    def gradient_rows(self) -> list[tuple[int, list[int], list[tuple[str, int, int]]]]:
        """For each row of a strip's windows: its distance from the preceding row, the results that multiply a pixel of
        the row, and each product as (predicate that the result is inside, result, tap)."""
        rows = []
        for step, products in self.pixel_rows:
            results = sorted({result for result, _ in products})
            rows.append((step, results, [(f"%is_result{results.index(n)}", n, tap) for n, tap in products]))
        return rows

    @property
    def most_results(self) -> int:
        """The most results that multiply one pixel."""
        return max(len(results) for _, results, _ in self.gradient_rows)

    sum_lane_mask = Mask("SUM_LANES")

    @property
    def warp_sums(self) -> int:
        """The number of sums that a warp adds at once."""
        return WARP // self.SUM_LANES

    @property
    def block_sums(self) -> int:
        """The number of sums that the block adds at once."""
        return self.threads // self.SUM_LANES

    @property
    def sum_lane_bytes(self) -> int:
        return self.SUM_LANES * self.arithmetic.bytes

    @property
    def sum_places(self) -> list[tuple[str, int]]:
        """For each tap: the register of its sum, and the sum's offset in shared memory."""
        return [(r, i * self.threads * self.arithmetic.bytes) for i, r in enumerate(self.acc.all)]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of all taps")]

    @property
    def shared_map(self) -> list[str]:
        return [
            "feature maps of images, at their offset from a multiple of 16 bytes",
            "then those of result gradients; after the loop, sums: tap, thread",
        ]


@dataclass(frozen=True)
class FeatureMapWgradParameters(KernelParameters):
    """The parameters of the main kernel."""

    problem: KernelProblem
    config: Config
    arithmetic: Arithmetic

    #: images; channels in all and of a block; threads and strips of a feature map; extents; offset of the result
    #: gradients in shared memory; the row and the column of the image that result 0 begins at
    NUMBERS = (
        *("images", "channels", "block_maps", "map_threads", "map_strips"),
        *("image_rows", "image_columns", "result_rows", "result_columns"),
        *("result_region", "row_start", "column_start"),
    )
    DIVISORS = ("map_threads", "result_columns")  #: the numbers by which a thread divides

    @property
    def names(self) -> list[str]:
        """The names of all numbers that are parameters."""
        return [*self.NUMBERS, *(f"{part}_{name}" for name in self.DIVISORS for part in ("magic", "shift"))]

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.problem),
            Parameters("u32", tuple(self.names), lambda p: words(self._numbers(p))),
            given(self.arithmetic.type, "alpha"),
        ]

    def _numbers(self, p: FeatureMaps) -> tuple[int, ...]:
        c, rows, columns = self.config, p.rows, p.columns
        maps = channels_of_block(p, c)
        map_threads = c.block_lanes // maps
        return (
            *(p.images, p.channels, maps, map_threads, p.strips(c.strip_results)),
            *(rows.image, columns.image, rows.results, columns.results),
            *(int(p.region(maps)), rows.start, columns.start),
            *(n for divisor in (map_threads, columns.results) for n in multiplier(divisor)),
        )


@dataclass(frozen=True)
class FeatureMapWgradScheduler(Part):
    """The tile scheduler: a block computes adjacent channels for a slice of the images."""

    config: Config

    grid_text = "(groups of adjacent channels, slices of the images)"

    def grid(self, p: FeatureMaps) -> tuple[int, int, int]:
        return -(-p.channels // channels_of_block(p, self.config)), self.config.kg, 1


class FeatureMapWgradPlan(Plan):
    """The plan: blocks copy feature maps of images and of result gradients to shared memory, by accesses of 16 bytes
    whatever the width of an image, and multiply them there."""

    kernel = "kernel/depthwise_wgrad_feature_maps.mako"

    def _compose(self) -> None:
        p, c = self.problem, self.config
        self.batch = Batch(False)  # items are feature maps
        self.fused_ops = FusedOps.of(p, False, self.device.sm)
        self.mainloop: FeatureMapWgradLoop = FeatureMapWgradLoop(
            p, c, self.arithmetic, self.device.sm >= 80, self.threads
        )
        self.scheduler: FeatureMapWgradScheduler = FeatureMapWgradScheduler(c)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), 1)
        self.epilogue = Epilogue(c, self.arithmetic, self.reduction, self.c)  # of the auxiliary kernel
        self.parameters: FeatureMapWgradParameters = FeatureMapWgradParameters(p, c, self.arithmetic)
        self.tap_sums = TapSums(self.entry, c, self.arithmetic)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return access_bytes(self.problem, 1)

    parameter_meanings = FEATURE_MAP_MEANINGS
    accesses = "accesses of 16 bytes of images and result gradients"

    @property
    def block_tile(self) -> str:
        c = self.config
        return f"feature maps of channels that fit {c.feature_map_bytes} bytes, strips of {c.strip_results} results"

    def _launch(self, problem: KernelProblem) -> Launch:
        if not problem.results:
            return Launch(())
        s, workspace = strips(problem), Allocator()
        assert s is not None
        self.tap_sums.claim(problem, 1, workspace)
        maps: FeatureMaps = s.feature_maps
        grid, arguments = self.scheduler.grid(maps), self.parameters.rows.arguments(maps)
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        return Launch((main, self.tap_sums.step(problem)), workspace.bytes)
