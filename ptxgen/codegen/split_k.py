"""The tiles of C and the slices of K of blocks, without clusters and rounding to waves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import SPLIT_WORKSPACE
from ptxgen.codegen.vectorized import ceil_div, where
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem


def slices_of_k(p: KernelProblem, c: Any) -> tuple[Any, Any]:
    """The length of a slice, and the slices that are not empty."""
    k = p.extents.reduction if grouped(p) else p.k  # items have slices of one length, that of the longest K
    slice_k = ceil_div(ceil_div(k, c.kg), c.u) * c.u
    return slice_k, np.maximum(ceil_div(k, np.maximum(slice_k, 1)), 1)


def tiles_and_slices(p: KernelProblem, c: Any, sum_bytes: int) -> dict[str, Any]:
    """Counts of tiles, slices and blocks; ``slice_k``: the length of a slice; ``workspace``: bytes of partial sums of
    ``sum_bytes`` each. ``c``: integers or NumPy columns."""
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
