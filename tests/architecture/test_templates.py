"""Every template is used by some plan, and names only templates that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ptxgen.codegen.plan import Plan
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from tests.cases import SOURCES

from .source import ROOT

TEMPLATES = ROOT / "templates"
NAMED = re.compile(r"""file=["'](/?[\w/]+\.mako)["']""")
#: packages of the classes that plans are composed of
PARTS = ("ptxgen.codegen", "ptxgen.families")


def plans(seed: int, count: int) -> Iterator[Plan]:
    """The plans of ``count`` random legal configurations of each source, on each device that it supports."""
    for source in SOURCES.values():
        for target in (device("h200"), device("sm_75")):
            for problem, config in source.cases(seed, count, target):
                yield plan_for(problem, config, target)


def named_by(plan: Plan) -> set[str]:
    """The templates that a plan and its parts name."""
    named: set[str] = set()
    seen: dict[int, object] = {}
    waiting: list[object] = [plan]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        for name in (n for n in dir(part) if not n.startswith("_")):
            try:
                value = getattr(part, name)
            except (AssertionError, AttributeError, IndexError, NotImplementedError):
                continue  # an attribute that only other plans have
            if isinstance(value, str) and value.endswith(".mako"):
                named.add(value)
            elif type(value).__module__.startswith(PARTS):
                waiting.append(value)
    return named


def test_every_template_is_used_by_some_plan() -> None:
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")}
    reached: set[str] = set()
    waiting = {name for plan in plans(1, 120) for name in named_by(plan)}
    while waiting:
        name = waiting.pop()
        assert name in present, f"{name} is named, and does not exist"
        reached.add(name)
        named = NAMED.findall((TEMPLATES / name).read_text())
        waiting |= {n[1:] if n.startswith("/") else str(Path(name).parent / n) for n in named} - reached
    assert not present - reached, "no random configuration uses these"
