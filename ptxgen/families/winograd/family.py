"""The family winograd: 3x3 convolutions with fewer multiplications, by CUDA cores."""

from __future__ import annotations

from ptxgen.codegen.config import Config
from ptxgen.families import perf_costs
from ptxgen.families.perf_blocks import issuer_tile, thread_products
from ptxgen.families.registry import Family, Probe
from ptxgen.families.simt.geometry import geometry
from ptxgen.families.winograd import axes, perf_model, rules
from ptxgen.families.winograd.candidates import WinogradSpace
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.lower import lower
from ptxgen.lowering.winograd import WinogradGemm
from ptxgen.problem.operation import resolve
from ptxgen.problem.registry import parse


def _product(p: KernelGemm) -> KernelGemm:
    return p if p.winograd is None else p.winograd


def _training_class(p: KernelGemm) -> str:
    return "winograd weight_grad" if isinstance(q := _product(p), WinogradGemm) and q.weight_grad else ""


def _probes() -> tuple[Probe, ...]:
    configs = Config(family="winograd"), Config(family="winograd", ml=128, nl=128, vec_a=4, vec_b=4, vec_c=4)
    return ((lower(parse("conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1 NCHW f32")), configs),)


FAMILY = Family(
    name="winograd",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=WinogradSpace(),
    model=perf_model,
    rate=perf_costs.fma_rate,
    issuer_tile=issuer_tile,
    thread_products=thread_products,
    plan=lambda p, c: resolve("ptxgen.families.winograd.plan:WinogradPlan"),
    gathers=lambda p: True,
    product=_product,
    training_class=_training_class,
    probes=_probes,
)
