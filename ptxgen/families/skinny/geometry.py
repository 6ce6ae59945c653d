"""The geometry of streaming kernels: a long operand read once from memory, a thin one from the caches.

``swap`` says which side of C is long: M (0), A is the long operand, or N (1), B is. A thread has a tile of C as long as
``ms`` (``ns``) along the long side and as wide as the tile itself along the thin one. Threads of a block lie along the
long side and along K: ``wm`` lanes of a warp along the long side, 32 / wm along K, ``kl`` groups of warps along K.

With ``rows`` a warp multiplies by matrix instructions: 16 rows of the long operand, two of each lane, by a tile of 8.
The four lanes that share rows load neighbouring vectors along K, which the instruction takes for its own order of K:
both operands do, so the order does not matter. Of the sums each of the four has two columns (rows) of the thin side.

Rows of the long operand that nothing aligns are read by 16 bytes all the same: rows as many apart as 16 bytes have
elements begin at the same place within such a chunk. Those of a thread are, so all of them have whole chunks at the
same k, and the thin operand is read from there, element by element; what lies before and behind is read so as well.
Rows of a matrix instruction need not begin alike: of theirs each vector is cut from two chunks.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import WARP, pick
from ptxgen.lowering.kernel_gemm import KernelGemm

THIN = 8  #: extent that the thin side has at most
QUAD = 4  #: lanes that share rows there
LOADS = 64  #: most loads of one operand whose addresses ptxas has at once

MOST = 384  #: threads of a multiprocessor up to which some must leave registers
FOURS = 28  #: that several rows of four-byte elements, contiguous along K on both sides, must leave


def lined_up(p: KernelGemm, name: str) -> bool:
    """Whether an operand is contiguous along K: as its layout says, or because it is one column without gaps."""
    if name == "a":
        return p.layout[0] == "N" or (p.m == 1 and p.lda == 1)
    return p.layout[1] == "T" or (p.n == 1 and p.ldb == 1)


def widest(p: KernelGemm, name: str) -> int:
    """Elements of the widest access to an operand."""
    n = 0 if name == "a" else 1
    if lined_up(p, name) == (p.layout[n] == "NT"[n]):
        return p.vectors[n]
    start = math.gcd((p.aligned_a, p.aligned_b)[n], p.offsets[n] if p.batch > 1 else 0)
    return max(math.gcd(16, start, p.k * p.element.bytes) // p.element.bytes, 1)


def operand(p: KernelGemm, c: Any, name: str) -> SimpleNamespace:
    """One operand's share of the geometry.

    ``long``: whether it is the one that is read from memory; ``count``: its rows (columns) that a thread loads;
    ``vec``: elements of a load; ``kmajor``: K is contiguous; ``widest``: what alignment and rows allow; ``shifted``:
    loads are wider than that, and rows of a thread as far apart as takes them to the same place in a chunk; ``paired``:
    two of them make a vector.
    """
    first = name == "a"
    thin = (c.long_n == 1) if first else (c.long_n == 0)
    sums = c.ms if first else c.ns
    vec, most, kmajor = c.vec_a if first else c.vec_b, widest(p, name), lined_up(p, name)
    long = (c.long_n == 0) if first else (c.long_n == 1)
    return SimpleNamespace(
        name=name,
        long=long,
        count=pick(thin & (c.mma_m16 > 0), sums // 2, sums),
        vec=vec,
        kmajor=kmajor,
        widest=most,
        shifted=long & kmajor & (vec > most),
        paired=long & kmajor & (vec > most) & (c.mma_m16 > 0),
    )


def _fragments(
    p: KernelGemm, c: Any, count: Any, thin: Any, loads_in_flight: Any, loads_y: Any, y_kmajor: Any, paired: Any
) -> Any:
    """Registers of a thread that multiplies by matrix instructions: sums, addresses, what is loaded and what is made of
    it, loads that ptxas moves ahead; numbers of 8 bits are widened where no instruction takes them as they are."""
    swapped = c.long_n == 1
    words = np.maximum(pick(swapped, c.vec_b, c.vec_a) * p.element.bytes // 4, 1)  # of a step and row
    narrow = pick(swapped, c.vec_a, c.vec_b) * p.element.bytes < 4
    widened = 4 * count + loads_in_flight if p.element.fp8 else 0
    made = (count + thin // 2) * words if p.compute == "tf32" else widened
    early = pick(y_kmajor, pick(narrow, loads_y * 3 // 2, 0), loads_y * 2 + 6)
    pairs = pick(paired, loads_in_flight * words + count * (words + 2) + 16, 0)
    return count * (thin + 2) + loads_in_flight * words + thin // 2 * (words + 2) + early + made + pairs + 40


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles, shared memory and registers of ``c`` on ``p``. Sizes in bytes, registers in 32-bit words.

    ``along``: threads of a block along the long side; ``lanes``: of a warp along K; ``across``: of a block along K;
    ``depth``: elements of K that a thread takes at once; ``steps``: how often it does in a pass of ``u``; ``reach``:
    elements of K from one of them to the next; ``loads_in_flight``: loads of the long operand that it has under way;
    ``reg_margin``: registers kept in reserve.
    """
    a, b = operand(p, c, "a"), operand(p, c, "b")
    swapped = c.long_n == 1
    size = p.element.bytes
    long_tile, count = pick(swapped, c.nl, c.ml), pick(swapped, c.ns, c.ms)
    thin_tile, thin = pick(swapped, c.ml, c.nl), pick(swapped, c.ms, c.ns)
    vec_x, vec_y = pick(swapped, c.vec_b, c.vec_a), pick(swapped, c.vec_a, c.vec_b)
    x_kmajor = pick(swapped, b.kmajor, a.kmajor)
    y_kmajor = pick(swapped, a.kmajor, b.kmajor)
    along = long_tile // np.maximum(count, 1)
    lanes = WARP // np.maximum(c.lanes_long, 1)
    across = lanes * c.kl
    threads = along * across
    tensor = c.mma_m16 > 0
    fed = pick(tensor, thin // 2, thin)
    depth = pick(x_kmajor, vec_x, pick(y_kmajor, vec_y, 1))
    steps = c.u // np.maximum(across * depth, 1)
    loads_x = pick(x_kmajor, count, count // np.maximum(vec_x, 1) * depth)  # of a step
    loads_y = pick(
        y_kmajor, fed * np.maximum(depth // np.maximum(vec_y, 1), 1), depth * np.maximum(fed // np.maximum(vec_y, 1), 1)
    )
    for x in (a, b):
        x.loads = pick(x.long, loads_x, loads_y) * steps * threads
    sum_bytes = max(4, p.accumulator.bytes)
    row_c = c.nl + 4
    words = max(1, sum_bytes // 4)
    held = loads_x * steps * np.maximum(vec_x * size // 4, 1) + loads_y * np.maximum(vec_y * size // 4, 1)
    fresh = 0 if size >= 4 and p.compute != "tf32" else (count + thin) * np.minimum(depth, 4)  # converted
    rows_x = pick(x_kmajor, count, count // np.maximum(vec_x, 1))  # that have a pointer of their own
    rows_y = pick(y_kmajor, thin, thin // np.maximum(vec_y, 1))
    pointers = 2 * (rows_x + rows_y)
    # beyond, as ptxas was seen to take: addresses of rows of K that are still to come, what the thin side loads early
    early_x = pick(
        x_kmajor, 2 + 2 * np.maximum(count - THIN, 0), rows_x + loads_x * steps * (5 if size == 1 else 3) // 4 + 2
    )
    early_y = pick(y_kmajor, 0, np.minimum(rows_y * depth * steps, LOADS) * 3 // 4 + LOADS // 4)
    if size < 4:
        early_y = early_y + pick(y_kmajor, 3 * np.maximum(count - THIN, 0), np.minimum(loads_y, LOADS // 2))
    else:
        early_y = early_y + pick(y_kmajor, loads_y * np.maximum(vec_y * size // 4, 1) * 3 // 4, 0)
    early_y = early_y + pick(a.shifted | b.shifted, loads_y + 12, 0)  # whole columns of single elements
    registers = count * thin * words + held + fresh + pointers + early_x + early_y + (38 if size == 1 else 30)
    return SimpleNamespace(
        a=a,
        b=b,
        long_tile=long_tile,
        thin_tile=thin_tile,
        count=count,
        thin=thin,
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
        shifted=a.shifted | b.shifted,
        uk=depth * steps,
        reach=pick(tensor, lanes, across) * depth,
        shared=c.ml * row_c * c.kl * sum_bytes,
        row_c=row_c,
        sum_bytes=sum_bytes,
        gathers=(c.lanes_long > 0),
        # seen where threads have many registers
        reg_margin=np.maximum(
            pick(threads * c.min_ctas_per_sm <= MOST, 11 if p.dtype == "f64" or p.element.fp8 else 0, 0),
            pick((c.kl > 1) & (c.mma_m16 == 0) & x_kmajor & y_kmajor & (thin > 2) & (size == 4), FOURS, 0),
        ),
        registers=pick(
            tensor, _fragments(p, c, count, thin, loads_x * steps, loads_y, y_kmajor, a.paired | b.paired), registers
        ),
        **tiles_and_slices(p, c, sum_bytes),
    )
