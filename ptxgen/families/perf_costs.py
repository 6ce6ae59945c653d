"""What instructions and launches cost: constants that measured kernels were fitted with, and the rates of units.

Cycles, where nothing else is said. The constants of SIMT put fourteen measured f32 kernels within 20 %; those of wgmma
were fitted to 101 kernels, 2.5 to 1,430 µs on an H200 (within 5 % on average); those of mma.sync are in
``families.mma.cost``.
"""

from __future__ import annotations

from ptxgen.codegen.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_POLL, SPLIT_SHARE, SPLIT_WORKSPACE
from ptxgen.families.mma.cost import rate as measured_rate
from ptxgen.families.wgmma.bf16x3 import PAIRS, factor_bytes, planes
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

# ---- every family

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

#: extra microseconds of each way to add slices: a memset node, a flag to wait for, a second kernel
SPLIT_US = {SPLIT_MEMSET: 1.0, SPLIT_FLAG: 0.4, SPLIT_WORKSPACE: 2.5, SPLIT_POLL: 0.0, SPLIT_SHARE: 0.0}

LINE = 128  #: bytes of a cache line: rows of K that begin within one cost two

# ---- wgmma and TMA

COLD_US = 2.15  #: a launch, and the first copies, which find nothing in the caches
TMA_BYTES = 62.0  #: bytes that TMA brings one multiprocessor in a cycle
COLD_TURN_US = 1.3  #: from the request of what no cache holds to the next request in its place
TMA_LATENCY = 700.0
TMA_TORN = 0.85  #: times as much more where rows of K begin within a cache line
#: of windows over images: cycles that a pixel takes beside its bytes, and TMA_LATENCY
TMA_PIXEL, PIXEL_LATENCY = 1.4, 2400.0
TMA_SHARED = 0.4  #: of what the other blocks of a cluster load for all
WGMMA = 0.82  #: what kernels reach of the data sheet's rate: its clock falls under such load
WGMMA_PASS = 90.0  #: cycles that a pass takes beside its multiplications
LIES_BYTE, LIES_PASS = 0.07, 300.0  #: of operands that come as they lie, cycles that shifting takes: each byte, a pass
WGMMA_START = 3000.0  #: cycles until the first products of a wave after the first
TILE_CYCLES, TILE_BYTE = 100.0, 0.015  #: a tile of C: its first byte and each
TILE_DIRECT = 1.6  #: times as long where each thread stores what it has
#: and beyond, element by element of two bytes: with wgmma's rows along C's (1), across them (0)
TILE_NARROW = 9.0, 22.0
#: times as long where threads put together lines of C that are not whole 16 bytes, and elements of a line that take as
#: long as its two ends
TILE_LINES, LINE_ENDS = 3.0, 60.0
#: share of it that products of other tiles do not hide: of one block a multiprocessor, of several, of one that walks,
#: of one whose warpgroups take turns
TILE_ALONE, TILE_AMONG, TILE_WALKED, TILE_TURNS = 0.9, 0.6, 0.9, 0.2
TILE_LAST = 1.9  #: times as long where memory is still busy with what comes before
CLUSTER_US, CLUSTER_STEP_US = 0.55, 0.12  #: slices of a cluster, and for each doubling of them
POLL_US, POLL_STEP_US = 1.0, 0.055  #: slices that the last block waits for
POLL_BYTES = 45e3  #: bytes of other slices' sums that one block adds in a microsecond
SHARE_US = 1.35  #: slices of which each block finishes a part
RED_US = 1.2  #: slices that add to C, beside the memset
TURN_US, TURN_DRAM = 2.5, 0.8  #: a pass that transposes an operand, and what it reaches of the bandwidth
PITCH_US, PITCH_DRAM = 0.8, 0.7  #: the pass that copies operands as they are, likewise
ARRANGE_US, ARRANGE_DRAM = 1.9, 0.87  #: the pass that copies images, and what is beside them, likewise
PARTING_US, PARTING_DRAM = 1.5, 0.75  #: the pass that makes planes: a launch, and a share of the bandwidth
PLANES_THIN = 0.16  #: times as much longer, by how far a tile of planes stays below 128 columns
PROMOTE, PROMOTE_SUM = 250.0, 1.0  #: cycles a pass and accumulator in which a warpgroup adds, and multiplies nothing
BOTH = 0.75  #: share of the cheaper one that shows where slices meet twice

#: dense multiply-adds of one multiprocessor in a cycle by mma.sync, by (dtype, compute), of targets that were not
#: measured: what the vendor's data sheets give for the tensor cores, over multiprocessors and boost clock. sm_86, 89
#: and 120 sum f16 in f32 at half rate, and have f64 units for compatibility only; sm_100 is taken to be as sm_80
MMA_RATES: dict[int, dict[tuple[str, str], float]] = {
    80: {
        ("f16", "f32"): 1024,
        ("f16", "f16"): 1024,
        ("bf16", "f32"): 1024,
        ("f32", "tf32"): 512,
        ("f64", "f64"): 64,
        ("s8", "s32"): 2048,
    },
    86: {
        ("f16", "f32"): 256,
        ("f16", "f16"): 512,
        ("bf16", "f32"): 256,
        ("f32", "tf32"): 128,
        ("f64", "f64"): 2,
        ("s8", "s32"): 1024,
    },
    89: {
        ("f16", "f32"): 256,
        ("f16", "f16"): 512,
        ("bf16", "f32"): 256,
        ("f32", "tf32"): 128,
        ("f64", "f64"): 2,
        ("s8", "s32"): 1024,
        ("fp8", "f32"): 512,
    },
    100: {
        ("f16", "f32"): 1024,
        ("f16", "f16"): 1024,
        ("bf16", "f32"): 1024,
        ("f32", "tf32"): 512,
        ("f64", "f64"): 64,
        ("s8", "s32"): 2048,
        ("fp8", "f32"): 1024,
    },
    120: {
        ("f16", "f32"): 256,
        ("f16", "f16"): 512,
        ("bf16", "f32"): 256,
        ("f32", "tf32"): 128,
        ("f64", "f64"): 2,
        ("s8", "s32"): 1024,
        ("fp8", "f32"): 512,
    },
}

MEASURED = 90

#: the same of wgmma, by bytes of an element: 989 TFLOPS of f16 on an H100 or H200
WGMMA_RATES = {1: 4096.0, 2: 2048.0, 4: 1024.0}


def mma_rate(p: KernelGemm, d: Device) -> float:
    """Multiply-adds a clock and multiprocessor by mma.sync; of types that a device lacks, those of f16."""
    if d.sm == MEASURED:
        return measured_rate(p, d)
    rates = MMA_RATES[max((sm for sm in MMA_RATES if sm <= d.sm), default=80)]
    return rates.get(("fp8" if p.element.fp8 else p.dtype, p.compute), rates["f16", "f32"])


def wgmma_rate(p: KernelGemm) -> float:
    """Multiply-adds a clock and multiprocessor by wgmma."""
    return WGMMA_RATES.get(factor_bytes(p), WGMMA_RATES[4]) / (len(PAIRS) if planes(p) > 1 else 1)


def fma_rate(p: KernelGemm, d: Device) -> int:
    """Scalar multiply-adds a clock and multiprocessor."""
    return {8: d.fma64, 2: d.fma16}.get(p.accumulator.bytes, d.fma)
