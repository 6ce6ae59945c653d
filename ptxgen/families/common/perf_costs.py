"""The costs of instructions and launches: constants fitted to measured kernels, and the rates of units.

Costs are in cycles unless stated otherwise. With the constants of FMA kernels, predictions for fourteen measured f32
kernels are within 20 %.
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
ALU_LATENCY = 4.0  #: cycles from an arithmetic instruction to the next instruction that depends on it
SHARED_LATENCY = 30.0
GLOBAL_LATENCY = 700.0
BARRIER = 40.0  #: cycles that a block waits at a barrier
OVERLAP = 4.0  #: independent instructions in flight per warp
WAVEFRONT = 128  #: bytes of shared memory per cycle
L2_BYTES = 28.0  #: L2 bytes per cycle and multiprocessor if all multiprocessors load
RED_CYCLES = 1.6  #: cycles that a red instruction, vector or scalar, takes of a multiprocessor's share of the L2
QUEUE = 8.0  #: cycles for each slice that adds to the same address
EXPOSED_STORE = 0.3  #: share of the store that does not overlap, even with many waves
LAUNCH_US = 1.7  #: microseconds of a launch in a graph
TABLE_US = 2.0  #: microseconds of the kernel that makes the descriptor table of a jagged group
PIPE = 0.99  #: share of the FMA peak that loops of many warps reach
FEW_WARPS = 0.15  #: slow-down of a warp scheduler that has one warp; with two warps, half of it
DRAM = 0.92  #: share of the data sheet's bandwidth that kernels reach
#: the kernel that packs operands: microseconds of its launch, and share of the bandwidth that it reaches
PACK_US, PACK_DRAM = 1.6, 0.7
LOOP_LIMIT = 2500  #: instructions of the longest loop that fits the instruction cache

#: form of split-K -> extra microseconds: a memset node, a flag to wait for, a second kernel
SPLIT_US = {SPLIT_MEMSET: 1.0, SPLIT_FLAG: 0.4, SPLIT_WORKSPACE: 2.5, SPLIT_LAST_CTA: 0.0, SPLIT_DISTRIBUTED: 0.0}

LINE = 128  #: bytes of a cache line; a load of a line's length that starts inside a line reads two

# ---- copies and stores of grouped SIMT kernels: docs/adr/grouped-loads.md

#: cycles of the load/store unit per warp instruction: cp.async of 4 or 8 bytes, which passes through L1; cp.async of 16
#: bytes; ld.global and st.shared of up to 4 bytes per thread, and for each further 4 bytes
CP_ASYNC_L1, CP_ASYNC_L2 = 5.0, 4.0
LDG, LDG_WORD, STS, STS_WORD = 1.3, 0.9, 2.0, 1.0
COPY_FEW_WARPS = 0.28  #: FEW_WARPS for kernels whose copies are counted by these costs
COLD_LOAD = 1000.0  #: latency of loads of operands from device memory
L2_LOAD = 500.0  #: latency of loads of operands from L2: an assumption
REGISTER_COPY = 100.0  #: cycles of an iteration that stores loaded registers to shared memory

#: the target whose mma.sync rates were measured, and the rates by type of operands; other targets have the vendor's
#: rates. The rate of words of bits was not measured: eight bits count as one multiply-add of s8, as on sm_80
MEASURED = 90
MMA_RATES = {"f16": 969.0, "tf32": 351.0, "f64": 116.0, "s8": 1900.0, "fp8": 400.0, "b1": 475.0}


def mma_types(p: KernelProblem) -> str:
    """The name of a problem's operand types, a key of MMA_RATES."""
    if p.compute == COMPUTE:
        return COMPUTE
    return "fp8" if p.element.fp8 else "f16" if p.element.bytes == 2 else dtype(p.element.real).mma


def mma_rate(p: KernelProblem, d: Device) -> float:
    """The number of multiply-adds (or steps of complex numbers) per clock and multiprocessor by mma.sync; for types
    that the device lacks, the rate of f16. Targets with tcgen05 are assumed to have the rates of sm_80."""
    if d.sm == MEASURED:
        return MMA_RATES.get(mma_types(p), MMA_RATES["f16"]) / p.algebra.fmas
    rates = tensor_rates(80 if 100 <= d.sm < 120 else d.sm)
    return rates.get(tensor_types(p.element, p.compute), rates["f16", "f32"]) / p.algebra.fmas


def fma_rate(p: KernelProblem, d: Device) -> float:
    """The number of scalar multiply-adds (or steps of another algebra) per clock and multiprocessor."""
    if isinstance(p.algebra, InnerExpression):
        return step_rate.bound(p.algebra, d)
    return scalar_rate(p.accumulator, d) / p.algebra.fmas
