"""The parameters of kernels whose threads load A and B."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.addressing import OperandAddressing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.c_access import CAccess
from ptxgen.codegen.parts.parameters import (
    KernelParameters,
    Parameters,
    addresses,
    block_scale_parameters,
    scalar_parameters,
    sink_parameters,
    step_leading_dimensions,
    weight_parameters,
)
from ptxgen.codegen.parts.scheduler import GridScheduler


@dataclass(frozen=True)
class MatrixParameters(KernelParameters):
    """Parameters of kernels whose threads address A, B and C, and whose grid counts tiles and slices."""

    arithmetic: Arithmetic
    batch: Batch
    addressing: tuple[OperandAddressing, OperandAddressing]
    c: CAccess
    scheduler: GridScheduler
    packing: Packing

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.c.problem),
            *self.batch.parameters,
            *(row for x in (*self.addressing, self.c.addressing) for row in x.parameters),
            Parameters("u32", ("M", "N", "K"), lambda x: (x.p.m, x.p.n, x.p.k)),
            Parameters("u32", ("lda", "ldb", "ldc"), lambda x: (x.p.operand(name).access.ld for name in "ABC")),
            Parameters("u32", ("k_slice",), lambda x: (self.scheduler.k_slices(x.p)[1],), same_line=True),
            *self.scheduler.parameters,
            *scalar_parameters(self.c.problem.scalars),
            *step_leading_dimensions(self.c.problem),
            *sink_parameters(self.c.problem),
            *self.packing.product_parameters,
            *weight_parameters(self.c.problem),
            *block_scale_parameters(self.c.problem),
        ]
