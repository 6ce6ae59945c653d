"""The plan of depthwise filter gradients: each thread loops over strips and accumulates all taps; blocks store their
sums in the workspace, and an auxiliary kernel adds them in a fixed order."""

from __future__ import annotations

from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.families.depthwise.plan import DepthwisePlan
from ptxgen.lowering.depthwise_strips import DepthwiseStrip
from ptxgen.lowering.implicit_gemm import ImplicitGemm
from ptxgen.lowering.kernel_gemm import KernelGemm

TAPS_PER_BLOCK, THREADS_PER_TAP = 32, 32  #: of the auxiliary kernel
TAP_THREADS = 32  #: threads that add the sums of a block's tap, where lanes are pixels


class DepthwiseWgradPlan(DepthwisePlan):
    """Result gradients times the pixels of their windows."""

    kernel = "kernel/depthwise_wgrad.mako"
    TAPS_PER_BLOCK, THREADS_PER_TAP, TAP_THREADS = TAPS_PER_BLOCK, THREADS_PER_TAP, TAP_THREADS
    STRIDES = ("lane_x", "lane_word", "lane_y", "row_x", "row_word", "row_y", "group_x", "group_y")
    COUNTS = ("lanes", "rows", "results", "units", "chunks")

    def _set_operands(self) -> None:
        super()._set_operands()
        s = self.strip
        self.results = self.filters
        self.acc = Tile("acc", self.epilogue_type, (s.tapped, self.vec))
        self.result_grads = Tile("grad", self.epilogue_type, (self.config.ns, self.vec))
        self.tap_offsets = Tile("tap_offset", "b32", (s.steps, 2))

    def _vec_c(self) -> int:
        return 1

    @property
    def contiguous(self) -> int:
        return 1

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of all taps")]

    @property
    def shared_map(self) -> list[str]:
        return ["sums: tap, thread"]

    @property
    def grid(self) -> str:
        return "(tiles of lanes, slices)" if self.strip.grouped else "(filters, slices)"

    @property
    def parameters(self) -> list[str]:
        numbers = (*self.COUNTS, *self.STRIDES, "guard", "high")
        return [
            ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W, .param .u64 of_results, .param .u64 of_taps,",
            " ".join(f".param .u32 {name}," for name in numbers),
            f".param .{self.epilogue_type} alpha, .param .{self.epilogue_type} beta",
        ]

    def launch(self, problem: KernelGemm) -> Launch:
        s, c = problem.strip, self.config
        if not problem.results:
            return Launch(())
        assert s is not None
        unit = tuple(n // s.step for n in s.along.axes)
        chunks = 1 if s.grouped else -(-s.lanes // self.lanes)
        units = s.rows * -(-s.results // c.ns) * chunks
        numbers = (
            s.lanes,
            s.rows,
            s.results,
            units,
            chunks,
            s.lane.image,
            s.word(s.lane.axes),
            s.lane.result,
            s.along.image // s.step,
            s.word(unit),
            s.along.result,
            s.group.image,
            s.group.result,
            s.packing.guard,
            s.packing.high,
        )
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        arguments = (
            *pointers,
            *(("table", table) for table in s.tables),
            *(("u32", n % (1 << 32)) for n in numbers),
            (self.epilogue_type, "alpha"),
            (self.epilogue_type, "beta"),
        )
        across = -(-s.lanes // self.lanes) if s.grouped else s.groups
        main = Step(self.entry, (across, c.kg, 1), (self.threads, 1, 1), self.shared, arguments)
        return Launch((main, self._add_kernel(problem, s)), c.kg * s.groups * s.tapped * self.epilogue_bytes)

    def _add_kernel(self, problem: KernelGemm, s: DepthwiseStrip) -> Step:
        """The launch of the auxiliary kernel that adds the sums of all slices."""
        size, every = problem.output.bytes, s.groups * s.tapped
        assert isinstance(problem, ImplicitGemm)
        tap = problem.parts[0].c  # of the rows or the columns, which are taps
        near = next((step for walk in (tap.along, tap.down) for _, step in walk.digits), 0)
        numbers = (every, s.tapped, self.config.kg, problem.offsets[2] // size, near)
        arguments: tuple[Argument, ...] = (
            ("u64", "C"),
            ("u64", "W"),
            *(("u32", n) for n in numbers),
            (self.epilogue_type, "beta"),
        )
        shared = TAPS_PER_BLOCK * THREADS_PER_TAP * self.epilogue_bytes
        return Step(
            f"{self.entry}_add",
            (-(-every // TAPS_PER_BLOCK), 1, 1),
            (TAPS_PER_BLOCK * THREADS_PER_TAP, 1, 1),
            shared,
            arguments,
        )
