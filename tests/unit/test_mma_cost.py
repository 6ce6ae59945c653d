"""The cost model of the mma.sync family, and the candidates that it ranks."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.codegen.config import Columns, parse_config
from ptxgen.families.mma.cost import microseconds
from ptxgen.families.mma.old_candidates import best, candidates, ways
from ptxgen.families.mma.rules import MMA
from ptxgen.families.rules import legal
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse

H200 = device("h200")
PROBLEMS = (
    KernelGemm(512, 512, 512, "TN", "f64"),
    KernelGemm(16, 2560, 2560, "NN", "f32", "tf32"),
    KernelGemm(777, 1000, 1333, "NT", "f16"),
    KernelGemm(1000, 33, 70, "TT", "bf16"),
    KernelGemm(64, 64, 60000, "TN", "f64", deterministic=True),
    KernelGemm(1, 1, 1, "NN", "s8"),
)

#: what an H200 took, in microseconds: good kernels and bad ones
MEASURED = (
    (
        "gemm 4096,4096,4096 NT f64",
        "ms=32 ns=64 ml=128 nl=128 u=32 vec_a=2 vec_b=2 vec_c=2 mma_order=1 fragment_prefetch=0 raster_group=8",
        2408.5,
    ),
    (
        "gemm 16,2560,2560 NN f64",
        "ms=16 ns=16 ml=16 nl=64 u=16 kg=4 stages=5 vec_a=2 vec_b=2 vec_c=2 fragment_prefetch=0",
        16.1,
    ),
    ("gemm 32,32,60000 TN f64", "ms=16 ns=16 ml=32 nl=32 u=64 kg=99 stages=5 vec_a=2 vec_b=2 vec_c=2", 12.5),
    ("gemm 512,512,512 TN f64", "ms=16 ns=32 ml=64 nl=32 u=64 kl=2 vec_a=2 vec_b=2 vec_c=2", 8.7),
    ("gemm 776,1000,1336 NT f16", "ms=32 ns=64 ml=64 nl=128 u=64 stages=5 vec_a=8 vec_b=8 vec_c=4", 14.0),
    (
        "gemm 4096,4096,4096 NT f16",
        "ms=64 ns=64 ml=128 nl=256 u=32 stages=4 vec_a=8 vec_b=8 vec_c=4 raster_group=8",
        296.0,
    ),
    ("gemm 512,512,512 TN f32 compute=tf32", "ms=32 ns=32 ml=32 nl=64 u=64 kl=4 stages=5 vec_a=4 vec_b=4 vec_c=4", 5.4),
    (
        "gemm 2048,2048,2048 TN f32 compute=tf32",
        "ms=32 ns=64 ml=64 nl=128 u=16 stages=5 vec_a=4 vec_b=4 vec_c=4 epilogue_smem=1",
        100.5,
    ),
    (
        "gemm 777,1000,1333 NT f16",
        "ms=32 ns=32 ml=64 nl=64 u=32 stages=5 cp_async_a=0 cp_async_b=0 vec_c=4 epilogue_smem=1 fragment_prefetch=0 deferred_sts=1",
        34.0,
    ),
)


@pytest.mark.parametrize(("key", "text", "us"), MEASURED)
def test_the_model_is_near_what_was_measured(key, text, us):
    c = Columns.of([parse_config(f"family=1 {text}")])
    assert abs(np.log(microseconds(lower(parse(key)), c, H200)[0] / us)) < 0.25


@pytest.mark.parametrize("p", PROBLEMS, ids=KernelGemm.key)
def test_candidates_are_legal_and_differ(p):
    c = candidates(lower(p), H200)
    assert len(c)
    assert (c.family == MMA).all()
    assert legal(lower(p), c, H200).all()
    rows = np.stack(list(c.columns.values()), axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)
    us = microseconds(p, c, H200)
    assert np.isfinite(us).all()
    assert (us > 1).all()


def test_the_best_come_first_and_are_the_cheapest():
    p = PROBLEMS[0]
    found = best(p, H200, 5)
    assert [us for _, us in found] == sorted(us for _, us in found)
    assert found[0][1] == microseconds(p, candidates(lower(p), H200), H200).min()


def test_rows_off_alignment_may_be_copied():
    assert [w["operand_path"] for w in ways(PROBLEMS[2])] == [0, 3]
    assert [w["operand_path"] for w in ways(KernelGemm(63, 64, 64, "TN", "f16"))] == [0, 1]
    assert [w["operand_path"] for w in ways(KernelGemm(64, 64, 64, "TN", "f16"))] == [0]


def test_more_work_takes_longer_and_a_lesser_device_too():
    c = Columns.of([parse_config("family=1 ms=32 ns=32 ml=64 nl=64 u=16 vec_a=2 vec_b=2 vec_c=2")])
    us = [float(microseconds(KernelGemm(n, n, n, "TN", "f64"), c, H200)[0]) for n in (256, 512, 1024, 2048)]
    assert us == sorted(us)
    assert us[3] > 7 * us[2]
    assert microseconds(KernelGemm(1024, 1024, 1024, "TN", "f64"), c, device("a100"))[0] > us[2]
