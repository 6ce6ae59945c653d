"""Checks of GEMMs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import STRIDES, Gemm
from ptxgen.operations.gemm.reference import as_matrices
from ptxgen.operations.gemm.strided_arrays import A, B, C, elements, padded
from ptxgen.problem.epilogue_ops import ACTIVATION, epilogue_op
from ptxgen.problem.reference import (
    FACTOR,
    TF32,
    Array,
    Deviation,
    Reference,
    epilogue_arrays,
    operands,
    parts_of,
    reference,
    verdict,
)
from ptxgen.runtime.check import CASES, CheckResult, scale_cases
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Runner

TURN = 0.5  #: the imaginary part of alpha and beta of complex products


def check_gemm(
    driver: Driver, problem: Gemm, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """The results of checking a configuration of a GEMM in all cases."""
    p = with_row_padding(problem, row_padding)
    runner = Runner.of(driver, p, config)
    try:
        yield from _check(runner, p, seed)
    finally:
        runner.workspace.release()


def with_row_padding(p: Gemm, row_padding: int) -> Gemm:
    """The problem with each leading dimension larger by ``row_padding`` elements."""
    changes = {f"ld{x}": getattr(p, f"ld{x}") + row_padding for x in "abc"}
    for name, rows, ld in zip(STRIDES, (p.rows_a, p.rows_b, p.m), (p.lda, p.ldb, p.ldc), strict=True):
        stride = getattr(p, name)
        changes[name] = stride + rows * row_padding if stride > rows * ld else stride
    return replace(p, **changes)


def _factors(p: Gemm, alpha: float, beta: float) -> tuple[complex, complex]:
    """Alpha and beta of a case, in the type that the problem takes."""
    if p.epilogue_dtype.integer:
        return round(alpha), round(beta)
    if p.element.part and beta:
        return complex(alpha, TURN), complex(beta, TURN)
    return alpha, 0 if p.gated else beta


def _deviation_of_sums(
    inputs: str, p: Gemm, arrays: Mapping[str, Array], out: Array, alpha: complex, beta: complex
) -> Deviation:
    """The deviation of the sums ``out``, which the kernel stores beside C; infinite if elements between rows have
    changed."""
    if p.batch != 1:  # the gaps have poison
        sums = elements(p.of_sums(), C, out)
        deviation = verdict(inputs, sums.copy(), reference(p.of_sums(), arrays, alpha, beta))
        sums[...] = p.output.poison
        same = np.array_equal(out, np.full_like(out, p.output.poison), equal_nan=True)
    else:
        deviation = verdict(inputs, out[:, : p.n], reference(p.of_sums(), arrays, alpha, beta))
        same = np.array_equal(out[:, p.n :], arrays["sums"][:, p.n :])
    return deviation if same else Deviation(np.inf, (-1, -1), deviation.worst)


def _deviation_of_columns(inputs: str, p: Gemm, ref: Reference, sums: Array) -> Deviation:
    """The deviation of the sums of the columns of C, which are those of elements that are not rounded to C's type."""
    exact = ref.exact.sum(axis=0)
    with np.errstate(all="ignore"):
        steps = min(FACTOR * max(p.m, 1) ** 0.5, p.m)
        magnitude = np.abs(ref.exact).sum(axis=0)
        allowed = ref.tolerance(stored=False).sum(axis=0) + steps * p.epilogue_dtype.roundoff * magnitude
        if inputs == "integers" and all(epilogue_op(name).exact for name in p.epilogue_ops):
            allowed = np.where(magnitude * p.epilogue_dtype.roundoff < 1, 0.0, allowed)
        same = (sums == exact) | (np.isnan(sums) & np.isnan(exact))
        if p.scale_shapes:  # elements may be infinite or NaN, as the kernel decides; activations make numbers of them
            activated = any(epilogue_op(name).place == ACTIVATION for name in p.epilogue_ops)
            same |= np.isinf(ref.scale).any(axis=0) & (activated | ~np.isfinite(sums))
        ratio = np.where(same, 0.0, np.abs(sums - exact) / allowed)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    column = int(np.argmax(ratio)) if ratio.size else 0
    return Deviation(float(ratio[column]) if ratio.size else 0.0, (0, column), 0.0)


def _deviation_of_a(inputs: str, p: Gemm, arrays: Mapping[str, Array], sums: Array) -> Deviation:
    """The deviation of the sums of the rows of op(A)."""
    a, _ = as_matrices(p, arrays["A"], arrays["B"])
    roundoff = TF32[2] if p.compute == "tf32" else 0.0
    steps = min(FACTOR * max(p.k, 1) ** 0.5, p.k)
    with np.errstate(all="ignore"):
        exact, magnitude = a.sum(axis=1), np.abs(a).sum(axis=1)
        allowed = (steps * p.epilogue_dtype.roundoff + p.element.mma_truncation + roundoff) * magnitude
        if inputs == "integers":
            allowed = np.where(magnitude * p.epilogue_dtype.roundoff < 1, 0.0, allowed)
        same = (sums == exact) | (np.isnan(sums) & np.isnan(exact))
        ratio = np.where(same, 0.0, np.abs(sums - exact) / allowed)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    row = int(np.argmax(ratio)) if ratio.size else 0
    return Deviation(float(ratio[row]) if ratio.size else 0.0, (row, 0), 0.0)


def _check(runner: Runner, p: Gemm, seed: int) -> list[CheckResult]:
    """The results of checking a loaded kernel in all cases."""
    checked = []
    for inputs, *factors, initial in (*CASES, *scale_cases(p)):
        alpha, beta = _factors(p, *factors)
        arrays = operands(p, seed, inputs) | epilogue_arrays(p, seed, inputs)
        if initial == "nan":
            arrays["C"] = np.full_like(arrays["C"], p.output.poison)
        stored = padded(p, arrays)
        arrays["A"], arrays["B"] = elements(p, A, stored["A"]), elements(p, B, stored["B"])  # items may share memory
        ref = reference(p, arrays, alpha, beta)
        results = runner.compute(stored, alpha, beta)
        out, got = results["C"], elements(p, C, results["C"])
        deviation = verdict(inputs, got, ref)
        if p.stores_sums:
            of_sums = _deviation_of_sums(inputs, p, arrays, results["sums"], alpha, beta)
            deviation = max(deviation, of_sums, key=lambda x: x.ratio)
        if p.sums_columns:
            of_columns = _deviation_of_columns(inputs, p, ref, results["column_sums"])
            deviation = max(deviation, of_columns, key=lambda x: x.ratio)
        if p.sums_a:
            deviation = max(deviation, _deviation_of_a(inputs, p, arrays, results["a_sums"]), key=lambda x: x.ratio)
        got[...] = p.output.poison
        if not np.array_equal(parts_of(out), parts_of(np.full_like(out, p.output.poison)), equal_nan=True):
            deviation = Deviation(np.inf, (-1, -1), deviation.worst)
        if runner.workspace_dirty():
            deviation = Deviation(np.inf, (-1, -1), deviation.worst)
        label = inputs if beta == 0 else f"{inputs}, alpha={alpha:g}, beta={beta:g}"
        checked.append(CheckResult(label, deviation))
    return checked
