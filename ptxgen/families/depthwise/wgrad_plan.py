"""The plan of a sliding kernel that sums gradients of filters: threads go from strip to strip, each with the sums of
all taps; blocks leave theirs in the workspace, and a pass adds them in a fixed order."""

from __future__ import annotations

from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.families.depthwise.plan import SlidePlan
from ptxgen.lowering.depthwise_strips import Strip
from ptxgen.lowering.implicit_gemm import ImplicitGemm
from ptxgen.lowering.kernel_gemm import KernelGemm

ACROSS, PARTS = 32, 32  #: filters' taps of a block of the pass, and threads that add the sums of each
LANES = 32  #: threads that add the sums of a block's tap, where lanes are pixels


class SummingPlan(SlidePlan):
    """Results are multiplied with what they see of images."""

    kernel = "kernel/depthwise_wgrad.mako"
    ACROSS, PARTS, LANES = ACROSS, PARTS, LANES
    NUMBERS = ("lane_x", "lane_word", "lane_y", "row_x", "row_word", "row_y", "group_x", "group_y")
    COUNTS = ("lanes", "rows", "results", "units", "chunks")

    def _operands(self) -> None:
        super()._operands()
        s = self.strip
        self.results = self.filters
        self.acc = Tile("acc", self.sum, (s.tapped, self.wide))
        self.given = Tile("given", self.sum, (self.config.ns, self.wide))
        self.places = Tile("place", "b32", (s.steps, 2))

    def _wide_c(self) -> int:
        return 1

    @property
    def contiguous(self) -> int:
        return 1

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "sums of all taps")]

    @property
    def shared_map(self) -> list[str]:
        return ["each thread's sums, tap by tap"]

    @property
    def grid(self) -> str:
        return "(tiles of lanes, slices)" if self.strip.grouped else "(filters, slices)"

    @property
    def parameters(self) -> list[str]:
        numbers = (*self.COUNTS, *self.NUMBERS, "guard", "high")
        return [
            ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W, .param .u64 of_results, .param .u64 of_taps,",
            " ".join(f".param .u32 {name}," for name in numbers),
            f".param .{self.sum} alpha, .param .{self.sum} beta",
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
            (self.sum, "alpha"),
            (self.sum, "beta"),
        )
        across = -(-s.lanes // self.lanes) if s.grouped else s.groups
        main = Step(self.entry, (across, c.kg, 1), (self.threads, 1, 1), self.shared, arguments)
        return Launch((main, self._adding(problem, s)), c.kg * s.groups * s.tapped * self.sum_bytes)

    def _adding(self, problem: KernelGemm, s: Strip) -> Step:
        """The launch of the pass."""
        size, every = problem.output.bytes, s.groups * s.tapped
        assert isinstance(problem, ImplicitGemm)
        tap = problem.parts[0].c  # of the rows or the columns, which are taps
        near = next((step for walk in (tap.along, tap.down) for _, step in walk.digits), 0)
        numbers = (every, s.tapped, self.config.kg, problem.offsets[2] // size, near)
        arguments: tuple[Argument, ...] = (
            ("u64", "C"),
            ("u64", "W"),
            *(("u32", n) for n in numbers),
            (self.sum, "beta"),
        )
        shared = ACROSS * PARTS * self.sum_bytes
        return Step(f"{self.entry}_add", (-(-every // ACROSS), 1, 1), (ACROSS * PARTS, 1, 1), shared, arguments)
