"""The family vector_mma: products of sparse matrices on tensor cores, with preparation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import Config
from ptxgen.families.registry import Family
from ptxgen.families.vector_mma import axes, perf_model, rules
from ptxgen.families.vector_mma.candidates import VectorMmaSpace
from ptxgen.families.vector_mma.geometry import geometry
from ptxgen.lowering.kernel_problem import KernelProblem

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan
    from ptxgen.codegen.preparation import Preparation


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.vector_mma.plan import VectorMmaPlan

    return VectorMmaPlan


def _preparations(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    from ptxgen.families.vector_mma.plan import preparations_of

    return preparations_of(p, c)


FAMILY = Family(
    name="vector_mma",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=VectorMmaSpace(),
    model=perf_model,
    plan=_plan,
    preparations=_preparations,
    preparation_axes=("row_order", "longest_part"),
    provides=frozenset(("plus_times", "prepared_csr", "gathered_rows", "store_tile", "strided_output")),
    instructions=("mma.sync",),
    scope="products of a sparse matrix in CSR that may be prepared, has no place twice, and a row-major matrix",
)
