"""The geometry of sliding kernels: a thread has strips of ``ns`` results, ``vec_a`` of them side by side; a block has
``nl`` lanes of ``ml`` rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.vectorized import ceil_div
from ptxgen.lowering.kernel_gemm import KernelGemm


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles and registers of ``c`` on ``p``: tiles of lanes and rows (M), strips (N).

    ``loads``: pixels that a thread sees of one tap of the other axes; ``products``: of those.
    """
    s = p.strip
    lanes, rows, results, taps, step, hop, steps, ratio = (
        (s.lanes, s.rows, s.results, s.taps, s.step, s.hop, s.steps, s.ratio) if s is not None else (1,) * 8
    )
    threads = c.ml * c.nl
    across = ceil_div(lanes, np.maximum(c.nl * c.vec_a, 1)) * ceil_div(rows, np.maximum(c.ml, 1))
    strips = ceil_div(results, np.maximum(c.ns, 1))
    products = ceil_div(c.ns * taps, ratio)
    loads = np.minimum(((c.ns - 1) * step + (taps - 1) * hop) // ratio + 1, products)
    words = max(1, p.accumulator.bytes // 4)
    registers, shared, tiles_n, tiles = (c.ns + taps + 1) * c.vec_a * words, c.ml * 0, strips, across * strips
    if s is not None and s.summed:
        sums = s.tapped * c.vec_a
        registers = (sums + (c.ns + 1) * c.vec_a) * words + 2 * steps
        shared = sums * threads * max(4, p.accumulator.bytes)
        tiles = ceil_div(lanes, np.maximum(c.nl * c.vec_a, 1)) if s.grouped else c.ml * 0 + s.groups
        across, tiles_n = tiles, c.ml * 0 + 1
    one = SimpleNamespace(loads=threads * loads)
    return SimpleNamespace(
        a=one,
        b=SimpleNamespace(loads=threads * taps),
        threads=threads,
        loads=loads,
        products=products,
        steps=steps,
        shared=shared,
        registers=registers + 44,
        uk=c.u,
        row_c=c.nl + 4,
        sum_bytes=max(4, p.accumulator.bytes),
        gathers=c.ml < 0,
        tiles_m=across,
        tiles_n=tiles_n,
        tiles=tiles,
        chunk=ceil_div(p.k, c.u) * c.u,
        slices=np.maximum(c.kg, 1),
        blocks=tiles * np.maximum(c.kg, 1),
        workspace=c.ml * 0,
    )
