"""ptxas assembles random legal configurations of these families for every target that has their instructions, without
spills, or with few where a configuration asks for three blocks or more a multiprocessor."""

from __future__ import annotations

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
#: case source -> how many cases for each target
COUNTS = {
    "compressed_tiles": 3,
    "element_groups": 4,
    "mma": 4,
    "skinny": 3,
    "spmm": 3,
    "spmm shared_slab": 4,
    "task": 12,
    "task_bits": 3,
    "task_select": 4,
    "tca": 2,
    "vector_mma": 4,
    "winograd": 2,
    "winograd_4x4": 2,
}
#: bytes that ptxas may spill where min_ctas_per_sm leaves a thread few registers
FEW_BYTES = 32
EVERY = [(name, t) for name in COUNTS for t in TARGETS if SOURCES[name].supports(device(t))]


@pytest.mark.parametrize(("family", "target"), EVERY)
def test_random_configurations_assemble_without_spills(family, target, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device(target)
    for p, c in SOURCES[family].cases(100 + int(target[3:]), COUNTS[family], d, limit=600):
        made = assemble(render(plan_for(p, c, d)))
        assert made.cubin
        most = FEW_BYTES if c.min_ctas_per_sm > 2 else 0
        assert max(made.spills.values(), default=0) <= most, f"{p.key()} | {c}: {made.spills}"
