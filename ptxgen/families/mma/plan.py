"""The plan of an mma.sync kernel."""

from __future__ import annotations

from ptxgen.codegen.config.config import packs
from ptxgen.codegen.grouped.scheduler import GroupedScheduler
from ptxgen.codegen.launches.bit_packing import BitPacking
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_epilogue, compose_launch, compose_scheduler, table_packing, vector_bytes
from ptxgen.families.common.matrix_instructions import Instruction, instruction
from ptxgen.families.mma.geometry import MmaGeometry
from ptxgen.families.mma.layout import MmaOperand
from ptxgen.families.mma.mainloop import ComplexMmaMainloop, JoinedPartsMainloop, MmaMainloop, ScaledMmaMainloop
from ptxgen.families.mma.pack_padded_rows import PaddedRowPacking
from ptxgen.families.mma.step_scales import NoScales, StepScales
from ptxgen.lowering.bit_products import packs_bits
from ptxgen.lowering.block_scales import block_scaled
from ptxgen.lowering.complex_product import ComplexProduct


class MmaPlan(Plan):
    """The multistage schedule with mma.sync: each warp holds a tile of C in the registers of its lanes."""

    kernel = "kernel/multistage.mako"
    geometry: MmaGeometry
    shared_alignment = 128

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        mma = instruction(p, self.device)
        if p.element.fp8:
            self.ptx_version = max(self.ptx_version, "8.4")
        scheduler = compose_scheduler(self)
        packing: Packing = Packing(p, self.entry, self.batch)
        if packs_bits(p):
            packing = BitPacking(p, self.entry, self.batch)
        elif packs(c, "a") or packs(c, "b"):
            packing = PaddedRowPacking(p, self.entry, self.batch, c)
        self.packing = table_packing(self) or packing
        self.a, self.b = self._operands(mma)
        rounding = ""
        if p.compute == "tf32":  # from sm_90 on in one instruction
            rounding = "cvt.rn.tf32.f32" if self.device.sm >= 90 else "cvt.rna.tf32.f32"
        parts = (c, g, int(g.steps), self.a, self.b, mma, rounding)
        if isinstance(p.algebra, ComplexProduct):
            schedule = JoinedPartsMainloop if mma.joins_parts else ComplexMmaMainloop
            self.mainloop: MmaMainloop = schedule(*parts, p.algebra)
        else:
            self.mainloop = (ScaledMmaMainloop if block_scaled(p) else MmaMainloop)(*parts)
        if "sum_a" in p.needs:
            self.operand_sums = self.mainloop.operand_sums(p.dtype)
        table = scheduler.table if isinstance(scheduler, GroupedScheduler) else None
        self.scales = StepScales(p, self.mainloop, self.batch.active, table) if block_scaled(p) else NoScales()
        compose_epilogue(self, self.mainloop.ns, self.mainloop.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        a, b, c = vector_bytes(self)
        one = self.problem.element.bytes
        return one if packs(self.config, "a") else a, one if packs(self.config, "b") else b, c

    def _operands(self, i: Instruction) -> tuple[MmaOperand, MmaOperand]:
        p, c, g = self.problem, self.config, self.geometry
        common = (i, self.threads, c.u, int(g.steps), bool(c.fragment_prefetch))
        product = self.packing.product_problem(p)
        modes = [p.operand(x).access.mode for x in "AB"]
        lds = [product.operand(x).access.ld for x in "AB"]
        a = MmaOperand(g.a, *common, 0, bool(packs(c, "a")), modes[0], lds[0], p.element.parts)
        return a, MmaOperand(g.b, *common, a.size, bool(packs(c, "b")), modes[1], lds[1], p.element.parts)
