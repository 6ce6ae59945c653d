"""ptxas takes every legal configuration of these families, on every target that has their instructions, without a
spill."""

from __future__ import annotations

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests import cases_mma, cases_stream

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
#: where random pairs come from, the targets, how many pairs for each
FAMILIES = {"mma": (cases_mma.cases, TARGETS[1:], 10), "skinny": (cases_stream.cases, TARGETS, 4)}
EVERY = [(family, target) for family, (_, targets, _) in FAMILIES.items() for target in targets]


@pytest.mark.parametrize(("family", "target"), EVERY)
def test_random_legal_configurations_assemble(family, target, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    cases, _, each = FAMILIES[family]
    d = device(target)
    for p, c in cases(100 + int(target[3:]), each, d, limit=600):
        made = assemble(render(plan_for(p, c, d)))
        assert made.cubin
        assert not any(made.spills.values()), f"{p.key()} | {c}: {made.spills}"
