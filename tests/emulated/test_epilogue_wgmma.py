"""Fused epilogues of every wgmma epilogue path, on the emulated device, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import padded
from ptxgen.problem.epilogue_ops import epilogue_rows
from ptxgen.problem.reference import operands
from ptxgen.runtime.check import CASES
from ptxgen.runtime.runner import Runner
from tests.emulated.test_epilogue import D, EmulatedDriver, parse_config, right

OPTIONS = {
    "fragments": "ml=64 nl=32 u=64 stages=2 vec_c=2",
    "fragments, persistent": "ml=64 nl=32 u=64 stages=2 persistent=1",
    "a boxful": "ml=64 nl=32 u=64 stages=2 epilogue_smem=1",
    "parts": "ml=128 math_warpgroups=2 nl=64 u=64 stages=2 epilogue_smem=1 epilogue_subtiles=4 epilogue_buffers=2",
    "parts along M": "transposed_mma=1 ml=64 nl=128 math_warpgroups=2 u=64 stages=3 epilogue_smem=1 epilogue_subtiles=2 epilogue_aliases_ab=1",
    "persistent": "ml=64 nl=64 u=64 stages=2 epilogue_smem=1 persistent=1 epilogue_subtiles=2",
    "in turn": "ml=64 math_warpgroups=2 pingpong=1 persistent=1 nl=32 u=64 stages=3 epilogue_smem=1",
    "cluster's sum": "ml=64 nl=64 u=64 stages=2 cluster_k=2 epilogue_smem=1",
    "last slice": "ml=64 nl=64 u=32 stages=2 kg=2 splitk=last_cta epilogue_smem=1",
    "shares": "ml=64 nl=64 u=32 stages=2 kg=2 splitk=distributed epilogue_smem=1 epilogue_subtiles=2 epilogue_buffers=2",
}
STAGES = [stage for row in epilogue_rows() for stage in row]
#: columns past the last whole box, rows past the last tile
P = Gemm(150, 72, 130, "NT", "f16", lda=136, ldb=136)


@pytest.mark.parametrize("options", OPTIONS)
def test_all_operations_combined(options: str) -> None:
    n = [*OPTIONS].index(options) % 2
    stages = ("scale_rows,bias_row,residual,gelu", "scale,bias_column,relu")[n]
    right(replace(P, epilogue=stages), f"family=wgmma {OPTIONS[options]}", n, cases=(CASES[3 * n],))


@pytest.mark.parametrize("stage", STAGES)
def test_each_operation(stage: str) -> None:
    right(
        replace(P, m=70, dtype="bf16", out="bf16", epilogue=stage),
        "family=wgmma " + OPTIONS["persistent"],
        cases=CASES[1:2],
    )


def test_wrong_residual_is_found() -> None:
    """The check can fail: the kernel gets another residual than the reference."""
    p = replace(P, epilogue="residual")
    runner = Runner.of(EmulatedDriver(D), p, parse_config("family=wgmma " + OPTIONS["parts"]))
    arrays = operands(p)
    c = arrays["C"]
    outs = [runner.compute(padded(p, arrays | {"residual": np.full_like(c, x)}))["C"] for x in (0.0, 8.0)]
    assert np.abs(outs[1] - outs[0]).min() > 7
