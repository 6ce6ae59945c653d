"""Every template is used by some plan, and names only templates that exist."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.codegen.plan import Plan
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from tests.cases import SOURCES
from tests.golden.test_slots import templates_of

from .source import ROOT

TEMPLATES = ROOT / "templates"


def plans(seed: int, count: int) -> Iterator[Plan]:
    """The plans of ``count`` random legal configurations of each source, on each device that it supports."""
    for source in SOURCES.values():
        for target in (device("h200"), device("sm_75")):
            for problem, config in source.cases(seed, count, target):
                yield plan_for(problem, config, target)


def test_every_template_is_used_by_some_plan() -> None:
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")}
    reached = {name for plan in plans(1, 120) for name in templates_of(plan)}
    assert reached <= present, "a template is named, and does not exist"
    assert not present - reached, "no random configuration uses these"
