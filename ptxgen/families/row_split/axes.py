"""The axes of the family row_split."""

from __future__ import annotations

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL, Axis, common

BROADCAST, SHUFFLE = range(2)  #: values of ``index_loads``

AXES = (
    Axis(
        "row_lanes",
        16,
        "lanes of a warp that compute a row of C for the columns of a slab",
        (1, 2, 4, 8, 16, 32),
        least=1,
        most=32,
        power_of_two=True,
        feature=False,
    ),
    common("lane_vectors", (1, 2, 4), least=1, most=8),
    Axis(
        "nonzero_groups",
        1,
        "groups of row_lanes lanes that share the nonzeros of a row, added by shuffles",
        (1, 2, 4, 8, 16, 32),
        least=1,
        most=32,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "index_loads",
        BROADCAST,
        "loads of indices and values: each by all lanes of a row, or one per lane and shuffles",
        (BROADCAST, SHUFFLE),
        least=0,
        most=1,
        words=("broadcast", "shuffle"),
        feature=False,
    ),
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
        (2, 4, 8, 16, 32, 64),
        least=1,
        most=512,
        power_of_two=True,
        feature=False,
    ),
    common("row_order", (NATURAL, BY_LENGTH)),
    common("longest_part", (0, 64, 128, 256, 512, 1024), least=0, most=1 << 20),
    common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),
)
