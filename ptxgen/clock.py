"""How long a kernel takes by arithmetic alone: the latency and throughput model of the paper's section 5.2.

With n warps on a multiprocessor an instruction of a kind costs max(latency / n, 1 / throughput) cycles, and the kind
that costs most decides (Volkov's model). ``predict`` counts instructions from the geometry, for a tuner that has no
measurements, and for the regressor as a feature. ``from_stats`` takes the instructions that the emulated device
executed, and is that device's clock. Both are models: neither is ever stored as a time of real hardware.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_WORKSPACE, Columns, Config
from ptxgen.device import Device
from ptxgen.geometry import SECTOR, WARP, geometry, register_cap
from ptxgen.problem import Gemm
from ptxgen.source import Step
from ptxgen.space import Base, Candidates, width_c

Floats = NDArray[np.float32]

ISSUE = 4.0  #: warp instructions a cycle of one multiprocessor
ALU_LATENCY = 4.0  #: cycles from one arithmetic instruction to the next that needs it
SHARED_LATENCY = 30.0
GLOBAL_LATENCY = 700.0
BARRIER = 40.0  #: cycles that a block stands at a barrier
OVERLAP = 4.0  #: independent instructions that one warp has under way
WAVEFRONT = 128  #: bytes of shared memory a cycle
L2_BYTES = 28.0  #: bytes of L2 a cycle and multiprocessor, all of them asking
RED_CYCLES = 1.6  #: cycles of one multiprocessor's share of the L2 for one reduction, vector or scalar
QUEUE = 8.0  #: cycles that slices add, one after the other, to the same address
TOGETHER = 0.3  #: share of storing that many waves cannot hide behind multiplying
LAUNCH_US = 1.7  #: one launch in a graph, back to back
PIPE = 0.99  #: what loops of many warps reach of the multiply-add pipe's bound
LONELY = 0.15  #: share of its work by which a scheduler's only warp is late; two warps, half of that
DRAM = 0.92  #: what real kernels reach of the data sheet's bandwidth
LOOP_LIMIT = 2500  #: instructions of a loop that the instruction cache holds
CHUNK = 1 << 15  #: rows worked on together, so that temporaries stay in the cache

#: extra microseconds of each way to add slices: a memset node, a flag to wait for, a second kernel
SPLIT_US = {SPLIT_MEMSET: 1.0, SPLIT_FLAG: 0.4, SPLIT_WORKSPACE: 2.5}


@dataclass(frozen=True)
class Work:
    """What one block costs, whatever the extents: cycles, one entry a configuration.

    ``resident``: blocks that fit a multiprocessor; ``busy``: an iteration of K when blocks compete; ``idle``: what too
    few warps leave unused of it; ``alone``: the least that an iteration takes; ``start``: first load and last store of
    a block; ``store``, ``red``: the tile of C, stored or added; ``part``: the tile of C into a workspace.
    """

    resident: Floats
    busy: Floats
    idle: Floats
    alone: Floats
    start: Floats
    store: Floats
    red: Floats
    part: Floats


def fma_rate(p: Gemm, d: Device) -> int:
    """Scalar multiply-adds a clock and multiprocessor."""
    return {"f64": d.fma64, "f16": d.fma16}.get(p.compute, d.fma)


def _fetch(x: SimpleNamespace, other_lanes: Any) -> tuple[Any, Any]:
    """(instructions, wavefronts) by which one warp reads one k of an operand's fragments from shared memory."""
    wide = np.minimum(x.thread * x.bytes, 16)
    count = np.where(x.kept, x.thread * x.bytes / 16, np.maximum(x.thread * x.bytes / 16, 1))
    wide = np.where(x.kept, 16, wide)
    phases = np.maximum(np.where(wide == 16, 2, 1), x.warp * wide / WAVEFRONT)
    return count, count * phases


def _deposit(x: SimpleNamespace) -> tuple[Any, Any]:
    """(warp instructions, wavefronts) by which a block brings one stage of an operand into shared memory."""
    loads, elements = x.loads / WARP, x.loads * x.vec / WARP
    through = np.where(x.transposed, loads + elements, 2 * loads)
    instructions = np.where(x.copy == 1, loads, through)
    wavefronts = np.where(x.transposed, np.where(x.copy == 1, 2 * elements, elements), elements * x.bytes / 4)
    return instructions, np.maximum(wavefronts, instructions)


