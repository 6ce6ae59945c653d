"""The axes of the family vector_mma."""

from __future__ import annotations

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL, Axis, common, switch

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
    switch(
        "columns_ahead",
        "1: columns and values of the next blocks are loaded before the products of the present ones",
        default=1,
        feature=False,
    ),
    common("row_order", (NATURAL, BY_LENGTH)),
    common(
        "longest_part",
        (0, 8, 16, 32, 64, 128),
        "most blocks of 8×1 vectors of a part of a row window; 0: windows are not split",
        least=0,
        most=1 << 20,
    ),
    common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),
)
