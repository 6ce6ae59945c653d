"""The parameters of the main kernel, and the arguments of its launches."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.addressing import OperandAddressing
from ptxgen.codegen.arithmetic import Arithmetic
from ptxgen.codegen.batch import Batch, BatchRange
from ptxgen.codegen.c_access import CAccess
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.packing import POINTERS, Buffers, Packing
from ptxgen.codegen.parts import Part
from ptxgen.codegen.scheduler import GridScheduler
from ptxgen.codegen.source import Argument
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class KernelParameters(Part):
    """Parameters of kernels that address A, B and C themselves, and whose grid counts tiles and slices."""

    arithmetic: Arithmetic
    batch: Batch
    fused_ops: FusedOps
    addressing: tuple[OperandAddressing, OperandAddressing]
    c: CAccess
    scheduler: GridScheduler
    packing: Packing

    @property
    def declarations(self) -> list[str]:
        """The parameter declarations, in lines."""
        kind, packed = self.arithmetic.type, self.packing.product_parameters
        return [
            ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,",
            *self.fused_ops.parameters,
            *self.batch.parameters,
            *(line for x in (*self.addressing, self.c.addressing) for line in x.parameters),
            ".param .u32 M, .param .u32 N, .param .u32 K,",
            ".param .u32 lda, .param .u32 ldb, .param .u32 ldc, .param .u32 k_slice,",
            f".param .{kind} alpha, .param .{kind} beta" + ("," if packed else ""),
            *packed,
        ]

    def arguments(self, p: KernelProblem, run: BatchRange, buffers: Buffers) -> tuple[Argument, ...]:
        """The values of ``declarations`` for the batch items of ``run``."""
        kind, slice_k = self.arithmetic.type, self.scheduler.k_slices(p)[1]
        return (
            *POINTERS,
            *self.fused_ops.arguments,
            *self.batch.arguments(p, run),
            *(value for x in (*self.addressing, self.c.addressing) for value in x.arguments(p)),
            *(
                ("u32", n)
                for n in (
                    p.m,
                    p.n,
                    p.k,
                    p.operand("A").access.ld,
                    p.operand("B").access.ld,
                    p.operand("C").access.ld,
                    slice_k,
                )
            ),
            (kind, "alpha"),
            (kind, "beta"),
            *self.packing.product_arguments(buffers),
        )
