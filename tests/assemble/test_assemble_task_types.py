"""ptxas assembles random tasks of every type for every target, without spills."""

from __future__ import annotations

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES

TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
EACH = 2


@pytest.mark.parametrize("target", TARGETS)
def test_random_types_assemble_without_spills(target, draws, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device(target)
    for p, c in SOURCES["task_types"].cases(int(target[3:]), draws * EACH, d, limit=600):
        made = assemble(render(plan_for(p, c, d)))
        assert made.cubin, f"{p.key()} | {c}"
        assert not any(made.spills.values()), f"{p.key()} | {c}: {made.spills}"
