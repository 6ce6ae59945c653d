"""Rules that families of sparse products share. Each family gives them names of its own."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.lowering.kernel_problem import KernelProblem

VECTOR = 16  #: the most bytes of an access
#: exclusive limit of the bytes from one row of B to the next
PITCH_LIMIT = 1 << 32


#: type of A and B -> values of ``compute`` of kernels that multiply on CUDA cores. Sums in f32 also serve tf32
CORE_TYPES = {"f16": ("f32",), "bf16": ("f32",), "f32": ("f32", "tf32"), "f64": ("f64",)}


def widest(p: KernelProblem) -> int:
    """The number of elements of the widest access to B and C."""
    return int(min(p.operand("B").access.vec, p.operand("C").access.vec, VECTOR // p.element.bytes))


def core_types(p: KernelProblem) -> bool:
    """True if CUDA cores multiply these types, C has the type of A and B, and there is no epilogue."""
    return p.compute in CORE_TYPES.get(p.dtype, ()) and p.out == p.dtype and not p.sink.epilogue


def vec_rule(family: str) -> Rule:
    """The rule that accesses to B and C fit their alignment."""
    return Rule(
        f"{family}_vec",
        lambda p, c, g, d: (c.vec_b >= 1) & (c.vec_b & (c.vec_b - 1) == 0) & (c.vec_b <= widest(p)),
        "vec_b={c.vec_b}: a power of two, at most 16 bytes, and no wider than rows of B and C are aligned",
    )


def pitch_rule(family: str) -> Rule:
    """The rule that the distance of rows of a row-major B fits 32 bits."""
    return Rule(
        f"{family}_pitch",
        lambda p, c, g, d: (p.operand("B").access.ld * p.element.bytes < PITCH_LIMIT) | p.operand("B").access.kmajor,
        f"rows of B must begin less than {PITCH_LIMIT} bytes after each other",
    )


def grid_rule(family: str) -> Rule:
    """The rule that the slabs of columns fit a grid."""
    return Rule(
        f"{family}_grid",
        lambda p, c, g, d: g.slabs <= GRID_LIMIT,
        f"{{g.slabs}} slabs of {{g.slab}} columns; a grid has at most {GRID_LIMIT}",
    )
