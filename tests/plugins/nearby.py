"""An operation with an algebra and a sink that are registered from outside the package.

C[i,j] is the greatest difference of A[i,k] and B[k,j] over k. The sink stores C, and counts the elements of C that are
at most ``NEAR``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import ACCUMULATOR, inner_expression
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import Reset, StoreValue
from ptxgen.operations.gemm.lowering import lower_gemm
from ptxgen.operations.gemm.operand_sets import GemmOperandSets
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.operation import Case, Operation, Suite, by_name, register, unregister
from ptxgen.problem.reference import Array, Reference, operands, verdict
from ptxgen.runtime.check import CheckResult
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Runner

NEAR = 5.0  #: the greatest distance that is counted
COUNT = "near"


@dataclass(frozen=True)
class Nearby(Gemm):
    """C[i,j] = max over k of |A[i,k] - B[k,j]|, in f32; and the number of elements of C that are at most ``NEAR``."""

    operation = "nearby"
    arrays = ("A", "B", "C", COUNT)
    outputs = ("C", COUNT)


@dataclass(frozen=True, kw_only=True)
class StoreAndCount(StoreValue):
    """C = value; the array ``near``, an integer of 64 bits, is the number of results for which ``counted`` holds."""

    counted: Node
    template: ClassVar[str] = "store_and_count.mako"
    templates: ClassVar[Path | None] = Path(__file__).parent
    resets: ClassVar[tuple[Reset, ...]] = (Reset(COUNT, 8),)

    @property
    def roots(self) -> tuple[Node, ...]:
        return (*super().roots, self.counted)

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, COUNT)


def lowered(p: Nearby) -> KernelProblem:
    a, b, greatest = variable("A[i,k]", "f32"), variable("B[k,j]", "f32"), variable(ACCUMULATOR, "f32")
    distance = node("abs", "f32", node("-", "f32", a, b))
    near = node("<=", PRED, greatest, constant(NEAR, "f32"))
    return replace(
        lower_gemm(p),
        name="nearby",
        algebra=inner_expression(distance, "max", a, b),
        sink=StoreAndCount(out="f32", arithmetic="f32", value=greatest, counted=near),
    )


def product(p: Nearby, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    a, b = arrays["A"].astype(np.float64), arrays["B"].astype(np.float64)
    a, b = a if p.layout[0] == "N" else a.T, b if p.layout[1] == "N" else b.T
    result = np.abs(a[:, :, None] - b[None]).max(1, initial=-np.inf)
    return result, result


def checks(driver: Driver, p: Nearby, config: Config, seed: int = 0, row_padding: int = 0) -> Iterator[CheckResult]:
    """C, and the count: equal to the reference, since integers are exact."""
    runner = Runner.of(driver, p, config)
    a, b, c = operands(p, seed, "integers").values()
    expected = Reference(p, *product(p, {"A": a, "B": b}))
    for inputs in ("integers", "again"):  # the count begins at zero at each launch
        got = runner.compute({"A": a, "B": b, "C": c, COUNT: np.full(1, 99, np.uint64)})
        yield CheckResult(inputs, verdict("integers", got["C"], expected))
        wrong = int(got[COUNT][0]) != int((expected.exact <= NEAR).sum())
        yield CheckResult(f"count, {inputs}", verdict("integers", np.float32([[wrong]]), flag_reference(expected)))


def flag_reference(expected: Reference) -> Reference:
    """The reference of a flag that must be 0."""
    return replace(expected, exact=np.zeros((1, 1)), scale=np.ones((1, 1)))


class NearbyOperandSets(GemmOperandSets):
    """The operands of the GEMM, and the count."""


def small(**fields: Any) -> Iterator[Case]:
    yield Case("nearby 16x24x33", Nearby(16, 24, 33, **fields))


NEARBY = Operation(
    Nearby,
    lowering=lowered,
    product=product,
    slices=lambda p, region=None: (),
    checks=checks,
    operand_sets=NearbyOperandSets,
    titles=("M,N,K", "layout"),
    cells=lambda row: [f"{row['problem'][n]}" for n in ("m", "layout")],
    suites=by_name(Suite("small", "one small product", small)),
)


def register_it() -> None:
    register(NEARBY)


def unregister_it() -> None:
    unregister(NEARBY.name)
