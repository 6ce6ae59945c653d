"""From a problem and a configuration to the plan that their family chooses."""

from __future__ import annotations

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.families import registry
from ptxgen.families.common.geometry import geometry
from ptxgen.families.common.rules import require
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem


def plan_for(problem: Problem, config: Config, device: Device) -> Plan:
    """How ``config`` computes problems like ``problem`` on ``device``. ConfigError: it breaks a rule."""
    family = registry.of(config)
    p = family.form(lower(problem))
    require(p, config, device)
    plan = family.plan(p, config)(p, config, device, geometry(p, config))
    plan.source_problem = problem
    return plan
