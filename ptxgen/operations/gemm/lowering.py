"""Lowers matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxgen.lowering.block_scales import with_scales
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import matrix_product
from ptxgen.operations.gemm.problem import CONTIGUOUS, Gemm
from ptxgen.problem.dtypes import HALVES


def lower_gemm(p: Gemm, **numbers: Any) -> KernelProblem:
    """A GEMM as a kernel problem. ``numbers``: symbols or columns, by field, in place of extents, leading dimensions
    and alignments; with the key ``problem_type``, the class of the result."""

    def of(*names: str) -> tuple[Any, ...]:
        return tuple(numbers.get(name, getattr(p, name)) for name in names)

    m, n, k = of("m", "n", "k")
    lda, ldb, ldc = of("lda", "ldb", "ldc")
    out, stride_c = p.out, p.stride_c
    if p.gated:  # C has twice as many columns, of halves of elements
        out, ldc, stride_c = HALVES[p.out].name, 2 * ldc, stride_c if stride_c == CONTIGUOUS else 2 * stride_c
    a, b, c = of("aligned_a", "aligned_b", "aligned_c")
    product = matrix_product(
        m,
        n,
        k,
        p.orders,
        p.dtype,
        p.compute,
        out=out,
        ld=(lda, ldb, ldc),
        aligned=(a, b, c),
        batch=p.batch,
        strides=(p.stride_a, p.stride_b, stride_c),
        epilogue=p.epilogue,
        deterministic=p.deterministic,
        dtype_b=p.dtype_b,
        problem_type=numbers.get("problem_type", KernelProblem),
    )
    if p.sums_a:
        product = replace(product, sink=replace(product.sink, rows=m))
    if p.scalings and p.k:  # without products, there is nothing to scale
        return with_scales(product, p.scalings)
    if not p.element.part:
        return product
    name = f"{p.operation}_{p.dtype}_{p.layout.lower()}"
    return replace(product, name=name, algebra=ComplexProduct(conjugates=p.conjugates))
