"""The geometry of kernels that add products of taps: a block has a tile of results of one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.geometry import Geometry, accumulator_bytes
from ptxgen.codegen.vectorized import IntOrColumn, ceil_div, where
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.tap_products import tap_products

FIXED_REGISTERS = 44  #: registers per thread besides sums, pixels, taps and addresses
MARGIN = 8  #: registers in reserve for fused operations
MMA_COLUMNS = 8  #: columns of an mma.sync instruction
MMA_CHANNELS = 32  #: channels that four lanes load of a pixel at once
MMA_PAD = 64  #: bytes between the taps of two products in shared memory, besides those of their channels
#: with mma.sync, rows of products are this many words past a multiple of 32: lanes then store to different banks
BANK_SHIFT, BANKS = 4, 32


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TapGeometry(Geometry):
    region_width: IntOrColumn  #: columns of the pixels of a block
    pixels: IntOrColumn  #: pixels of a block
    columns: IntOrColumn  #: products of a pixel, with those that fill vectors or instructions
    pitch: IntOrColumn  #: numbers from one product of a pixel to the next in shared memory
    filter_pitch: IntOrColumn  #: bytes from the taps of a channel to those of the next; with mma.sync, of a product
    sums_bytes: IntOrColumn  #: bytes of the products in shared memory
    tiles_down: IntOrColumn  #: tiles of an image along its height
    tiles_across: IntOrColumn  #: tiles of an image along its width


def geometry(p: KernelProblem, c: Any) -> TapGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    t, size, mma = tap_products(p), accumulator_bytes(p), c.tap_mma > 0
    assert t is not None
    words = size // 4
    height, width = t.rows.covered(c.tile_height), t.columns.covered(c.tile_width)
    pixels, vector = height * width, 16 // size
    columns = where(mma, ceil_div(t.products, MMA_COLUMNS) * MMA_COLUMNS, ceil_div(t.products, vector) * vector)
    pitch = where(mma, pixels + (BANK_SHIFT - pixels) % BANKS, pixels)
    filter_pitch = where(mma, c.filter_channels * p.element.bytes + MMA_PAD, columns * size)
    filter_rows = where(mma, columns, c.filter_channels)
    sums_bytes = ceil_div(where(mma, columns, t.products) * pitch * size, 16) * 16
    loaded = c.thread_pixels * c.u // c.vec_channel * ceil_div(c.vec_channel * p.element.bytes, 4)
    # fma: sums, addresses, taps of a channel, converted pixels; mma: sums, addresses of rows, taps of 32 channels
    by_fma = c.thread_pixels * (t.products * words + 3 + c.vec_channel * words) + columns * words
    by_mma = c.thread_pixels * (columns + 12) + 4
    down, across = ceil_div(t.rows.results, c.tile_height), ceil_div(t.columns.results, c.tile_width)
    return TapGeometry(
        threads=c.block_threads,
        shared=sums_bytes + filter_rows * filter_pitch,
        registers=FIXED_REGISTERS + loaded + where(mma, by_mma, by_fma),
        reg_margin=MARGIN * bool(p.sink.ops),
        blocks=down * across * t.images,
        region_width=width,
        pixels=pixels,
        columns=columns,
        pitch=pitch,
        filter_pitch=filter_pitch,
        sums_bytes=sums_bytes,
        tiles_down=down,
        tiles_across=across,
    )
