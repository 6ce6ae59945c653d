"""ptxas assembles random legal wgmma configurations: no spills, and none of its C75xx messages, each of which reports
wgmma instructions that it serialised or setmaxnreg that it ignored."""

from __future__ import annotations

import re

import pytest

from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES

EACH = 1
COMPLAINT = re.compile(r"C75\d\d|warning", re.I)


@pytest.mark.first(13)
@pytest.mark.parametrize(
    ("seed", "source"),
    [
        (31, "wgmma"),
        (34, "bf16x3"),
        (38, "conv_wgmma_merged"),
        (35, "conv_wgmma_phased"),
        (36, "conv_wgmma_few_channels"),
        (37, "wgmma_resident_b"),
        (48, "wgmma_scaled"),
        (39, "conv_wgmma_interleaved"),
        (40, "conv_wgmma_row_taps"),
        (41, "conv_wgmma_tiled"),
        (42, "conv_wgmma_by_image"),
        (47, "conv_wgmma_groups"),
        (43, "task_wgmma"),
        (32, "wgmma"),
    ],
)
def test_random_configurations_assemble_without_spills(seed, source, draws, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device("h200")
    for p, c in SOURCES[source].cases(seed, draws * EACH, d, limit=700):
        made = assemble(render(plan_for(p, c, d)))
        output = f"{p.key()} | {c}\n{made.log}"
        assert made.cubin, output
        assert not any(made.spills.values()), output
        assert not COMPLAINT.search(made.log), output
