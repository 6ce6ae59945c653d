"""The cost of instructions and launches: constants fitted to measured kernels, and the rates of units.

Costs are in cycles unless another unit is named. With the constants of FMA kernels, fourteen measured f32 kernels are
within 20 %.
"""

from __future__ import annotations

from ptxgen.codegen.config.config import SPLIT_DISTRIBUTED, SPLIT_FLAG, SPLIT_LAST_CTA, SPLIT_MEMSET, SPLIT_WORKSPACE
from ptxgen.lowering import step_rate
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.bit_products import COMPUTE
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.peak_rates import scalar_rate, tensor_rates, tensor_types

# ---- every family

ISSUE = 4.0  #: warp instructions per cycle of one multiprocessor
ALU_LATENCY = 4.0  #: from one arithmetic instruction to the next that depends on it
SHARED_LATENCY = 30.0
GLOBAL_LATENCY = 700.0
BARRIER = 40.0  #: that a block waits at a barrier
OVERLAP = 4.0  #: independent instructions in flight per warp
WAVEFRONT = 128  #: bytes of shared memory per cycle
L2_BYTES = 28.0  #: bytes of L2 per cycle and multiprocessor, when all load
RED_CYCLES = 1.6  #: of one multiprocessor's share of the L2 per red, vector or scalar
QUEUE = 8.0  #: per slice that adds to the same address
EXPOSED_STORE = 0.3  #: share of the store that many waves do not hide
LAUNCH_US = 1.7  #: one launch in a graph
TABLE_US = 2.0  #: the kernel that makes the descriptor table of a jagged group
PIPE = 0.99  #: share of the FMA peak that loops of many warps reach
FEW_WARPS = 0.15  #: slow-down of a scheduler with one warp; with two, half of it
DRAM = 0.92  #: share of the data sheet's bandwidth that kernels reach
LOOP_LIMIT = 2500  #: instructions of a loop that fit the instruction cache

#: extra microseconds of each split-K reduction: a memset node, a flag to wait for, a second kernel
SPLIT_US = {SPLIT_MEMSET: 1.0, SPLIT_FLAG: 0.4, SPLIT_WORKSPACE: 2.5, SPLIT_LAST_CTA: 0.0, SPLIT_DISTRIBUTED: 0.0}

LINE = 128  #: bytes of a cache line: a row of K that starts within one takes two

# ---- copies and stores of grouped SIMT kernels: docs/adr/grouped-loads.md

#: cycles of the load/store unit per warp instruction: cp.async of 4 or 8 bytes, which passes through L1, and of 16
#: bytes; ld.global and st.shared, up to 4 bytes per thread and for each further 4
CP_ASYNC_L1, CP_ASYNC_L2 = 5.0, 4.0
LDG, LDG_WORD, STS, STS_WORD = 1.3, 0.9, 2.0, 1.0
COPY_FEW_WARPS = 0.28  #: as FEW_WARPS, where copies are counted so
COLD_LOAD = 1000.0  #: latency of loads of operands that are in device memory
L2_LOAD = 500.0  #: the same where L2 has them: an assumption
REGISTER_COPY = 100.0  #: of an iteration that stores the loads of registers to shared memory

#: the target whose rates by mma.sync were measured, and these, by the types of operands; others have the vendor's
#: rates. That of words of bits was not measured: it is eight bits for a multiply-add of s8, as on sm_80
MEASURED = 90
MMA_RATES = {"f16": 969.0, "tf32": 351.0, "f64": 116.0, "s8": 1900.0, "fp8": 400.0, "b1": 475.0}


def mma_types(p: KernelProblem) -> str:
    """The name of the operand types of a problem, a key of MMA_RATES."""
    if p.compute == COMPUTE:
        return COMPUTE
    return "fp8" if p.element.fp8 else "f16" if p.element.bytes == 2 else dtype(p.element.real).mma


def mma_rate(p: KernelProblem, d: Device) -> float:
    """Multiply-adds, or steps of complex numbers, per clock and multiprocessor by mma.sync; that of f16 for types that
    a device lacks. Targets with tcgen05 are assumed to have the rates of sm_80."""
    if d.sm == MEASURED:
        return MMA_RATES.get(mma_types(p), MMA_RATES["f16"]) / p.algebra.fmas
    rates = tensor_rates(80 if 100 <= d.sm < 120 else d.sm)
    return rates.get(tensor_types(p.element, p.compute), rates["f16", "f32"]) / p.algebra.fmas


def fma_rate(p: KernelProblem, d: Device) -> float:
    """Scalar multiply-adds, or steps of another algebra, per clock and multiprocessor."""
    if isinstance(p.algebra, InnerExpression):
        return step_rate.bound(p.algebra, d)
    return scalar_rate(p.accumulator, d) / p.algebra.fmas
