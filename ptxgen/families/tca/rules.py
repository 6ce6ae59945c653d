"""The rules of legal configurations of tca kernels."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.families.tca.geometry import NONZERO_LIMIT, most_blocks
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

VECTOR = 16  #: most bytes of an access
#: most bytes from one row of B to the next
PITCH_LIMIT = 1 << 32
#: most blocks of a launch
BLOCK_LIMIT = 1 << 31
#: first target of the instruction m16n8k8, by type
TARGETS = {"f16": 75, "bf16": 80}


def _multiplies(p: KernelProblem, d: Device) -> bool:
    """True if the instruction multiplies elements of this type."""
    return p.dtype in TARGETS and p.compute == "f32" and p.out == p.dtype and d.sm >= TARGETS[p.dtype]


def _vec(p: KernelProblem) -> int:
    """Elements of the widest access to B and C."""
    return int(min(p.operand("B").access.vec, p.operand("C").access.vec))


RULES = (
    Rule(
        "tca_types",
        lambda p, c, g, d: _multiplies(p, d) and not p.sink.epilogue,
        "tca multiplies f16 (from sm_75 on) and bf16 (from sm_80 on) and sums in f32, not {p.dtype} in {p.compute} into"
        " {p.out} on sm_{d.sm}",
    ),
    Rule(
        "tca_vec",
        lambda p, c, g, d: (
            (c.vec_b >= 1)
            & (c.vec_b & (c.vec_b - 1) == 0)
            & (c.vec_b * p.element.bytes <= VECTOR)
            & (c.vec_b <= _vec(p))
        ),
        "vec_b={c.vec_b}: a power of two, at most 16 bytes, and no wider than rows of B and C are aligned",
    ),
    Rule(
        "tca_pitch",
        lambda p, c, g, d: p.operand("B").access.ld * p.element.bytes < PITCH_LIMIT,
        f"rows of B must begin less than {PITCH_LIMIT} bytes after each other",
    ),
    Rule(
        "tca_grid",
        lambda p, c, g, d: most_blocks(p, NONZERO_LIMIT) < BLOCK_LIMIT,
        f"{{p.extents.m}} rows of up to {NONZERO_LIMIT} nonzeros; a grid has less than {BLOCK_LIMIT} blocks",
    ),
)
