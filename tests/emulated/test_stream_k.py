"""Stream-K of one product, executed with checks for bounds and races: shares of K iterations, NaN, planted faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import AsyncFault, DeadlockFault, RaceFault
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import Device, device
from ptxgen.problem.reference import operands
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.emulated.gemm_runs import verify

SIMT = "ms=2 ns=4 ml=16 nl=32 u=8 stream_k=1"
PAIRS = "ms=2 ns=2 ml=16 nl=16 u=8 ks=2 stream_k=1 cp_async_a=0 cp_async_b=0"  # one vector has the sums of both sets
MMA = "family=mma ms=16 ns=16 ml=16 nl=16 stream_k=1"
WIDE = "family=mma ms=16 ns=32 ml=32 nl=32 stream_k=1"


def on(blocks: int) -> Device:
    """A device with this many blocks at once."""
    return replace(device("h200"), sms=1, blocks_sm=blocks)


@pytest.mark.parametrize(
    ("p", "text", "blocks", "shares"),
    [
        (Gemm(35, 70, 132, "NN", "f64"), f"{WIDE} u=16 kl=2", 4, (0, 54, 14)),
        (Gemm(35, 38, 66, "TT", "c128"), f"{MMA} u=8", 4, (4, 45, 12)),
        (Gemm(33, 67, 44, "NT", "f32"), f"{SIMT} kl=2 ks=2 raster_group=2", 4, (4, 30, 8)),
        (Gemm(33, 40, 400, "NT", "s8"), f"{WIDE} u=64 vec_a=16 vec_b=16", 3, (0, 28, 10)),
        (Gemm(40, 72, 200, "TN", "f16", "f16"), f"{WIDE} u=32 vec_a=8 vec_b=8", 7, (0, 42, 6)),
        (Gemm(20, 33, 40, "NN", "f32", epilogue="relu"), SIMT, 2, (4, 0, 4)),  # no share
        (Gemm(20, 36, 0, "NN", "f32"), SIMT, 3, (0, 4, 4)),
        (Gemm(40, 8, 15, "NN", "f16", "f16"), PAIRS, 2, (0, 6, 4)),
    ],
    ids=lambda x: x.key() if isinstance(x, Gemm) else "",
)
def test_blocks_share_the_iterations_of_the_last_tiles(p, text, blocks, shares):
    """The shares are (tiles computed whole, iterations of the others, those of a share)."""
    c = parse_config(text)
    assert plan_for(p, c, on(blocks)).scheduler.shares(lower(p)) == shares
    distribution, beta = (("integers", 1.0), ("normal", 0.0))[p.n % 2]
    verify(p, c, distribution, 2.0, beta, on=on(blocks), completion=("late", "early")[p.m % 2])


ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF).view(np.float64)


def runner_of(p: Gemm, text: str, blocks: int, right: str = "", wrong: str = "") -> Runner:
    """The runner of a kernel in whose text ``right`` is replaced by ``wrong``."""
    driver = EmulatedDriver(on(blocks))
    plan = plan_for(p, parse_config(text), on(blocks))
    source = render(plan)
    assert right in source.text
    return Runner(driver, plan, driver.load(replace(source, text=source.text.replace(right, wrong))), p)


def test_a_sum_may_be_a_nan_of_any_bits():
    """Arithmetic in f64 keeps payloads of NaN, and a word with all bits set would count as missing."""
    p = Gemm(16, 16, 64, "NN", "f64")
    arrays = operands(p, 0, "integers")
    arrays["A"][3] = ALL_BITS
    runner = runner_of(p, f"{MMA} u=8", 2)
    out = runner.compute(arrays)["C"]
    assert np.isnan(out[3]).all()
    assert not np.isnan(np.delete(out, 3, 0)).any()
    assert not runner.workspace_dirty()
    with pytest.raises(DeadlockFault):
        runner_of(p, f"{MMA} u=8", 2, "max.u64", "// max.u64").compute(arrays)


def test_planted_faults_are_reported():
    p = Gemm(20, 36, 72, "NN", "f32")
    dirty = runner_of(
        p, f"{SIMT} kl=2", 3, "{%no_word, %no_word, %no_word, %no_word}", "{%word0, %word1, %word2, %word3}"
    )
    dirty.compute(operands(p, 0, "integers"))
    assert dirty.workspace_dirty()
    next_tile = "mov.u32 %tmp0, %nctaid.x;"
    races = runner_of(p, f"{SIMT} kl=2", 3, f"bar.sync 0;\n    {next_tile}", next_tile)
    with pytest.raises((RaceFault, AsyncFault)):
        races.compute(operands(p, 0, "integers"))
