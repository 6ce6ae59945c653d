"""The packing of groups whose items are rows of A."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxgen.codegen.grouped.jagged_table import JaggedTable
from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.launches.packing import MappedOperand
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.families.wgmma.grouped_rows import item_rows_map, matrices_of_experts
from ptxgen.families.wgmma.operand_packing import packed_operand
from ptxgen.families.wgmma.packing.rows import RowPacking
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class ExpertPacking(RowPacking):
    """The kernels that pack A as one matrix with the rows of all items, and the B of each item, after the kernel of
    ``table``. ``problem``: the batch of these matrices."""

    table: JaggedTable

    template = "copy/pack_experts.mako"

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        matrices, table = matrices_of_experts(p), self.table.allocate(p, run, workspace)
        copies = super().allocate(matrices, BatchRange(0, matrices.batch), workspace)
        return replace(copies, packed={**table.packed, **copies.packed})

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        p, packed = matrices_of_experts(launched.p), launched.buffers.packed
        if x.name != "a" or x.name not in packed:
            return super().tensor_map(replace(launched, p=p), x, element_type, direct)
        matrix = self._matrix(p, x.name, packed_operand(p, x.name))
        return item_rows_map("W", element_type, matrix, p.element.bytes, x.box, x.span, packed[x.name])

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        p = matrices_of_experts(launched.p)
        runs = BatchRange.split(p.batch, GRID_LIMIT)
        copies = (step for run in runs for step in super(ExpertPacking, self).steps(replace(launched, p=p, run=run)))
        return (*self.table.steps(launched), *copies)
