"""Constants of the performance model of wgmma kernels.

In cycles unless another unit is named. They were fitted to 101 kernels, 2.5 to 1,430 µs on an H200 (within 5 % on
average).
"""

from __future__ import annotations

from ptxgen.families.wgmma.bf16x3 import PAIRS, factor_bytes, planes
from ptxgen.lowering.kernel_problem import KernelProblem

COLD_US = 2.15  #: a launch, and the first loads, which miss the caches
TMA_BYTES = 62.0  #: bytes per cycle of the TMA of one multiprocessor
COLD_LATENCY_US = 1.3  #: from a load that misses the caches to the next load into the same stage
TMA_LATENCY = 700.0
TMA_STRADDLE = 0.85  #: extra share of the bytes where rows of an operand start within a cache line
#: extra share of the bytes of Y, K not contiguous, for each further box that 128 bytes of its rows take
TMA_NARROW = 0.5
#: im2col: cycles per pixel besides its bytes, and the latency
TMA_PIXEL, PIXEL_LATENCY = 1.4, 2400.0
TMA_MULTICAST = 0.4  #: relative cost of bytes that other blocks of the cluster multicast
WGMMA = 0.82  #: share of the data sheet's rate that kernels reach: the clock drops under load
WGMMA_ITERATION = 90.0  #: of a K iteration besides its wgmma
REALIGN_BYTE, REALIGN_ITERATION = 0.07, 300.0  #: of realignment in shared memory: per byte, per K iteration
WGMMA_START = 3000.0  #: until the first wgmma of each wave after the first
TILE_CYCLES, TILE_BYTE = 100.0, 0.015  #: a tile of C: constant, and per byte
TILE_DIRECT = 1.6  #: factor of stores from registers
#: further factor of stores of single 2-byte elements: with transposed_mma=1, and 0
TILE_NARROW = 9.0, 22.0
#: factor where rows of C are not whole 16 bytes and threads store them; elements of a row that cost as much as its two
#: ends
TILE_UNALIGNED, ROW_ENDS = 3.0, 60.0
#: factors where rows of C are pixels of a phase: threads store 16 bytes each from shared memory, or from registers
TILE_VECTORS, TILE_SCATTERED = 5.0, 18.0
#: further factor of stores from registers where columns of C, not rows, are pixels of a phase, a stride apart: with
#: transposed_mma=1, and with 0, where an instruction stores half as many elements of a 32-byte sector of L2
TILE_STRIDED = 1.0, 2.0
#: share of the store that products of other tiles do not hide: one block per multiprocessor, several, persistent,
#: persistent with pingpong
TILE_ONE_CTA, TILE_SEVERAL_CTAS, TILE_PERSISTENT, TILE_PINGPONG = 0.9, 0.6, 0.9, 0.2
TILE_PINGPONG_PHASES = 0.5  #: the same with pingpong in phases of a strided input gradient, which have few products
#: share of a matrix B that each tile along M after the first reads from memory again: if they are at most NEAR_TILES
#: tiles apart, if they are farther, and if L2 evicts B first. Of the suite moe on an H100
NEAR_TILES, REREAD_NEAR, REREAD_FAR, REREAD_EVICTED = 2, 0.05, 0.2, 0.55
TILE_LAST = 1.9  #: factor of the last store where memory is the bottleneck
CLUSTER_US, CLUSTER_STEP_US = 0.55, 0.12  #: slices of a cluster, and for each doubling of them
LAST_CTA_US, LAST_CTA_STEP_US = 1.0, 0.055  #: splitk=last_cta, and for each doubling of the slices
LAST_CTA_BYTES = 45e3  #: bytes of partial sums that one block adds per microsecond
STREAM_US = 1.0  #: shares of K iterations, besides the sums that blocks store and add
DISTRIBUTED_US = 1.35  #: splitk=distributed
RED_US = 1.2  #: splitk=memset_red besides the memset
TRANSPOSE_US, TRANSPOSE_DRAM = 2.5, 0.8  #: a transposing kernel, and its share of the bandwidth
PACK_ROWS_US, PACK_ROWS_DRAM = 0.8, 0.7  #: a row-packing kernel, likewise
PACK_CHANNELS_US, PACK_CHANNELS_DRAM = 1.9, 0.87  #: a kernel that packs images, likewise
#: stores of parts of sectors of C, as so many stores of C; kernels that interleave images of phases
PARTIAL_SECTORS, INTERLEAVE_US = 9.0, 4.0
SPLIT_BF16X3_US, SPLIT_BF16X3_DRAM = 1.5, 0.75  #: the kernel that splits f32 into planes, likewise
PLANES_NARROW = 0.16  #: slow-down of products of planes, times the share by which a tile is narrower than 128 columns
PROMOTE, PROMOTE_SUM = 250.0, 1.0  #: per K iteration, and per accumulator: adding planes to the totals
#: with scales of blocks: the share of the adding that wgmma does not hide; cycles for each scale of Y that is loaded,
#: and for each column of Y whose scale lanes exchange
SCALED_SHARE, SCALE_LOADED, SCALE_EXCHANGED = 0.9, 19.0, 4.0
#: quantized weights: wavefronts that read a fragment of 64 rows of X for one wgmma; instructions of a warp that
#: dequantize it, by bits of a weight and whether it becomes bf16; cycles of the first fragment of a K iteration. Not
#: measured yet
DEQUANTIZE_READ = 16.0
DEQUANTIZE = {(4, False): 22.0, (4, True): 22.0, (8, False): 22.0, (8, True): 32.0}
DEQUANTIZE_ITERATION = 150.0
BOTH_REDUCTIONS = 0.75  #: share of the cheaper reduction that is not hidden, with cluster_k and kg

#: multiply-adds per clock and multiprocessor, by bytes of an element: 989 TFLOPS of f16 on an H100 or H200
RATES = {1: 4096.0, 2: 2048.0, 4: 1024.0}


def rate(p: KernelProblem) -> float:
    """Multiply-adds per clock and multiprocessor by wgmma."""
    return RATES.get(factor_bytes(p), RATES[4]) / (len(PAIRS) if planes(p) > 1 else 1)
