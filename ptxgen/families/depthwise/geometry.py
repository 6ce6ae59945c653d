"""The geometry of depthwise kernels: a thread computes strips of ``ns`` results in ``vec_a`` adjacent lanes; a block
has ``nl`` lanes of ``ml`` rows each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import OperandGeometry, ThreadLoadGeometry
from ptxgen.codegen.vectorized import IntOrColumn, ceil_div
from ptxgen.lowering.kernel_gemm import KernelGemm

FIXED_REGISTERS = 44  #: registers per thread besides results, pixels and taps


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class DepthwiseGeometry(ThreadLoadGeometry):
    """Tiles along M are lanes and rows, tiles along N are strips."""

    loads: IntOrColumn  #: pixels that a thread loads per step
    products: IntOrColumn  #: multiply-adds of a thread per step and lane
    steps: int  #: taps along the axes that are not along the strip


def geometry(p: KernelGemm, c: Any) -> DepthwiseGeometry:
    """The geometry of ``c`` on ``p``. ``c``: a configuration, or columns of many."""
    s = p.strip
    lanes, rows, results, taps, step, hop, steps, ratio = (
        (s.lanes, s.rows, s.results, s.taps, s.stride, s.dilation, s.outer_taps, s.ratio) if s is not None else (1,) * 8
    )
    threads = c.ml * c.nl
    tiles_m = ceil_div(lanes, np.maximum(c.nl * c.vec_a, 1)) * ceil_div(rows, np.maximum(c.ml, 1))
    strips = ceil_div(results, np.maximum(c.ns, 1))
    products = ceil_div(c.ns * taps, ratio)
    loads = np.minimum(((c.ns - 1) * step + (taps - 1) * hop) // ratio + 1, products)
    words = max(1, p.accumulator.bytes // 4)
    registers, shared, tiles_n, tiles = (c.ns + taps + 1) * c.vec_a * words, c.ml * 0, strips, tiles_m * strips
    if s is not None and s.wgrad:
        sums = s.tap_count * c.vec_a
        registers = (sums + (c.ns + 1) * c.vec_a) * words + 2 * steps
        shared = sums * threads * max(4, p.accumulator.bytes)
        tiles = ceil_div(lanes, np.maximum(c.nl * c.vec_a, 1)) if s.grouped else c.ml * 0 + s.groups
        tiles_m, tiles_n = tiles, c.ml * 0 + 1
    return DepthwiseGeometry(
        a=OperandGeometry(loads=threads * loads),
        b=OperandGeometry(loads=threads * taps),
        threads=threads,
        loads=loads,
        products=products,
        steps=steps,
        shared=shared,
        registers=registers + FIXED_REGISTERS,
        uk=c.u,
        c_row_pitch=c.nl + 4,
        sum_bytes=max(4, p.accumulator.bytes),
        c_via_smem=c.ml < 0,
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        tiles=tiles,
        chunk=ceil_div(p.k, c.u) * c.u,
        slices=np.maximum(c.kg, 1),
        blocks=tiles * np.maximum(c.kg, 1),
        workspace=c.ml * 0,
    )
