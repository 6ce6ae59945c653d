"""How long an mma.sync kernel takes, by arithmetic alone: what a block asks of each unit, and how blocks share them.

A pass over U multiplies, moves fragments and stages through shared memory, and issues instructions; the costliest of
the three counts, rounded where they come near each other. A multiprocessor's share of L2 may cost more, or the chain of
latencies that too few warps cannot hide. The numbers were fitted to 480 kernels on an H200 (19 problems of f64, tf32,
f16 and bf16): the root mean square of log(model / measured) is 0.11, and the model's favourite among a problem's
kernels was within 13 % of the best, the best of its first five within 11 %, mostly equal. Other devices scale by their
clocks, multiprocessors and bandwidths: none of them was measured.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_WORKSPACE, Columns
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.geometry import geometry
from ptxgen.families.mma.instructions import COLUMNS, ROWS
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

#: multiply-adds a clock and multiprocessor that mma.sync reaches, by architecture: sm_90 as measured, the others
#: vendors' dense peaks. Processors without f64 tensor cores multiply f64 at a hundredth.
RATES = {
    80: {"f16": 1000, "tf32": 480, "f64": 60, "s8": 2000},
    86: {"f16": 480, "tf32": 120, "f64": 2, "s8": 960},
    89: {"f16": 480, "tf32": 240, "f64": 2, "s8": 960, "e4m3": 960},
    90: {"f16": 969, "tf32": 351, "f64": 116, "s8": 1900, "e4m3": 400},
    100: {"f16": 1000, "tf32": 370, "f64": 60, "s8": 1000, "e4m3": 1000},
    120: {"f16": 480, "tf32": 240, "f64": 2, "s8": 960, "e4m3": 960},
}
LOADED = 0.94  #: share of the nominal clock that all multiprocessors at work keep
#: clocks from one instruction of a warp to the next
CHAIN = {"f16": 8.9, "tf32": 13.1, "f64": 21.0, "s8": 8.9, "e4m3": 20.0}
READ = 36.6, 18.8  #: clocks that a step waits for its fragments, and where they are read ahead
BARRIER = 7.0
GLOBAL = 1590.0  #: clocks until a stage has arrived
ISSUE = 4  #: instructions a clock
PASS = 52  #: instructions of a warp and pass beside those that are counted
COPY = 4.0, 15.3  #: instructions of a load by cp.async, and through registers
STORE = 0.08, 5.2  #: wavefronts of a load beyond its bytes, likewise
WAVEFRONT = 128  #: bytes of shared memory a clock
L2_SM, L2 = 44.7, 40.7  #: bytes a clock: of one multiprocessor, and a multiprocessor's share of all
STRADDLE = 0.97  #: a row that is not on a line of 128 bytes costs so much of one more
DRAM = 0.88  #: share of the data sheet's bandwidth
LAUNCH_US, WAVE_US, GROUPS_US, STAGED_US = 1.55, 1.09, 0.17, 0.04
COPY_US, COPY_DRAM = 1.6, 0.7  #: the pass that copies operands: a launch, and a share of the bandwidth there and back
LEAVE = 0.07  #: clocks an element of C
REDUCE = 16.4  #: bytes of slices that are added a clock and multiprocessor
SPLIT_US = {SPLIT_MEMSET: 1.2, SPLIT_FLAG: 1.9, SPLIT_WORKSPACE: 3.5}

Floats = NDArray[np.float64]


def kind(p: KernelGemm) -> str:
    """The row of the tables that a problem belongs to."""
    return {"bf16": "f16", "f32": "tf32", "e5m2": "e4m3"}.get(p.dtype, p.dtype)


def rate(p: KernelGemm, d: Device) -> float:
    """Multiply-adds a clock and multiprocessor."""
    near = max((sm for sm in RATES if sm <= d.sm), default=80)
    return float(RATES[near].get(kind(p), RATES[near]["f16"]))


def _traffic(p: KernelGemm, c: Any) -> Any:
    """Bytes of L2 that one pass of a block costs: rows that lie across lines cost more of them."""
    size = p.element.bytes
    total: Any = 0.0
    operands = (
        (operand_packing.A, p.layout[0] == "N", p.lda, c.ml),
        (operand_packing.B, p.layout[1] == "T", p.ldb, c.nl),
    )
    for bit, kmajor, ld, tile in operands:
        run = (c.u if kmajor else tile) * size
        whole = (c.operand_path & bit > 0) | (ld * size % WAVEFRONT == 0)
        total = total + tile * c.u * size * np.where(whole, 1, 1 + STRADDLE * WAVEFRONT / run)
    return total


def _pass(p: KernelGemm, c: Any, g: SimpleNamespace, d: Device) -> tuple[Any, Any]:
    """Clocks of one pass of a block: where blocks compete for the units, and the least that it takes alone."""
    warps, size, chain = g.threads // WARP, p.element.bytes, CHAIN[kind(p)]
    tiles, steps = c.ms // ROWS * (c.ns // COLUMNS), c.u / c.kl / g.depth
    multiply = c.ml * c.nl * c.u / rate(p, d)
    shared = (c.ml * (c.nl // c.ns) + c.nl * (c.ml // c.ms) + c.ml + c.nl) * c.u * size / WAVEFRONT
    issued = warps * (PASS + steps * (tiles + (c.ms + c.ns) / ROWS))
    for x in (g.a, g.b):
        shared = shared + x.loads / WARP * np.where(x.copy == 1, *STORE)
        issued = issued + x.loads / WARP * np.where(x.copy == 1, *COPY)
    busy = (multiply**4 + shared**4 + (issued / ISSUE) ** 4) ** 0.25
    alone = steps * (tiles * chain + np.where(c.fragment_prefetch == 1, READ[1], READ[0])) + BARRIER
    return np.maximum(busy, _traffic(p, c) / L2_SM), np.maximum(alone, GLOBAL / np.maximum(c.stages - 1, 1))


def microseconds(p: KernelGemm, c: Columns, d: Device) -> Floats:
    """What each row of ``c``, which must be legal, takes on ``p``."""
    g = geometry(p, c)
    clock = d.clock * LOADED
    busy, alone = _pass(p, c, g, d)
    resident = np.maximum(d.blocks_per_sm(g.threads, np.minimum(g.likely, d.registers_thread), g.shared), 1)
    each = ceil_div(g.blocks, d.sms)  # blocks of the busiest multiprocessor
    waves = ceil_div(each, resident)
    last = each - (waves - 1) * resident
    passes = ceil_div(np.maximum(np.minimum(g.chunk, p.k), 1), c.u)
    work = ((waves - 1) * np.maximum(busy * resident, alone) + np.maximum(busy * last, alone)) * passes
    spread = g.blocks * passes * _traffic(p, c) / (L2 * d.sms)
    memory = p.bytes / (d.bandwidth * 1e3 * DRAM)
    slices = g.slices * p.results * p.accumulator.bytes / (REDUCE * d.sms * clock)
    met = np.choose(np.clip(c.splitk, 0, 2), [SPLIT_US[i] for i in range(3)])
    us = np.maximum(np.maximum(work, spread) / clock, memory) + np.where(c.kg > 1, slices + met, 0.0)
    us = us + c.ml * c.nl * each * LEAVE / clock + LAUNCH_US + waves * WAVE_US
    us = us + np.where(c.kl > 1, GROUPS_US, 0.0) + np.where(c.epilogue_smem == 1, STAGED_US, 0.0)
    copied = COPY_US + 2 * g.copies / (d.bandwidth * 1e3 * COPY_DRAM)
    out: Floats = us + np.where(c.operand_path > 0, copied, 0.0)
    return out