def _bound(*terms: Any) -> Any:
    """A maximum with rounded corners: what comes near the bound costs a little."""
    total = sum(np.maximum(np.asarray(t, np.float64), 1e-3) ** 4 for t in terms)
    return np.sqrt(np.sqrt(total))


def work(p: Gemm, c: Columns, g: SimpleNamespace, d: Device) -> Work:
    """The cost of one block of each configuration; only what does not depend on extents is read of ``p``."""
    packed = 2 if p.compute == "f16" else 1
    warps = np.maximum(g.threads // WARP, 1)
    lanes = c.ml * c.nl * c.u
    product = c.ms * c.ns / packed
    fma = lanes / WARP / packed

    (read_a, waves_a), (read_b, waves_b) = _fetch(g.a, g.b.warp), _fetch(g.b, g.a.warp)
    reads = g.group / WARP * c.u
    (put_a, lay_a), (put_b, lay_b) = _deposit(g.a), _deposit(g.b)
    loads = (g.a.loads + g.b.loads) / WARP

    # one kept operand puts all of one k into one register bank; two put a and b into the same
    banks = np.where(g.a.kept != g.b.kept, 1.18, np.where(g.a.kept & g.b.kept, 1.05, 1.0))
    banks = np.where(product * packed >= 64, banks, 1 + (banks - 1) / 3)
    order = np.where(c.order == 2, 1.03, 1.0)
    loop = g.uk * (product + read_a + read_b)
    fetch = 1 + 0.11 * np.clip((loop - LOOP_LIMIT) / 1800, 0, 3)
    spill = 1 + np.maximum(g.registers - register_cap(d, g.threads, c.resident), 0) / 32
    checks = np.where(c.bounds == 2, 1 + np.where((c.copy_a == 0) | (c.copy_b == 0), 2.0, 0.5), 1.0) * loads

    issue = fma * banks * order + reads * (read_a + read_b) + put_a + put_b + warps * 14 + 2 * loads + checks
    arithmetic = np.maximum(issue / ISSUE, lanes / fma_rate(p, d) * order) / PIPE * fetch * spill
    shared = reads * (waves_a + waves_b) + lay_a + lay_b
    traffic = (g.a.loads * g.a.vec + g.b.loads * g.b.vec) * p.element.bytes
    narrow = np.where(g.a.kmajor | g.b.kmajor, np.maximum(SECTOR / (c.u * p.element.bytes), 1), 1)
    busy = _bound(arithmetic, shared, traffic * narrow / L2_BYTES)

    step = np.maximum((product + read_a + read_b) * np.ceil(warps / 4) * spill, ALU_LATENCY)
    step = step + np.where(c.ahead == 1, 0, SHARED_LATENCY)
    path = g.uk * step + SHARED_LATENCY + BARRIER
    alone = _bound(path, GLOBAL_LATENCY / np.maximum(c.stages - 1, 1))

    granted = np.minimum(g.registers, register_cap(d, g.threads, c.resident))
    resident = np.maximum(d.blocks_per_sm(g.threads, granted, g.shared), 1)
    tile = c.ml * c.nl
    size = p.output.bytes
    meets = np.where(c.kl > 1, 2 * c.kl, np.where(c.stage_c == 1, 2, 0)) * tile * g.sum_bytes / WAVEFRONT
    width = width_c(p, c, g)
    wasted = np.where(width * size >= 16, 1.0, np.where(width * size >= 8, 1.2, 1.6))
    streamed = np.where(c.stream == 1, 0.97, 1.0)
    rate = d.bandwidth * 1e3 * DRAM / d.clock / d.sms  # bytes of memory a cycle and multiprocessor
    meets = meets + (c.ks - 1) * tile * c.kl / fma_rate(p, d)  # sets of accumulators are added in registers
    store = meets + tile * size * wasted * streamed / rate + tile / WARP / width
    reds = np.where(d.has_vector_red & (p.out == "f32"), width, 1)
    red = meets + tile / reds * RED_CYCLES
    part = meets + tile * g.sum_bytes * wasted / L2_BYTES
    start = GLOBAL_LATENCY * 1.5 + 4 * BARRIER + np.where(c.kl > 1, 4 * BARRIER, 0)
    columns = (resident, busy, busy * LONELY * 4 / warps, alone, start, store, red, part)
    return Work(*(np.broadcast_to(np.asarray(x, np.float32), len(c)) for x in columns))


@lru_cache(maxsize=8)
def base_work(b: Base) -> Work:
    """The cost of every row of a base. Kept between calls."""
    w = work(b.problem, b.columns, geometry(b.problem, b.columns), b.device)
    return Work(*(np.ascontiguousarray(getattr(w, n)) for n in w.__dataclass_fields__))


def _cell(p: Gemm, c: Columns, g: SimpleNamespace, d: Device) -> SimpleNamespace:
    """What extents and slices decide: iterations and blocks; which cost of C; extra microseconds."""
    k = np.maximum(np.minimum(g.chunk, p.k), 1)
    sliced = c.kg > 1
    second = g.slices * (p.m * p.n * g.sum_bytes) * 2 / (d.bandwidth * 1e3 * DRAM)
    extra = np.where(sliced, np.choose(np.clip(c.split, 0, 2), [SPLIT_US[i] for i in range(3)]), 0.0)
    extra = extra + np.where(sliced & (c.split == SPLIT_WORKSPACE), second, 0.0)
    way = np.where(sliced, np.where(c.split == SPLIT_WORKSPACE, 2, 1), 0)
    queue = np.where(way == 1, QUEUE * g.slices, 0)
    numbers = {"iterations": -(-k // c.u), "blocks": g.blocks, "extra": extra, "queue": queue}
    return SimpleNamespace(way=way, **{n: np.asarray(v, np.float32) for n, v in numbers.items()})


def _cycles(d: Device, w: Work, rows: Any, x: SimpleNamespace, cell: Any) -> Floats:
    """Cycles of a launch, wave by wave: full ones, then what is left, spread over the multiprocessors."""
    iterations, blocks, way, queue = x.iterations[cell], x.blocks[cell], x.way[cell], x.queue[cell]
    resident, busy, idle, alone = w.resident[rows], w.busy[rows], w.idle[rows], w.alone[rows]
    leave = np.where(way == 0, w.store[rows], np.where(way == 1, w.red[rows], w.part[rows]))
    sms = np.float32(d.sms)
    full = np.floor(blocks / (resident * sms))
    rest = np.ceil((blocks - full * resident * sms) / sms)
    waves = np.maximum(full + (rest > 0), 1)
    last = np.where(rest > 0, np.maximum(rest * busy + idle, alone), 0)
    # full waves, then what is left
    multiply = (full * np.maximum(resident * busy + idle, alone) + last) * iterations
    store = (full * resident + rest) * leave
    # blocks of a wave start together and store together; later waves mix
    mixed = np.maximum(multiply, store) + np.minimum(multiply, store) * (TOGETHER + (1 - TOGETHER) / waves)
    out: Floats = mixed + w.start[rows] * (1 + (waves - 1) / resident) + queue
    return out


def roofline(p: Gemm, d: Device) -> float:
    """Microseconds that no kernel of this family can pass: the multiply-adds or the memory, whichever takes longer."""
    rate = 2.0 * d.clock * d.sms * fma_rate(p, d)
    return max(p.flops / rate, p.bytes / (d.bandwidth * 1e3), 1e-3)


def predict(p: Gemm, c: Config | Columns, d: Device) -> Any:
    """Microseconds that ``c`` takes on ``p``: a float for one configuration, a float32 column for many.

    Rows must be legal.
    """
    if isinstance(c, Config):
        return float(predict(p, Columns.of([c]), d)[0])
    if not len(c):
        return np.zeros(0, np.float32)
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * DRAM))
    clock = np.float32(d.clock)
    if not isinstance(c, Candidates):
        g = geometry(p, c)
        x = _cell(p, c, g, d)
        cycles = _cycles(d, work(p, c, g, d), slice(None), x, slice(None))
        return np.maximum(cycles / clock, memory) + x.extra + np.float32(LAUNCH_US)
    w, x = base_work(c.base), _cell(p, c.cells, geometry(p, c.cells), d)
    out = np.empty(len(c), np.float32)
    for at in range(0, len(c), CHUNK):
        rows, cell = c.rows[at : at + CHUNK], c.cell[at : at + CHUNK]
        cycles = _cycles(d, w, rows, x, cell)
        out[at : at + CHUNK] = np.maximum(cycles / clock, memory) + x.extra[cell] + np.float32(LAUNCH_US)
    return out


@dataclass(frozen=True)
class Counts:
    """What a launch executed, in all, and what one block holds.

    ``warp_instructions``: of every kind; ``fma_lanes``: multiply-adds of single lanes in the type ``kind`` (a packed
    f16 pair is two); ``shared_wavefronts``: 128-byte passes of shared memory, conflicts counted; ``global_sectors``:
    32-byte sectors asked of global memory; ``atomics``: reductions and atomics of single lanes; ``barriers``: arrivals
    of whole blocks; ``blocks`` launched; ``threads``, ``registers`` (a thread) and ``shared`` (bytes) of a block.
    """

    warp_instructions: float
    fma_lanes: float
    shared_wavefronts: float
    global_sectors: float
    atomics: float
    barriers: float
    blocks: int
    threads: int
    registers: int
    shared: int
    kind: str = "f32"

    @classmethod
    def of(cls, stats: Any, step: Step, registers: int = 64) -> Counts:
        """From the ``Stats`` of the emulated launch of ``step``. ``registers``: nobody allocated them; a guess."""
        lanes = {"f64": stats.lane_instructions["fp64"], "f32": stats.lane_instructions["fp32"],
                 "f16": 2 * stats.lane_instructions["fp16"]}  # fmt: skip
        kind = max(lanes, key=lambda name: lanes[name])
        threads = math.prod(step.block)
        return cls(
            warp_instructions=sum(stats.warp_instructions.values()), fma_lanes=lanes[kind],
            shared_wavefronts=stats.shared.wavefronts, atomics=stats.atomics,
            global_sectors=stats.global_load.sectors + stats.global_store.sectors,
            barriers=stats.barriers / max(-(-threads // WARP), 1), blocks=math.prod(step.grid), threads=threads,
            registers=registers, shared=step.shared, kind=kind,
        )  # fmt: skip


def from_stats(s: Counts, d: Device) -> float:
    """Microseconds of a launch whose instructions were counted: the paper's equations (2) and (3).

    ``t = max(t_arith · i_arith, t_mem · i_mem)``, with a term for each unit; i is the busiest multiprocessor's share,
    t is ``max(latency / n, 1 / throughput)`` with n its warps, each with OVERLAP instructions under way. Barriers and
    the first load of each wave come on top: nothing hides them.
    """
    if s.blocks == 0:
        return LAUNCH_US
    fits = max(int(d.blocks_per_sm(s.threads, s.registers, s.shared)), 1)
    busiest = -(-s.blocks // d.sms)
    resident = min(fits, busiest)
    n = resident * max(-(-s.threads // WARP), 1) * OVERLAP
    lanes = {"f64": d.fma64, "f32": d.fma, "f16": d.fma16}[s.kind]
    share = busiest / s.blocks
    cycles = share * max(
        max(ALU_LATENCY / n, 1 / ISSUE) * s.warp_instructions,
        s.fma_lanes / lanes,
        max(SHARED_LATENCY / n, 1.0) * s.shared_wavefronts,
        max(GLOBAL_LATENCY / (n * WARP), SECTOR / L2_BYTES) * s.global_sectors,
        RED_CYCLES * s.atomics,
    )
    cycles += BARRIER * s.barriers * share / resident + 1.5 * GLOBAL_LATENCY * -(-busiest // fits)
    return LAUNCH_US + cycles / d.clock
