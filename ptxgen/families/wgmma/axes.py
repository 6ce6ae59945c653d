"""The axes of the family wgmma."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common, switch

B_ONCE = 4  #: value ``b_once`` of l2_evict_first
#: operand -> the values of l2_evict_first with which its loads have the policy evict_first
EVICTING = {"a": (1, 3), "b": (2, 3, B_ONCE)}
PADDED = 1  #: value ``padded`` of y_boxes
SIDES = (8, 16, 32, 48, 64, 96, 128, 192, 256)  #: sides of a block's tile

AXES = (
    common("ml", SIDES, least=1, power_of_two=False),
    common("nl", SIDES, least=1, power_of_two=False),
    common("u", (16, 32, 64, 128, 256)),
    common("kg", (1, 2, 4, 8, 15, 16, 32, 64)),
    common("stages", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12), least=1, most=16),
    common("vec_c", (1, 2, 8)),
    common("splitk", (0, 2, 3, 4)),
    common("epilogue_smem", (0, 1)),
    common("raster_group", (1, 4, 8, 16)),
    common("min_ctas_per_sm", (1, 2, 3)),
    switch("transposed_mma", "1: the 64 rows of wgmma are along N; 0: along M"),
    Axis("math_warpgroups", 1, "warpgroups of a block that compute; one more warp copies", (1, 2, 3), least=1, most=3),
    switch("pingpong", "1: the warpgroups compute different tiles alternately; 0: they share each tile"),
    Axis("cluster_x", 1, "blocks of a cluster along the 64-row side, which multicast the other operand", (1, 2, 4)),
    Axis("cluster_y", 1, "blocks of a cluster along the other side, which multicast the 64-row operand", (1, 2, 4)),
    Axis(
        "cluster_k", 1, "blocks of a cluster that split K, added through distributed shared memory", (1, 2, 3, 4, 5, 8)
    ),
    Axis(
        "dsmem_completion",
        0,
        "how a block learns that the partial sums of its cluster have arrived: mbarrier transaction bytes, or a cluster"
        " barrier",
        (0, 1),
        refined=True,
        words=("tx_bytes", "barrier"),
    ),
    switch("persistent", "1: one block per multiprocessor, which loops over tiles"),
    Axis(
        "stream_waves",
        0,
        "waves of tiles at the end whose K iterations persistent blocks share equally (stream-K)",
        (0, 1, 2),
        least=0,
        most=2,
        feature=False,
    ),
    Axis(
        "promotion_buffers",
        1,
        "accumulators of two-level sums that wgmma fills in turn: with 2, it fills one while the sums of the other are"
        " added to the totals",
        (1, 2),
        least=1,
        most=2,
        feature=False,
    ),
    Axis("epilogue_subtiles", 1, "parts in which the epilogue stores a tile through shared memory", (1, 2, 4)),
    Axis("epilogue_buffers", 1, "shared-memory buffers of those parts", (1, 2, 4)),
    switch("epilogue_aliases_ab", "1: the epilogue reuses the shared memory of A and B"),
    Axis(
        "l2_evict_first",
        0,
        "operands whose loads have the L2 policy evict_first; b_once: B of experts whose rows are in one tile",
        (0, 1, 2, 3, B_ONCE),
        refined=True,
        words=("none", "a", "b", "ab", "b_once"),
    ),
    switch(
        "resident_b",
        "1: B stays in the stages for all tiles of a block, which loads it once; stages are a multiple of K iterations",
        refined=True,
    ),
    common("listed_tiles", (0, 1)),
    common("operand_path_a", (0, 1, 2)),
    common("operand_path_b", (0, 1, 2)),
    switch(
        "interleave_phases",
        "1: strided input gradients store images of phases, which an auxiliary kernel interleaves to rows of C; 0: they"
        " store to C",
    ),
    Axis(
        "row_taps",
        1,
        "taps of a filter row, a stride apart, that a stage has: they read one copy of its pixels in shared memory,"
        " with a halo",
        (1, 2, 3, 5),
        least=1,
        most=8,
    ),
    Axis("tma_rows", 0, "rows of a 64-row tile that TMA loads where C has no more, 0: all", (0, 16, 32)),
    Axis(
        "y_boxes",
        0,
        "TMA boxes of the operand on the side of wgmma's columns, where its K is not contiguous. exact: as wide as the"
        " greatest power of two that divides the tile; padded: of 128 bytes, the last one beyond the tile",
        (0, 1),
        refined=True,
        least=0,
        most=1,
        words=("exact", "padded"),
    ),
    common("pdl"),
)
