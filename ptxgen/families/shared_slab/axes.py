"""The axes of the family shared_slab."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common

#: values of the axis ``k_tiles``
ONE, SEVERAL = 0, 1

_K_TILES = (
    "one: a tile has all rows of B, and A is read as it is; several: the loop over tiles of K reads the prepared array"
    " of the first nonzero of each row in each tile"
)

AXES = (
    Axis(
        "slab_columns",
        64,
        "columns of B and C of a block",
        (32, 64, 128),
        least=32,
        most=256,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "tile_k",
        512,
        "rows of B of a tile in shared memory",
        (64, 128, 256, 384, 512, 768, 1024, 1536, 2048),
        least=1,
        most=4096,
        feature=False,
    ),
    Axis("k_tiles", ONE, _K_TILES, (ONE, SEVERAL), words=("one", "several"), feature=False),
    Axis("tile_buffers", 1, "tiles of B in shared memory", (1, 2), least=1, most=2, feature=False),
    Axis(
        "c_rows",
        64,
        "rows of C of a block",
        (16, 32, 64, 128, 256),
        least=1,
        most=4096,
        power_of_two=True,
        feature=False,
    ),
    Axis("block_warps", 16, "warps of a block", (8, 16, 32), least=1, most=32, power_of_two=True, feature=False),
    Axis(
        "nonzeros_in_flight",
        4,
        "nonzeros of a row whose loads are in flight",
        (4, 8),
        least=1,
        most=16,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "nonzeros_read",
        2,
        "nonzeros that a lane reads by one access to shared memory",
        (1, 2),
        least=1,
        most=2,
        feature=False,
    ),
    Axis(
        "nonzeros_staged",
        32,
        "nonzeros of a row that a warp stages in shared memory at once",
        (32, 64, 128),
        least=32,
        most=128,
        power_of_two=True,
        feature=False,
    ),
    common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),
)
