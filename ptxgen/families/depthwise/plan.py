"""The plan of a depthwise convolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.epilogue import Epilogue
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, addresses, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Launch, Step
from ptxgen.families.depthwise.mainloop import TapLoop
from ptxgen.lowering.depthwise_strips import DepthwiseStrip, strips
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem


@dataclass(frozen=True)
class StripEpilogue(Epilogue):
    """The epilogue: each thread stores its strip of results, ``vec`` adjacent ones at once."""

    vec: int

    template = "epilogue/depthwise_strip.mako"

    @cached_property
    def vector(self) -> Tile:
        """The registers of adjacent results."""
        return Tile("result", self.arithmetic.type, (self.vec,))

    @property
    def filter_coordinates(self) -> list[tuple[str, int]]:
        """The registers with row and column for the operands of fused operations. They are two objects, because the
        slots compare them by identity."""
        return [(name, 0) for name in ("%channel", "%channel")]


@dataclass(frozen=True)
class StripParameters(KernelParameters):
    """The parameters of a launch that computes all strips whose windows have the same number of taps."""

    problem: KernelProblem
    arithmetic: Arithmetic

    COUNTS = ("lanes", "rows", "results", "steps")
    #: strides of images, coordinates, results and filters from one lane, and from one row of the strip's axis, to the
    #: next; of filters
    STRIDES = (
        *(f"{step}_{place}_stride" for step in ("lane", "row") for place in ("image", "coords", "result", "filter")),
        "filter_stride",
    )

    @property
    def declared(self) -> list[Parameters]:
        names = (*self.COUNTS, *self.STRIDES, "guard", "high")
        return [
            *addresses(self.problem),
            Parameters("u64", ("result_table", "tap_table"), lambda s: s.tables),
            Parameters("u32", names, lambda s: words(self._numbers(s))),
            *self._across,
            given(self.arithmetic.type, "alpha", "beta"),
        ]

    @property
    def _across(self) -> list[Parameters]:
        """The parameters of the axis across strips."""
        return []

    def _numbers(self, s: DepthwiseStrip) -> tuple[int, ...]:
        unit = tuple(n // s.stride for n in s.axis.coordinates)
        tap = s.filter_strides
        return (
            *(s.lanes, s.rows, s.results, s.outer_taps),
            *(s.lane.image, s.word(s.lane.coordinates), s.lane.result, s.lane.filter),
            *(s.axis.image // s.stride, s.word(unit), s.axis.result, tap[0], max(tap[1], 1)),
            *(s.packing.guard, s.packing.high),
        )


def words(numbers: Iterable[int]) -> Iterator[int]:
    """The numbers as 32-bit words; a negative number is taken modulo 2^32."""
    return (n % (1 << 32) for n in numbers)


@dataclass(frozen=True)
class StripScheduler(Part):
    """The tile scheduler: a block computes a tile of lanes by rows, with one strip for each."""

    config: Config

    grid_text = "(tiles of lanes and of other results, strips)"

    def grid(self, s: DepthwiseStrip) -> tuple[int, int, int]:
        """The grid for the strips ``s``."""
        c = self.config
        return (
            -(-s.lanes // (c.block_lanes * c.vec_lane)) * -(-s.rows // c.block_rows),
            -(-s.results // c.strip_results),
            1,
        )


#: pattern of parameter names -> meaning, for the header of a module
MEANINGS = {
    "result_table|tap_table": "address of the offset table of results of other axes, of taps",
    "lanes|rows|results|steps": "adjacent results, results along the axis of a strip, other results, taps of other"
    " axes",
    "units|chunks": "strips of all lanes, tiles of lanes",
    "lane_threads|column_blocks|columns": "threads along the lanes, blocks of columns, columns of results",
    "(lane|row|column|group)_(image|coords|result|filter)_stride": "offsets from one lane, row, column or group to the"
    " next, in images, in packed coordinates, in results, in filters",
    "filter_stride": "elements from one tap of a filter to the next",
    "guard|high": "words that show which coordinates are outside the image",
}


def access_bytes(p: KernelProblem, vec: int, filters: int = 1) -> tuple[int, int, int]:
    """The result of ``Plan.access_bytes`` for kernels that access ``vec`` adjacent results and pixels, and ``filters``
    filters."""
    assert strips(p) is not None
    size, output = p.element.bytes, p.output.bytes
    if strips(p).wgrad:
        return vec * size, vec * size, output
    a, b = (vec, filters) if strips(p).image == "a" else (filters, vec)
    return a * size, b * size, vec * output


class DepthwisePlan(Plan):
    """The plan: each thread computes a strip of results; filters and the pixels of windows are loaded from global
    memory."""

    kernel = "kernel/depthwise.mako"

    def _compose(self) -> None:
        p, c = self.problem, self.config
        self.batch = Batch(False)  # items are among lanes, or in a table
        # a thread reads the bias of its filter, where others read one for all elements
        self.fused_ops = replace(FusedOps.of(p, False, self.device.sm), scalar_bias=False)
        self.scheduler: StripScheduler = StripScheduler(c)
        self.mainloop: TapLoop = TapLoop(p, c, self.arithmetic)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), c.vec_lane)
        self.epilogue: StripEpilogue = StripEpilogue(c, self.arithmetic, self.reduction, self.c, c.vec_lane)
        self.parameters: StripParameters = StripParameters(p, self.arithmetic)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return access_bytes(self.problem, self.config.vec_lane)

    parameter_meanings = MEANINGS

    @property
    def accesses(self) -> str:
        return self.mainloop.accesses

    @property
    def block_tile(self) -> str:
        return self.mainloop.block_tile

    def _launch(self, problem: KernelProblem) -> Launch:
        s = strips(problem)
        assert s is not None
        return Launch(tuple(self._step(x) for x in (s, *s.other_phases)) if problem.results else ())

    def _step(self, s: DepthwiseStrip) -> Step:
        grid, arguments = self.scheduler.grid(s), self.parameters.rows.arguments(s)
        return Step(self.entry, grid, (self.threads, 1, 1), 0, arguments)
