"""The family resident_rows: reductions of the rows of all pairs, for small K."""

from __future__ import annotations

from ptxgen.families.registry import Family, class_in, module
from ptxgen.families.resident_rows import axes, rules
from ptxgen.families.resident_rows.candidates import ResidentRowsSpace
from ptxgen.families.resident_rows.geometry import geometry

FAMILY = Family(
    name="resident_rows",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=ResidentRowsSpace(),
    model=module("ptxgen.families.resident_rows.perf_model"),
    plan=class_in("ptxgen.families.resident_rows.plan", "ResidentRowsPlan"),
    provides=frozenset(
        ("plus_times", "inner_expression", "strided", "strided_output", "row_reduce", "row_top", "select_values")
    ),
    scope=f"reductions and best values of rows over j, and lists of pairs, K from 1 to {axes.LONGEST}",
)
