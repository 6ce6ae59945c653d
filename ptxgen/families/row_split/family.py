"""The family row_split: products of sparse matrices in CSR, without preparation."""

from __future__ import annotations

from ptxgen.families.registry import Family, class_in, function_in, module
from ptxgen.families.row_split import axes, rules
from ptxgen.families.row_split.candidates import RowSplitSpace
from ptxgen.families.row_split.geometry import geometry

FAMILY = Family(
    name="row_split",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=RowSplitSpace(),
    model=module("ptxgen.families.row_split.perf_model"),
    plan=class_in("ptxgen.families.row_split.plan", "RowSplitPlan"),
    preparations=function_in("ptxgen.families.row_split.plan", "preparations_of"),
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
