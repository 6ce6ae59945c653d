"""The rules of legal configurations of the family skinny."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import WARP, ceil_div, register_cap
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, by_words
from ptxgen.families.skinny.geometry import QUAD, SHORT, SkinnyGeometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import FAST_ACCUM

PARTITIONS = 4 * WARP  #: the number of threads with one warp on each of a multiprocessor's four partitions
TOLERANCE = 8  #: registers by which the estimate may exceed the limit
WORD = 4  #: bytes of a register
SINGLE_LIMIT = 64  #: most loads of single elements per K iteration, because ptxas hoists them
LOADS_LIMIT = 64  #: most loads in flight of the long operand, per thread


def _multiplies(p: KernelProblem, d: Any) -> bool:
    i = by_words(p, d)
    return i is not None and d.sm >= i.sm


def _vectors(c: Any, g: SkinnyGeometry) -> Any:
    """True if a vector along K is at most a step, and a vector across K divides the thread tile."""
    x = np.where(g.x_kmajor, True, g.count % np.maximum(g.vec_x, 1) == 0)
    short = np.where(c.mma_m16 > 0, 1, g.short_count)
    y = np.where(g.y_kmajor, g.vec_y <= g.depth, short % np.maximum(g.vec_y, 1) == 0)
    return x & y


RULES = (
    Rule(
        "skinny_extent",
        lambda p, c, g, d: np.minimum(p.m, p.n) <= SHORT,
        f"C is {{p.m}}x{{p.n}}; skinny kernels are for a side of {SHORT} at most",
    ),
    Rule(
        "skinny_dtype",
        lambda p, c, g, d: p.compute in (p.accumulator.name, "tf32", FAST_ACCUM) and d.sm >= p.element.sm,
        "{d.target} cannot convert {p.dtype}, or not sum it in {p.compute}: bf16 needs sm_80, fp8 sm_89",
    ),
    Rule(
        "skinny_tile",
        lambda p, c, g, d: (
            ((c.long_n == 0) | (c.long_n == 1))
            & (g.short_count * np.where(c.mma_m16 > 0, QUAD, 1) == g.short_tile)
            & (np.where(c.long_n == 1, p.m, p.n) <= SHORT)
            & (g.short_tile <= SHORT)
            & (g.along >= 1)
            & (g.long_tile == g.along * g.count)
            & (g.along % np.maximum(c.lanes_long, 1) == 0)
        ),
        "long_n={c.long_n}, thread tile {c.ms}x{c.ns}, block tile {c.ml}x{c.nl}: along the short side (N where"
        f" long_n=0, else M) both are the same, {SHORT} at most; along the long side the block has a multiple of"
        " lanes_long={c.lanes_long} thread tiles",
    ),
    Rule(
        "skinny_mma_m16",
        lambda p, c, g, d: (
            (c.mma_m16 == 0)
            | (
                (c.mma_m16 == 1)
                & _multiplies(p, d)
                & g.x_kmajor
                & (g.short_tile == COLUMNS)
                & (c.lanes_long == WARP // QUAD)
                & (g.count % 2 == 0)
                & (g.vec_x * p.element.bytes >= 8)
            )
        ),
        f"mma_m16={{c.mma_m16}}: mma.sync takes {ROWS} rows of 16 or 8 bits or tf32 ({{p.dtype}} in {{p.compute}}"
        " on sm_{d.sm}), a K-major long operand in loads of 8 bytes or more, an even number of its rows per thread,"
        f" lanes_long={WARP // QUAD}, and a block tile of {COLUMNS} along the short side",
    ),
    Rule(
        "skinny_unaligned",
        lambda p, c, g, d: (
            np.logical_not(g.unaligned)
            | (
                (g.vec_x == 16 // p.element.bytes)
                & (g.along % g.vec_x == 0)
                & (g.across >= 2)
                & g.y_kmajor
                & ((g.vec_y == 1) | ((c.mma_m16 > 0) & (g.vec_y * p.element.bytes >= WORD)))
                & (g.loads_y * g.steps <= SINGLE_LIMIT)
            )
        ),
        "vec_a={c.vec_a}, vec_b={c.vec_b}: loads of the long operand that are wider than its alignment are of 16 bytes;"
        " the block has a multiple of their elements as threads along the long side, two or more along K; the short"
        f" operand is K-major, in loads of one element (or of whole words where mma_m16=1), at most {SINGLE_LIMIT} per"
        " K iteration",
    ),
    Rule(
        "skinny_warps",
        lambda p, c, g, d: (g.threads >= WARP) & (c.lanes_long >= 1),
        "{g.threads} threads; a block has whole warps",
    ),
    Rule(
        "skinny_depth",
        lambda p, c, g, d: (g.steps >= 1) & (c.u == g.steps * g.across * g.depth) & (g.loads_in_flight <= LOADS_LIMIT),
        "u={c.u} is {g.steps} steps of {g.across} threads with {g.depth} elements each, {g.loads_in_flight} loads per"
        f" thread: the steps must be whole, the loads at most {LOADS_LIMIT}",
    ),
    Rule(
        "skinny_register_file",
        lambda p, c, g, d: (
            g.registers
            <= register_cap(d, ceil_div(g.threads * c.min_ctas_per_sm, PARTITIONS) * PARTITIONS, 1) + TOLERANCE
        ),
        "about {g.registers} registers per thread; {g.threads} threads with min_ctas_per_sm={c.min_ctas_per_sm} can"
        " have fewer: each warp takes them from its partition of the register file",
    ),
    Rule(
        "skinny_vec",
        lambda p, c, g, d: (
            ((c.vec_a <= g.a.widest) | g.a.unaligned) & ((c.vec_b <= g.b.widest) | g.b.unaligned) & _vectors(c, g)
        ),
        "vec_a={c.vec_a}, vec_b={c.vec_b}: A and B allow {g.a.widest} and {g.b.widest}; along K those of the short"
        " operand are no wider than those of the long one, across K they divide the thread tile",
    ),
)
