"""The axes of the family tca."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common

_BARRIERS = (
    "what warps of a row of up to 32 nonzeros wait for in each tile of columns: all warps of the block, as published,"
    " or those of the row alone"
)

AXES = (
    common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),
    Axis("row_barriers", 0, _BARRIERS, (0, 1), words=("block", "row"), feature=False),
)
