"""The family tca: TCA-SpMM, products of sparse matrices on tensor cores by sums of diagonals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import Config
from ptxgen.families.registry import Family
from ptxgen.families.tca import axes, perf_model, rules
from ptxgen.families.tca.candidates import TcaSpace
from ptxgen.families.tca.geometry import geometry
from ptxgen.lowering.kernel_problem import KernelProblem

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan
    from ptxgen.codegen.preparation import Preparation


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.tca.plan import TcaPlan

    return TcaPlan


def _preparations(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    from ptxgen.families.tca.plan import preparations_of

    return preparations_of(p, c)


FAMILY = Family(
    name="tca",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=TcaSpace(),
    model=perf_model,
    plan=_plan,
    preparations=_preparations,
    provides=frozenset(
        (
            "plus_times",
            "prepared_csr",
            "repeated_columns",
            "nonfinite",
            "gathered_rows",
            "store_tile",
            "strided_output",
        )
    ),
    instructions=("mma.sync",),
    published="TCA-SpMM",
    scope="products of a prepared sparse matrix in CSR and a row-major matrix",
)
