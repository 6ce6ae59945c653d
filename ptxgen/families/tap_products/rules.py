"""The rules of legal configurations of the family tap_products."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.tap_products.geometry import MMA_CHANNELS
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.tap_products import tap_products

MMA_TARGET = 80  #: the first target with mma.sync of 16 channels of bf16
MMA_VECTOR = 8  #: channels per access with mma.sync
LEAST_FILTERS = 64  #: least value of filter_channels


def _channels(p: KernelProblem) -> int:
    t = tap_products(p)
    return 0 if t is None else t.channels


RULES = (
    Rule(
        "tap_products_pixels",
        lambda p, c, g, d: (g.pixels <= c.block_threads * c.thread_pixels) & (c.block_threads >= WARP),
        "tile_height={c.tile_height}, tile_width={c.tile_width}: a tile reads {g.pixels} pixels;"
        " block_threads={c.block_threads} with thread_pixels={c.thread_pixels} multiply fewer",
    ),
    Rule(
        "tap_products_channels",
        lambda p, c, g, d: (
            (c.vec_channel <= p.operands[0].access.constants[-1])
            & (c.u % c.vec_channel == 0)
            & (c.filter_channels % c.u == 0)
        ),
        "vec_channel={c.vec_channel}, u={c.u}, filter_channels={c.filter_channels}: each must divide the next, and"
        " channels and their alignment allow vec_channel={p.operands[0].access.products.vec} at most",
    ),
    Rule(
        "tap_products_mma",
        lambda p, c, g, d: (
            (c.tap_mma == 0)
            | (
                (p.element.bytes == 2 and p.accumulator.name == "f32" and d.sm >= MMA_TARGET)
                & (c.vec_channel == MMA_VECTOR)
                & (c.u % MMA_CHANNELS == 0)
            )
        ),
        f"tap_mma=1: mma.sync takes elements of 16 bits, sm_{MMA_TARGET}, vec_channel={MMA_VECTOR} and u in multiples"
        f" of {MMA_CHANNELS}",
    ),
    Rule(
        "tap_products_filters",
        lambda p, c, g, d: (c.filter_channels == LEAST_FILTERS) | (c.filter_channels < 2 * _channels(p)),
        "filter_channels={c.filter_channels} of {p.operands[0].access.products.channels} channels: half of the taps in"
        f" shared memory are zeros; filter_channels={LEAST_FILTERS} or fewer than twice the channels",
    ),
)
