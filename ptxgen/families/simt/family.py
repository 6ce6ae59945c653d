"""The family simt: FMA by CUDA cores."""

from __future__ import annotations

from ptxgen.families import perf_costs
from ptxgen.families.perf_blocks import issuer_tile, thread_products
from ptxgen.families.registry import Family
from ptxgen.families.simt import perf_model, rules
from ptxgen.families.simt.candidates import Simt
from ptxgen.families.simt.geometry import geometry
from ptxgen.families.simt.plan import SimtPlan

FAMILY = Family(
    name="simt",
    axes=rules.USED,
    geometry=geometry,
    rules=rules.RULES,
    candidates=Simt(),
    model=perf_model,
    rate=perf_costs.fma_rate,
    issuer_tile=issuer_tile,
    thread_products=thread_products,
    plan=lambda p, c: SimtPlan,
    gathers=lambda p: True,
    offset_tables=True,
)
