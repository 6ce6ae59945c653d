"""The family mma: mma.sync by tensor cores."""

from __future__ import annotations

from ptxgen.codegen.vectorized import WARP
from ptxgen.families import perf_costs
from ptxgen.families.mma import perf_model, rules
from ptxgen.families.mma.candidates import Mma
from ptxgen.families.mma.geometry import geometry
from ptxgen.families.mma.plan import MmaPlan
from ptxgen.families.perf_blocks import issuer_tile, thread_products
from ptxgen.families.registry import Family

FAMILY = Family(
    name="mma",
    axes=rules.USED,
    geometry=geometry,
    rules=rules.RULES,
    candidates=Mma(),
    model=perf_model,
    rate=perf_costs.mma_rate,
    issuer_tile=issuer_tile,
    thread_products=lambda c: thread_products(c) // WARP,
    plan=lambda p, c: MmaPlan,
    gathers=lambda p: True,
    offset_tables=True,
)
