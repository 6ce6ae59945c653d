"""The family private_groups: reductions of the elements of an array in groups of rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import Config
from ptxgen.families.private_groups import axes, perf_model, rules
from ptxgen.families.private_groups.candidates import PrivateGroupsSpace
from ptxgen.families.private_groups.geometry import geometry
from ptxgen.families.registry import Family
from ptxgen.lowering.kernel_problem import KernelProblem

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.private_groups.plan import PrivateGroupsPlan

    return PrivateGroupsPlan


FAMILY = Family(
    name="private_groups",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=PrivateGroupsSpace(),
    model=perf_model,
    plan=_plan,
    provides=frozenset(("plus_times", "strided", "strided_output", "element_groups")),
    instructions=(),
    scope="reductions of the elements of one array in groups of its rows, or of its columns",
)
