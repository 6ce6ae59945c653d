"""ptxas assembles random convolutions, through offset tables and by the depthwise family, without spills."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES


@pytest.mark.parametrize("on", ["h200", "a100"])
def test_random_configurations_assemble_without_spills(
    on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device(on)
    for v, c in SOURCES["conv"].cases(11, 12, d):
        plan = plan_for(v, c, d)
        made = assemble(render(plan))
        assert not any(made.spills.values()), f"{v.key()} | {c}: {made.spills}"
