"""The performance model of FMA kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns, packs
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_costs, perf_grouped
from ptxgen.families.common.fma.candidates import width_c
from ptxgen.families.common.fma.geometry import FmaGeometry, FmaOperandGeometry, adjacent_c, values_in_register
from ptxgen.families.common.geometry import SECTOR, WARP, register_cap
from ptxgen.families.common.perf_blocks import Cells, Work, bound, epilogue_costs, microseconds
from ptxgen.families.common.perf_blocks import cell as cell_of_tiles
from ptxgen.lowering import step_rate
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

__all__ = ["cell", "microseconds", "work"]


def _fragment_loads(x: FmaOperandGeometry) -> tuple[Any, Any]:
    """The instructions, and the shared-memory wavefronts, by which one warp loads the fragments of one k."""
    wide = np.minimum(x.thread_tile * x.bytes, 16)
    count = np.where(x.kmajor_smem, x.thread_tile * x.bytes / 16, np.maximum(x.thread_tile * x.bytes / 16, 1))
    wide = np.where(x.kmajor_smem, 16, wide)
    phases = np.maximum(np.where(wide == 16, 2, 1), x.warp_threads * wide / perf_costs.WAVEFRONT)
    return count, count * phases


def _stage_stores(x: FmaOperandGeometry) -> tuple[Any, Any]:
    """The warp instructions, and the shared-memory wavefronts, by which a block stores one stage of an operand."""
    loads, elements = x.loads / WARP, x.loads * x.vec / WARP
    through = np.where(x.transposed, loads + elements, 2 * loads)
    instructions = np.where(x.cp_async == 1, loads, through)
    wavefronts = np.where(x.transposed, np.where(x.cp_async == 1, 2 * elements, elements), elements * x.bytes / 4)
    return instructions, np.maximum(wavefronts, instructions)


def _copy_cycles(x: FmaOperandGeometry) -> Any:
    """The number of cycles of the load/store unit for a block's copy of one stage of an operand, counted by
    instruction."""
    loads, access = x.loads / WARP, x.vec * x.element
    asynchronous = loads * np.where(access < 16, perf_costs.CP_ASYNC_L1, perf_costs.CP_ASYNC_L2)
    loaded = perf_costs.LDG + perf_costs.LDG_WORD * np.maximum(access / 4 - 1, 0)
    words = x.vec * x.bytes / 4
    whole = perf_costs.STS + perf_costs.STS_WORD * np.maximum(words - 1, 0)
    stored = np.where(x.transposed, x.vec * (perf_costs.STS + perf_costs.STS_WORD * (x.bytes / 4 - 1)), whole)
    return np.where(x.cp_async == 1, asynchronous, loads * (loaded + stored))


def _step(p: KernelProblem, c: Columns, d: Device) -> tuple[Any, Any, Any]:
    """Three numbers: the instructions that compute the steps of one accumulator register; the issue slots that these
    instructions take beyond one each; and the steps per clock and multiprocessor."""
    step = step_rate.instructions(p, d)
    pairs = step_rate.of_pairs(p.algebra, d)
    if pairs is None:
        return step.issued, step.mixed, perf_costs.fma_rate(p, d)
    both = c.column_pairs == 1
    issued, mixed = (np.where(both, x, y) for x, y in ((pairs.issued, step.issued), (pairs.mixed, step.mixed)))
    return issued, mixed, np.where(both, pairs.bound(d), step.bound(d))


def cell(p: KernelProblem, c: Columns, g: FmaGeometry, d: Device) -> Cells:
    """The cells of the configurations ``c``, with the kernel that packs operands."""
    cells, packed = cell_of_tiles(p, c, g, d), packs(c, "a") | packs(c, "b")
    if not np.any(packed):
        return cells
    packing = perf_costs.PACK_US + 2 * g.packed_bytes / (d.bandwidth * 1e3 * perf_costs.PACK_DRAM)
    return replace(cells, extra=float32(cells.extra + np.where(packed, packing, 0.0)))


def work(p: KernelProblem, c: Columns, g: FmaGeometry, d: Device) -> Work:
    """The cost of one block of each configuration. It does not depend on extents of ``p``."""
    packed = values_in_register(p, c)
    warps = np.maximum(g.threads // WARP, 1)
    lanes = c.ml * c.nl * c.u
    issued, mixed, rate = _step(p, c, d)
    product = c.ms * c.ns / packed * issued
    fma = lanes / WARP / packed
    more = fma * (issued - 1 + mixed)  # instructions of a step besides one

    (read_a, waves_a), (read_b, waves_b) = _fragment_loads(g.a), _fragment_loads(g.b)
    reads = g.group / WARP * c.u
    (sts_a, waves_sts_a), (sts_b, waves_sts_b) = _stage_stores(g.a), _stage_stores(g.b)
    loads = (g.a.loads + g.b.loads) / WARP

    # register bank conflicts: a K-major fragment has all of one k in one bank; two have a and b in the same
    banks = np.where(g.a.kmajor_smem != g.b.kmajor_smem, 1.18, np.where(g.a.kmajor_smem & g.b.kmajor_smem, 1.05, 1.0))
    banks = np.where(product * packed >= 64, banks, 1 + (banks - 1) / 3)
    order = np.where(c.mma_order == 2, 1.03, 1.0)
    loop = g.uk * (product + read_a + read_b)
    fetch = 1 + 0.11 * np.clip((loop - perf_costs.LOOP_LIMIT) / 1800, 0, 3)
    spill = 1 + np.maximum(g.registers - register_cap(d, g.threads, c.min_ctas_per_sm), 0) / 32
    checks = np.where(c.bounds == 2, 1 + np.where((c.cp_async_a == 0) | (c.cp_async_b == 0), 2.0, 0.5), 1.0) * loads

    issue = fma * banks * order + more + reads * (read_a + read_b) + sts_a + sts_b + warps * 14 + 2 * loads + checks
    math = lanes / rate * order
    arithmetic = np.maximum(issue / perf_costs.ISSUE, math) / perf_costs.PIPE * fetch * spill
    copies = waves_sts_a + waves_sts_b
    if perf_grouped.calibrated(p):
        copies = _copy_cycles(g.a) + _copy_cycles(g.b)
    shared = reads * (waves_a + waves_b) + copies
    moved_a, moved_b = (x.loads * x.vec * x.element for x in (g.a, g.b))
    unstaged = c.stages == 0
    if unstaged.any():  # loads that hit the L1 cache, no reads and stores of shared memory
        mads = fma * banks * order + more + 4 * loads
        issue = np.where(unstaged, mads + warps * 8, issue)
        shared = np.where(unstaged, loads * perf_costs.LDG * 2, shared)
        arithmetic = np.where(
            unstaged, np.maximum(issue / perf_costs.ISSUE, math) / perf_costs.PIPE * fetch * spill, arithmetic
        )
        moved_a = np.where(unstaged, c.ml * c.u * g.a.element, moved_a)
        moved_b = np.where(unstaged, c.nl * c.u * g.b.element, moved_b)
    narrow = np.where(g.a.kmajor | g.b.kmajor, np.maximum(SECTOR / (c.u * min(g.a.element, g.b.element)), 1), 1)
    busy = bound(arithmetic, shared, (moved_a + moved_b) * narrow / perf_costs.L2_BYTES)

    depth = np.maximum((product + read_a + read_b) * np.ceil(warps / 4) * spill, perf_costs.ALU_LATENCY)
    depth = depth + np.where(c.fragment_prefetch == 1, 0, perf_costs.SHARED_LATENCY)
    path = g.uk * depth + perf_costs.SHARED_LATENCY + perf_costs.BARRIER
    latency = bound(path, perf_costs.GLOBAL_LATENCY / np.maximum(c.stages - 1, 1))
    if unstaged.any():  # loads, then products; the start of a block has the latency of the store only
        direct = perf_costs.GLOBAL_LATENCY + c.u * np.maximum(product * np.ceil(warps / 4), perf_costs.ALU_LATENCY)
        latency = np.where(unstaged, direct, latency)
    if perf_grouped.calibrated(p):
        latency = perf_grouped.load_latency(c, path)
    costs = epilogue_costs(p, c, g, d, width_c(p, c))
    if isinstance(p.algebra, ComplexProduct):  # products of other blocks hide late loads
        busy = bound(busy, latency / costs["resident"])
    if unstaged.any():
        costs["start"] = np.where(unstaged, perf_costs.GLOBAL_LATENCY / 2, costs["start"])
    if grouped(p):
        costs |= {"partial": perf_grouped.slice_cycles(p, c), **perf_grouped.parts(g)}
    if perf_grouped.calibrated(p):
        costs["store"] = perf_grouped.store_cycles(p, c, g, width_c(p, c), adjacent_c(p, c))
    return Work.of(
        len(c),
        busy=busy,
        idle=busy * (perf_costs.COPY_FEW_WARPS if perf_grouped.calibrated(p) else perf_costs.FEW_WARPS) * 4 / warps,
        latency=latency,
        math=math,
        shared=shared,
        moved_a=moved_a,
        moved_b=moved_b,
        stages=c.stages,
        **costs,
    )
