"""The axes of the family mma."""

from __future__ import annotations

from ptxgen.codegen.config.axes import common

AXES = (
    common("ms", (16, 32, 48, 64, 80, 96, 128), "rows of C per warp", least=1, power_of_two=False),
    common("ns", (8, 16, 24, 32, 40, 48, 64, 96, 128), "columns of C per warp", least=1, power_of_two=False),
    common("ml", (16, 32, 48, 64, 80, 96, 128, 160, 192, 256), least=1, power_of_two=False),
    common("nl", (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256), least=1, power_of_two=False),
    common("u", (8, 16, 32, 64, 128, 256)),
    common("kl", (1, 2, 4, 8), "groups of warps of a block that split K, added in shared memory"),
    common("kg", (1, 2, 4, 8, 16, 32, 64)),
    common("stages", (2, 3, 4, 5, 6, 8)),
    common("cp_async_a", (0, 1)),
    common("cp_async_b", (0, 1)),
    common("vec_a", (1, 2, 4, 8, 16)),
    common("vec_b", (1, 2, 4, 8, 16)),
    common("vec_c", (1, 2, 4, 8)),
    common("splitk", (0, 1, 2, 3)),
    common("epilogue_smem", (0, 1)),
    common("bounds", (0, 1, 2)),
    common("mma_order", (0, 1, 2)),
    common("fragment_prefetch", (0, 1)),
    common("prefetch_k", (0, 1, 2)),
    common("deferred_sts", (0, 1)),
    common("raster_group", (1, 4, 8, 16)),
    common("store_policy", (0, 1)),
    common("min_ctas_per_sm", (1, 2, 3, 4)),
    common("stream_k", (0, 1)),
    common("l2_prefetch", (0, 1)),
    common("listed_tiles", (0, 1)),
    common("operand_path_a", (0, 1)),
    common("operand_path_b", (0, 1)),
    common("pdl"),
)
