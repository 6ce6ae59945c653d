"""The axes of the family row_split."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common

AXES = (
    Axis(
        "row_lanes",
        16,
        "lanes of a warp that compute a row of C for the columns of a slab",
        (2, 4, 8, 16, 32),
        least=2,
        most=32,
        power_of_two=True,
        feature=False,
    ),
    Axis("lane_vectors", 1, "vectors of a row of B per lane", (1, 2, 4), least=1, most=8, feature=False),
    Axis(
        "nonzeros_in_flight",
        4,
        "nonzeros of a row whose loads are in flight",
        (1, 2, 4, 8),
        least=1,
        most=16,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "block_groups",
        8,
        "rows of C per block",
        (4, 8, 16, 32, 64),
        least=1,
        most=512,
        power_of_two=True,
        feature=False,
    ),
    common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),
)
