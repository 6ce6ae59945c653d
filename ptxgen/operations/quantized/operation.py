"""The operation ``quantized_gemm``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptxgen.operations.quantized.lowering import lower_quantized_gemm
from ptxgen.operations.quantized.problem import QuantizedGemm, WeightFields
from ptxgen.operations.quantized.reference import product
from ptxgen.operations.quantized.suites import SUITES, TITLES, cells
from ptxgen.problem.operation import Baseline, Ceiling, MeasuredCeiling, Operation

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.quantized.operand_sets import QuantizedOperandSets
    from ptxgen.problem.device import Device
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing


def _checks(driver: Driver, p: QuantizedGemm, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.quantized.checks import check_quantized_gemm

    return check_quantized_gemm(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: QuantizedGemm, timing: Timing) -> QuantizedOperandSets:
    from ptxgen.operations.quantized.operand_sets import QuantizedOperandSets

    return QuantizedOperandSets(driver, p, timing)


def _plain(p: QuantizedGemm) -> QuantizedGemm:
    """The product without an epilogue. Its C has N columns, where C of a gated activation has half as many."""
    return replace(p, epilogue="", ldc=0) if p.gated else replace(p, epilogue="")


def _torch() -> Callable[..., Any]:
    from ptxgen.operations.quantized.pytorch import TorchDequantized
    from ptxgen.runtime.vendor_libraries import load_torch

    load_torch()
    return TorchDequantized


def _least_us(p: WeightFields, d: Device) -> float:
    """The microseconds in which the weights, those of items with rows, are read at the bandwidth of the data sheet."""
    return p.weight_bytes / (d.bandwidth * 1e3)


def _measured(driver: Driver, p: WeightFields) -> MeasuredCeiling | None:
    from ptxgen.runtime.driver import Timing
    from ptxgen.tuning.measure import copy_bandwidth

    return copy_bandwidth.measured(driver, p.weight_bytes, Timing())


#: the time in which the weights are read
CEILING = Ceiling(_least_us, _measured, lambda p: p.weight_bytes)

QUANTIZED_GEMM = Operation(
    QuantizedGemm,
    lowering=lower_quantized_gemm,
    product=product,
    slices=lambda p, region: (),
    plain=_plain,
    checks=_checks,
    operand_sets=_operand_sets,
    operands="a and b",
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    baselines={"torch": Baseline("torch", "torch, dequantized weights", _torch)},
    ceiling=CEILING,
)
