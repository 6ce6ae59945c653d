"""ptxas assembles random legal configurations for every target, without spills: SIMT kernels, reductions of tasks, and steps on pairs."""

from __future__ import annotations

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
EACH = 5


@pytest.mark.parametrize("source", ["simt", "task_reduce", "task_pairs"])
@pytest.mark.parametrize("target", TARGETS)
def test_random_configurations_assemble_without_spills(target, source, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device(target)
    for p, c in SOURCES[source].cases(int(target[3:]), EACH, d, limit=600):
        made = assemble(render(plan_for(p, c, d)))
        assert made.cubin, f"{p.key()} | {c}"
        assert not any(made.spills.values()), f"{p.key()} | {c}: {made.spills}"
