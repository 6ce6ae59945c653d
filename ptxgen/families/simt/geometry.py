"""The geometry of SIMT kernels: every thread a tile of C, products by FFMA, DFMA or HFMA2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.config import BOUNDS_NONE, BOUNDS_PREDICATE
from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import SECTOR, WARP, pick
from ptxgen.lowering.implicit_gemm import TABLE, WINDOW
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm

#: words that a thread keeps of each row and column of its loads
LOOKED_UP = {STRIDED: 0, TABLE: 1, WINDOW: 2}

#: a thread's loads, and sides of them, whose addresses and predicates the estimate has room for
LOADS, SIDES = 16, 4
#: registers that must be left where halves are multiplied in pairs or there are several sets, where predicates guard
#: loads, of rows of two operands, of operands that pass through registers; threads of a multiprocessor up to which each
#: has all the registers that one may have
HALVES, GUARDED, KEPT, COPIED, MOST = 5, 10, 12, 12, 256


def staged_bytes(p: KernelGemm) -> int:
    """Bytes of one element in shared memory: 16 bits that are summed in f32 are widened on their way in."""
    return p.accumulator.bytes


def operand(p: KernelGemm, c: Any, name: str) -> SimpleNamespace:
    """One operand's share of the geometry.

    ``tile``: extent along M (or N) of the block; ``thread``: of a thread; ``warp``: threads of a warp along it;
    ``kmajor``: K is contiguous in global memory; ``kept``, ``transposed``, ``direct``: how it lies in shared
    memory; ``row``: elements of a row there; ``size``: bytes of one stage; ``across``: lanes that share a row of
    global memory; ``loads``: accesses of one stage, over all threads; ``chunks``: of a row that is kept, each read
    through an address of its own; ``found``: how they are addressed.
    """
    first = name == "a"
    kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
    tile, thread = (c.ml, c.ms) if first else (c.nl, c.ns)
    vec, copy, keep = (c.vec_a, c.cp_async_a, c.kmajor_smem_a) if first else (c.vec_b, c.cp_async_b, c.kmajor_smem_b)
    bytes_ = staged_bytes(p)
    kept = (keep == 1) & kmajor
    transposed = (keep == 0) & kmajor
    pad = max(4, 16 // bytes_)  # a row of 16-byte fragments stays aligned, and stores across rows meet no bank twice
    row = pick(kept, c.u, pick(transposed, tile + pad, tile))
    size = bytes_ * row * pick(kept, tile, c.u)
    narrow = SECTOR // (vec * p.element.bytes)
    across = pick(kept, c.u // vec, pick(transposed, np.minimum(narrow, c.u // vec), tile // vec))
    return SimpleNamespace(
        name=name,
        tile=tile,
        thread=thread,
        warp=c.lanes_m if first else WARP // c.lanes_m,
        vec=vec,
        copy=copy,
        kmajor=kmajor,
        kept=kept,
        transposed=transposed,
        row=row,
        size=size,
        across=across,
        loads=tile * c.u // vec,
        chunks=pick(kept, c.u * bytes_ // 16, 0),
        bytes=bytes_,
        chunk=16 // bytes_,
        found=p.addr_a if first else p.addr_b,
    )


def _sides(x: SimpleNamespace, threads: Any, each: Any) -> Any:
    """Rows (or columns) of the operand that a thread's loads lie in."""
    one = np.maximum(x.across // np.maximum(threads, 1), 1)
    many = np.maximum(x.tile * x.across // np.maximum(threads, 1), 1)
    return np.minimum(each, pick(x.kept | x.transposed, many, one))


def _early(p: KernelGemm, c: Any, operands: tuple[Any, Any], each: list[Any], threads: Any) -> Any:
    """Registers that ptxas was seen to take beyond what lives: addresses of many loads that it makes before the loop;
    predicates, of which there are seven, for each row and column that may lie outside; sums of two sets; what it reads
    early of rows that are kept, of pairs of registers and of halves."""
    loads = sum(n if x.found == STRIDED else 0 for x, n in zip(operands, each, strict=True))
    sides = sum(_sides(x, threads, n) for x, n in zip(operands, each, strict=True))
    addresses = 2 * np.maximum(loads - LOADS, 0) + 2 * np.maximum(loads - 3 * LOADS // 2, 0)
    outside = pick(c.bounds == BOUNDS_PREDICATE, 11 * np.maximum(sides - SIDES, 0) + 8, 0)
    sets = pick(
        c.ks > 1, pick(c.bounds == BOUNDS_PREDICATE, 56, pick(c.bounds == BOUNDS_NONE, 0, pick(c.ks > 2, 32, 6))), 0
    )
    if p.element.bytes == 8:
        kinds = 4 + pick(c.ks > 1, 20, 0) + pick(c.bounds == BOUNDS_PREDICATE, 16, 0)
    elif p.element.bytes < 4:
        kinds = 4 + pick(c.ks > 1, 12, 0) + (c.ms + c.ns) // 2 + (24 if p.compute == "f16" else 0)
    else:
        kinds = 0
    return addresses + outside + sum(x.chunks for x in operands) // 2 + sets + kinds + 6 * c.deferred_sts


def _reg_margin(c: Any, operands: tuple[Any, Any], each: list[Any], threads: Any, packed: int, words: int) -> Any:
    """Registers that must be left. Threads that have all that one may have do more at once: ptxas makes addresses of
    loads early, above all of those that are looked up, guarded by predicates, or pass through registers."""
    a, b = operands
    kept, through = a.kept | b.kept, c.cp_async_a + c.cp_async_b < 2
    found = sum(n if x.found != STRIDED else 0 for x, n in zip(operands, each, strict=True))
    most = 2 * np.maximum(found - LOADS, 0)
    most = most + pick(c.bounds == BOUNDS_PREDICATE, GUARDED + 2 * np.maximum(sum(each) - LOADS, 0), 0)
    most = most + (HALVES if packed == 2 else pick((found > 0) & (c.ks > 1), HALVES, 0))
    most = most + pick((found > 0) & kept & through, 2 * KEPT, 0)
    copied = pick(found == 0, through, (c.cp_async_a + c.cp_async_b == 0) & (c.ks > 1))
    most = most + pick(copied, COPIED + (4 if words == 2 else 0), 0)
    rows = (a.kept & b.kept) & (c.bounds != BOUNDS_NONE) & (threads * c.min_ctas_per_sm > 3 * MOST - 1)
    return pick(threads * c.min_ctas_per_sm <= MOST, most, pick(rows, KEPT, 0) + pick(c.ks > 1, HALVES, 0))


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles, shared memory and registers of ``c`` on ``p``. Sizes in bytes, registers in 32-bit words.
    ``reg_margin``: registers kept in reserve."""
    a, b = operand(p, c, "a"), operand(p, c, "b")
    bytes_ = staged_bytes(p)
    group = c.ml // c.ms * (c.nl // c.ns)
    threads = group * c.kl
    stage = a.size + b.size
    row_c = c.nl + 4
    sum_bytes = max(4, p.accumulator.bytes)
    gathers = (c.epilogue_smem == 1) | (c.kl > 1)
    shared = np.maximum(c.stages * stage, pick(gathers, c.ml * row_c * c.kl * sum_bytes, 0))
    words = max(1, bytes_ // 4)
    packed = 2 if p.compute == "f16" else 1
    fragments = (c.fragment_prefetch + 1) * (
        c.ms * pick(a.kept, a.chunk, 1) + c.ns * pick(b.kept, b.chunk, 1) // packed
    )
    in_flight = (
        sum(pick(x.copy == 0, np.maximum(x.loads // np.maximum(threads, 1), 1) * x.vec, 0) for x in (a, b))
        * p.element.bytes
        // 4
    )
    in_flight = in_flight * (2 if p.element.bytes == 2 else 1)
    each = [np.maximum(x.loads // np.maximum(threads, 1), 1) for x in (a, b)]
    pointers = sum(n if x.found == STRIDED else 0 for x, n in zip((a, b), each, strict=True))
    looked_up = sum(LOOKED_UP[x.found] * (n + 3) for x, n in zip((a, b), each, strict=True))
    # what ptxas was seen to need beyond: 16 bits on their way to 32, and what it reads early of rows that are kept
    beyond = 0
    if p.element.bytes == 2:
        beyond = 2 * np.maximum(pointers - 8, 0) + pick(a.kept | b.kept, 24, 0) + (24 if packed == 2 else 0)
    elif words == 2:
        beyond = pick(a.kept & b.kept, fragments * words, pick(a.kept | b.kept, 8, 0))
    held = (c.ms * c.ns * c.ks // packed + fragments) * words + in_flight
    early = _early(p, c, (a, b), each, threads)
    registers = held + np.minimum(2 * pointers, 16) + looked_up + beyond + early + 34
    return SimpleNamespace(
        a=a,
        b=b,
        bytes=bytes_,
        group=group,
        threads=threads,
        uk=c.u // c.kl,
        stage=stage,
        shared=shared,
        row_c=row_c,
        sum_bytes=sum_bytes,
        gathers=gathers,
        registers=registers,
        reg_margin=_reg_margin(c, (a, b), each, threads, packed, words),
        **tiles_and_slices(p, c, sum_bytes),
    )


def warp_rows(c: Any) -> Any:
    """The ``wm`` that makes a warp's share of C nearest to square, within the block's tile."""
    best, score = np.ones_like(c.ms), np.full(np.shape(c.ms), np.inf)
    for wm in (1, 2, 4, 8, 16, 32):
        fits = (c.ml % (wm * c.ms) == 0) & (c.nl % (WARP // wm * c.ns) == 0)
        skew = np.abs(np.log2(wm * c.ms / (WARP / wm * c.ns)) + 0.1)
        better = fits & (skew < score)
        best, score = pick(better, wm, best), pick(better, skew, score)
    return best
