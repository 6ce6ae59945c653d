"""The operation ``quantized_jagged``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ptxgen.operations.grouped.operation import plain
from ptxgen.operations.grouped.reference import product, slices
from ptxgen.operations.quantized.operation import CEILING
from ptxgen.operations.quantized_jagged.lowering import lower_quantized_jagged
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged
from ptxgen.operations.quantized_jagged.suites import SUITES, TITLES, cells
from ptxgen.problem.operation import Baseline, Operation

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.grouped.checks import GroupedOperandSets
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing


def _checks(driver: Driver, p: QuantizedJagged, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.grouped.checks import check_grouped

    return check_grouped(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: QuantizedJagged, timing: Timing) -> GroupedOperandSets:
    from ptxgen.operations.grouped.checks import GroupedOperandSets

    return GroupedOperandSets(driver, p, timing)


def _torch() -> Callable[..., Any]:
    from ptxgen.operations.grouped.pytorch import load_torch
    from ptxgen.operations.quantized_jagged.pytorch import TorchDequantizedJagged

    load_torch()
    return TorchDequantizedJagged


QUANTIZED_JAGGED = Operation(
    QuantizedJagged,
    lowering=lower_quantized_jagged,
    product=product,
    slices=slices,
    plain=plain,
    checks=_checks,
    operand_sets=_operand_sets,
    operands="a and b",
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    baselines={"torch": Baseline("torch", "torch._grouped_mm, dequantized weights", _torch)},
    ceiling=CEILING,
)
