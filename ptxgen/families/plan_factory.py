"""From a problem and a configuration to a plan: one row a family."""

from __future__ import annotations

from ptxgen.codegen.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.errors import ConfigError
from ptxgen.families.depthwise.plan import DepthwisePlan
from ptxgen.families.depthwise.wgrad_plan import DepthwiseWgradPlan
from ptxgen.families.geometry import geometry
from ptxgen.families.mma.plan import MmaPlan
from ptxgen.families.rules import require
from ptxgen.families.simt.plan import SimtPlan
from ptxgen.families.skinny.plan import SkinnyPlan
from ptxgen.families.wgmma.bf16x3 import planes
from ptxgen.families.wgmma.operand_packing import A, B
from ptxgen.families.wgmma.pack_channels import plan_of
from ptxgen.families.wgmma.pack_rows import CopiedPlan
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.families.wgmma.split_bf16x3 import PartingPlan
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem

#: by the code of the ``family`` axis
PLANS: tuple[type[Plan], ...] = (SimtPlan, MmaPlan, WgmmaPlan, SkinnyPlan, DepthwisePlan)


def plan_for(problem: Problem, config: Config, device: Device) -> Plan:
    """How ``config`` computes problems like ``problem`` on ``device``. ConfigError: it breaks a rule."""
    if not 0 <= config.family < len(PLANS):
        raise ConfigError(f"family is {config.family}; it must be from 0 to {len(PLANS) - 1}", "range")
    kind, product = PLANS[config.family], lower(problem)
    if kind is WgmmaPlan and product.window is not None:
        kind = plan_of(product.window, config)
    elif kind is DepthwisePlan and product.strip is not None and product.strip.summed:
        kind = DepthwiseWgradPlan
    elif kind is WgmmaPlan and planes(product) > 1:
        kind = PartingPlan
    elif kind is WgmmaPlan and config.operand_path & (A | B):
        kind = CopiedPlan
    require(product, config, device)
    plan = kind(product, config, device, geometry(product, config))
    plan.source_problem = problem
    return plan
