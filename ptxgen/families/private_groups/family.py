"""The family private_groups: reductions of the elements of an array in groups of rows or columns."""

from __future__ import annotations

from ptxgen.families.private_groups import axes, rules
from ptxgen.families.private_groups.candidates import PrivateGroupsSpace
from ptxgen.families.private_groups.geometry import geometry
from ptxgen.families.registry import Family, class_in, module

FAMILY = Family(
    name="private_groups",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=PrivateGroupsSpace(),
    model=module("ptxgen.families.private_groups.perf_model"),
    plan=class_in("ptxgen.families.private_groups.plan", "PrivateGroupsPlan"),
    provides=frozenset(("plus_times", "strided", "strided_output", "element_groups")),
    instructions=(),
    scope="reductions of the elements of one array in groups of its rows, or of its columns",
)
