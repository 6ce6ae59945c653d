"""The plan of a depthwise convolution."""

from __future__ import annotations

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.codegen.vectorized import log2
from ptxgen.lowering.depthwise_strips import DepthwiseStrip
from ptxgen.lowering.kernel_gemm import KernelGemm


class DepthwisePlan(Plan):
    """Each thread computes a strip of results; filters and the pixels of its windows are loaded from global memory."""

    kernel = "kernel/depthwise.mako"
    #: how far a lane, and a row of the strip's axis, moves in images, coordinates, results and filters
    STRIDES: tuple[str, ...] = (
        "lane_x",
        "lane_word",
        "lane_y",
        "lane_w",
        "row_x",
        "row_word",
        "row_y",
        "row_w",
        "filter",
    )

    def _set_epilogue(self) -> None:
        super()._set_epilogue()
        self.batched, self.c_base = False, "%C"  # items are among lanes, or looked up
        self.store_c = "epilogue/depthwise_strip.mako"

    def _set_operands(self) -> None:
        c, p = self.config, self.problem
        assert p.strip is not None
        self.strip: DepthwiseStrip = p.strip
        self.size = p.element.bytes
        self.images, self.filters = ("%A", "%B") if self.strip.image == "a" else ("%B", "%A")
        #: adjacent results; a thread computes a strip of each
        self.vec = c.vec_a
        self.lanes = c.nl * self.vec
        self.log2_lanes, self.log2_block = log2(c.nl), log2(self.lanes)
        self.acc = Tile("acc", self.epilogue_type, (c.ns, self.vec))
        self.weights = Tile("weight", self.epilogue_type, (self.strip.taps, self.vec))
        self.pixels = Tile("pixel", self.epilogue_type, (self.vec,))
        halves = self.size == 2 and self.vec > 1
        #: a load of pixels: type and registers; 16 bits come in words of two
        self.words = Tile("word", "b32", (self.vec // 2,)) if halves else Tile("word", "b16", (1,))
        loaded = self.words if self.size == 2 else self.pixels
        self.load_kind, self.loaded = width(loaded.size, loaded.kind), loaded.vector(0, n=loaded.size)
        self.halves = Tile("half", "b16", (2,))
        #: pixels that a strip sees, the one before each, and what it is multiplied into: (result, tap)
        pixels: dict[int, list[tuple[int, int]]] = {}
        for i in range(c.ns):
            for r in range(self.strip.taps):
                at = self.strip.met(i, r)
                if at is not None:
                    pixels.setdefault(at, []).append((i, r))
        places = sorted(pixels)
        self.window_pixels = [(row, before, pixels[row]) for row, before in zip(places, [0, *places], strict=False)]

    def _set_c_access(self) -> None:
        super()._set_c_access()
        self.scalar_bias = False  # a result knows its filter
        self.row = Tile("e", self.epilogue_type, (self.vec,))

    @property
    def filter_coordinates(self) -> list[tuple[str, int]]:
        """Row and column that the epilogue goes by: two, be they equal."""
        return [(name, 0) for name in ("%channel", "%channel")]

    def _vec_c(self) -> int:
        return self.vec

    @property
    def contiguous(self) -> int:
        return self.vec

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        return [(self.acc, "accumulators of a strip")]

    @property
    def shared_map(self) -> list[str]:
        return ["none"]

    @property
    def grid(self) -> str:
        return "(tiles of lanes and of other results, strips)"

    @property
    def parameters(self) -> list[str]:
        numbers = ("lanes", "rows", "results", "steps", *self.STRIDES, "guard", "high")
        return [
            ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,",
            *self.epilogue_parameters,
            ".param .u64 of_results, .param .u64 of_taps,",
            " ".join(f".param .u32 {name}," for name in numbers),
            f".param .{self.epilogue_type} alpha, .param .{self.epilogue_type} beta",
        ]

    def launch(self, problem: KernelGemm) -> Launch:
        s = problem.strip
        assert s is not None
        return Launch(tuple(self._step(problem, x) for x in (s, *s.others)) if problem.results else ())

    def _step(self, problem: KernelGemm, s: DepthwiseStrip) -> Step:
        """The launch of all strips whose results see as many taps."""
        c = self.config
        unit = tuple(n // s.step for n in s.along.axes)
        tap = s.filter
        numbers = (
            s.lanes,
            s.rows,
            s.results,
            s.steps,
            s.lane.image,
            s.word(s.lane.axes),
            s.lane.result,
            s.lane.filter,
            s.along.image // s.step,
            s.word(unit),
            s.along.result,
            tap[0],
            max(tap[1], 1),
            s.packing.guard,
            s.packing.high,
        )
        arguments: tuple[Argument, ...] = (
            ("u64", "A"),
            ("u64", "B"),
            ("u64", "C"),
            ("u64", "W"),
            *self._epilogue_arguments(problem),
            *(("table", table) for table in s.tables),
            *(("u32", n % (1 << 32)) for n in numbers),
            (self.epilogue_type, "alpha"),
            (self.epilogue_type, "beta"),
        )
        grid = (-(-s.lanes // self.lanes) * -(-s.rows // c.ml), -(-s.results // c.ns), 1)
        return Step(self.entry, grid, (self.threads, 1, 1), 0, arguments)
