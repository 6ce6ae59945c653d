"""Sparse matrices stored as dense ones: the form of a sparse product that kernels of GEMMs compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import Preparation, Stage, Stages
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.lowering.csr import Csr
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.operations.gemm.lowering import lower_gemm
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.base import EXTENT_LIMIT

ROW_BYTES = 16  #: rows of the dense matrix begin at multiples of so many bytes
ROW_PART = 4096  #: columns per warp of a row
PARTS = 64  #: the most warps per row


@dataclass(frozen=True)
class DenseMatrix(Preparation):
    """The preparation of the dense matrix: the array ``A``, the sparse matrix with all its zeros, row-major. The
    columns of each row must be distinct. ``size``: bytes of an element."""

    size: int

    kernel = "prepare/dense_matrix.mako"
    reads_values = True
    entry: ClassVar[str] = "store_nonzeros"
    warps: ClassVar[int] = 8  #: warps per block, each with one row of A
    parameters: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "indptr", "indices", "values", "A"),
            Parameters("u32", ("M", "lda"), lambda p: (p.m, p.operand("A").access.ld)),
        )
    )

    @property
    def description(self) -> list[str]:
        return ["a sparse matrix in CSR as a dense row-major matrix"]

    def read_bytes(self, p: KernelProblem) -> int:
        """The bytes that the kernel moves for its reads, estimated as those it writes: the sparse matrix is smaller,
        but each nonzero moves a whole sector."""
        return int(p.m * p.operand("A").access.ld * self.size)

    def stages(self, p: KernelProblem) -> Stages:
        size = p.m * p.operand("A").access.ld * self.size
        blocks = ceil_div(p.m, self.warps), min(ceil_div(max(p.k, 1), ROW_PART), PARTS), 1
        zeros = Step("", (size, 1, 1), arguments=(("u64", "A"),))
        nonzeros = Step(self.entry, blocks, (WARP * self.warps, 1, 1), 0, self.parameters.arguments(p))
        yield Stage((zeros, nonzeros) if size else (), {"A": size})

    @property
    def threads(self) -> int:
        return WARP * self.warps

    @property
    def bits(self) -> int:
        return 8 * self.size


def densified(p: Spmm, a: Csr) -> tuple[KernelProblem, ...]:
    """The product with the dense matrix, as ``lower_gemm`` returns it; empty if A must not be prepared as a dense
    matrix, or would take too many bytes. As in sparse products, the order of sums does not depend on timing."""
    size = p.element.bytes
    lda = ceil_div(max(p.k, 1) * size, ROW_BYTES) * ROW_BYTES // size
    if not a.prepared or a.nonfinite or not a.distinct or lda >= EXTENT_LIMIT:
        return ()
    if a.index_type != "i32" or p.column_major_c:
        return ()
    if p.m * lda * size > p.most_dense_bytes:
        return ()
    gemm = Gemm(
        p.m,
        p.n,
        p.k,
        p.layout,
        p.dtype,
        p.compute,
        lda=lda,
        ldb=p.ldb,
        ldc=p.ldc,
        aligned_b=p.aligned_b,
        aligned_c=p.aligned_c,
        out=p.out,
        deterministic=True,
    )
    form = lower_gemm(gemm)
    prepared = (replace(x, prepared=DenseMatrix(size)) if x.name == "A" else x for x in form.operands)
    return (replace(form, operands=tuple(prepared), calls=p.calls),)
