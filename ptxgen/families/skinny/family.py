"""The family skinny: products with a short side, read once from global memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.vectorized import WARP
from ptxgen.families.perf_blocks import issuer_tile, thread_products
from ptxgen.families.registry import Family
from ptxgen.families.skinny import perf_model, rules
from ptxgen.families.skinny.candidates import Stream
from ptxgen.families.skinny.geometry import geometry
from ptxgen.families.skinny.plan import SkinnyPlan


def _thread_products(c: Any) -> Any:
    """Of FMA a thread computes its part of K; an MMA instruction is counted as one thread's."""
    return thread_products(c) // np.where(c.mma_m16 > 0, 1, WARP // c.lanes_m)


FAMILY = Family(
    name="skinny",
    axes=rules.USED,
    geometry=geometry,
    rules=rules.RULES,
    candidates=Stream(),
    model=perf_model,
    rate=perf_model.rate,
    issuer_tile=issuer_tile,
    thread_products=_thread_products,
    plan=lambda p, c: SkinnyPlan,
)
