"""The plan of kernels whose threads load A and B themselves and of whose blocks each computes one tile of C."""

from __future__ import annotations

from collections.abc import Callable

from ptxgen.codegen.addressing import CAddressing, OperandAddressing
from ptxgen.codegen.batch import Batch
from ptxgen.codegen.epilogue import TileEpilogue
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.parameters import KernelParameters
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.scheduler import GridScheduler
from ptxgen.lowering.kernel_gemm import STRIDED


class TilePlan(Plan):
    """A family composes its operands, main loop and packing between these methods, in their order."""

    scheduler: GridScheduler
    epilogue: TileEpilogue
    parameters: KernelParameters

    def _compose_scheduler(self) -> None:
        """Sets the parts that precede the operands."""
        self.batch = Batch(self.problem.batch != 1)
        self.fused_ops = FusedOps.of(self.problem, self.batch.active)
        self.scheduler = GridScheduler(self.config, self.batch.active)

    def _compose_epilogue(self, ns: int, contiguous: int, column: Callable[[int], int]) -> None:
        """Sets the epilogue of the multistage schedule. ``ns``: columns of C that a thread holds; ``contiguous``:
        adjacent columns among them; ``column(j)``: the distance of its column ``j`` from the first."""
        c, via_smem = self.config, bool(self.geometry.c_via_smem)
        vec = c.vec_c if via_smem else min(c.vec_c, contiguous)
        self.c = self._c_access(CAddressing(self.problem.addr_c != STRIDED), vec)
        self.epilogue = TileEpilogue(
            c,
            self.arithmetic,
            self.reduction,
            self.c,
            threads=self.threads,
            ns=ns,
            columns=[column(j) for j in range(0, ns, self.c.vec)],
            contiguous=contiguous,
            via_smem=via_smem,
            row_pitch=int(self.geometry.c_row_pitch),
            aliases_stages=True,
            computes_oob=not via_smem,
        )

    def _compose_launch(self, a: OperandAddressing, b: OperandAddressing) -> None:
        """Sets the auxiliary kernels of C, the parameters and the launcher. The other parts must be set."""
        self.c_kernels = self._c_kernels(self.scheduler)
        self.parameters = KernelParameters(
            self.arithmetic, self.batch, self.fused_ops, (a, b), self.c, self.scheduler, self.packing
        )
        self.launcher = self._gemm_launcher(self.scheduler, self.parameters)
