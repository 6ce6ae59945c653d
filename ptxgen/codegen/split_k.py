"""Counts of tiles of C, slices of K and shares of K iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import SPLIT_WORKSPACE
from ptxgen.codegen.vectorized import ceil_div, where
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import ValueSink


def slices_of_k(p: KernelProblem, c: Any) -> tuple[Any, Any]:
    """The length of a slice of K, and the number of slices that are not empty."""
    k = p.extents.reduction if grouped(p) else p.k  # items have slices of one length, that of the longest K
    slice_k = ceil_div(ceil_div(k, c.kg), c.u) * c.u
    return slice_k, np.maximum(ceil_div(k, np.maximum(slice_k, 1)), 1)


def tiles_and_slices(p: KernelProblem, c: Any, sum_bytes: int) -> dict[str, Any]:
    """The fields of ``TileGeometry`` that count tiles, slices and blocks; ``workspace`` is the bytes of the partial
    sums. ``c``: a configuration, or columns of many; ``sum_bytes``: bytes of one partial sum."""
    tiles_m, tiles_n = ceil_div(p.m, c.ml), ceil_div(p.n, c.nl)
    tiles = p.extents.tiles(c.ml, c.nl)
    slice_k, slices = slices_of_k(p, c)
    return {
        "tiles_m": tiles_m,
        "tiles_n": tiles_n,
        "tiles": tiles,
        "slice_k": slice_k,
        "slices": slices,
        "blocks": tiles * slices,
        "workspace": where((c.kg > 1) & (c.splitk == SPLIT_WORKSPACE), slices * p.results * sum_bytes, 0),
    }


def is_one_product(p: KernelProblem) -> bool:
    """True if the problem is a single product of matrices, whose blocks can share K iterations."""
    return not grouped(p) and p.batch == 1 and not isinstance(p.sink, ValueSink)


def is_countable(p: KernelProblem) -> bool:
    """True if no integer sum can be the least integer, which marks sums that have not been stored."""
    return not p.accumulator.integer or p.k <= 1 << 17


def stream_shares(tiles: int, blocks: int, waves: int, iterations: int, least: int) -> tuple[int, int, int]:
    """Three numbers of stream-K: the tiles that ``blocks`` blocks compute whole, the K iterations of the other tiles,
    and the K iterations of a block's share of them, at least ``least``. ``waves``: 1: the other tiles are those that do
    not fill a wave; 2: those of one wave more; ``iterations``: K iterations of a tile."""
    whole, rest = divmod(tiles, blocks)
    full = max(whole - (waves - 1), 0) * blocks if rest else tiles
    tail = (tiles - full) * iterations
    return full, tail, max(-(-tail // blocks), least)
