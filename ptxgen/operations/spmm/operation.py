"""The operation ``spmm``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ptxgen.operations.spmm.lowering import lower_spmm
from ptxgen.operations.spmm.problem import FEATURES, Spmm
from ptxgen.operations.spmm.reference import product, slices
from ptxgen.operations.spmm.suites import SUITES, TITLES, cells
from ptxgen.problem.operation import Operation

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


SPMM = Operation(
    Spmm,
    lowering=lower_spmm,
    product=product,
    slices=slices,
    checks=_checks,
    operand_sets=_operand_sets,
    operands="a and b",
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    features=FEATURES,
)
