"""Every template is used by some plan, and names only templates that exist."""

from __future__ import annotations

import re
from pathlib import Path

from ptxgen.device import device
from ptxgen.generate import plan_for
from tests.cases import cases

from .source import ROOT

TEMPLATES = ROOT / "templates"
NAMED = re.compile(r"""file=["'](/?[\w/]+\.mako)["']""")


def chosen(seed: int, count: int) -> set[str]:
    """The templates that plans of random legal configurations name."""
    out: set[str] = set()
    for target in ("h200", "sm_75"):
        for problem, config in cases(seed, count, device(target)):
            plan = plan_for(problem, config, device(target))
            values = [getattr(plan, name) for name in dir(plan) if not name.startswith("_")]
            out |= {v for v in values if isinstance(v, str) and v.endswith(".mako")}
    return out


def test_every_template_is_used_by_some_plan() -> None:
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")}
    reached: set[str] = set()
    waiting = chosen(1, 150)
    while waiting:
        name = waiting.pop()
        assert name in present, f"{name} is named, and does not exist"
        reached.add(name)
        named = NAMED.findall((TEMPLATES / name).read_text())
        waiting |= {n[1:] if n.startswith("/") else str(Path(name).parent / n) for n in named} - reached
    assert present == reached
