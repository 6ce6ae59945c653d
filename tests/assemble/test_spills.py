"""Configurations that once spilled registers: no spill now, or a rule rejects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.runtime.assemble import assemble

LINES = (Path(__file__).parents[1] / "data" / "spills.txt").read_text().splitlines()
#: expected result ("legal" or "illegal"), problem, configuration, device
ROWS = [[cell.strip() for cell in line.split("|")] for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize(("expected", "problem", "config", "name"), ROWS)
def test_configuration_does_not_spill(
    expected: str, problem: str, config: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    p, c, d = parse(problem), parse_config(config), device(name)
    assert ("legal" if first_violation(lower(p), c, d) is None else "illegal") == expected
    if expected == "legal":
        assert not any(assemble(render(plan_for(p, c, d))).spills.values())
