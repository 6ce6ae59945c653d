"""Lowers jagged products with quantized weights."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.lowering.kernel_problem import KernelProblem, Operand
from ptxgen.lowering.quantized_rows import QuantizedRows
from ptxgen.operations.grouped.lowering import lower_grouped
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged


def lower_quantized_jagged(p: QuantizedJagged) -> KernelProblem:
    """A jagged product with quantized weights as a kernel problem: a group whose B has the access ``QuantizedRows``,
    with a matrix for each item."""
    plain = lower_grouped(p)
    a, b = plain.operands
    columns, rows, ld, item = b.access.tensor(b.element.bytes)
    stored = rows, columns, ld, item // b.element.bytes, p.aligned_b, p.vectors[1]
    access = QuantizedRows(True, *stored, "strided", *p.weight_matrix.weight_fields)
    name = f"quantized_jagged_{p.dtype}_{p.weights}"
    return replace(plain, name=name, operands=(a, Operand("B", b.dtype, access)))
