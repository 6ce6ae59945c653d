"""Every template is used by some plan, and names only templates that exist."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from ptxgen.codegen.plan import Plan
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from tests.golden.test_slots import templates_of

from .source import ROOT

TEMPLATES = ROOT / "templates"
#: modules that draw random legal cases, a family or several each
DRAWN = sorted(p.stem for p in (ROOT / "tests").glob("cases*.py") if "\ndef cases(" in p.read_text())


def plans(seed: int, count: int) -> Iterator[Plan]:
    """Of random legal configurations."""
    for module in DRAWN:
        for target in ("h200", "sm_75") if module == "cases" else ("h200",):
            for problem, config in import_module(f"tests.{module}").cases(seed, count, device(target)):
                yield plan_for(problem, config, device(target))


def test_every_template_is_used_by_some_plan() -> None:
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")}
    reached = {name for plan in plans(1, 120) for name in templates_of(plan)}
    assert reached <= present, "a template is named, and does not exist"
    assert not present - reached, f"no plan of tests/{', '.join(DRAWN)} comes to these"
