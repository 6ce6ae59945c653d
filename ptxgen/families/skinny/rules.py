"""What makes a streaming configuration legal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import WARP, ceil_div, register_cap
from ptxgen.families.mma.instructions import COLUMNS, ROWS, by_words
from ptxgen.families.skinny.geometry import QUAD, THIN
from ptxgen.lowering.kernel_gemm import KernelGemm

QUARTERS = 4 * WARP  #: threads of a warp on each quarter of a multiprocessor
SHARED = 8  #: registers by which the estimate may pass the cap
WORD = 4  #: bytes of a register
SINGLE_LIMIT = 64  #: loads of single elements in a pass: ptxas moves them ahead of each other
LOADS_LIMIT = 64  #: loads of the long operand that a thread has under way


def _multiplies(p: KernelGemm, d: Any) -> bool:
    found = by_words(p)
    return found is not None and d.sm >= found.sm


def _along_k(c: Any, g: SimpleNamespace) -> Any:
    """Vectors along K hold whole steps; others lie within what a thread has of their side."""
    x = np.where(g.x_kmajor, True, g.count % np.maximum(g.vec_x, 1) == 0)
    thin = np.where(c.mma_m16 > 0, 1, g.thin)
    y = np.where(g.y_kmajor, g.vec_y <= g.depth, thin % np.maximum(g.vec_y, 1) == 0)
    return x & y


RULES = (
    Rule(
        "stream_thin",
        lambda p, c, g, d: min(p.m, p.n) <= THIN,
        f"C is {{p.m}}x{{p.n}}; streaming is for a side of {THIN} at most",
    ),
    Rule(
        "stream_types",
        lambda p, c, g, d: (
            p.compute in ("f32", "f64", "s32", "f16", "tf32")
            and (p.dtype != "bf16" or d.sm >= 80)
            and (not p.element.fp8 or d.sm >= 89)
        ),
        "{d.target} cannot convert {p.dtype}: bf16 needs sm_80, e4m3 and e5m2 sm_89",
    ),
    Rule(
        "stream_tile",
        lambda p, c, g, d: (
            ((c.long_n == 0) | (c.long_n == 1))
            & (g.thin * np.where(c.mma_m16 > 0, QUAD, 1) == g.thin_tile)
            & (np.where(c.long_n == 1, p.m, p.n) <= THIN)
            & (g.thin_tile <= THIN)
            & (g.along >= 1)
            & (g.long_tile == g.along * g.count)
            & (g.along % np.maximum(c.lanes_long, 1) == 0)
        ),
        "long_n={c.long_n}, {c.ms}x{c.ns} a thread of {c.ml}x{c.nl} a block: the thin side (N where long_n=0, else M) is at"
        f" most {THIN} and a thread's own, the long one is a multiple of a thread's and lanes_long={{c.lanes_long}}",
    ),
    Rule(
        "stream_fragments",
        lambda p, c, g, d: (
            (c.mma_m16 == 0)
            | (
                (c.mma_m16 == 1)
                & _multiplies(p, d)
                & g.x_kmajor
                & (g.thin_tile == COLUMNS)
                & (c.lanes_long == WARP // QUAD)
                & (g.count % 2 == 0)
                & (g.vec_x * p.element.bytes >= 8)
            )
        ),
        f"mma_m16={{c.mma_m16}}: matrix instructions take {ROWS} rows of 16 or 8 bits or tf32 ({{p.dtype}} in {{p.compute}}"
        " on sm_{d.sm}), a long operand along K in loads of 8 bytes or more, an even number of its rows a thread,"
        f" lanes_long={WARP // QUAD} and {COLUMNS} along the thin side of a block",
    ),
    Rule(
        "stream_shifted",
        lambda p, c, g, d: (
            np.logical_not(g.shifted)
            | (
                (g.vec_x == 16 // p.element.bytes)
                & (g.along % g.vec_x == 0)
                & (g.across >= 2)
                & g.y_kmajor
                & ((g.vec_y == 1) | ((c.mma_m16 > 0) & (g.vec_y * p.element.bytes >= WORD)))
                & (g.loads_y * g.steps <= SINGLE_LIMIT)
            )
        ),
        "vec_a={c.vec_a} and vec_b={c.vec_b}: where the long operand's are wider than alignment allows, they are of 16"
        " bytes, a block's threads along it a multiple of that, two or more along K, and the thin operand is along K,"
        f" one element a load (or whole words where mma_m16=1), of which a thread has at most {SINGLE_LIMIT} a pass",
    ),
    Rule(
        "stream_block",
        lambda p, c, g, d: (g.threads >= WARP) & (c.lanes_long >= 1),
        "{g.threads} threads; a block has whole warps",
    ),
    Rule(
        "stream_depth",
        lambda p, c, g, d: (g.steps >= 1) & (c.u == g.steps * g.across * g.depth) & (g.loads_in_flight <= LOADS_LIMIT),
        "u={c.u} is {g.steps} steps of {g.across} threads with {g.depth} elements each, {g.loads_in_flight} loads a thread:"
        f" whole steps, and at most {LOADS_LIMIT} loads",
    ),
    Rule(
        "stream_register_file",
        lambda p, c, g, d: (
            g.registers <= register_cap(d, ceil_div(g.threads * c.min_ctas_per_sm, QUARTERS) * QUARTERS, 1) + SHARED
        ),
        "about {g.registers} registers a thread; {g.threads} threads, min_ctas_per_sm={c.min_ctas_per_sm}, leave fewer: warps take"
        " theirs of quarters of the file",
    ),
    Rule(
        "stream_vectors",
        lambda p, c, g, d: (
            ((c.vec_a <= g.a.widest) | g.a.shifted) & ((c.vec_b <= g.b.widest) | g.b.shifted) & _along_k(c, g)
        ),
        "vec_a={c.vec_a} and vec_b={c.vec_b}: A and B allow {g.a.widest} and {g.b.widest}; along K the thin operand's"
        " are within the long one's, across K within a thread's tile",
    ),
)
