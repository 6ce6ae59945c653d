"""The plan of a skinny kernel: one extent of C is small, memory bandwidth limits the speed."""

from __future__ import annotations

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import log2
from ptxgen.families.mma.instructions import by_words
from ptxgen.families.skinny.layout import QUAD, Elements, Fragments, Round, SkinnyOperand, rounds


class SkinnyPlan(Plan):
    """Each thread loads its operands to registers; threads that split K add sums by shuffles and in shared memory."""

    kernel = "kernel/skinny.mako"
    math = "math/skinny_fma.mako"
    thread_map = "addr/skinny.mako"

    def _set_operands(self) -> None:
        c, g, p = self.config, self.geometry, self.problem
        size = p.element.bytes
        self.along, self.across, self.lanes = int(g.along), int(g.across), int(g.lanes)
        self.depth, self.steps = int(g.depth), int(g.steps)
        self.dp4a = p.dtype == "s8" and min(g.vec_x, g.vec_y) >= QUAD and bool(g.y_kmajor)
        #: elements of K from a step to the next
        self.step_stride = int(g.reach)
        shared = (self.depth, self.steps, self.step_stride, c.u)
        self.a, self.b = (SkinnyOperand(x, p.dtype, size, self.along, *shared, self.dp4a) for x in (g.a, g.b))
        self.operands = (self.a, self.b)
        self.x, self.y = (self.b, self.a) if c.long_n else (self.a, self.b)
        self.prefetches = bool(c.fragment_prefetch)
        self.log2_across, self.log2_u, self.log2_size = log2(self.lanes), log2(c.u), log2(size)
        self.log2_lanes_long, self.warps_along = log2(c.lanes_long), self.along // c.lanes_long
        self.log2_warps_along = log2(self.warps_along)
        #: XOR masks of the shuffles that add the sums of lanes that split K
        unit = 1 if self.x.kmajor else c.lanes_long
        self.shuffle_masks = [unit << n for n in range(self.log2_across)]
        self.lane_map, self.own_y = self.thread_map, "%row" if c.long_n else "%col"
        if c.mma_m16:
            self._set_fragments()
        else:
            self._set_elements()
        if self.x.unaligned:
            self._set_unaligned()

    def _set_unaligned(self) -> None:
        """Rows that nothing aligns: what is read element by element."""
        self.thread_map = "addr/skinny_unaligned.mako"
        paired = self.x.split_vectors
        #: vectors behind whole ones; elements behind the last whole vector that its second chunk takes at most
        self.tail_vectors, self.tail_reserve = (2, self.x.vec) if paired else (1, 0)
        #: elements at the end of any row that the K loop must not read
        self.k_slack = 2 * self.x.vec if paired else self.x.vec - 1
        self.element_loads = (
            (self.x, self.x.element_loads(self.fragments.word_x if paired else None)),
            (self.y, self.y.element_loads()),
        )

    def _set_fragments(self) -> None:
        c, p = self.config, self.problem
        found = by_words(p)
        assert found is not None  # a rule
        self.instruction = found
        if p.element.bytes == 1 and found.sum == "f32":
            self.ptx_version = max(self.ptx_version, "8.4")
        self.math, self.thread_map, self.own_y = "math/skinny_mma.mako", "addr/skinny_mma.mako", "%frag_row"
        self.lane_map = self.thread_map
        self.ms, self.ns = c.ms, c.ns
        self.acc = Tile("acc", found.sum, (self.x.count // 2, self.y.count, found.sums))
        self.fragments = Fragments(self.x, self.y, found, self.acc)
        #: rounds f32 to tf32, from sm_90 on in one instruction
        self.rounding = "cvt.rn.tf32.f32" if self.device.sm >= 90 else "cvt.rna.tf32.f32"
        self.shuffle_masks = []
        # four lanes ask for half a line, their next step for the other half: memory brings whole lines
        self.x.cache_hint = ("" if self.x.split_vectors else self.x.cache_hint) + ".L2::128B"

    def _set_elements(self) -> None:
        c, unit = self.config, QUAD if self.dp4a else 1
        self.ms, self.ns = c.ms, c.ns
        kind = "s32" if self.problem.accumulator.integer else self.epilogue_type
        self.acc = Tile("acc", kind, (self.x.count, self.y.count))
        #: of the accumulators: zero, the multiply-add, the addition
        self.acc_zero, self.fma_op, self.add_op = (
            ("0", "mad.lo.s32", "add.s32") if kind == "s32" else (self.zero, self.fma, self.add)
        )
        packed = 1 if self.dp4a else max(self.x.packed, self.y.packed if self.y.kmajor else 1)
        own = (packed, packed) if self.x.kmajor else (1, self.depth // unit if self.y.kmajor else 1)
        self.elements_x = Elements(self.x, kind, (self.x.count, own[0]))
        self.elements_y = Elements(self.y, kind, (self.y.count, own[1]))
        #: what only lanes do that are the first along K
        self.sts_guard = "@%k_lane0 " if self.lanes > 1 else ""

    def rounds(self, step: int) -> list[Round]:
        """What is multiplied in a step."""
        return rounds(self.elements_x, self.elements_y, self.acc, step)

    def sum_at(self, i: int, j: int) -> str:
        """The sum of row ``i`` and column ``j`` of a thread's tile."""
        i, j = (j, i) if self.config.long_n else (i, j)
        return self.fragments.sum_at(i, j) if self.config.mma_m16 else self.acc[i, j]

    def _set_c_access(self) -> None:
        super()._set_c_access()
        self.row = Tile("e", self.epilogue_type, (max(self.ns, self.vec_c),))

    @property
    def contiguous(self) -> int:
        return self.config.ns if self.config.mma_m16 and not self.config.long_n else self.b.contiguous_run

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        return [
            (
                self.acc,
                "accumulators: along the long side, along the short one"
                + (", of a lane" if self.config.mma_m16 else ""),
            ),
            (self.x.raw, f"loads of {self.x.upper}: step, load, word"),
            (self.y.raw, f"loads of {self.y.upper}, one step"),
        ]

    @property
    def shared_map(self) -> list[str]:
        return [f"{self.kl} tiles of C, rows of {self.c_row_pitch}"]
