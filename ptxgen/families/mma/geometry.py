"""The geometry of mma.sync kernels: every warp a tile of C, fragments by ldmatrix or by vector loads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.config import BOUNDS_PREDICATE
from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import WARP, pick
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.instructions import COLUMNS, ROWS, instruction
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm

#: how fragments leave shared memory
MATRIX = 0  #: ldmatrix, of rows along K, or transposing 16-bit elements of rows along M (or N)
BYTES = 1  #: ldmatrix transposing pairs of 8-bit elements, which two permutations then part
VECTOR = 2  #: vectors along M (or N), one row of K a load
SINGLE = 3  #: one f64 a load, of rows along K

#: registers of 16 bytes that predicates guard, elements of K from where a stage is deep, and threads of a
#: multiprocessor up to which each has all the registers that one may have
GUARDED, DEEP, MOST = 6, 256, 256
POINTERS_LIMIT = 4  #: with more loads a thread, one pointer walks and each load keeps a 32-bit offset from it


def way(p: KernelGemm, kmajor: bool) -> int:
    """How the fragments of an operand leave shared memory."""
    size = p.element.bytes
    if size == 8:
        return SINGLE if kmajor else VECTOR
    if kmajor or size == 2:
        return MATRIX
    return BYTES if size == 1 else VECTOR


def together(p: KernelGemm, warp: Any, first: bool, kind: int) -> Any:
    """Rows (or columns) of C that one lane holds side by side: a vector load brings them. Where that would take moves
    between registers, because fragments are consecutive ones, it is one."""
    most = {BYTES: 2, VECTOR: 2 if first else 4 if p.element.bytes == 4 else 1}.get(kind, 1)
    return np.maximum(np.minimum(warp // 8, most), 1)


def operand(p: KernelGemm, c: Any, name: str) -> SimpleNamespace:
    """One operand's share of the geometry.

    ``tile``: extent along M (or N) of the block; ``thread``: of a warp; ``warp``: warps of the block along it;
    ``kmajor``: K is contiguous, in shared memory as in global memory; ``way``: how fragments leave; ``together``: rows
    (or columns) of C that lie side by side in a lane; ``row``: elements of a row of shared memory; ``size``: bytes of
    one stage; ``across``: lanes that share a row of global memory; ``loads``: accesses of one stage, over all threads.
    """
    first = name == "a"
    kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
    tile, thread = (c.ml, c.ms) if first else (c.nl, c.ns)
    vec, copy = (c.vec_a, c.cp_async_a) if first else (c.vec_b, c.cp_async_b)
    bytes_, kind = p.element.bytes, way(p, kmajor)
    # rows of K that a quad of lanes reads start 32 bytes apart, modulo 128
    pad = pick(tile * bytes_ % 128 == 32, 0, 32 // bytes_)
    row = c.u if kmajor else tile + (pad if kind == VECTOR else 0)
    length = c.u if kmajor else tile
    rows = tile if kmajor else c.u
    return SimpleNamespace(
        name=name,
        tile=tile,
        thread=thread,
        warp=tile // thread,
        vec=vec,
        copy=copy,
        kmajor=kmajor,
        way=kind,
        together=together(p, thread, first, kind),
        row=row,
        size=bytes_ * row * rows,
        rows=rows,
        length=length,
        across=length // vec,
        loads=tile * c.u // vec,
        bytes=bytes_,
        chunk=16 // bytes_,
    )


def _row_of_c(nl: Any, sum_bytes: int, a: SimpleNamespace, b: SimpleNamespace) -> Any:
    """Elements of a row of C in shared memory, such that what the lanes of a warp store together meets few banks
    twice: rows lie ``a.together`` apart from lane to lane, pieces of up to 16 bytes ``2 b.together`` columns."""
    if sum_bytes == 8:
        return nl + pick(a.together > 1, 4, (8 - nl) % 16)
    plain = pick(a.together > 1, 4, (8 - nl) % 32)
    return nl + pick(b.together > 2, 4, pick(b.together > 1, pick(a.together > 1, 8, 16), plain))


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles, shared memory and registers of ``c`` on ``p``. Sizes in bytes, registers in 32-bit words:
    ``registers`` are enough, ``likely`` what ptxas takes on average, ``reg_margin`` are kept in reserve: of
    predicated loads, and of deep stages whose elements are widened."""
    i = instruction(p)
    a, b = operand(p, c, "a"), operand(p, c, "b")
    group = c.ml // c.ms * (c.nl // c.ns) * WARP
    threads = group * c.kl
    stage = a.size + b.size
    sum_bytes = max(4, p.accumulator.bytes)
    row_c = _row_of_c(c.nl, sum_bytes, a, b)
    gathers = (c.epilogue_smem == 1) | (c.kl > 1)
    shared = np.maximum(c.stages * stage, pick(gathers, c.ml * row_c * c.kl * sum_bytes, 0))
    words = 2 if p.element.bytes == 8 else 1
    parted = 4 * sum(x.way == BYTES for x in (a, b)) + (32 if p.element.fp8 else 0)
    fragments = (c.ms // ROWS * i.registers_a + c.ns // COLUMNS * i.registers_b) * words
    if p.element.fp8:  # where they are multiplied as f16, both halves are there at once
        parted = parted + 3 * fragments + pick((c.vec_a == 16) | (c.vec_b == 16), 24, 0)
    each = [np.maximum(x.loads // np.maximum(threads, 1), 1) for x in (a, b)]
    in_flight = sum(
        pick(x.copy == 0, n * np.maximum(x.vec * x.bytes // 4, 1), 0) for n, x in zip(each, (a, b), strict=True)
    )
    # walking pointers keep an offset a load, which ptxas may widen to an address
    pointers = sum(
        pick(n > POINTERS_LIMIT, pick((x.copy == 1) & (n <= 16), 2 * n, 3 * n), 2 * n)
        + pick(c.bounds == 2, n, 0)
        + (0 if found == STRIDED else 5)
        for n, x, found in zip(each, (a, b), (p.addr_a, p.addr_b), strict=True)
    )
    sums = c.ms * c.ns // WARP * i.sums // 4 * words
    # ptxas need not hold all of what is read ahead
    fragments = fragments * (c.fragment_prefetch + 1) - pick(c.fragment_prefetch == 1, fragments // 4 * (words - 1), 0)
    registers = sums + fragments + parted + in_flight + pointers + 32 + 8 * words
    held = sums + fragments + parted + in_flight
    likely = np.minimum(registers, held + sum(np.minimum(2 * n, n + 4) for n in each) + 22)
    guarded = sum(
        pick((x.copy == 0) & (c.bounds == BOUNDS_PREDICATE), GUARDED * pick(x.vec * x.bytes == 16, n, 1), 0)
        for n, x in zip(each, (a, b), strict=True)
    )
    deep = pick(c.u >= DEEP, 32, 0) if p.element.fp8 else 0
    copies = operand_packing.workspace(p, c)
    spread = tiles_and_slices(p, c, sum_bytes)
    return SimpleNamespace(
        a=a,
        b=b,
        bytes=p.element.bytes,
        group=group,
        threads=threads,
        uk=c.u // c.kl,
        steps=c.u // c.kl // i.depth,
        depth=i.depth,
        most=np.maximum(*each),
        stage=stage,
        shared=shared,
        row_c=row_c,
        sum_bytes=sum_bytes,
        gathers=gathers,
        registers=registers,
        likely=likely,
        # threads that have all that one may have do more at once
        reg_margin=pick(threads * c.min_ctas_per_sm <= MOST, np.minimum(guarded, 8 * GUARDED) + deep, 0),
        copies=copies,
        **spread | {"workspace": spread["workspace"] + copies},
    )
