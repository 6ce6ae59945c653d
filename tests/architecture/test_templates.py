"""Every template is used by some plan, and names only templates that exist."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.codegen.plan import Plan
from ptxgen.export.files import TEMPLATES as EXPORTED
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from tests.cases import SOURCES
from tests.golden.test_slots import templates_of

from .source import ROOT

TEMPLATES = ROOT / "templates"


def plans(seed: int, count: int) -> Iterator[Plan]:
    """The plans of ``count`` random legal configurations of each source on each device, one of each in turn."""
    targets = (device("h200"), device("sm_75"))
    runs = [(target, source.cases(seed, count, target)) for source in SOURCES.values() for target in targets]
    while runs:
        for run in list(runs):
            target, cases = run
            try:
                problem, config = next(cases)
            except StopIteration:
                runs.remove(run)
            else:
                yield plan_for(problem, config, target)


def test_every_template_is_used_by_some_plan() -> None:
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")}
    assert set(EXPORTED.values()) <= present
    unused = present - set(EXPORTED.values())
    for plan in plans(1, 120):
        names = templates_of(plan)
        assert names <= present, f"a template is named, and does not exist: {names - present}"
        unused -= names
        if not unused:
            return
    raise AssertionError(f"no random configuration uses these: {unused}")
