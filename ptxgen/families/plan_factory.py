"""The plan of a problem and a configuration, which the configuration's family chooses."""

from __future__ import annotations

from collections.abc import Sequence

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.plan import Plan
from ptxgen.errors import LaunchError
from ptxgen.families import registry
from ptxgen.families.common.geometry import geometry
from ptxgen.families.common.rules import require
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem


def plan_for(problem: Problem, config: Config, device: Device) -> Plan:
    """The plan of ``config`` for ``problem`` and problems of its class on ``device``. ConfigError: ``config`` breaks a
    rule."""
    family = registry.of(config)
    p = family.form(lower(problem))
    require(p, config, device)
    plan = family.plan(p, config)(p, config, device, geometry(p, config))
    plan.source_problem = problem
    return plan


def mixed_plan_for(
    problem: Problem, configs: Sequence[Config], device: Device, most_registers: int, grid: bool = False
) -> MixedTiles:
    """The kernel in which each item of the list ``problem`` has the tile of one of ``configs``. All ``configs`` are of
    one family.

    ``most_registers``: upper limit of registers per thread; ``grid``: True if the grid is that of the largest item.
    ConfigError: a configuration breaks a rule. LaunchError: the family has no such kernel.
    """
    family = registry.of(configs[0])
    if family.mixed_tiles is None:
        raise LaunchError(f"config is {configs[0]}; its family has no kernel of several tiles")
    p = family.form(lower(problem))
    for config in configs:
        require(p, config, device)
    plan = family.mixed_tiles(p, configs, device, most_registers, grid)
    plan.source_problem = problem
    return plan
