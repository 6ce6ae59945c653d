"""The cost of a block, and of waves of blocks, in the performance models of all families."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import SPLIT_WORKSPACE, Columns
from ptxgen.codegen.geometry import Geometry, TileGeometry
from ptxgen.codegen.vectorized import float32, float64
from ptxgen.families.common import perf_costs
from ptxgen.families.common.geometry import register_cap
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

Floats = NDArray[np.float32]


def _column(x: Any, size: int) -> Any:
    """A number or a column as a float32 column of ``size`` rows. An array with the dimensions of a grid keeps them; any
    other object converts itself."""
    x = float32(x)
    return np.broadcast_to(x, size) if isinstance(x, np.ndarray | np.floating) and x.ndim < 2 else x


@dataclass(frozen=True)
class Work:
    """The cost of one block, whatever the extents: one entry per configuration, in cycles unless stated otherwise."""

    resident: Floats  #: blocks that fit on a multiprocessor
    busy: Floats  #: cycles of a K iteration if blocks compete for the multiprocessor
    idle: Floats  #: cycles of a K iteration that are idle because there are too few warps
    latency: Floats  #: least cycles of a K iteration
    start: Floats  #: cycles of the first load and the last store
    store: Floats  #: cycles of storing the tile of C
    red: Floats  #: cycles of adding the tile of C by red
    partial: Floats  #: cycles of storing the tile of C to the workspace
    math: Floats  #: share of arithmetic in ``busy``
    shared: Floats  #: share of shared memory in ``busy``
    moved_a: Floats  #: bytes of A that a K iteration loads
    moved_b: Floats  #: bytes of B that a K iteration loads
    straddle_a: Floats  #: extra bytes of A where rows start within a cache line
    straddle_b: Floats  #: extra bytes of B where rows start within a cache line
    stages: Floats  #: pipeline stages
    exposed: Floats  #: share of the store that does not overlap with products of other tiles
    persistent: Floats  #: 1 where blocks loop over tiles
    part_m: Floats  #: log2 of the rows of the smallest part of a tile that a grouped kernel multiplies
    part_n: Floats  #: log2 of the columns of this part

    @classmethod
    def of(cls, size: int, **columns: Any) -> Work:
        """The costs of ``size`` configurations, one row each."""
        return cls(**{f.name: _column(columns.get(f.name, 0), size) for f in fields(cls)})

    def take(self, rows: Any) -> Work:
        return Work(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Cells:
    """The numbers that depend on extents and K slices: one entry for each combination of a tile and a slice count."""

    iterations: Floats  #: K iterations of a slice
    blocks: Floats  #: blocks of the launch
    extra: Floats  #: microseconds of a launch in addition to its blocks
    queue: Floats  #: cycles in which the slices of a tile wait for each other
    c_cost: Floats  #: which cost of C applies: 0 Work.store, 1 Work.red, 2 Work.partial

    @classmethod
    def of_slabs(cls, slabs: Any, blocks: Any) -> Cells:
        """The cells of launches whose loops have no length that extents determine. ``slabs``: numbers of slabs of
        columns."""
        none = float32(0)
        return cls(iterations=float32(slabs), blocks=float32(blocks), extra=none, queue=none, c_cost=none)


def bound(*terms: Any) -> Any:
    """A smooth maximum: terms close to the largest one increase it a little."""
    total = sum(np.maximum(float64(t), 1e-3) ** 4 for t in terms)
    return np.sqrt(np.sqrt(total))


def resident_blocks(c: Columns, g: Geometry, d: Device) -> Any:
    """The number of blocks that fit on a multiprocessor, at least 1."""
    granted = np.minimum(g.registers, register_cap(d, g.threads, c.min_ctas_per_sm))
    return np.maximum(d.blocks_per_sm(g.threads, granted, g.shared), 1)


def epilogue_costs(p: KernelProblem, c: Columns, g: TileGeometry, d: Device, width: Any) -> dict[str, Any]:
    """The costs of kernels whose warps load A and B themselves: the resident blocks, and for each way to store C the
    cycles that it takes. ``width``: elements of an access to C."""
    tile = c.ml * c.nl
    size = p.output.bytes
    smem = (
        np.where(c.kl > 1, 2 * c.kl, np.where(c.epilogue_smem == 1, 2, 0)) * tile * g.sum_bytes / perf_costs.WAVEFRONT
    )
    wasted = np.where(width * size >= 16, 1.0, np.where(width * size >= 8, 1.2, 1.6))
    rate = d.bandwidth * 1e3 * perf_costs.DRAM / d.clock / d.sms  # bytes of memory a cycle and multiprocessor
    smem = smem + (c.ks - 1) * tile * c.kl / perf_costs.fma_rate(p, d)  # accumulator sets are added in registers
    reds = np.where(d.has_vector_red & (p.out == "f32"), width, 1)
    return {
        "resident": resident_blocks(c, g, d),
        "store": smem + tile * size * wasted / rate + tile / 32 / width,
        "red": smem + tile / reds * perf_costs.RED_CYCLES,
        "partial": smem + tile * g.sum_bytes * wasted / perf_costs.L2_BYTES,
        "start": perf_costs.GLOBAL_LATENCY * 1.5
        + 4 * perf_costs.BARRIER
        + np.where(c.kl > 1, 4 * perf_costs.BARRIER, 0),
    }


def cell(p: KernelProblem, c: Columns, g: TileGeometry, d: Device) -> Cells:
    """The cells of the configurations ``c``."""
    k = np.maximum(np.minimum(g.slice_k, p.k), 1)
    sliced = c.kg > 1
    second = g.slices * (p.results * g.sum_bytes) * 2 / (d.bandwidth * 1e3 * perf_costs.DRAM)
    extra = np.where(sliced, np.choose(np.clip(c.splitk, 0, 4), [perf_costs.SPLIT_US[i] for i in range(5)]), 0.0)
    extra = extra + np.where(sliced & (c.splitk == SPLIT_WORKSPACE), second, 0.0)
    c_cost = np.where(sliced, np.where(c.splitk == SPLIT_WORKSPACE, 2, 1), 0)
    queue = np.where(c_cost == 1, perf_costs.QUEUE * g.slices, 0)
    numbers = {"iterations": -(-k // c.u), "blocks": g.blocks, "extra": extra, "queue": queue}
    return Cells(c_cost=c_cost, **{n: float32(v) for n, v in numbers.items()})


def cycles(d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The number of cycles of a launch: full waves of blocks, then the remaining blocks, spread over the
    multiprocessors."""
    iterations, blocks, c_cost, queue = x.iterations[cell], x.blocks[cell], x.c_cost[cell], x.queue[cell]
    resident, busy, idle, latency = w.resident[rows], w.busy[rows], w.idle[rows], w.latency[rows]
    store_c = np.where(c_cost == 0, w.store[rows], np.where(c_cost == 1, w.red[rows], w.partial[rows]))
    sms = np.float32(d.sms)
    full = np.floor(blocks / (resident * sms))
    rest = np.ceil((blocks - full * resident * sms) / sms)
    waves = np.maximum(full + (rest > 0), 1)
    last = np.where(rest > 0, np.maximum(rest * busy + idle, latency), 0)
    multiply = (full * np.maximum(resident * busy + idle, latency) + last) * iterations
    store = (full * resident + rest) * store_c
    # blocks of the first wave store at the same time; later waves overlap stores and products
    hidden = np.minimum(multiply, store) * (perf_costs.EXPOSED_STORE + (1 - perf_costs.EXPOSED_STORE) / waves)
    out: Floats = np.maximum(multiply, store) + hidden + w.start[rows] * (1 + (waves - 1) / resident) + queue
    return out


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The microseconds of a launch of kernels whose warps load A and B themselves."""
    memory = float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    multiplied = cycles(d, w, rows, x, cell) / np.float32(d.clock)
    out: Floats = np.maximum(multiplied, memory) + x.extra[cell] + np.float32(perf_costs.LAUNCH_US)
    return out
