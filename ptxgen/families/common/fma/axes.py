"""The axes of FMA kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common, switch

_PATH = "direct: {0} is loaded from where it is; pack: an auxiliary kernel first copies it to 128-byte rows along {1}"

AXES = (
    common("ms", (2, 4, 8, 16)),
    common("ns", (2, 4, 8, 16)),
    common("ml", (16, 32, 64, 128, 256)),
    common("nl", (16, 32, 64, 128, 256)),
    common("u", (8, 16, 32)),
    common("ks", (1, 2)),
    common("kl", (1, 2, 4, 8)),
    common("kg", (1, 2, 4, 8, 16, 32, 64)),
    common(
        "stages",
        (2, 3, 4),
        "pipeline stages in shared memory; 0: threads load A and B from global memory to registers",
        least=0,
    ),
    common("cp_async_a", (0, 1)),
    common("cp_async_b", (0, 1)),
    switch("kmajor_smem_a", "1: a K-major A stays K-major in shared memory; 0: it is transposed"),
    switch("kmajor_smem_b", "1: a K-major B stays K-major in shared memory; 0: it is transposed"),
    common("vec_a", (1, 2, 4, 8)),
    common("vec_b", (1, 2, 4, 8)),
    common("vec_c", (1, 2, 4, 8)),
    Axis(
        "lanes_m",
        4,
        "lanes of a warp along M; 32 / lanes_m along N",
        (1, 2, 4, 8, 16, 32),
        least=1,
        most=32,
        power_of_two=True,
    ),
    common("splitk", (0, 1, 2, 3)),
    common("epilogue_smem", (0, 1)),
    common("bounds", (0, 1, 2)),
    switch("lane_interleave", "1: the bits of a lane number alternate between M and N", refined=True),
    common("mma_order", (0, 1, 2)),
    common("fragment_prefetch", (0, 1)),
    common("prefetch_k", (0, 3)),
    common("deferred_sts", (0, 1)),
    common("raster_group", (1, 4, 8, 16)),
    common("store_policy", (0, 1)),
    common("min_ctas_per_sm", (1, 2, 3, 4, 6, 8)),
    common("stream_k", (0, 1)),
    common("l2_prefetch", (0, 1)),
    common("listed_tiles", (0, 1)),
    switch(
        "column_pairs",
        "1: steps on pairs of 16-bit elements of adjacent columns, with each element of A twice in shared memory",
    ),
    common("pdl"),
    common("operand_path_a", (0, 1), _PATH.format("A", "M")),
    common("operand_path_b", (0, 1), _PATH.format("B", "N")),
)
