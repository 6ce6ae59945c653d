"""Sparse products that kernels of GEMMs compute on the dense matrix, executed with checks for races, bounds and
uninitialised reads; every element is compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.device import device
from ptxgen.problem.reference import reference, verdict
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import PreparedOperands
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

H100 = replace(device("h100"), sms=8)


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(24))
def test_random_problems_and_configurations(n: int) -> None:
    on = (H100, H100, device("a100"), device("t4"))[n % 4]
    for p, c in SOURCES["spmm_dense"].cases(700 + n, 1, on, threads=384):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(on), p, c, n) if not r.ok]
        assert not wrong, f"{p.key()} | {c}"


def test_cases_have_every_family() -> None:
    assert {c.family for _, c in SOURCES["spmm_dense"].cases(1, 60, H100)} == {"simt", "mma", "skinny", "wgmma"}


WORDS = parse_config("family=simt ms=4 ns=4 ml=32 nl=32 u=8 cp_async_a=0 cp_async_b=0 stages=2")


def test_a_row_longer_than_a_warps_part_has_several_blocks() -> None:
    p = Spmm(3, 5, 9000, pattern="bernoulli:density=0.9", calls=1000)
    arrays = arrays_of(p, 1, "integers")
    got = Runner.of(EmulatedDriver(), p, WORDS).compute(arrays)["C"]
    assert verdict("integers", got, reference(p, arrays)).ok


def test_nonfinite_elements_of_b_give_nan_where_a_has_no_nonzero() -> None:
    """Zeros of the dense matrix multiply infinities; ``exact_nonfinite`` leaves the form out."""
    p = Spmm(9, 8, 40, pattern="bernoulli:density=0.2", calls=1000)
    arrays = arrays_of(p, 1, "integers")
    column = int(np.setdiff1d(np.arange(40), arrays["indices"][: arrays["indptr"][1]])[0])
    arrays["B"][column] = np.inf
    got = Runner.of(EmulatedDriver(), p, WORDS).compute(arrays)["C"]
    assert np.isnan(got[0]).all()
    exact = replace(p, exact_nonfinite=True)
    assert not lower(exact).forms
    row = parse_config("family=row_split row_lanes=8 block_groups=4 vec_b=1")
    got = Runner.of(EmulatedDriver(), exact, row).compute(arrays)["C"]
    assert np.isfinite(got[0]).all()


def product_of(driver: EmulatedDriver, runner: Runner, at: dict[str, int], like: Any) -> Any:
    runner.bind(at)()
    driver.synchronize()
    out = np.empty_like(like)
    driver.download(at["C"], out)
    return out


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_update_stores_new_values(dtype: str) -> None:
    """Elements of the former values without a nonzero stay zero; another runner reads the same dense matrix."""
    p = Spmm(40, 16, 33, dtype=dtype, pattern="bernoulli:density=0.4", calls=1000)
    driver, arrays = EmulatedDriver(), arrays_of(p, 1, "integers")
    with Buffers(driver, arrays) as buffers:
        at = buffers.addresses
        operands = PreparedOperands(driver, at)
        runner = Runner.of(driver, p, WORDS).on(operands)
        assert operands.bytes >= 40 * 33 * p.element.bytes
        got = product_of(driver, runner, at, arrays["C"])
        assert verdict("integers", got, reference(p, arrays)).ok
        arrays["values"] = -2 * arrays["values"]
        driver.upload(at["values"], arrays["values"])
        assert np.array_equal(product_of(driver, runner, at, arrays["C"]), got)
        operands.update()
        assert verdict("integers", product_of(driver, runner, at, arrays["C"]), reference(p, arrays)).ok
        held = operands.bytes
        other = Runner.of(driver, p, WORDS.replace(nl=16, ns=2)).on(operands)
        assert operands.bytes == held
        assert verdict("integers", product_of(driver, other, at, arrays["C"]), reference(p, arrays)).ok
