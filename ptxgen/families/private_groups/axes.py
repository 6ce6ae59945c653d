"""The axes of the family private_groups."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common

AXES = (
    Axis(
        "copy_warps",
        4,
        "warps of a block: each has copies of the groups in shared memory",
        (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
        least=1,
        most=32,
        feature=False,
    ),
    Axis(
        "array_vec",
        1,
        "adjacent elements of a row per lane, by one load where the array is aligned",
        (1, 2, 4, 8),
        least=1,
        most=8,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "warp_rows",
        1,
        "rows of the array that a warp reads at once, where the keys are those of columns",
        (1, 2, 4),
        least=1,
        most=8,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "loads",
        16,
        "loads of a lane at once: of rows, or, with keys of columns, of vectors along each row",
        (2, 4, 8, 16, 32),
        least=1,
        most=32,
        power_of_two=True,
        feature=False,
    ),
    common("kg", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), "slices of rows, or of columns, added by a second kernel"),
)
