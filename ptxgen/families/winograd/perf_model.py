"""The performance model of Winograd convolutions, from the FMA kernel of the products and the bytes of the
transforms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.geometry import TileGeometry
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.fma.perf_model import work
from ptxgen.families.common.perf_blocks import Cells, Floats, Work
from ptxgen.families.common.perf_blocks import cell as product_cell
from ptxgen.families.common.perf_blocks import microseconds as product_microseconds
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.winograd import winograd
from ptxgen.problem.device import Device

L2_SPEED = 1.5  #: ratio of the bandwidths of L2 and device memory
L2_SHARE = 0.5  #: share of the L2 cache in which results of one kernel remain for the next kernel
KERNELS = 3  #: the number of transform kernels: of both operands, and of the products
SLICE_US = 0.4  #: microseconds for each K slice that the transform of the products adds, by the latency of its loads


def _transfer(size: Any, d: Device) -> Any:
    """The microseconds in which transforms write or read a matrix of ``size`` bytes."""
    cached = np.minimum(size, d.l2 * L2_SHARE)
    return (cached / L2_SPEED + size - cached) / (d.bandwidth * 1e3 * perf_costs.DRAM)


def cell(p: KernelProblem, c: Columns, g: TileGeometry, d: Device) -> Cells:
    """The cells of the configurations ``c``. The kernel that transforms the products adds the K slices."""
    size = 4.0 * p.results
    extra = 2 * (_transfer(g.slices * size, d) - _transfer(size, d)) + SLICE_US * (g.slices - 1)
    return replace(product_cell(p, c, g, d), extra=float32(np.where(c.kg > 1, extra, 0.0)))


def transform_microseconds(p: KernelProblem, d: Device) -> float:
    """The predicted microseconds of the transforms. Each reads its tensor once and writes its matrices, or the
    reverse."""
    algorithm = winograd(p)
    if algorithm is None or algorithm.transform is None:
        return 0.0
    t = algorithm.transform
    matrices = (p.m * p.k, p.n * p.k, p.m * p.n)
    rows, columns = t.results
    tensors = t.images * t.channels * t.height * t.width + 9 * t.filters * t.channels
    tensors += t.images * t.filters * rows * columns
    moved = sum(float(_transfer(4.0 * p.batch * n, d)) for n in matrices)
    return moved + 4 * tensors / (d.bandwidth * 1e3 * perf_costs.DRAM) + KERNELS * perf_costs.LAUNCH_US


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch of the four kernels."""
    out: Floats = product_microseconds(p, d, w, rows, x, cell) + np.float32(transform_microseconds(p, d))
    return out


__all__ = ["cell", "microseconds", "work"]
