"""The plan of a SIMT kernel."""

from __future__ import annotations

from ptxgen.codegen.config import BOUNDS_PREDICATE
from ptxgen.codegen.multistage_plan import MultistagePlan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import log2
from ptxgen.families.simt.geometry import SimtGeometry
from ptxgen.families.simt.layout import OperandLayout, fits_32bit_offsets, lane_bits, products


class SimtPlan(MultistagePlan):
    """Multistage schedule with scalar multiply-adds; each thread holds a tile of C in registers."""

    kernel = "kernel/multistage.mako"
    geometry: SimtGeometry
    fragment_addr = "addr/simt_fragment_addr.mako"

    def _set_operands(self) -> None:
        c, g, p = self.config, self.geometry, self.problem
        self.group, self.steps = int(g.group), int(g.uk)
        self.stage_bytes, self.wait = int(g.stage_bytes), c.stages - 2
        self.packed = p.accumulator.bytes == 2
        self.math = "math/hfma2.mako" if self.packed else "math/fma.mako"
        size, ahead = p.element.bytes, bool(c.fragment_prefetch)
        self.a = OperandLayout(g.a, self.threads, c.u, self.steps, ahead, self.packed, size, 0)
        self.b = OperandLayout(g.b, self.threads, c.u, self.steps, ahead, self.packed, size, self.a.size)
        self.operands = (self.a, self.b)
        for x, ld in ((self.a, p.lda), (self.b, p.ldb)):
            x.shared_pointer = x.shared_pointer and fits_32bit_offsets(x, ld)
        self.copy_a, self.copy_b = (f"copy/{'cp_async' if x.asynchronous else 'ldg_sts'}.mako" for x in self.operands)
        self.asynchronous = self.a.asynchronous or self.b.asynchronous
        self.defers_sts = bool(c.deferred_sts) and not (self.a.asynchronous and self.b.asynchronous)
        self.predicated = c.bounds == BOUNDS_PREDICATE
        self._accumulators()
        self._reader()

    def _accumulators(self) -> None:
        c = self.config
        self.ms, self.ns, self.ks = c.ms, c.ns, c.ks
        if self.packed:
            self.acc = Tile("acc", "b32", (c.ks, c.ms, c.ns // 2))
            self.pairs = Tile("pair", "b32", (c.ms,))
            self.products = products(c.ms, c.ns // 2, c.mma_order)
        else:
            self.acc = Tile("acc", self.epilogue_type, (c.ks, c.ms, c.ns))
            self.products = products(c.ms, c.ns, c.mma_order)

    def set_of(self, k: int) -> int:
        """Which set of accumulators step ``k`` adds to."""
        return k % self.ks

    def _reader(self) -> None:
        c = self.config
        self.bits_m, self.bits_n = lane_bits(c.lanes_m)
        self.warp_m, self.warp_n = c.lanes_m, 32 // c.lanes_m
        self.warps_across = c.nl // (self.warp_n * c.ns)
        self.log2_warps_across, self.log2_group = log2(self.warps_across), log2(self.group)
        self.interleaved = bool(c.lane_interleave) and self.bits_m > 0 and self.bits_n > 0

    @property
    def contiguous(self) -> int:
        return int(self.b.contiguous)

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "accumulators: set, row, column" + (" (pairs)" if self.packed else ""))]
        for x in self.operands:
            out.append((x.fragment, f"fragment of {x.name.upper()}"))
            out.append((x.fragment_ptrs, f"shared-memory addresses of this thread's fragments of {x.name.upper()}"))
            if not x.asynchronous:
                out.append((x.staging, f"{x.name.upper()} between global and shared memory"))
        return out
