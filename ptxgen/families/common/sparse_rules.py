"""Rules that families of sparse products share; each has its own name in a family."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.lowering.kernel_problem import KernelProblem

VECTOR = 16  #: most bytes of an access
#: most bytes from one row of B to the next
PITCH_LIMIT = 1 << 32


def _widest(p: KernelProblem) -> int:
    """Elements of the widest access to B and C."""
    return int(min(p.operand("B").access.vec, p.operand("C").access.vec))


def vec_rule(family: str) -> Rule:
    """Accesses to B and C fit their alignment."""
    return Rule(
        f"{family}_vec",
        lambda p, c, g, d: (
            (c.vec_b >= 1)
            & (c.vec_b & (c.vec_b - 1) == 0)
            & (c.vec_b * p.element.bytes <= VECTOR)
            & (c.vec_b <= _widest(p))
        ),
        "vec_b={c.vec_b}: a power of two, at most 16 bytes, and no wider than rows of B and C are aligned",
    )


def pitch_rule(family: str) -> Rule:
    """The distance of rows of a row-major B fits 32 bits."""
    return Rule(
        f"{family}_pitch",
        lambda p, c, g, d: (p.operand("B").access.ld * p.element.bytes < PITCH_LIMIT) | p.operand("B").access.kmajor,
        f"rows of B must begin less than {PITCH_LIMIT} bytes after each other",
    )
