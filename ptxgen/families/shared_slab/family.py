"""The family shared_slab: products of sparse matrices in CSR with a slab of B in shared memory."""

from __future__ import annotations

from ptxgen.families.registry import Family, class_in, function_in, module
from ptxgen.families.shared_slab import axes, rules
from ptxgen.families.shared_slab.candidates import SharedSlabSpace
from ptxgen.families.shared_slab.geometry import geometry

FAMILY = Family(
    name="shared_slab",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=SharedSlabSpace(),
    model=module("ptxgen.families.shared_slab.perf_model"),
    plan=class_in("ptxgen.families.shared_slab.plan", "SharedSlabPlan"),
    preparations=function_in("ptxgen.families.shared_slab.plan", "preparations_of"),
    preparation_axes=("k_tiles", "tile_k"),
    provides=frozenset(
        (
            "plus_times",
            "csr",
            "prepared_csr",
            "repeated_columns",
            "nonfinite",
            "gathered_rows",
            "store_tile",
            "strided_output",
        )
    ),
    scope="products of a sparse matrix in CSR and a row-major matrix",
)
