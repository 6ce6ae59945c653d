"""The family shared_slab: products of sparse matrices in CSR with a slab of B in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import Config
from ptxgen.families.registry import Family
from ptxgen.families.shared_slab import axes, perf_model, rules
from ptxgen.families.shared_slab.candidates import SharedSlabSpace
from ptxgen.families.shared_slab.geometry import geometry
from ptxgen.lowering.kernel_problem import KernelProblem

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan
    from ptxgen.codegen.preparation import Preparation


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.shared_slab.plan import SharedSlabPlan

    return SharedSlabPlan


def _preparations(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    from ptxgen.families.shared_slab.plan import preparations_of

    return preparations_of(p, c)


FAMILY = Family(
    name="shared_slab",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=SharedSlabSpace(),
    model=perf_model,
    plan=_plan,
    preparations=_preparations,
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
