"""Checks of products with quantized weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.strided_arrays import C, elements, store_operand, stored_epilogue_operands
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.reference import quantized_arrays
from ptxgen.problem.reference import Deviation, epilogue_arrays, operands, reference, verdict
from ptxgen.runtime.check import CASES, SCALE_CASES, CheckResult
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Runner


def check_quantized_gemm(
    driver: Driver, problem: QuantizedGemm, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """The results of checking a configuration of a product with quantized weights in all cases."""
    p = replace(problem, **{name: getattr(problem, name) + row_padding for name in ("lda", "ldb", "ldc")})
    runner = Runner.of(driver, p, config)
    try:
        for inputs, alpha, beta, initial in (*CASES, *SCALE_CASES):
            yield _check(runner, p, seed, inputs, alpha, 0.0 if p.gated else beta, initial)
    finally:
        runner.workspace.release()


def _check(
    runner: Runner, p: QuantizedGemm, seed: int, inputs: str, alpha: float, beta: float, initial: str
) -> CheckResult:
    """The result of checking a loaded kernel on one set of inputs."""
    arrays = operands(p, seed, inputs) | quantized_arrays(p, seed, inputs) | epilogue_arrays(p, seed, inputs)
    if initial == "nan":
        arrays["C"] = np.full_like(arrays["C"], p.output.poison)
    stored = {
        name: store_operand(p, i, arrays[name], t.poison)
        for i, (name, t) in enumerate(zip("ABC", p.types, strict=True))
    }
    stored |= stored_epilogue_operands(p, arrays) | {n: arrays[n] for n in ("scales", "zeros") if n in p.arrays}
    out = runner.compute(stored, alpha, beta)["C"]
    got = elements(p, C, out)
    deviation = verdict(inputs, got, reference(p, arrays, alpha, beta))
    got[...] = p.output.poison
    if not np.array_equal(out, np.full_like(out, p.output.poison), equal_nan=True) or runner.workspace_dirty():
        deviation = Deviation(np.inf, (-1, -1), deviation.worst)
    return CheckResult(inputs if beta == 0 else f"{inputs}, alpha={alpha:g}, beta={beta:g}", deviation)
