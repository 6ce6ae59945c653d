"""The axes of the family tap_products.

A block computes a tile of results of one image. Its threads multiply the pixels that the windows of the tile contain by
the taps of all filters, and store the products in shared memory; results are sums of them.
"""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis, common, switch

AXES = (
    Axis(
        "tile_height",
        16,
        "rows of the results of a block",
        (1, 4, 8, 10, 14, 16, 20, 30),
        least=1,
        most=64,
        feature=False,
    ),
    Axis(
        "tile_width",
        16,
        "columns of the results of a block",
        (8, 14, 16, 20, 28, 30, 32, 62),
        least=1,
        most=256,
        feature=False,
    ),
    Axis(
        "block_threads",
        256,
        "threads of a block",
        (128, 256, 512),
        least=32,
        most=1024,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "thread_pixels",
        2,
        "pixels of the operand for each thread of a block, which are multiplied together",
        (1, 2, 4),
        least=1,
        most=8,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "vec_channel",
        1,
        "channels of a pixel in one access: the elements per access to images",
        (1, 2, 4, 8),
        power_of_two=True,
        least=1,
        most=8,
        feature=False,
    ),
    common("u", (8, 16, 32, 64, 128), "channels that are loaded before they are multiplied"),
    Axis(
        "filter_channels",
        128,
        "channels whose filters are in shared memory at a time",
        (64, 128, 256, 512),
        least=64,
        most=4096,
        power_of_two=True,
        feature=False,
    ),
    switch("tap_mma", "1: mma.sync multiplies pixels by taps; 0: fma", feature=False),
)
