"""The family vector_mma: products of sparse matrices on tensor cores, with preparation."""

from __future__ import annotations

from ptxgen.families.registry import Family, class_in, function_in, module
from ptxgen.families.vector_mma import axes, rules
from ptxgen.families.vector_mma.candidates import VectorMmaSpace
from ptxgen.families.vector_mma.geometry import geometry

FAMILY = Family(
    name="vector_mma",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=VectorMmaSpace(),
    model=module("ptxgen.families.vector_mma.perf_model"),
    plan=class_in("ptxgen.families.vector_mma.plan", "VectorMmaPlan"),
    preparations=function_in("ptxgen.families.vector_mma.plan", "preparations_of"),
    preparation_axes=("row_order", "longest_part"),
    provides=frozenset(("plus_times", "prepared_csr", "gathered_rows", "store_tile", "strided_output")),
    instructions=("mma.sync",),
    scope="products of a sparse matrix in CSR that may be prepared, has no place twice, and a row-major matrix",
)
