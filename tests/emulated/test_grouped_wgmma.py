"""Lists by wgmma kernels, executed with checks for bounds and races: rows and ranges of K of one tensor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import FAMILIES, parse_config
from ptxgen.families.common.rules import first_violation
from ptxgen.families.common.space import candidates
from ptxgen.lowering.lower import lower
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import device
from ptxgen.runtime import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.emulated.gemm_runs import right

CONFIGS = (
    "ml=64 nl=32",
    "ml=32 nl=64 transposed_mma=1 raster_group=2 l2_evict_first=b_once",
    "ml=128 nl=32 math_warpgroups=2 epilogue_smem=1 epilogue_subtiles=2 epilogue_buffers=2",
    "ml=64 nl=32 math_warpgroups=2 pingpong=1 epilogue_smem=1 l2_evict_first=b_once",
    "ml=32 nl=64 transposed_mma=1 cluster_x=2 cluster_y=2 epilogue_smem=1 raster_group=2",
)
EPILOGUES = ("", "bias_column,relu_grad", "scale_rows,residual,relu_grad")
#: each configuration with two of the epilogues, and each epilogue with both layouts
CASES = [
    (("NN", "NT")[(i + j) % 2], epilogue, config)
    for i, config in enumerate(CONFIGS)
    for j, epilogue in enumerate(EPILOGUES)
    if (i + j) % 3
]


@pytest.mark.parametrize(("layout", "epilogue", "config"), CASES)
def test_rows_of_one_tensor(layout, epilogue, config):
    """wgmma: boxes of an item end with its last row."""
    p = GroupedGemm(
        tuple((m, 48, 64) for m in (5, 0, 33, 1, 140, 0, 70)), layout, "bf16", jagged="m", epilogue=epilogue
    )
    c = parse_config(f"family=wgmma u=32 stages=2 persistent=1 {config}")
    n = CASES.index((layout, epilogue, config))
    right(p, c, n, replace(device("h200"), sms=4), (check.CASES[n * 3 % 4],))


@pytest.mark.parametrize(
    ("config", "epilogue", "out"),
    [
        ("ml=64 nl=32", "scale_rows,residual", "f32"),
        ("ml=128 nl=32 math_warpgroups=2 epilogue_smem=1 epilogue_subtiles=2 epilogue_buffers=2", "", ""),
        ("ml=32 nl=64 transposed_mma=1 raster_group=2 epilogue_smem=1", "bias_column,relu", ""),
        ("ml=32 nl=64 transposed_mma=1 cluster_x=2 cluster_y=2", "", "f32"),
    ],
)
def test_ranges_of_k_of_two_tensors(config, epilogue, out):
    """wgmma: boxes of an item end with its last row, which is inside a stage."""
    items = tuple((72, 48, k) for k in (5, 0, 33, 1, 140, 0, 70))
    p = GroupedGemm(items, "TN", "bf16", jagged="k", epilogue=epilogue, out=out)
    c = parse_config(f"family=wgmma u=32 stages=2 persistent=1 {config}")
    right(p, c, len(config), replace(device("h200"), sms=4))


def test_candidates_of_wgmma_serve_items_of_any_rows():
    """A kernel chosen for items of few rows computes an item of many."""
    p = GroupedGemm(tuple((m, 48, 32) for m in (3, 9, 0, 70, 1, 33)), "NN", "bf16", jagged="m")
    on = replace(device("h200"), sms=3)
    few = candidates(lower(replace(p, items=((3, 48, 32), (9, 48, 32)))), on)
    wgmma = np.flatnonzero(few.family == FAMILIES.index("wgmma"))
    assert len(wgmma) > 100
    arrays = random_group(p, 1, "integers")
    arrays["C"][...] = p.output.poison
    for i in np.random.default_rng(0).choice(wgmma, 6):
        runner = Runner.of(EmulatedDriver(on, races=False), p, few.row(int(i)))
        out = runner.compute(arrays, 1.0, 0.0)["C"]
        assert group_deviation(p, arrays, out, "integers").ok, few.row(int(i))
    assert first_violation(lower(p), few.row(int(wgmma[0])).replace(tma_rows=32), on) is not None
