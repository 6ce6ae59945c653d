"""ptxas assembles random kernels with activations from outside the package, without spills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ptxgen import plugins
from ptxgen.codegen.render import render
from ptxgen.errors import InputError
from ptxgen.families.common import rules
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES
from tests.plugins import activations

#: case source -> epilogue, number of cases
COUNTS = {
    "wgmma": ("bias_column,softplus", 2),
    "simt": ("scale,softplus", 1),
    "mma": ("bias_row,residual,softplus", 1),
    "conv_wgmma": ("bias,residual,softplus", 1),
}


@pytest.fixture
def registered() -> Iterator[None]:
    plugins.load()
    activations.register_them()
    yield
    activations.unregister_them()


@pytest.mark.parametrize("source", [*COUNTS, "aux"])
def test_random_configurations_assemble_without_spills(
    source: str, registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    epilogue, count = ("residual,clamp_grad", 1) if source == "aux" else COUNTS[source]
    d, made = device("h200"), 0
    for p, c in SOURCES["wgmma" if source == "aux" else source].cases(77, 400, d, limit=700):
        try:
            changed = replace(p, epilogue=epilogue)
        except InputError:  # integers and f64, weight gradients
            continue
        if rules.first_violation(lower(changed), c, d) is not None:
            continue
        usage = assemble(render(plan_for(changed, c, d)))
        assert not any(usage.spills.values()), f"{changed.key()} | {c}: {usage.spills}"
        made += 1
        if made == count:
            return
    pytest.fail(f"{made} cases; there must be {count}")
