"""The axes of the family vector_mma."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common

AXES = (
    Axis("block_windows", 8, "row windows per block, one for each warp", (2, 4, 8), least=1, most=32, feature=False),
    common("lane_vectors", (1, 2, 4), least=1, most=4),
    Axis(
        "blocks_in_flight",
        2,
        "blocks of 8×1 vectors of a row window whose loads are in flight",
        (1, 2, 4),
        least=1,
        most=8,
        power_of_two=True,
        feature=False,
    ),
    common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),
)
