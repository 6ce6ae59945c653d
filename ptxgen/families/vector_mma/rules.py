"""The rules of legal configurations of vector_mma kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import BY_LENGTH
from ptxgen.codegen.config.rule import Rule
from ptxgen.families.common.matrix_instructions import instruction
from ptxgen.families.common.sparse_rules import grid_rule, pitch_rule, vec_rule
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LEAST_PART = 4  #: least blocks of a part of a row window
TYPES = {"f16": "f32", "bf16": "f32", "f32": "tf32"}


def _multiplies(p: KernelProblem, d: Device) -> bool:
    """True if the family's MMA instruction multiplies elements of this type."""
    return TYPES.get(p.dtype) == p.compute and p.out == p.dtype and d.sm >= instruction(p).sm and not p.sink.epilogue


RULES = (
    Rule(
        "vector_mma_types",
        lambda p, c, g, d: _multiplies(p, d),
        "vector_mma multiplies f16 and bf16 in f32, and f32 in tf32, from sm_80 on, not {p.dtype} in {p.compute} into"
        " {p.out} on sm_{d.sm}",
    ),
    vec_rule("vector_mma"),
    Rule(
        "vector_mma_pairs",
        lambda p, c, g, d: g.elements % 2 == 0,
        "lane_vectors={c.lane_vectors} of vec_b={c.vec_b}: a lane loads an even number of elements of a row",
    ),
    Rule(
        "vector_mma_parts",
        lambda p, c, g, d: (c.longest_part == 0) | ((c.row_order == BY_LENGTH) & (c.longest_part >= LEAST_PART)),
        f"longest_part={{c.longest_part}}: 0, or with row_order=length at least {LEAST_PART}",
    ),
    pitch_rule("vector_mma"),
    grid_rule("vector_mma"),
)
