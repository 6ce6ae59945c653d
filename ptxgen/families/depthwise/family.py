"""The family depthwise: convolutions of one channel per group, in strips."""

from __future__ import annotations

from ptxgen.codegen.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.families import perf_costs
from ptxgen.families.depthwise import perf_model, rules
from ptxgen.families.depthwise.candidates import Slide
from ptxgen.families.depthwise.geometry import geometry
from ptxgen.families.depthwise.plan import DepthwisePlan
from ptxgen.families.depthwise.wgrad_plan import DepthwiseWgradPlan
from ptxgen.families.perf_blocks import issuer_tile, thread_products
from ptxgen.families.registry import Family
from ptxgen.lowering.kernel_gemm import KernelGemm


def _plan(p: KernelGemm, c: Config) -> type[Plan]:
    return DepthwiseWgradPlan if p.strip is not None and p.strip.wgrad else DepthwisePlan


FAMILY = Family(
    name="depthwise",
    axes=rules.USED,
    geometry=geometry,
    rules=rules.RULES,
    candidates=Slide(),
    model=perf_model,
    rate=perf_costs.fma_rate,
    issuer_tile=issuer_tile,
    thread_products=thread_products,
    plan=_plan,
    gathers=lambda p: True,
)
