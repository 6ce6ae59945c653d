"""The plan of a quantized_mma kernel."""

from __future__ import annotations

from collections.abc import Mapping

from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.addressing import CAddressing, OperandAddressing
from ptxgen.codegen.parts.epilogue import TileEpilogue
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_launch, compose_scheduler, table_packing
from ptxgen.families.common.dequantize import Dequantizer
from ptxgen.families.common.matrix_instructions import instruction
from ptxgen.families.quantized_mma.geometry import CHUNK, QuantizedMmaGeometry
from ptxgen.families.quantized_mma.layout import Activations, Stages, Weights
from ptxgen.families.quantized_mma.mainloop import QuantizedMmaMainloop
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import STRIDED


class QuantizedMmaPlan(Plan):
    """The plan: each lane loads its operands to registers; warps that split K add their sums in shared memory."""

    kernel = "kernel/quantized_mma.mako"
    geometry: QuantizedMmaGeometry
    mainloop: QuantizedMmaMainloop
    epilogue: TileEpilogue
    parameter_meanings: Mapping[str, str] = {
        "scales": "address of the scales of the weights: row, group",
        "zeros": "address of the zero points of the weights, likewise",
        "groups": "groups of a row of weights",
    }

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        scheduler = compose_scheduler(self)
        access = p.operand("B").access
        self.b = Weights(access, c.ns, int(g.words), c.vec_b, int(g.steps), c.u, grouped(p))
        depth, chunk = self.b.depth, min(self.b.depth, CHUNK)
        stages = (
            Stages(c.stages, c.ml, c.u, c.vec_a, chunk, depth, int(g.threads), int(g.sums_shared)) if c.stages else None
        )
        self.a = Activations(c.ms // 2, c.vec_a, depth, self.b.step_depth, c.u, stages, bool(g.strided))
        dequantizer = Dequantizer(access.format, p.dtype, bool(g.strided))
        self.mainloop = QuantizedMmaMainloop(c, g, self.b, self.a, instruction(p, self.device), dequantizer)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), c.vec_c, grouped(p))
        self.epilogue = TileEpilogue(
            c,
            self.arithmetic,
            self.reduction,
            self.c,
            threads=self.threads,
            ns=c.ns,
            columns=[],
            contiguous=c.ns,
            via_smem=True,
            row_pitch=int(g.c_row_pitch),
            aliases_stages=False,
            computes_oob=False,
            by_rows=grouped(p),
        )
        self.packing = table_packing(self) or Packing(p, self.entry, self.batch)
        compose_launch(self, OperandAddressing.of("a", STRIDED), OperandAddressing.of("b", STRIDED), scheduler)

    @property
    def scaled_rows(self) -> list[list[str]]:
        """For each row of sums, the instructions that pass it to the sink."""
        return [self.epilogue.scaled_row(sums) for sums in self.mainloop.row_sums]

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        p, c = self.problem, self.config
        return c.vec_a * p.element.bytes, c.vec_b, self.c.vec * p.output.bytes
