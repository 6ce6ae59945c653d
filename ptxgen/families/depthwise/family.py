"""The family depthwise: convolutions of one channel per group, in strips."""

from __future__ import annotations

from ptxgen.codegen.config import Config, parse_config
from ptxgen.codegen.plan import Plan
from ptxgen.families import perf_costs
from ptxgen.families.depthwise import axes, perf_model, rules
from ptxgen.families.depthwise.candidates import DepthwiseSpace
from ptxgen.families.depthwise.geometry import geometry
from ptxgen.families.depthwise.plan import DepthwisePlan
from ptxgen.families.depthwise.wgrad_plan import DepthwiseWgradPlan
from ptxgen.families.perf_blocks import issuer_tile, thread_products
from ptxgen.families.registry import Family, Probe
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import parse


def _plan(p: KernelGemm, c: Config) -> type[Plan]:
    return DepthwiseWgradPlan if p.strip is not None and p.strip.wgrad else DepthwisePlan


def _probes() -> tuple[Probe, ...]:
    configs = (
        parse_config("family=depthwise ns=4 ml=1 nl=64"),
        parse_config("family=depthwise ns=8 ml=4 nl=64 min_ctas_per_sm=2"),
    )
    return ((lower(parse("conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1,groups=64 NCHW f32")), configs),)


FAMILY = Family(
    name="depthwise",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=DepthwiseSpace(),
    model=perf_model,
    rate=perf_costs.fma_rate,
    issuer_tile=issuer_tile,
    thread_products=thread_products,
    plan=_plan,
    gathers=lambda p: True,
    probes=_probes,
)
