"""From a problem and a configuration to a plan: one row a family."""

from __future__ import annotations

from ptxgen.config import Config
from ptxgen.device import Device
from ptxgen.errors import ConfigError
from ptxgen.families.mma.plan import MmaPlan
from ptxgen.families.simt.plan import SimtPlan
from ptxgen.families.slide.plan import SlidePlan
from ptxgen.families.slide.summing import SummingPlan
from ptxgen.families.stream.plan import StreamPlan
from ptxgen.families.wgmma.arranging import plan_of
from ptxgen.families.wgmma.copies import CopiedPlan
from ptxgen.families.wgmma.parting import PartingPlan
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.families.wgmma.planes import planes
from ptxgen.families.wgmma.repack import A, B
from ptxgen.geometry import geometry
from ptxgen.lower import lower
from ptxgen.operations import Problem
from ptxgen.plan import Plan
from ptxgen.rules import require

#: by the code of the ``family`` axis
PLANS: tuple[type[Plan], ...] = (SimtPlan, MmaPlan, WgmmaPlan, StreamPlan, SlidePlan)


def plan_for(problem: Problem, config: Config, device: Device) -> Plan:
    """How ``config`` computes problems like ``problem`` on ``device``. ConfigError: it breaks a rule."""
    if not 0 <= config.family < len(PLANS):
        raise ConfigError(f"family is {config.family}; it must be from 0 to {len(PLANS) - 1}", "range")
    kind, product = PLANS[config.family], lower(problem)
    if kind is WgmmaPlan and product.window is not None:
        kind = plan_of(product.window, config)
    elif kind is SlidePlan and product.strip is not None and product.strip.summed:
        kind = SummingPlan
    elif kind is WgmmaPlan and planes(product) > 1:
        kind = PartingPlan
    elif kind is WgmmaPlan and config.repack & (A | B):
        kind = CopiedPlan
    require(product, config, device)
    plan = kind(product, config, device, geometry(product, config))
    plan.asked = problem
    return plan
