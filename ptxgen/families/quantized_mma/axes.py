"""The axes of the family quantized_mma."""

from __future__ import annotations

from ptxgen.codegen.config.axes import common

POWERS = tuple(1 << n for n in range(12))

AXES = (
    common("ms", (2, 4, 8, 16), "rows of C of a lane, two of each tile of 8", least=2, most=32),
    common("ns", (2, 4, 8), "columns of C of a lane, two of each tile of 16", least=2, most=16),
    common("ml", (8, 16, 32, 64)),
    common("nl", POWERS[4:10]),
    common("u", POWERS[4:]),
    common("kl", (1, 2, 4, 8, 16), "groups of warps of a block that split K, added in shared memory"),
    common("kg", (1, 2, 4, 8, 16, 32)),
    common("vec_a", (1, 2, 4, 8), most=8),
    common("vec_b", (1, 2, 4, 8, 16), "bytes per global load of weights", most=16),
    common("vec_c", (1, 2, 4, 8)),
    common("splitk", (0, 1, 2)),
    common("stages", (0, 2, 3, 4), "stages of activations in shared memory; 0: lanes load them themselves", least=0),
    common("fragment_prefetch", (0, 1), "1: weights are loaded one iteration ahead"),
    common("raster_group", (1, 4, 8, 16)),
    common("store_policy", (0, 1)),
    common("min_ctas_per_sm", (1, 2, 3, 4, 6, 8)),
    common("pdl"),
)
