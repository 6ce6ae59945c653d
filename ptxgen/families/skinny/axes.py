"""The axes of the family skinny."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common, switch

POWERS = tuple(1 << n for n in range(15))

AXES = (
    common("ms", (1, 2, 4, 8, 16), "rows of C per thread; where mma_m16 is 1, of a lane"),
    common("ns", (1, 2, 4, 8, 16), "columns of C per thread; where mma_m16 is 1, of a lane"),
    common("ml", POWERS[:12]),
    common("nl", POWERS[:12]),
    common("u", POWERS),
    common("kl", (1, 2, 4, 8, 16, 32), "groups of warps of a block that split K, added in shared memory"),
    common("kg", (1, 2, 4, 8, 16, 32, 64)),
    common("vec_a", (1, 2, 4, 8, 16)),
    common("vec_b", (1, 2, 4, 8, 16)),
    common("vec_c", (1, 2, 4, 8)),
    Axis(
        "lanes_long",
        4,
        "lanes of a warp along the long side of C; 32 / lanes_long along K",
        POWERS[:6],
        least=1,
        most=32,
        power_of_two=True,
        feature=False,
    ),
    common("splitk", (0, 1, 2)),
    common("fragment_prefetch", (0, 1)),
    common("raster_group", (1, 4, 8, 16)),
    common("store_policy", (0, 1)),
    common("min_ctas_per_sm", (1, 2, 3, 4, 6, 8, 12, 16)),
    Axis("long_n", 0, "long side of C: M (0) or N (1)", (0, 1), feature=False),
    switch("mma_m16", "1: mma.sync instructions of 16 rows compute; 0: FMA", feature=False),
    common("pdl"),
)
