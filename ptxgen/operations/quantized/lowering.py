"""Lowers products with quantized weights."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.lowering.kernel_problem import KernelProblem, Operand
from ptxgen.lowering.quantized_rows import QuantizedRows
from ptxgen.operations.gemm.lowering import lower_gemm
from ptxgen.operations.quantized.problem import QuantizedGemm


def lower_quantized_gemm(p: QuantizedGemm) -> KernelProblem:
    """A product with quantized weights as a kernel problem: a matrix product whose B has the access
    ``QuantizedRows``."""
    plain = lower_gemm(p)
    stored = p.n, p.columns_b, p.ldb, 0, p.aligned_b, p.vectors[1]
    access = QuantizedRows(True, *stored, "strided", *p.weight_fields)
    a, _ = plain.operands
    name = f"quantized_gemm_{p.dtype}_{p.weights}"
    return replace(plain, name=name, operands=(a, Operand("B", p.format.storage, access)), moved=p.bytes)
