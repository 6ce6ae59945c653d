"""Tells whether a winner is current: its kernel is the one that this version generates."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.codegen.config.config import Config
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.runtime import kept_sources
from ptxgen.runtime.assemble import CachedSource
from ptxgen.tuning.choice.log import warn
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.records import stale_reason


@lru_cache(maxsize=1 << 14)
def current_digest(problem: Problem, config: Config, device: Device) -> str:
    """The digest of the kernel that this version generates for a configuration; also kept in the disk cache.
    PtxgenError: the kernel cannot be generated."""
    key = kept_sources.key_of(problem, config.full_text(), device)
    kept = kept_sources.read(key)
    if kept is None:
        kept = _source(problem, config, device)
        kept_sources.write(key, kept)
    return kept.digest


def _source(problem: Problem, config: Config, device: Device) -> CachedSource:
    """The source of a kernel, which is rendered unless the disk cache has it. The imports take a quarter of a cold
    start, and a digest in the disk cache needs none of them."""
    from ptxgen.codegen.render import render
    from ptxgen.families.plan_factory import plan_for

    plan = plan_for(problem, config, device)
    key = kept_sources.key(plan)
    kept = kept_sources.read(key)
    if kept is None:
        kept = CachedSource.of(render(plan))
        kept_sources.write(key, kept)
    return kept


def is_current(m: Measurement, device: Device) -> bool:
    """True if the kernel of a winner is the one that this version generates; if not, logs one warning."""
    reason = stale_reason(m, lambda problem, config: current_digest(problem, config, device))
    if reason:
        warn(f"the winner of {m.problem.key()} on {device.name} is stale and is not used: {reason}")
    return not reason
