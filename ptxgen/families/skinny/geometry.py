"""The geometry of skinny kernels: a long operand is read once from global memory, a short one from the caches.

``long_n`` says which side of C is long: M (0), then A is the long operand; or N (1), then B is. A thread's tile of C
has ``ms`` (``ns``) elements along the long side and the whole block tile along the short side. The threads of a block
are arranged along the long side and along K: a warp has ``lanes_long`` lanes along the long side and 32 /
``lanes_long`` along K, and a block has ``kl`` groups of warps along K.

With ``mma_m16`` a warp issues mma.sync: 16 rows of the long operand, two per lane, by a tile of 8. The four lanes of a
quad have the same rows and load adjacent vectors along K. The instruction takes the elements in this order of K. The
order is the same for both operands, so the sum is the same. Each lane of a quad has the sums of two columns (rows) of
the short side.

Unaligned rows of the long operand are still loaded by 16 bytes. Row i and row i + 16 / (bytes of an element) have the
same alignment within a 16-byte chunk. A thread has only such rows, so all of them have whole chunks at the same k. At
these k, the short operand is loaded element by element; the elements before and after the whole chunks are also loaded
one by one. The rows of an mma.sync differ in alignment, so each of their vectors is cut from two chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import OperandGeometry, ThreadLoadGeometry, accumulator_bytes
from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import WARP, BoolOrColumn, IntOrColumn, where
from ptxgen.lowering.kernel_problem import KernelProblem

SHORT = 8  #: the greatest extent of the short side
QUAD = 4  #: lanes that have the same rows of an mma.sync
LOADS = 64  #: most loads of one operand whose addresses ptxas keeps at once

MARGIN_THREADS = 384  #: threads per multiprocessor up to which f64 and fp8 keep registers in reserve
WIDE_MARGIN = 11  #: registers in reserve for f64 and fp8
KMAJOR_MARGIN = 28  #: registers in reserve for several K-major rows of 4-byte elements


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SkinnyOperandGeometry(OperandGeometry):
    """The geometry of A or B in a block. Its *lines* are rows of A or columns of B."""

    name: str  #: a or b
    long: BoolOrColumn  #: True for the long operand
    count: IntOrColumn  #: lines that a thread loads
    vec: IntOrColumn  #: elements per load
    kmajor: bool  #: True if K is contiguous
    widest: int  #: elements of the widest aligned load
    unaligned: BoolOrColumn  #: True if loads are wider than ``widest``
    split_vectors: BoolOrColumn  #: True if each vector is cut from two such loads


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SkinnyGeometry(ThreadLoadGeometry):
    """The geometry of a skinny kernel. X is the long operand, Y the short one."""

    a: SkinnyOperandGeometry
    b: SkinnyOperandGeometry
    long_tile: IntOrColumn  #: elements of the block tile along the long side
    short_tile: IntOrColumn  #: elements of the block tile along the short side
    count: IntOrColumn  #: elements of the thread tile along the long side
    short_count: IntOrColumn  #: elements of the thread tile along the short side
    loads_y: IntOrColumn  #: loads of Y of a thread per step
    vec_x: IntOrColumn  #: elements per load of X
    vec_y: IntOrColumn  #: elements per load of Y
    x_kmajor: BoolOrColumn  #: True if K is contiguous in X
    y_kmajor: BoolOrColumn  #: True if K is contiguous in Y
    along: IntOrColumn  #: threads of the block along the long side
    lanes: IntOrColumn  #: threads of a warp along K
    across: IntOrColumn  #: threads of the block along K
    depth: IntOrColumn  #: elements of K of a thread per step
    steps: IntOrColumn  #: steps per K iteration
    loads_in_flight: IntOrColumn  #: loads of X that a thread has in flight
    unaligned: BoolOrColumn  #: True if X is loaded in 16-byte chunks although its rows are not aligned
    step_stride: IntOrColumn  #: elements of K from one step to the next


def is_kmajor(p: KernelProblem, name: str) -> bool:
    """True if an operand is contiguous along K, by its layout or because it is one column without gaps."""
    if name == "a":
        return p.layout[0] == "N" or bool(p.m == 1 and p.operand("A").access.ld == 1)
    return p.layout[1] == "T" or bool(p.n == 1 and p.operand("B").access.ld == 1)


def widest(p: KernelProblem, name: str) -> int:
    """The number of elements of the widest access to an operand."""
    n = 0 if name == "a" else 1
    if is_kmajor(p, name) == (p.layout[n] == "NT"[n]):
        vector: int = p.vectors[n]
        return vector
    bits: int = 16 | p.operands[n].access.aligned | (p.offsets[n] if p.batch > 1 else 0) | p.k * p.element.bytes
    return max((bits & -bits) // p.element.bytes, 1)


def operand(p: KernelProblem, c: Any, name: str) -> SkinnyOperandGeometry:
    """The geometry of operand ``name``."""
    first = name == "a"
    short = (c.long_n == 1) if first else (c.long_n == 0)
    sums = c.ms if first else c.ns
    vec, most, kmajor = c.vec_a if first else c.vec_b, widest(p, name), is_kmajor(p, name)
    long = (c.long_n == 0) if first else (c.long_n == 1)
    return SkinnyOperandGeometry(
        loads=0,
        name=name,
        long=long,
        count=where(short & (c.mma_m16 > 0), sums // 2, sums),
        vec=vec,
        kmajor=kmajor,
        widest=most,
        unaligned=long & kmajor & (vec > most),
        split_vectors=long & kmajor & (vec > most) & (c.mma_m16 > 0),
    )


def _mma_registers(
    p: KernelProblem, c: Any, count: Any, short: Any, loads_in_flight: Any, loads_y: Any, y_kmajor: Any, split: Any
) -> Any:
    """The number of registers of a thread that issues mma.sync: accumulators, addresses, loaded and converted words,
    and loads that ptxas hoists. If the target has no mma.sync for fp8, it is widened."""
    long_n = c.long_n == 1
    words = np.maximum(where(long_n, c.vec_b, c.vec_a) * p.element.bytes // 4, 1)  # of a step and row
    narrow = where(long_n, c.vec_a, c.vec_b) * p.element.bytes < 4
    widened = 4 * count + loads_in_flight if p.element.fp8 else 0
    made = (count + short // 2) * words if p.compute == "tf32" else widened
    early = where(y_kmajor, where(narrow, loads_y * 3 // 2, 0), loads_y * 2 + 6)
    chunks = where(split, loads_in_flight * words + count * (words + 2) + 16, 0)
    return count * (short + 2) + loads_in_flight * words + short // 2 * (words + 2) + early + made + chunks + 40


def counts(p: KernelProblem, c: Any) -> dict[str, Any]:
    """The geometry that depends only on tiles, extents and slices: tiles and slices of K."""
    sum_bytes = accumulator_bytes(p)
    return {"sum_bytes": sum_bytes, **tiles_and_slices(p, c, sum_bytes)}


def geometry(p: KernelProblem, c: Any) -> SkinnyGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    counted = counts(p, c)
    a, b = operand(p, c, "a"), operand(p, c, "b")
    long_n = c.long_n == 1
    size = p.element.bytes
    long_tile, count = where(long_n, c.nl, c.ml), where(long_n, c.ns, c.ms)
    short_tile, short = where(long_n, c.ml, c.nl), where(long_n, c.ms, c.ns)
    vec_x, vec_y = where(long_n, c.vec_b, c.vec_a), where(long_n, c.vec_a, c.vec_b)
    x_kmajor = where(long_n, b.kmajor, a.kmajor)
    y_kmajor = where(long_n, a.kmajor, b.kmajor)
    along = long_tile // np.maximum(count, 1)
    lanes = WARP // np.maximum(c.lanes_long, 1)
    across = lanes * c.kl
    threads = along * across
    mma = c.mma_m16 > 0
    short_lines = where(mma, short // 2, short)
    depth = where(x_kmajor, vec_x, where(y_kmajor, vec_y, 1))
    steps = c.u // np.maximum(across * depth, 1)
    loads_x = where(x_kmajor, count, count // np.maximum(vec_x, 1) * depth)  # of a step
    loads_y = where(
        y_kmajor,
        short_lines * np.maximum(depth // np.maximum(vec_y, 1), 1),
        depth * np.maximum(short_lines // np.maximum(vec_y, 1), 1),
    )
    a, b = (replace(x, loads=where(x.long, loads_x, loads_y) * steps * threads) for x in (a, b))
    sum_bytes = counted["sum_bytes"]
    c_row_pitch = c.nl + 4
    words = max(1, sum_bytes // 4)
    live = loads_x * steps * np.maximum(vec_x * size // 4, 1) + loads_y * np.maximum(vec_y * size // 4, 1)
    converted = 0 if size >= 4 and p.compute != "tf32" else (count + short) * np.minimum(depth, 4)
    rows_x = where(x_kmajor, count, count // np.maximum(vec_x, 1))  # lines with a pointer of their own
    rows_y = where(y_kmajor, short, short // np.maximum(vec_y, 1))
    pointers = 2 * (rows_x + rows_y)
    # ptxas uses more for addresses of later rows of K, and for early loads of Y
    early_x = where(
        x_kmajor, 2 + 2 * np.maximum(count - SHORT, 0), rows_x + loads_x * steps * (5 if size == 1 else 3) // 4 + 2
    )
    early_y = where(y_kmajor, 0, np.minimum(rows_y * depth * steps, LOADS) * 3 // 4 + LOADS // 4)
    if size < 4:
        early_y = early_y + where(y_kmajor, 3 * np.maximum(count - SHORT, 0), np.minimum(loads_y, LOADS // 2))
    else:
        early_y = early_y + where(y_kmajor, loads_y * np.maximum(vec_y * size // 4, 1) * 3 // 4, 0)
    early_y = early_y + where(a.unaligned | b.unaligned, loads_y + 12, 0)  # single elements
    registers = count * short * words + live + converted + pointers + early_x + early_y + (38 if size == 1 else 30)
    margin = WIDE_MARGIN if p.element.bytes == 8 or p.element.fp8 else 0
    return SkinnyGeometry(
        a=a,
        b=b,
        long_tile=long_tile,
        short_tile=short_tile,
        count=count,
        short_count=short,
        loads_y=loads_y,
        vec_x=vec_x,
        vec_y=vec_y,
        x_kmajor=x_kmajor,
        y_kmajor=y_kmajor,
        along=along,
        lanes=lanes,
        across=across,
        threads=threads,
        depth=depth,
        steps=steps,
        loads_in_flight=loads_x * steps,
        unaligned=a.unaligned | b.unaligned,
        uk=depth * steps,
        step_stride=where(mma, lanes, across) * depth,
        shared=c.ml * c_row_pitch * c.kl * sum_bytes,
        c_row_pitch=c_row_pitch,
        c_via_smem=c.lanes_long > 0,
        reg_margin=np.maximum(
            where(threads * c.min_ctas_per_sm <= MARGIN_THREADS, margin, 0),
            where((c.kl > 1) & (c.mma_m16 == 0) & x_kmajor & y_kmajor & (short > 2) & (size == 4), KMAJOR_MARGIN, 0),
        ),
        registers=where(
            mma,
            _mma_registers(p, c, count, short, loads_x * steps, loads_y, y_kmajor, a.split_vectors | b.split_vectors),
            registers,
        ),
        **counted,
    )
