"""The axes of the family compressed_tiles."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common, switch

#: values of the axis ``tile_index``
BITMAP, OFFSETS = 0, 1

AXES = (
    Axis(
        "tile_index",
        BITMAP,
        "places of the nonzeros of a tile: a bit for each element, or an offset of 16 bits for each nonzero",
        (BITMAP, OFFSETS),
        words=("bitmap", "offsets"),
        feature=False,
    ),
    Axis(
        "b_columns",
        8,
        "columns of B and C of a block; those after the last are computed, and not stored",
        (1, 2, 4, 8, 16),
        least=1,
        most=16,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "tile_warps",
        16,
        "warps of a block, which divide the tiles of 32 rows of A",
        (4, 8, 16, 32),
        least=1,
        most=32,
        power_of_two=True,
        feature=False,
    ),
    common("stages", (2, 3, 4, 6, 8), "tiles of a warp in shared memory"),
    common("vec_b", (1, 2, 4, 8), "elements per copy of B"),
    switch(
        "vector_b",
        "1: B is a vector whose elements follow each other, of which copies have 16 bytes",
        feature=False,
    ),
)
