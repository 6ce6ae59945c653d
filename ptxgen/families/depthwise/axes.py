"""The axes of the family depthwise.

Memory is contiguous along the lane axis. A thread computes several results along another image axis, the strip axis.
Rows are the results along all other axes. With ``feature_map_bytes``, a block of ``block_lanes`` threads holds whole
feature maps in shared memory, and a thread computes strips along their height.
"""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common

AXES = (
    Axis(
        "strip_results",
        8,
        "results of a thread along the strip axis",
        (1, 2, 4, 8, 16),
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "block_rows",
        1,
        "threads of a block across rows: one row each",
        (1, 2, 4, 8, 16),
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "block_lanes",
        64,
        "threads of a block along the lane axis",
        (8, 16, 32, 64, 128, 256),
        power_of_two=True,
        feature=False,
    ),
    common("kg", (), "blocks that split a weight gradient, added in global memory"),
    Axis(
        "vec_lane",
        1,
        "results of a thread along the lane axis: the elements per access to images and results",
        (1, 2, 4),
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "strip_columns",
        1,
        "adjacent strips of a thread: above 1, all taps are unrolled, and each pixel of the patch is loaded once",
        (1, 2, 4),
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "feature_map_bytes",
        0,
        "bytes of shared memory for the feature maps of a block, as many as fit with their results; 0: threads load"
        " images from global memory",
        (0, 4096, 8192, 16384, 32768),
        least=0,
        most=1 << 16,
    ),
    common("splitk"),
    common("store_policy", (0, 1)),
    common("min_ctas_per_sm", (1, 2, 4, 8)),
    common("pdl"),
)
