"""From a problem and a configuration to a plan: one row a family."""

from __future__ import annotations

from ptxgen.codegen.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.errors import ConfigError
from ptxgen.families.depthwise.plan import SlidePlan
from ptxgen.families.depthwise.wgrad_plan import SummingPlan
from ptxgen.families.geometry import geometry
from ptxgen.families.mma.plan import MmaPlan
from ptxgen.families.rules import require
from ptxgen.families.simt.plan import SimtPlan
from ptxgen.families.skinny.plan import StreamPlan
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem

#: by the code of the ``family`` axis
PLANS: tuple[type[Plan], ...] = (SimtPlan, MmaPlan, WgmmaPlan, StreamPlan, SlidePlan)


def plan_for(problem: Problem, config: Config, device: Device) -> Plan:
    """How ``config`` computes problems like ``problem`` on ``device``. ConfigError: it breaks a rule."""
    if not 0 <= config.family < len(PLANS):
        raise ConfigError(f"family is {config.family}; it must be from 0 to {len(PLANS) - 1}", "range")
    kind, product = PLANS[config.family], lower(problem)
    if kind is SlidePlan and product.strip is not None and product.strip.summed:
        kind = SummingPlan
    require(product, config, device)
    plan = kind(product, config, device, geometry(product, config))
    plan.asked = problem
    return plan
