"""The family row_split: products of sparse matrices in CSR, without preparation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import Config
from ptxgen.families.registry import Family
from ptxgen.families.row_split import axes, perf_model, rules
from ptxgen.families.row_split.candidates import RowSplitSpace
from ptxgen.families.row_split.geometry import geometry
from ptxgen.lowering.kernel_problem import KernelProblem

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan
    from ptxgen.codegen.preparation import Preparation


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.row_split.plan import RowSplitPlan

    return RowSplitPlan


def _preparations(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    from ptxgen.families.row_split.plan import preparations_of

    return preparations_of(p, c)


FAMILY = Family(
    name="row_split",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=RowSplitSpace(),
    model=perf_model,
    plan=_plan,
    preparations=_preparations,
    preparation_axes=("row_order", "longest_part"),
    provides=frozenset(
        (
            "plus_times",
            "csr",
            "prepared_csr",
            "wide_indices",
            "repeated_columns",
            "nonfinite",
            "graph_batches",
            "gathered_rows",
            "gathered_columns",
            "store_tile",
            "strided_output",
            "column_major_output",
        )
    ),
    scope="products of a sparse matrix in CSR and a matrix",
)
