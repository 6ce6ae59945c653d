"""The operands of wgmma: matrices that descriptors address in shared memory, and matrices in the registers of a
warpgroup."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import SHARED_BASE
from ptxgen.emulator.memory.swizzle import swizzled
from ptxgen.emulator.sync.touch import page_bits

Array = NDArray[Any]


#: code in bits 62 and 63 of a descriptor -> span of the swizzle in bytes
SPANS = (0, 128, 64, 32)


#: size of the address space of a descriptor, in chunks of 16 bytes
CHUNKS = 1 << 14


class Region(NamedTuple):
    """The chunks of an operand in a block's shared memory, in the order of the matrix; their pages; the first and last
    chunk."""

    chunks: Array
    pages: int
    first: int
    last: int


@functools.lru_cache(maxsize=4096)
def region(descriptor: int, rows: int, transposed: bool, depth: int = 1) -> Region:
    """The region of an operand with ``rows`` rows of A (columns of B), and 32 * ``depth`` bytes along k.

    The chunks are [row, 2 * depth] for a K-major operand, and [k, group of 8 rows] for a transposed operand, which has
    16-bit elements.
    """
    start, leading, stride = (descriptor >> at & 0x3FFF for at in (0, 16, 32))
    span = SPANS[descriptor >> 62]
    shift = descriptor >> 49 & 7 if span else 0
    width = span // 16
    if not transposed:
        row, half = np.arange(rows)[:, None], np.arange(2 * depth)
        inside = row % 8 * width + half % width + half // width * leading if span else row % 8 + half * leading
        at = start + row // 8 * stride + inside
    else:
        k, group = np.arange(16 * depth)[:, None], np.arange(rows // 8)
        if span:
            at = start + group // width * leading + group % width + k // 8 * stride + k % 8 * width
        else:
            at = start + group * stride + k // 8 * leading + k % 8
    chunks = swizzled(at % CHUNKS, span, shift)
    pages = 0
    for page in np.unique(chunks >> 3).tolist():
        pages |= page_bits(page << 7, (page << 7) + 128)
    return Region(chunks, pages, int(chunks.min()), int(chunks.max()))


def within(where: Region, end: int) -> bool:
    """True if a region is inside the shared memory of a block, which ends at address ``end``."""
    return where.first << 4 >= SHARED_BASE and (where.last + 1) << 4 <= end


def matrix(arena: Array, where: Array, transposed: bool, dtype: Any) -> Array:
    """The elements of an operand, row by row. ``arena``: shared memory as chunks, which are pairs of 64-bit words;
    ``where``: the numbers of the operand's chunks, as ``region`` orders them."""
    data = arena[where]
    if not transposed:
        rows: Array = data.view(dtype).reshape(len(where), -1)
        return rows
    k, groups = where.shape
    out: Array = data.view(dtype).reshape(k, groups * 8).T
    return np.ascontiguousarray(out)


# ---- registers: arrays [register, lane] of 32-bit words of one warp in some blocks


def take_accumulator(words: Array, blocks: int, half: bool) -> Array:
    """The accumulators [block, 16, N] of a warp, from its registers [register, 32 * blocks]; ``half``: a register holds
    two f16."""
    groups = len(words) // (2 if half else 4)
    if half:
        shaped = words.reshape(groups, 2, blocks, 8, 4).transpose(2, 1, 3, 0, 4)  # block, upper rows, row, group, pair
        return np.ascontiguousarray(shaped).view(np.float16).reshape(blocks, 16, groups * 8)
    shaped = words.reshape(groups, 2, 2, blocks, 8, 4).transpose(3, 1, 4, 0, 5, 2)
    return np.ascontiguousarray(shaped).reshape(blocks, 16, groups * 8)


def put_accumulator(matrix: Array) -> Array:
    """The registers [register, 32 * blocks] for accumulators of a warp; the inverse of ``take_accumulator``."""
    blocks, _, n = matrix.shape
    if matrix.itemsize == 2:
        words = np.ascontiguousarray(matrix).view(np.uint32).reshape(blocks, 2, 8, n // 8, 4)
        return np.ascontiguousarray(words.transpose(3, 1, 0, 2, 4)).reshape(n // 4, blocks * 32)
    words = np.ascontiguousarray(matrix).view(np.uint32).reshape(blocks, 2, 8, n // 8, 4, 2)
    return np.ascontiguousarray(words.transpose(3, 1, 5, 0, 2, 4)).reshape(n // 2, blocks * 32)


def take_a(words: Array, blocks: int, dtype: Any) -> Array:
    """The 16 rows [block, 16, k] of A of a warp, from its registers [4, 32 * blocks]."""
    size = np.dtype(dtype).itemsize
    each = 4 // size
    words_of_lanes = (
        np.ascontiguousarray(words).view(dtype).reshape(2, 2, blocks, 8, 4, each)
    )  # right half, lower rows, ...
    return np.ascontiguousarray(words_of_lanes.transpose(2, 1, 3, 0, 4, 5)).reshape(blocks, 16, 8 * each)
