"""Constants of the performance model of wgmma kernels.

They are in cycles unless stated otherwise. They were fitted to 101 kernels of 2.5 to 1,430 µs on an H200 (within 5 % on
average).
"""

from __future__ import annotations

from ptxgen.families.wgmma.bf16x3 import PAIRS, factor_bytes, planes
from ptxgen.lowering.kernel_problem import KernelProblem

COLD_US = 2.15  #: microseconds of a launch and of its first loads, which miss the caches
TMA_BYTES = 62.0  #: bytes per cycle of the TMA of one multiprocessor
COLD_LATENCY_US = 1.3  #: microseconds from a load that misses the caches to the next load into the same stage
TMA_LATENCY = 700.0
TMA_STRADDLE = 0.85  #: additional share of the bytes if rows of an operand start within a cache line
#: additional share of the bytes of Y, if K is not contiguous, for each box after the first that 128 bytes of its rows
#: take
TMA_NARROW = 0.5
#: im2col: cycles per pixel in addition to its bytes; the latency of a load
TMA_PIXEL, PIXEL_LATENCY = 1.4, 2400.0
TMA_MULTICAST = 0.4  #: relative cost of bytes that other blocks of the cluster multicast
WGMMA = 0.82  #: share of the data sheet's rate that kernels reach, because the clock drops under load
WGMMA_ITERATION = 90.0  #: cycles of a K iteration besides its wgmma instructions
REALIGN_BYTE, REALIGN_ITERATION = 0.07, 300.0  #: realignment in shared memory: cycles per byte, and per K iteration
WGMMA_START = 3000.0  #: cycles until the first wgmma of each wave after the first
TILE_CYCLES, TILE_BYTE = 100.0, 0.015  #: cycles of a tile of C: constant, and per byte
TILE_DIRECT = 1.6  #: factor of the cycles of a tile for stores from registers
#: further factor for stores of single 2-byte elements: with transposed_mma=1, and with 0
TILE_NARROW = 9.0, 22.0
#: factor if rows of C are not whole 16 bytes and threads store them; the elements of a row that cost as much as its two
#: ends
TILE_UNALIGNED, ROW_ENDS = 3.0, 60.0
#: factors if rows of C are pixels of a phase: threads store 16 bytes each from shared memory; threads store from
#: registers
TILE_VECTORS, TILE_SCATTERED = 5.0, 18.0
#: further factor of stores from registers if columns of C, not rows, are pixels of a phase, a stride apart: with
#: transposed_mma=1, and with 0, where an instruction stores half as many elements of a 32-byte sector of L2
TILE_STRIDED = 1.0, 2.0
#: share of the store that does not overlap with products of other tiles: with one block per multiprocessor, with
#: several, with persistent blocks, with persistent blocks and pingpong
TILE_ONE_CTA, TILE_SEVERAL_CTAS, TILE_PERSISTENT, TILE_PINGPONG = 0.9, 0.6, 0.9, 0.2
#: the same share with pingpong for phases of a strided input gradient, which have few products
TILE_PINGPONG_PHASES = 0.5
#: share of a matrix B that each tile along M after the first reads from memory again: if these tiles are at most
#: NEAR_TILES tiles apart, if they are farther apart, and if L2 evicts B first. Fitted to the suite moe on an H100
NEAR_TILES, REREAD_NEAR, REREAD_FAR, REREAD_EVICTED = 2, 0.05, 0.2, 0.55
TILE_LAST = 1.9  #: factor of the last store if memory is the bottleneck
CLUSTER_US, CLUSTER_STEP_US = 0.55, 0.12  #: microseconds for slices in a cluster, and for each doubling of their number
LAST_CTA_US, LAST_CTA_STEP_US = 1.0, 0.055  #: microseconds for splitk=last_cta, and for each doubling of the slices
LAST_CTA_BYTES = 45e3  #: bytes of partial sums that one block adds per microsecond
STREAM_US = 1.0  #: microseconds for shares of K iterations, besides the sums that blocks store and add
DISTRIBUTED_US = 1.35  #: microseconds for splitk=distributed
RED_US = 1.2  #: microseconds for splitk=memset_red besides the memset
#: a transposing kernel: microseconds of its launch, and share of the bandwidth that it reaches
TRANSPOSE_US, TRANSPOSE_DRAM = 2.5, 0.8
#: a row-packing kernel: microseconds of its launch, and share of the bandwidth that it reaches
PACK_ROWS_US, PACK_ROWS_DRAM = 0.8, 0.7
#: a kernel that packs images: microseconds of its launch, and share of the bandwidth that it reaches
PACK_CHANNELS_US, PACK_CHANNELS_DRAM = 1.9, 0.87
#: the number of whole stores of C that a store in parts of sectors costs; microseconds of the kernels that interleave
#: images of phases
PARTIAL_SECTORS, INTERLEAVE_US = 9.0, 4.0
#: the kernel that splits f32 into planes: microseconds of its launch, and share of the bandwidth that it reaches
SPLIT_BF16X3_US, SPLIT_BF16X3_DRAM = 1.5, 0.75
PLANES_NARROW = 0.16  #: slow-down of products of planes per share by which a tile is narrower than 128 columns
PROMOTE, PROMOTE_SUM = 250.0, 1.0  #: cycles of promotion: per K iteration, and per accumulator
#: with block scales: the share of the additions that does not overlap with wgmma; cycles for each scale of Y that is
#: loaded; cycles for each column of Y whose scale lanes exchange
SCALED_SHARE, SCALE_LOADED, SCALE_EXCHANGED = 0.9, 19.0, 4.0
#: quantized weights: wavefronts that read a fragment of 64 rows of X for one wgmma; warp instructions that dequantize
#: it, by (bits of a weight, True if it becomes bf16); cycles until the first fragment of a K iteration. Fitted to
#: 607 times of 4-bit weights as f16 on an H200; those of other formats follow their instructions
DEQUANTIZE_READ = 32.0
DEQUANTIZE = {(4, False): 28.0, (4, True): 28.0, (8, False): 28.0, (8, True): 41.0}
SCALE_WEIGHTS = 4.0  #: warp instructions that multiply such a fragment by scales
DEQUANTIZE_ITERATION = 300.0
BOTH_REDUCTIONS = 0.75  #: with cluster_k and kg: the share of the cheaper reduction that does not overlap

#: bytes of an element -> multiply-adds per clock and multiprocessor: 989 TFLOPS of f16 on an H100 or H200
RATES = {1: 4096.0, 2: 2048.0, 4: 1024.0}


def rate(p: KernelProblem) -> float:
    """The number of multiply-adds per clock and multiprocessor by wgmma."""
    return RATES.get(factor_bytes(p), RATES[4]) / (len(PAIRS) if planes(p) > 1 else 1)
