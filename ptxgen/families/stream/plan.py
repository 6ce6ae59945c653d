"""The plan of a streaming kernel."""

from __future__ import annotations

from ptxgen.columnar import log2
from ptxgen.families.stream.layout import QUAD, Elements, Round, Stream, rounds
from ptxgen.plan import Plan
from ptxgen.registers import Tile


class StreamPlan(Plan):
    """Every thread loads what it multiplies; threads that share K add their sums by shuffles and in shared memory."""

    kernel = "kernel/streaming.mako"
    math = "math/dot.mako"

    def _operands(self) -> None:
        c, g, p = self.config, self.geometry, self.problem
        size = p.element.bytes
        self.along, self.across, self.lanes = int(g.along), int(g.across), int(g.lanes)
        self.depth, self.steps = int(g.depth), int(g.steps)
        self.quads = p.dtype == "s8" and min(g.vec_x, g.vec_y) >= QUAD and bool(g.y_kmajor)
        self.a, self.b = (
            Stream(x, p.dtype, size, self.along, self.across, self.depth, self.steps, self.quads) for x in (g.a, g.b)
        )
        self.operands = (self.a, self.b)
        self.x, self.y = (self.b, self.a) if c.swap else (self.a, self.b)
        self.ahead = bool(c.ahead)
        self.log2_across, self.log2_u = log2(self.lanes), log2(c.u)
        self.log2_wm, self.warps_along = log2(c.wm), self.along // c.wm
        self.log2_warps_along = log2(self.warps_along)
        #: by which bits of their numbers the lanes differ that share K
        unit = 1 if self.x.kmajor else c.wm
        self.partners = [unit << n for n in range(self.log2_across)]
        self._elements()

    def _elements(self) -> None:
        c, unit = self.config, QUAD if self.quads else 1
        self.ms, self.ns = c.ms, c.ns
        self.acc = Tile("acc", self.sum, (self.x.count, self.y.count))
        packed = 1 if self.quads else max(self.x.packed, self.y.packed if self.y.kmajor else 1)
        own = (packed, packed) if self.x.kmajor else (1, self.depth // unit if self.y.kmajor else 1)
        self.elements_x = Elements(self.x, self.sum, (self.x.count, own[0]))
        self.elements_y = Elements(self.y, self.sum, (self.y.count, own[1]))
        #: what only lanes do that are the first along K
        self.share_guard = "@%first " if self.lanes > 1 else ""

    def rounds(self, step: int) -> list[Round]:
        """What is multiplied in a step."""
        return rounds(self.elements_x, self.elements_y, self.acc, step)

    def sum_at(self, i: int, j: int) -> str:
        """The sum of row ``i`` and column ``j`` of a thread's tile."""
        return self.acc[j, i] if self.config.swap else self.acc[i, j]

    def _epilogue(self) -> None:
        super()._epilogue()
        self.row = Tile("e", self.sum, (max(self.ns, self.vec_c),))

    @property
    def contiguous(self) -> int:
        return self.b.side

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        return [
            (self.acc, "sums: along the long side, along the thin one"),
            (self.x.raw, f"{self.x.upper} from memory: step, load, word"),
            (self.y.raw, f"{self.y.upper}, of one step"),
        ]

    @property
    def shared_map(self) -> list[str]:
        return [f"{self.kl} tiles of C, rows of {self.row_c}"]
