"""Every template is used by some plan, and names only templates that exist."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ptxgen.codegen.plan import Plan
from ptxgen.export.files import TEMPLATES as FILES
from ptxgen.export.operations import exported, in_c
from ptxgen.export.task_in_c import TEMPLATE as TASK
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from tests.cases import SOURCES
from tests.golden.test_slots import templates_of, templates_of_handles

from .source import ROOT

TEMPLATES = ROOT / "templates"


#: source -> plans a round, where few of them use one of the templates; OTHER of any other source
ROUND = {"conv_depthwise": 40, "conv_wgmma": 16, "conv_wgmma_phased": 12, "wgmma": 12, "skinny": 6, "grouped_simt": 6}
OTHER = 2
ROUNDS = 12


def plans(seed: int, rounds: int) -> Iterator[list[Plan]]:
    """Rounds of plans of random legal configurations, each with some of each source on each device."""
    runs = [
        (target, ROUND.get(name, OTHER), source.cases(seed, rounds * ROUND.get(name, OTHER), target))
        for target in (device("h200"), device("sm_75"))
        for name, source in SOURCES.items()
    ]
    for _ in range(rounds):
        yield [plan_for(*case, target) for target, count, cases in runs for case in islice(cases, count)]


def test_every_template_is_used_by_some_plan() -> None:
    present = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")}
    of_export = {*FILES.values(), TASK, *(in_c(name).form.template for name in exported())}
    assert of_export <= present
    of_handles = set().union(*templates_of_handles().values())
    assert of_handles <= present
    unused = present - of_export - of_handles
    for made in plans(6, ROUNDS):
        names = set().union(*map(templates_of, made))
        assert names <= present, f"a template is named, and does not exist: {names - present}"
        unused -= names
        if not unused:
            return
    raise AssertionError(f"no random configuration uses these: {unused}")
