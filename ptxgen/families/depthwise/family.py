"""The family depthwise: convolutions of one channel per group, in strips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.common.tile_family import TileFamily
from ptxgen.families.depthwise import axes, rules
from ptxgen.families.depthwise.candidates import DepthwiseSpace
from ptxgen.families.depthwise.geometry import DepthwiseGeometry, geometry
from ptxgen.families.registry import Probe, function_in, module
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import parse

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.depthwise.feature_map_plan import FeatureMapPlan
    from ptxgen.families.depthwise.patch_plan import DepthwisePatchPlan
    from ptxgen.families.depthwise.plan import DepthwisePlan
    from ptxgen.families.depthwise.wgrad_feature_map_plan import FeatureMapWgradPlan
    from ptxgen.families.depthwise.wgrad_plan import DepthwiseWgradPlan

    if strips(p) is not None and strips(p).wgrad:
        return FeatureMapWgradPlan if c.feature_map_bytes else DepthwiseWgradPlan
    if c.feature_map_bytes:
        return FeatureMapPlan
    return DepthwisePatchPlan if c.strip_columns > 1 else DepthwisePlan


ROWS = DEPTH = 8  #: rows and depth of the tile of a thread, as features of the model have it; a strip is one row


def _issuer_tile(p: KernelProblem, c: Any, g: DepthwiseGeometry) -> tuple[Any, Any, Any, Any, Any]:
    return ROWS, c.strip_results * c.strip_columns, DEPTH, g.a.loads, g.b.loads


def _thread_products(c: Any) -> Any:
    return ROWS * DEPTH * c.strip_results * c.strip_columns


def _probes() -> tuple[Probe, ...]:
    configs = (
        parse_config("family=depthwise strip_results=4 block_rows=1 block_lanes=64"),
        parse_config("family=depthwise strip_results=8 block_rows=4 block_lanes=64 min_ctas_per_sm=2"),
    )
    return ((lower(parse("conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1,groups=64 NCHW f32")), configs),)


FAMILY = TileFamily(
    name="depthwise",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=DepthwiseSpace(),
    model=module("ptxgen.families.depthwise.perf_model"),
    rate=function_in("ptxgen.families.common.perf_costs", "fma_rate"),
    issuer_tile=_issuer_tile,
    thread_products=_thread_products,
    plan=_plan,
    provides=frozenset(("plus_times", "store_tile", "store_sums", "strips", "strips_output")),
    features={
        "ns": lambda c: c.strip_results * c.strip_columns,
        "ml": lambda c: c.block_rows,
        "nl": lambda c: c.block_lanes,
        "vec_a": lambda c: c.vec_lane,
    },
    probes=_probes,
)
