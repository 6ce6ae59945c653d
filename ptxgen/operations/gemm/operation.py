"""The operation ``gemm``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptxgen.install_advice import install_extra
from ptxgen.operations.gemm import random_problems
from ptxgen.operations.gemm.c_form import C_FORM
from ptxgen.operations.gemm.lowering import lower_gemm
from ptxgen.operations.gemm.problem import CONTIGUOUS, Gemm
from ptxgen.operations.gemm.reference import product, slices
from ptxgen.operations.gemm.suites import SUITES, TITLES, cells, from_column_major
from ptxgen.problem.operation import Baseline, Installation, Operation, RandomProblems, VendorCalls, VendorKernel

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.gemm.operand_sets import GemmOperandSets
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing


def _checks(driver: Driver, p: Gemm, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.gemm.checks import check_gemm

    return check_gemm(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: Gemm, timing: Timing) -> GemmOperandSets:
    from ptxgen.operations.gemm.operand_sets import GemmOperandSets

    return GemmOperandSets(driver, p, timing)


def _cublas() -> Callable[..., Any]:
    from ptxgen.operations.gemm import cublaslt

    cublaslt.load_library()
    return cublaslt.CublasLt


def _cublas_version() -> str | None:
    from ptxgen.operations.gemm import cublaslt

    return cublaslt.available()


def _torch() -> Callable[..., Any]:
    from ptxgen.operations.gemm import pytorch
    from ptxgen.runtime import vendor_libraries

    vendor_libraries.load_torch()
    return pytorch.torch_product


def _plain(p: Gemm) -> Gemm:
    """The product without an epilogue. Its C has N columns, where C of a gated activation has half as many."""
    return replace(p, epilogue="", ldc=0, stride_c=CONTIGUOUS) if p.gated else replace(p, epilogue="")


def _search(driver: Any, p: Gemm, sets: Sequence[Mapping[str, int]], timing: Timing) -> str:
    from ptxgen.operations.gemm import cublaslt

    return cublaslt.search(driver, p, sets, timing)


def _kernel(driver: Any, p: Gemm, text: str) -> VendorKernel:
    from ptxgen.operations.gemm import cublaslt

    return cublaslt.CublasLtKernel(driver, p, text)


def _vendor_computes(p: Gemm) -> bool:
    """False if cuBLASLt lacks an operation of the epilogue, or the scales of blocks."""
    return not (p.scalings or p.gated or p.stores_sums or p.sums_columns or p.sums_a)


_CUBLAS = Installation(_cublas_version, "not installed", lambda: install_extra("baseline"))
_CALLS = VendorCalls(_cublas_version, _search, _kernel, computes=_vendor_computes)

GEMM = Operation(
    Gemm,
    lowering=lower_gemm,
    product=product,
    slices=slices,
    plain=_plain,
    checks=_checks,
    operand_sets=_operand_sets,
    operands="a and b",
    titles=TITLES,
    cells=cells,
    column_major=from_column_major,
    suites=SUITES,
    baselines={
        "cublas": Baseline("cublas", "cuBLASLt", _cublas, _CUBLAS, calls=_CALLS),
        "torch": Baseline("torch", "PyTorch", _torch),
    },
    c_form=C_FORM,
    random_problems={
        "gemm": RandomProblems(random_problems.gemm, 0.45, random_problems.varied),
        "thin": RandomProblems(random_problems.thin, 0.25, random_problems.varied),
        "batch": RandomProblems(random_problems.batch, 0.08, random_problems.varied),
    },
)
