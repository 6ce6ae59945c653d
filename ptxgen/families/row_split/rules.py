"""The rules of legal configurations of row_split kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.common.sparse_rules import core_types, grid_rule, pitch_rule, vec_rule
from ptxgen.families.row_split.axes import BROADCAST

RULES = (
    Rule(
        "row_split_types",
        lambda p, c, g, d: core_types(p) and d.sm >= p.element.sm,
        "row_split multiplies f16, bf16 (from sm_80 on), f32 and f64 and sums in f32 or f64, not {p.dtype} in"
        " {p.compute} into {p.out} on sm_{d.sm}",
    ),
    vec_rule("row_split"),
    Rule(
        "row_split_warps",
        lambda p, c, g, d: g.threads % WARP == 0,
        "{g.threads} threads; a block has whole warps",
    ),
    Rule(
        "row_split_lanes",
        lambda p, c, g, d: c.row_lanes * c.nonzero_groups <= WARP,
        "row_lanes={c.row_lanes} nonzero_groups={c.nonzero_groups}: a row has at most the lanes of a warp, 32",
    ),
    Rule(
        "row_split_shuffle",
        lambda p, c, g, d: (
            (c.index_loads == BROADCAST)
            | ((c.nonzero_groups == 1) & (c.nonzeros_in_flight <= c.row_lanes) & (p.dtype != "f64") & (d.sm >= 80))
        ),
        "index_loads=shuffle needs nonzero_groups=1, not {c.nonzero_groups}, nonzeros_in_flight={c.nonzeros_in_flight}"
        " up to row_lanes={c.row_lanes}, and sums in f32 on sm_80 or later, not {p.dtype} on sm_{d.sm}",
    ),
    Rule(
        "row_split_order",
        lambda p, c, g, d: (
            (c.row_order == NATURAL) | (p.operands[0].access.prepared & (p.operands[0].access.index_type == "i32"))
        ),
        "row_order=length takes a preparation of int32 indices; the problem must have calls=1 or more, and index=i32",
    ),
    Rule(
        "row_split_parts",
        lambda p, c, g, d: (c.longest_part == 0) | ((c.row_order == BY_LENGTH) & (c.longest_part >= 32)),
        "longest_part={c.longest_part}: 0, or with row_order=length at least 32",
    ),
    pitch_rule("row_split"),
    grid_rule("row_split"),
)
