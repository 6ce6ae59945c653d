"""Constants of the performance model of mma.sync kernels.

They were fitted to 480 kernels on an H200 (19 problems of f64, tf32, f16 and bf16): the root mean square of log(model /
measured) is 0.11. The time of the kernel that the model ranks first was within 13 % of the fastest, the best of its
first five within 11 %, mostly equal. Times on other devices scale by clock, multiprocessors and bandwidth; no other
device was measured.
"""

from __future__ import annotations

from ptxgen.codegen.config.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_WORKSPACE

CLOCK_SHARE = 0.94  #: share of the nominal clock with all multiprocessors busy
#: clocks from one instruction of a warp to the next, by type
CHAIN = {"f16": 8.9, "tf32": 13.1, "f64": 21.0, "s8": 8.9, "fp8": 20.0, "b1": 8.9}
FRAGMENT_LATENCY = 36.6, 18.8  #: clocks that a step waits for its fragments: without and with fragment_prefetch
BARRIER = 7.0
GLOBAL = 1590.0  #: clocks from the loads of a stage to its arrival
ISSUE = 4  #: instructions per clock
ITERATION = 52  #: instructions of a warp per K iteration that are not counted singly
LOAD_ISSUE = 4.0, 15.3  #: instructions of a load: by cp.async, and through registers
LOAD_WAVEFRONTS = 0.08, 5.2  #: wavefronts of a load beyond its bytes: by cp.async, and through registers
#: instructions that scale the four sums of an instruction, and those of the load of a block scale; clocks of that load.
#: They were not measured
SCALED, SCALE_LOAD, SCALE_LATENCY = 8, 3, 35.0
WAVEFRONT = 128  #: bytes of shared memory per clock
L2_SM, L2 = 44.7, 40.7  #: L2 bytes per clock: of one multiprocessor alone, and its share if all load
STRADDLE = 0.97  #: extra 128-byte lines for each row that does not start at a line
DRAM = 0.88  #: share of the data sheet's bandwidth
LAUNCH_US, WAVE_US, GROUPS_US, EPILOGUE_SMEM_US = 1.55, 1.09, 0.17, 0.04
STORE = 0.07  #: clocks per element of C
REDUCE = 16.4  #: bytes of partial sums that a multiprocessor adds per clock
SPLIT_US = {SPLIT_MEMSET: 1.2, SPLIT_FLAG: 1.9, SPLIT_WORKSPACE: 3.5}
#: blocks that share K iterations: their time over that of whole tiles with as many iterations, and microseconds of the
#: sums that they exchange (11 problems of f64 and c128)
STREAM, STREAM_US = 1.06, 2.0
