"""The plan of depthwise weight gradients: each thread loops over strips and accumulates all taps; blocks store their
sums in the workspace; an auxiliary kernel adds these in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.epilogue import Epilogue
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.parameters import (
    KernelParameters,
    ParameterList,
    Parameters,
    addresses,
    given,
    on_one_line,
)
from ptxgen.codegen.parts.part import Allocator, Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import Mask
from ptxgen.families.depthwise.mainloop import WgradLoop
from ptxgen.families.depthwise.plan import MEANINGS, access_bytes, words
from ptxgen.lowering.depthwise_strips import DepthwiseStrip, strips
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem


@dataclass(frozen=True)
class WgradScheduler(Part):
    """The tile scheduler: a block computes a tile of lanes, or one filter, for a slice of the strips."""

    config: Config
    grouped: bool

    def grid(self, s: DepthwiseStrip) -> tuple[int, int, int]:
        """The grid for the strips ``s``."""
        across = -(-s.lanes // (self.config.block_lanes * self.config.vec_lane)) if s.grouped else s.groups
        return across, self.config.kg, 1

    @property
    def grid_text(self) -> str:
        """A text for the header: the meaning of the axes of the grid."""
        return "(tiles of lanes, slices)" if self.grouped else "(filters, slices)"


@dataclass(frozen=True)
class WgradParameters(KernelParameters):
    """The parameters of the main kernel."""

    problem: KernelProblem
    config: Config
    arithmetic: Arithmetic

    COUNTS = ("lanes", "rows", "results", "units", "chunks")
    #: strides of images, coordinates and results from one lane, row of the strip's axis and group to the next
    STRIDES = (
        *(f"{step}_{place}_stride" for step in ("lane", "row") for place in ("image", "coords", "result")),
        *(f"group_{place}_stride" for place in ("image", "result")),
    )

    @property
    def declared(self) -> list[Parameters]:
        names = (*self.COUNTS, *self.STRIDES, "guard", "high")
        return [
            *addresses(self.problem),
            Parameters("u64", ("result_table", "tap_table"), lambda s: s.tables),
            Parameters("u32", names, lambda s: words(self._numbers(s))),
            given(self.arithmetic.type, "alpha", "beta"),
        ]

    def _numbers(self, s: DepthwiseStrip) -> tuple[int, ...]:
        c = self.config
        unit = tuple(n // s.stride for n in s.axis.coordinates)
        chunks = 1 if s.grouped else -(-s.lanes // (c.block_lanes * c.vec_lane))
        return (
            *(s.lanes, s.rows, s.results, s.rows * -(-s.results // c.strip_results) * chunks, chunks),
            *(s.lane.image, s.word(s.lane.coordinates), s.lane.result),
            *(s.axis.image // s.stride, s.word(unit), s.axis.result),
            *(s.group.image, s.group.result, s.packing.guard, s.packing.high),
        )


@dataclass(frozen=True)
class TapSums(Part):
    """The addition of the sums of each tap: a block adds the sums of its threads, and an auxiliary kernel those of all
    slices. ``entry``: name of the main kernel."""

    entry: str
    config: Config
    arithmetic: Arithmetic

    TAPS_PER_BLOCK, THREADS_PER_TAP = 32, 32  #: taps of a block of the auxiliary kernel, and threads of a tap
    TAP_THREADS = 32  #: threads that add the sums of one tap of a block, if lanes are pixels

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        assert strips(p) is not None
        size = self.config.kg * strips(p).groups * strips(p).tap_count * self.arithmetic.bytes
        workspace.claim(size, "sums [slice][filter][tap]")

    @property
    def threads(self) -> int:
        """The number of threads of a block of the auxiliary kernel."""
        return self.TAPS_PER_BLOCK * self.THREADS_PER_TAP

    tap_mask = Mask("TAPS_PER_BLOCK")
    tap_thread_mask = Mask("TAP_THREADS")

    @property
    def slices_bytes(self) -> int:
        """The number of bytes from one slice of a thread to the next slice of the thread, divided by the number of sums
        of a slice."""
        return self.THREADS_PER_TAP * self.arithmetic.bytes

    @property
    def partials(self) -> range:
        """The shared-memory offsets of the sums of a tap's threads."""
        step = self.TAPS_PER_BLOCK * self.arithmetic.bytes
        return range(0, self.THREADS_PER_TAP * step, step)

    @property
    def parameter_list(self) -> ParameterList:
        """The parameters of the auxiliary kernel."""
        names = ("sums", "taps", "slices", "filter_stride", "tap_stride")
        beta = on_one_line([given(self.arithmetic.type, "beta")])
        return ParameterList((given("u64", "C", "W"), Parameters("u32", names, self._numbers), *beta))

    def _numbers(self, p: KernelProblem) -> tuple[int, ...]:
        s = strips(p)
        stride = p.offsets[2] // p.output.bytes
        return s.groups * s.tap_count, s.tap_count, self.config.kg, stride, p.operand("C").access.step

    def step(self, p: KernelProblem) -> Step:
        """The launch of the auxiliary kernel."""
        grid, shared = (-(-self._numbers(p)[0] // self.TAPS_PER_BLOCK), 1, 1), self.threads * self.arithmetic.bytes
        return Step(f"{self.entry}_add", grid, (self.threads, 1, 1), shared, self.parameter_list.arguments(p))


@dataclass(frozen=True)
class BlockSums:
    """The sums of a block's threads in shared memory, as [sum][thread]. ``size``: bytes of a sum; ``count``: sums of a
    thread; ``step``: distance in threads between the sums that one thread adds."""

    threads: int
    size: int
    count: int
    step: int

    @property
    def bytes(self) -> int:
        """The bytes that all threads together need for one of their sums."""
        return self.threads * self.size

    @property
    def offsets(self) -> range:
        """The offset of each of a thread's sums."""
        return range(0, self.count * self.bytes, self.bytes)

    @property
    def partials(self) -> range:
        """The offsets of the partial sums that a thread adds."""
        return range(0, self.bytes // (self.step * self.size) * self.step * self.size, self.step * self.size)

    @property
    def tap_offsets(self) -> range:
        """The offsets of a tap's sums after its threads have added partial sums."""
        return range(0, TapSums.TAP_THREADS * self.size, self.size)


class DepthwiseWgradPlan(Plan):
    """The plan: result gradients are multiplied by the pixels of their windows."""

    kernel = "kernel/depthwise_wgrad.mako"

    def _compose(self) -> None:
        p, c = self.problem, self.config
        self.batch = Batch(False)  # items are among strips
        self.fused_ops = FusedOps.of(p, False, self.device.sm)
        self.mainloop: WgradLoop = WgradLoop(p, c, self.arithmetic)
        self.scheduler: WgradScheduler = WgradScheduler(c, self.mainloop.strip.grouped)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), 1)
        self.epilogue = Epilogue(c, self.arithmetic, self.reduction, self.c)  # of the auxiliary kernel
        self.parameters: WgradParameters = WgradParameters(p, c, self.arithmetic)
        self.tap_sums = TapSums(self.entry, c, self.arithmetic)
        s = self.mainloop.strip
        step = c.block_lanes if s.grouped else TapSums.TAP_THREADS
        count = s.tap_count * (self.mainloop.vec if s.grouped else 1)
        self.block_sums = BlockSums(self.threads, self.arithmetic.bytes, count, step)

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
        if not problem.results:
            return Launch(())
        s, workspace = strips(problem), Allocator()
        assert s is not None
        self.tap_sums.claim(problem, 1, workspace)
        grid, arguments = self.scheduler.grid(s), self.parameters.rows.arguments(s)
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        return Launch((main, self.tap_sums.step(problem)), workspace.bytes)
