"""Every template of an exported library is used, and random configurations use every other template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.plan import Plan
from ptxgen.export.files import TEMPLATES as FILES
from ptxgen.export.operations import exported, in_c
from ptxgen.export.task_in_c import TEMPLATE as TASK
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import Device, device
from tests.cases import SOURCES
from tests.golden.test_golden import GOLDEN
from tests.golden.test_slots import INDEX, templates_of, templates_of_handles

from .source import ROOT

TEMPLATES = ROOT / "templates"


#: source -> plans a round, where few of them use one of the templates; OTHER of any other source
ROUND = {
    "conv_depthwise": 40,
    "resident_rows": 6,
    "conv_tap_products": 6,
    "conv_wgmma": 16,
    "conv_wgmma_phased": 12,
    "wgmma": 12,
    "task_wgmma": 16,
    "skinny": 6,
    "grouped_simt": 6,
}
OTHER = 2
ROUNDS = 12


@dataclass
class Draws:
    """Plans of random legal configurations of one source on one device, and the classes of those drawn so far."""

    target: Device
    count: int
    cases: Iterator[tuple[Any, Config]]
    drawn: set[tuple[str, str]] = field(default_factory=set)

    def plans(self) -> Iterator[Plan]:
        for p, c in islice(self.cases, self.count):
            self.drawn.add((p.key().split()[0], c.family))
            yield plan_for(p, c, self.target)


def sources(seed: int) -> list[Draws]:
    """Draws of each source on each device."""
    counts = {name: ROUND.get(name, OTHER) for name in SOURCES}
    return [
        Draws(target, counts[name], source.cases(seed, ROUNDS * counts[name], target))
        for target in (device("h200"), device("sm_75"))
        for name, source in SOURCES.items()
    ]


def classes_of_templates() -> dict[str, set[tuple[str, str]]]:
    """Template -> operation and family of each golden kernel that uses it."""
    out: dict[str, set[tuple[str, str]]] = {}
    for template, names in re.findall(r"^\| `([^`]+)` \|(.*)\|$", INDEX.read_text(), re.M):
        chosen = [GOLDEN[name] for name in names.split() if name in GOLDEN]
        out[template] = {(problem.split()[0], parse_config(config).family) for _, problem, config in chosen}
    return out


def test_every_template_of_an_export_is_used() -> None:
    """Goldens use all others (tests/golden/test_slots.py)."""
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.glob("export/**/*.mako")}
    assert present == {*FILES.values(), TASK, *(in_c(name).form.template for name in exported())}


@pytest.mark.first(0)
def test_random_configurations_use_every_template() -> None:
    """After the first round, only sources are asked that draw kernels of a class in which a golden kernel uses a template
    that no plan has used yet."""
    unused = classes_of_templates().keys() - set().union(*templates_of_handles().values())
    draws, classes = sources(6), classes_of_templates()
    for _ in range(ROUNDS):
        for source in draws:
            unused -= set().union(*map(templates_of, source.plans()))
        if not unused:
            return
        wanted = set().union(*(classes.get(name, set()) for name in unused))
        draws = [source for source in draws if source.drawn & wanted]
    raise AssertionError(f"no random configuration uses these: {unused}")
