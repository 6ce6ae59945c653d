"""The family compressed_tiles: products of a sparse matrix and few columns, whose time is that of reading A."""

from __future__ import annotations

from ptxgen.families.compressed_tiles import axes, rules
from ptxgen.families.compressed_tiles.candidates import CompressedTilesSpace
from ptxgen.families.compressed_tiles.geometry import geometry
from ptxgen.families.registry import Family, class_in, function_in, module

FAMILY = Family(
    name="compressed_tiles",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=CompressedTilesSpace(),
    model=module("ptxgen.families.compressed_tiles.perf_model"),
    plan=class_in("ptxgen.families.compressed_tiles.plan", "CompressedTilesPlan"),
    preparations=function_in("ptxgen.families.compressed_tiles.plan", "preparations_of"),
    preparation_axes=("tile_index",),
    provides=frozenset(("plus_times", "prepared_csr", "gathered_rows", "store_tile", "strided_output")),
    instructions=("mma.sync", "fma"),
    scope="products of a sparse matrix in CSR that may be prepared, has no place twice, and a row-major matrix",
)
