"""The rules of legal configurations of row_split kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.families.row_split.axes import BROADCAST
from ptxgen.lowering.csr import ORDERED_CALLS
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

VECTOR = 16  #: most bytes of an access
#: most bytes from one row of B to the next
PITCH_LIMIT = 1 << 32
TYPES = {"f16": ("f32",), "bf16": ("f32",), "f32": ("f32", "tf32"), "f64": ("f64",)}


def _multiplies(p: KernelProblem, d: Device) -> bool:
    """True if its instructions multiply elements of this type. Sums in f32 serve problems in tf32, too."""
    return p.compute in TYPES.get(p.dtype, ()) and p.out == p.dtype and d.sm >= p.element.sm and not p.sink.epilogue


def _vec(p: KernelProblem) -> int:
    """Elements of the widest access to B and C."""
    return int(min(p.operand("B").access.vec, p.operand("C").access.vec))


RULES = (
    Rule(
        "row_split_types",
        lambda p, c, g, d: _multiplies(p, d),
        "row_split multiplies f16, bf16 (from sm_80 on), f32 and f64 and sums in f32 or f64, not {p.dtype} in"
        " {p.compute} into {p.out} on sm_{d.sm}",
    ),
    Rule(
        "row_split_vec",
        lambda p, c, g, d: (
            (c.vec_b >= 1)
            & (c.vec_b & (c.vec_b - 1) == 0)
            & (c.vec_b * p.element.bytes <= VECTOR)
            & (c.vec_b <= _vec(p))
        ),
        "vec_b={c.vec_b}: a power of two, at most 16 bytes, and no wider than rows of B and C are aligned",
    ),
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
            (c.row_order == NATURAL)
            | ((p.operands[0].access.calls >= ORDERED_CALLS) & (p.operands[0].access.index_type == "i32"))
        ),
        f"row_order=length takes a preparation of int32 indices; the problem must have calls={ORDERED_CALLS} or more,"
        " and index=i32",
    ),
    Rule(
        "row_split_parts",
        lambda p, c, g, d: (c.longest_part == 0) | ((c.row_order == BY_LENGTH) & (c.longest_part >= 32)),
        "longest_part={c.longest_part}: 0, or with row_order=length at least 32",
    ),
    Rule(
        "row_split_pitch",
        lambda p, c, g, d: (p.operand("B").access.ld * p.element.bytes < PITCH_LIMIT) | p.operand("B").access.kmajor,
        f"rows of B must begin less than {PITCH_LIMIT} bytes after each other",
    ),
    Rule(
        "row_split_grid",
        lambda p, c, g, d: g.slabs <= GRID_LIMIT,
        f"{{g.slabs}} slabs of {{g.slab}} columns; a grid has at most {GRID_LIMIT}",
    ),
)
