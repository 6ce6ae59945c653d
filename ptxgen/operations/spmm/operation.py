"""The operation ``spmm``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ptxgen.families.registry import FAMILIES
from ptxgen.install_advice import install_extra
from ptxgen.lowering.csr import GatheredRows
from ptxgen.operations.spmm.c_form import C_FORM
from ptxgen.operations.spmm.lowering import lower_spmm
from ptxgen.operations.spmm.problem import FEATURES, Spmm
from ptxgen.operations.spmm.random_problems import RANDOM_PROBLEMS
from ptxgen.operations.spmm.reference import product, slices
from ptxgen.operations.spmm.suites import SUITES, TITLES, cells
from ptxgen.problem.operation import Baseline, Installation, Operation

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.spmm.checks import SpmmOperandSets
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing


def _checks(driver: Driver, p: Spmm, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.spmm.checks import check_spmm

    return check_spmm(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: Spmm, timing: Timing) -> SpmmOperandSets:
    from ptxgen.operations.spmm.checks import SpmmOperandSets

    return SpmmOperandSets(driver, p, timing)


def _cusparse() -> Callable[..., Any]:
    from ptxgen.operations.spmm import cusparse

    cusparse.load_library()
    return cusparse.Cusparse


def _cusparse_transposed() -> Callable[..., Any]:
    from ptxgen.operations.spmm import cusparse

    cusparse.load_library()
    return cusparse.CusparseTransposed


def _cusparse_version() -> str | None:
    from ptxgen.operations.spmm import cusparse

    return cusparse.available()


def _torch() -> Callable[..., Any]:
    from ptxgen.operations.spmm import pytorch
    from ptxgen.runtime.vendor_libraries import load_torch

    load_torch()
    return pytorch.TorchSparse


def _dense() -> Callable[..., Any]:
    from ptxgen.operations.gemm import cublaslt
    from ptxgen.operations.spmm.dense import DenseProduct

    cublaslt.load_library()
    return DenseProduct


def _of_family(family: str) -> Callable[..., Any]:
    from ptxgen.operations.spmm.family_baseline import product_of

    return product_of(family)


_CUSPARSE = Installation(_cusparse_version, "not installed", lambda: install_extra("baseline"))
_BASELINES = (
    Baseline("cusparse", "cuSPARSE", _cusparse, _CUSPARSE),
    Baseline("cusparse_transposed", "cuSPARSE, transposed operand", _cusparse_transposed),
    Baseline("torch", "torch.sparse.mm", _torch),
    Baseline("dense", "cuBLASLt, dense A", _dense),
    *(
        Baseline(family.name, family.published, partial(_of_family, family.name))
        for family in FAMILIES.values()
        if family.published and GatheredRows.capability in family.provides
    ),
)

SPMM = Operation(
    Spmm,
    lowering=lower_spmm,
    product=product,
    slices=slices,
    checks=_checks,
    operand_sets=_operand_sets,
    operands="a and b",
    unprepared=lambda p: replace(p, calls=0),
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    c_form=C_FORM,
    features=FEATURES,
    random_problems=RANDOM_PROBLEMS,
    baselines={baseline.name: baseline for baseline in _BASELINES},
)
