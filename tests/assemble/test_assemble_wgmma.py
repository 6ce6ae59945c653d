"""ptxas takes every legal wgmma configuration: no spill, and none of its C75xx messages, each of which says that it
serialised or gave up what the kernel asked for."""

from __future__ import annotations

import re

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests import cases_planes, cases_wgmma

EACH = 40
COMPLAINT = re.compile(r"C75\d\d|warning", re.I)


@pytest.mark.parametrize(
    ("seed", "drawn"), [(31, cases_wgmma), (32, cases_wgmma), (33, cases_wgmma), (34, cases_planes)]
)
def test_random_legal_configurations_assemble(seed, drawn, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device("h200")
    for p, c in drawn.cases(seed, EACH, d, limit=700):
        made = assemble(render(plan_for(p, c, d)))
        told = f"{p.key()} | {c}\n{made.log}"
        assert made.cubin, told
        assert not any(made.spills.values()), told
        assert not COMPLAINT.search(made.log), told
