"""The rules of legal configurations of compressed_tiles kernels."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.families.common.sparse_rules import VECTOR, core_types, grid_rule, pitch_rule
from ptxgen.families.compressed_tiles.geometry import GROUP
from ptxgen.families.compressed_tiles.layout import COLUMNS, ROWS

TILE_LIMIT = 1 << 21  #: the most tiles of A; their bitmaps take 256 MB

RULES = (
    Rule(
        "compressed_tiles_types",
        lambda p, c, g, d: core_types(p) and p.element.bytes <= 4 and d.has_async_copy,
        "compressed_tiles multiplies f16, bf16 and f32 from sm_80 on and sums in f32, not {p.dtype} in {p.compute} into"
        " {p.out} on sm_{d.sm}",
    ),
    Rule(
        "compressed_tiles_vec",
        lambda p, c, g, d: (
            (c.vec_b >= 1)
            & (c.vec_b & (c.vec_b - 1) == 0)
            & (c.vec_b <= p.operand("B").access.vec)
            & (c.vec_b * p.element.bytes <= VECTOR)
        ),
        "vec_b={c.vec_b}: a power of two, at most 16 bytes, and no wider than rows of B are aligned",
    ),
    Rule(
        "compressed_tiles_columns",
        lambda p, c, g, d: (
            (p.element.bytes == 2) & (c.b_columns % GROUP == 0) & ((c.vec_b == 1) | (c.vec_b == GROUP))
            | (p.element.bytes == 4) & (c.vec_b <= c.b_columns)
        ),
        "b_columns={c.b_columns} vec_b={c.vec_b}: MMA instructions take 8 columns of 16-bit elements, copied one by one"
        " or all at once; others take at least vec_b columns",
    ),
    Rule(
        "compressed_tiles_count",
        lambda p, c, g, d: g.tiles <= TILE_LIMIT,
        f"{{g.tiles}} tiles of {ROWS} rows and {COLUMNS} columns of A; there may be at most {TILE_LIMIT}",
    ),
    Rule(
        "compressed_tiles_vector",
        lambda p, c, g, d: (
            (c.vector_b == 0)
            | (c.b_columns == GROUP)
            & (c.vec_b == 1)
            & (p.element.bytes == 2)
            & (p.extents.n == 1)
            & (p.operand("B").access.ld == 1)
            & (p.operand("B").access.aligned >= VECTOR)
        ),
        "vector_b=1 takes b_columns=8 vec_b=1 and a B of 16-bit elements that follow each other from a multiple of 16"
        " bytes on, in one column, not {p.extents.n}",
    ),
    pitch_rule("compressed_tiles"),
    grid_rule("compressed_tiles"),
)
