"""The family tca, TCA-SpMM: products of sparse matrices on tensor cores by sums of diagonals."""

from __future__ import annotations

from ptxgen.families.registry import Family, class_in, function_in, module
from ptxgen.families.tca import axes, rules
from ptxgen.families.tca.candidates import TcaSpace
from ptxgen.families.tca.geometry import geometry

FAMILY = Family(
    name="tca",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=TcaSpace(),
    model=module("ptxgen.families.tca.perf_model"),
    plan=class_in("ptxgen.families.tca.plan", "TcaPlan"),
    preparations=function_in("ptxgen.families.tca.plan", "preparations_of"),
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
