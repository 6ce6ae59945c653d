"""The C form of matrix products, for exported libraries."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.errors import InputError
from ptxgen.operations.gemm.lowering import lower_gemm
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import A, B, C, span
from ptxgen.problem.c_form import CForm


def without_sum(p: Gemm) -> Gemm:
    size = p.element.bytes
    return replace(p, k=0, layout="NN", lda=0, ldb=0, aligned_a=size, aligned_b=size, stride_a=0, stride_b=0)


def require(p: Gemm) -> None:
    """Raises InputError if the function in C cannot compute ``p``."""
    if p.block_a:
        raise InputError(f"block_a is {p.block_a}; exported libraries have no scales of blocks, so it must be empty")


C_FORM = CForm(
    "gemm",
    "C = alpha op(A) op(B) + beta C, row-major",
    "export/gemm.c.mako",
    alignments=lambda p: (p.aligned_a, p.aligned_b, p.aligned_c),
    elements=lambda p: (span(p, A), span(p, B), span(p, C)),
    without_sum=without_sum,
    require=require,
    serves_other_shapes=lambda p: p.batch == 1,
    lower=lower_gemm,
    strides=3,
)
