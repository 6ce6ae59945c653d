"""The rules of legal configurations of tca kernels."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.families.common.sparse_rules import pitch_rule, vec_rule
from ptxgen.families.tca.geometry import NONZERO_LIMIT, most_blocks
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: most blocks of a launch
BLOCK_LIMIT = 1 << 31
#: type -> first target of the instruction m16n8k8
TARGETS = {"f16": 75, "bf16": 80}


def _multiplies(p: KernelProblem, d: Device) -> bool:
    """True if m16n8k8 multiplies elements of this type."""
    return p.dtype in TARGETS and p.compute == "f32" and p.out == p.dtype and d.sm >= TARGETS[p.dtype]


RULES = (
    Rule(
        "tca_types",
        lambda p, c, g, d: _multiplies(p, d) and not p.sink.epilogue,
        "tca multiplies f16 (from sm_75 on) and bf16 (from sm_80 on) and sums in f32, not {p.dtype} in {p.compute} into"
        " {p.out} on sm_{d.sm}",
    ),
    vec_rule("tca"),
    pitch_rule("tca"),
    Rule(
        "tca_grid",
        lambda p, c, g, d: most_blocks(p, NONZERO_LIMIT) < BLOCK_LIMIT,
        f"{{p.extents.m}} rows of up to {NONZERO_LIMIT} nonzeros; a grid has less than {BLOCK_LIMIT} blocks",
    ),
)
