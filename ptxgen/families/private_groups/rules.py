"""The rules of legal configurations of the family private_groups."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.codegen.config.rule import Rule
from ptxgen.errors import DtypeError
from ptxgen.expr.ptx import check
from ptxgen.families.private_groups.geometry import array_bytes, packs
from ptxgen.lowering.element_groups import ElementGroups
from ptxgen.lowering.kernel_problem import KernelProblem

VECTOR = 16  #: most bytes of an access
PITCH_LIMIT = 1 << 32  #: exclusive limit of the bytes from one row of the array to the next
WORKSPACE_LIMIT = 1 << 30  #: most bytes of the results of slices
LOADED = 128  #: most registers of a thread with elements in flight
MOST_GROUPS = 640  #: with more groups, a multiprocessor has too few loads in flight


@lru_cache(maxsize=256)
def has_instructions(sink: ElementGroups, sm: int) -> bool:
    """True if target ``sm`` has the instructions for values and keys."""
    try:
        check(sink.expressions, sm)
    except DtypeError:
        return False
    return True


def widest(p: KernelProblem) -> int:
    """The number of elements of the widest access to the array."""
    most = VECTOR // array_bytes(p)
    return most if packs(p.sink.array.element.type) else min(most, 4)


RULES = (
    Rule(
        "private_groups_types",
        lambda p, c, g, d: has_instructions(p.sink, d.sm),
        "values of type {p.sink.value.type} of elements of {p.sink.array.element.type}; sm_{d.sm} has no instruction"
        " for them",
    ),
    Rule(
        "private_groups_pitch",
        lambda p, c, g, d: p.n * array_bytes(p) < PITCH_LIMIT,
        f"rows of {{p.n}} elements of {{p.sink.array.element.type}}; rows must have less than {PITCH_LIMIT} bytes",
    ),
    Rule(
        "private_groups_count",
        lambda p, c, g, d: p.sink.count <= MOST_GROUPS,
        f"{{p.sink.count}} groups; a multiprocessor has copies of more than {MOST_GROUPS} for too few lanes",
    ),
    Rule(
        "private_groups_vec",
        lambda p, c, g, d: c.array_vec <= widest(p),
        f"array_vec={{c.array_vec}} elements of {{p.sink.array.element.type}}; an access has at most {VECTOR} bytes,"
        " and 4 elements but of f16 and bf16",
    ),
    Rule(
        "private_groups_wide_values",
        lambda p, c, g, d: (c.array_vec * p.sink.value_bytes <= VECTOR) | (not p.sink.by_rows),
        f"array_vec={{c.array_vec}} values of {{p.sink.value.type}}; a lane stores at most {VECTOR} bytes of a group at"
        " once, where keys are those of rows",
    ),
    Rule(
        "private_groups_rows",
        lambda p, c, g, d: (c.warp_rows == 1) | (not p.sink.by_rows),
        "warp_rows={c.warp_rows}: a warp reads several rows at once where keys are those of columns",
    ),
    Rule(
        "private_groups_loads",
        lambda p, c, g, d: g.loaded <= LOADED,
        f"{{g.loaded}} registers of elements in flight; at most {LOADED}",
    ),
    Rule(
        "private_groups_slices",
        lambda p, c, g, d: (c.kg == 1) | (c.kg <= g.units),
        "kg={c.kg} slices of {g.units} rows, or vectors of a warp along a row",
    ),
    Rule(
        "private_groups_workspace",
        lambda p, c, g, d: (c.kg == 1) | (g.workspace <= WORKSPACE_LIMIT),
        f"kg={{c.kg}} slices take {{g.workspace}} bytes of workspace; at most {WORKSPACE_LIMIT}",
    ),
)
