"""Constants of the performance model of mma.sync kernels.

They were fitted to 480 kernels on an H200 (19 problems of f64, tf32, f16 and bf16): the root mean square of
log(model / measured) is 0.11. The kernel that the model ranks first was within 13 % of the fastest, the best of its
first five within 11 %, mostly equal. Other devices scale by their clocks, multiprocessors and bandwidths: none of
them was measured.
"""

from __future__ import annotations

from ptxgen.codegen.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_WORKSPACE
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

#: multiply-adds per clock and multiprocessor that mma.sync reaches, by target: sm_90 as measured, the others the
#: vendor's dense peaks. Devices without f64 tensor cores multiply f64 at a hundredth of that.
RATES = {
    80: {"f16": 1000, "tf32": 480, "f64": 60, "s8": 2000},
    86: {"f16": 480, "tf32": 120, "f64": 2, "s8": 960},
    89: {"f16": 480, "tf32": 240, "f64": 2, "s8": 960, "fp8": 960},
    90: {"f16": 969, "tf32": 351, "f64": 116, "s8": 1900, "fp8": 400},
    100: {"f16": 1000, "tf32": 370, "f64": 60, "s8": 1000, "fp8": 1000},
    120: {"f16": 480, "tf32": 240, "f64": 2, "s8": 960, "fp8": 960},
}
CLOCK_SHARE = 0.94  #: share of the nominal clock with all multiprocessors busy
#: clocks from one instruction of a warp to the next
CHAIN = {"f16": 8.9, "tf32": 13.1, "f64": 21.0, "s8": 8.9, "fp8": 20.0}
FRAGMENT_LATENCY = 36.6, 18.8  #: clocks that a step waits for its fragments, and with fragment_prefetch
BARRIER = 7.0
GLOBAL = 1590.0  #: clocks until a stage has arrived
ISSUE = 4  #: instructions per clock
ITERATION = 52  #: instructions of a warp per K iteration besides those that are counted
LOAD_ISSUE = 4.0, 15.3  #: instructions of a load by cp.async, and through registers
LOAD_WAVEFRONTS = 0.08, 5.2  #: wavefronts of a load beyond its bytes, likewise
WAVEFRONT = 128  #: bytes of shared memory per clock
L2_SM, L2 = 44.7, 40.7  #: bytes per clock: of one multiprocessor, and its share when all load
STRADDLE = 0.97  #: extra lines of 128 bytes per row that is not aligned to them
DRAM = 0.88  #: share of the data sheet's bandwidth
LAUNCH_US, WAVE_US, GROUPS_US, EPILOGUE_SMEM_US = 1.55, 1.09, 0.17, 0.04
PACK_US, PACK_DRAM = 1.6, 0.7  #: the packing kernel: a launch, and its share of the bandwidth
STORE = 0.07  #: clocks per element of C
REDUCE = 16.4  #: bytes of partial sums that are added per clock and multiprocessor
SPLIT_US = {SPLIT_MEMSET: 1.2, SPLIT_FLAG: 1.9, SPLIT_WORKSPACE: 3.5}


def kind(p: KernelGemm) -> str:
    """The kind of types of a problem, a key of the tables."""
    return "fp8" if p.element.fp8 else "f16" if p.element.bytes == 2 else p.element.mma


def rate(p: KernelGemm, d: Device) -> float:
    """Multiply-adds per clock and multiprocessor."""
    near = max((sm for sm in RATES if sm <= d.sm), default=80)
    return float(RATES[near].get(kind(p), RATES[near]["f16"]))
