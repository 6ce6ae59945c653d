"""An operation that is registered from outside the package: C = A·diag(d)·B.

Its kernels are those of a GEMM. The host multiplies A by d before the launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.operations.gemm.lowering import lower_gemm
from ptxgen.operations.gemm.operand_sets import GemmOperandSets
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.operation import Case, Operation, Suite, by_name, operation_named, register, unregister
from ptxgen.problem.reference import Array, operands, reference, verdict
from ptxgen.runtime.check import CASES, CheckResult
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Runner


@dataclass(frozen=True)
class DiagonalGemm(Gemm):
    """C[M,N] = alpha · A[M,K] · diag(d[K]) · B[K,N] + beta · C."""

    operation = "diagonal_gemm"


def diagonal(p: DiagonalGemm, seed: int) -> Array:
    """Values of d: powers of two, by which A is multiplied exactly."""
    return np.exp2(np.random.default_rng([seed, 3]).integers(-1, 2, p.k))


def scale(p: DiagonalGemm, a: Array, d: Array) -> Array:
    """A·diag(d), as the host prepares it for the kernel."""
    return (a.astype(np.float64) * (d if p.layout[0] == "N" else d[:, None])).astype(a.dtype)


def to_gemm(p: DiagonalGemm) -> KernelProblem:
    return lower_gemm(p)


def product(p: DiagonalGemm, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    """Results of the scaled A."""
    result: tuple[Array, Array] = operation_named("gemm").product(p, arrays, region)
    return result


def checks(
    driver: Driver, p: DiagonalGemm, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """Compares the host's scaling and the kernel together with A·diag(d)·B, computed from the operands of the user."""
    runner = Runner.of(driver, p, config)
    for inputs, alpha, beta, _ in CASES:
        a, b, c = operands(p, seed, inputs).values()
        d = diagonal(p, seed)
        wide_a = a.astype(np.float64) if p.layout[0] == "N" else a.T.astype(np.float64)
        wide_b = b.astype(np.float64) if p.layout[1] == "N" else b.T.astype(np.float64)
        expected = reference(p, {"A": scale(p, a, d), "B": b, "C": c}, alpha, beta)
        exact = alpha * np.einsum("mk,k,kn->mn", wide_a, d, wide_b) + beta * c.astype(np.float64)
        result = runner.compute({"A": scale(p, a, d), "B": b, "C": c}, alpha, beta)["C"]
        yield CheckResult(inputs, verdict(inputs, result, replace(expected, exact=exact)))


class DiagonalOperandSets(GemmOperandSets):
    """The operands of the GEMM, A scaled already: the time is the kernel's."""


def small(**fields: Any) -> Iterator[Case]:
    yield Case("diagonal 16x24x32", DiagonalGemm(16, 24, 32, **fields))


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    return [f"{p['m']},{p['n']},{p['k']}", p["layout"], p["dtype"]]


DIAGONAL = Operation(
    DiagonalGemm,
    lowering=to_gemm,
    product=product,
    slices=lambda p, region=None: (),
    checks=checks,
    operand_sets=DiagonalOperandSets,
    titles=("M,N,K", "layout", "dtype"),
    cells=cells,
    suites=by_name(Suite("small", "one small product", small)),
)


def register_it() -> None:
    register(DIAGONAL)


def unregister_it() -> None:
    unregister(DIAGONAL.name)
