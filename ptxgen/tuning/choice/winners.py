"""Tells whether a winner is current: its kernel is the one that this version generates."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.codegen.config.config import Config
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.runtime import kept_sources
from ptxgen.tuning.choice.log import warn
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.records import stale_reason


@lru_cache(maxsize=1 << 14)
def current_digest(problem: Problem, config: Config, device: Device) -> str:
    """The digest of the kernel that this version generates for a configuration; also kept in the disk cache.
    PtxgenError: the kernel cannot be generated."""
    plan = plan_for(problem, config, device)
    key = kept_sources.key(plan)
    kept = kept_sources.read(key)
    if kept is not None:
        return kept.digest
    from ptxgen.codegen.render import render  # Mako takes a tenth of a cold start

    source = render(plan)
    kept_sources.write(key, source)
    return source.digest


def is_current(m: Measurement, device: Device) -> bool:
    """True if the kernel of a winner is the one that this version generates; if not, logs one warning."""
    reason = stale_reason(m, lambda problem, config: current_digest(problem, config, device))
    if reason:
        warn(f"the winner of {m.problem.key()} on {device.name} is stale and is not used: {reason}")
    return not reason
