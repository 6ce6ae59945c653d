"""Row stores of C from shared memory, where rows of C are not aligned to 16 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_runs import verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import C, elements, padded
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.emulated.test_epilogue import right

OPTIONS = {
    "a box": "ml=64 nl=64 u=32 stages=2",
    "subtiles": "ml=128 nl=64 math_warpgroups=2 u=32 stages=2 epilogue_subtiles=2 epilogue_buffers=2",
    "persistent, boxes of 32": "ml=128 nl=96 u=32 stages=2 persistent=1 epilogue_subtiles=3",
    "boxes of 16": "ml=64 nl=48 math_warpgroups=2 pingpong=1 persistent=1 u=32 stages=2",
    "boxes of 8": "ml=64 nl=8 u=32 stages=2",
    "transposed, rows no multiple of 16": "transposed_mma=1 ml=24 nl=128 u=32 stages=2",
    "transposed, staging in the stages": "transposed_mma=1 ml=64 nl=64 u=32 stages=3 epilogue_subtiles=2 epilogue_aliases_ab=1",
    "transposed, more rows than threads": "transposed_mma=1 ml=136 nl=64 u=32 stages=2",
    "transposed, persistent": "transposed_mma=1 ml=48 nl=128 u=32 stages=2 persistent=1 epilogue_subtiles=2 epilogue_buffers=2",
    "transposed, fewer rows than threads, pingpong": "transposed_mma=1 ml=8 nl=64 math_warpgroups=2 pingpong=1 persistent=1 u=32 stages=2",
    "distributed fix-up": "ml=64 nl=64 u=16 kg=3 splitk=distributed stages=2",
    "multicast": "ml=128 nl=64 math_warpgroups=2 u=32 stages=2 cluster_x=2 cluster_y=2 persistent=1",
    "last-slice fix-up": "ml=64 nl=64 u=32 kg=2 splitk=last_cta stages=2",
    "cluster reduction": "ml=64 nl=32 u=32 cluster_k=2 stages=2",
}
#: M, N, leading dimension, alignment: every place of a row's end in 16 bytes
PLACES = [(65, 67, 0, 16), (130, 131, 133, 2), (64, 61, 0, 4), (7, 5, 0, 2), (63, 72, 75, 8)]


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_of_any_length_and_alignment(options):
    """Only elements of C are written, and where beta is zero, C is not read."""
    c = parse_config(f"family=wgmma epilogue_smem=1 {OPTIONS[options]}")
    index = list(OPTIONS).index(options)
    n = index % len(PLACES)
    rows, columns, ld, aligned = PLACES[n]
    beta, inputs = float(index // 2 % 2), ("integers", "normal")[n % 2]
    p = Gemm(rows, columns, 40, "NT", "bf16" if n == 2 else "f16", ldc=ld or columns, aligned_c=aligned)
    verify(p, c, inputs, 2.0 - beta, beta, data=n, on="h200", shift=True)


@pytest.mark.each_value
@pytest.mark.parametrize("columns", [255, 256, 257, 521])
@pytest.mark.parametrize(
    "options",
    [
        "ml=64 nl=256",
        "ml=64 nl=256 persistent=1 math_warpgroups=2 pingpong=1",
        "ml=128 nl=192",
        "transposed_mma=1 ml=24 nl=256 math_warpgroups=2",
        "transposed_mma=1 ml=8 nl=256",
    ],
)
def test_rows_of_several_boxes(options, columns):
    """A warp stores a row of 256 elements, or a part of it; 16 bytes of C come from two boxes."""
    p = Gemm(67, columns, 16, "NT", "f16", ldc=columns + (columns == 256), aligned_c=2)
    c = parse_config(f"family=wgmma epilogue_smem=1 u=16 stages=2 {options}")
    verify(p, c, "integers", 1.0, float(columns == 257), data=columns, on="h200", shift=True)


def test_beta_c_is_added_in_shared_memory():
    c = parse_config("family=wgmma epilogue_smem=1 ml=64 nl=64 u=32 stages=2 epilogue_subtiles=2 epilogue_buffers=1")
    for swap in ("", " transposed_mma=1"):
        verify(Gemm(70, 75, 40, "NT", "f16"), parse_config(f"{c}{swap}"), "integers", 1.0, -2.0, on="h200", shift=True)


@pytest.mark.parametrize("transposed_mma", ["", " transposed_mma=1"])
def test_a_fused_epilogue(transposed_mma):
    p = Gemm(70, 75, 40, "NT", "f16", epilogue="scale_rows,bias_column,relu")
    right(p, f"family=wgmma epilogue_smem=1 ml=64 nl=64 u=32 stages=2{transposed_mma}", 1)


def test_batch_items_of_any_alignment():
    p = Gemm(19, 21, 40, "NT", "f16", batch=3)
    driver, (a, b, old) = EmulatedDriver(device("h200")), operands(p, 1, "integers").values()
    for text in ("", "transposed_mma=1 persistent=1"):
        runner = Runner.of(driver, p, parse_config(f"family=wgmma epilogue_smem=1 ml=64 nl=64 u=32 stages=2 {text}"))
        out = runner.compute(padded(p, {"A": a, "B": b, "C": np.full_like(old, np.nan)}))["C"]
        assert np.array_equal(elements(p, C, out), reference(p, {"A": a, "B": b}).exact)
