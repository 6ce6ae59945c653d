"""The family compressed_tiles: products of sparse matrices with few columns, limited by the bytes of A."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import Config
from ptxgen.families.compressed_tiles import axes, perf_model, rules
from ptxgen.families.compressed_tiles.candidates import CompressedTilesSpace
from ptxgen.families.compressed_tiles.geometry import geometry
from ptxgen.families.registry import Family
from ptxgen.lowering.kernel_problem import KernelProblem

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan
    from ptxgen.codegen.preparation import Preparation


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.compressed_tiles.plan import CompressedTilesPlan

    return CompressedTilesPlan


def _preparations(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    from ptxgen.families.compressed_tiles.plan import preparations_of

    return preparations_of(p, c)


FAMILY = Family(
    name="compressed_tiles",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=CompressedTilesSpace(),
    model=perf_model,
    plan=_plan,
    preparations=_preparations,
    preparation_axes=("tile_index",),
    provides=frozenset(("plus_times", "prepared_csr", "gathered_rows", "store_tile", "strided_output")),
    instructions=("mma.sync", "fma"),
    scope="products of a sparse matrix in CSR that may be prepared, has no place twice, and a row-major matrix",
)
