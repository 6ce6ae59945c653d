"""Steps on pairs of elements of 16 bits: results have the bits of steps on single elements, or of NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxgen.api.task import task
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.common.space import candidates
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import semiring_program
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "s16": np.int16, "u16": np.uint16}
ODD = "ms=4 ns=4 ml=16 nl=32 u=16 ks=2 vec_a=1 vec_b=1 vec_c=1 cp_async_a=0 cp_async_b=0"
SPLIT = f"{ODD} kl=2 kg=2 splitk=workspace"


def test_random_programs_and_outputs() -> None:
    d = device("h200")
    for n, (p, c) in enumerate(SOURCES["task_pairs"].cases(15, 4, d, limit=33, threads=64)):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(d), p, c, n) if not r.ok]
        assert not wrong, f"{p.key()} | {c}: {wrong}"


def computed(p: Task, config: str, arrays: dict[str, Any]) -> Any:
    driver = EmulatedDriver()
    plan = plan_for(p, parse_config(config), driver.device)
    return Runner(driver, plan, driver.load(render(plan)), p).compute(arrays)["C"]


@pytest.mark.parametrize(("dtype", "config"), [("f16", SPLIT), ("bf16", ODD)])
def test_pairs_have_the_bits_of_single_elements(dtype: str, config: str) -> None:
    """Overflow, subnormal numbers, infinities, zeros of both signs, NaN; odd N, a remainder of K."""
    p = Task(9, 35, 21, dtype=dtype, text=canonical(semiring_program("max_plus", dtype)))
    assert lower(p).algebra.paired is not None
    rng, type = np.random.default_rng(2), np.dtype(NUMPY[dtype])
    bits = [rng.integers(0, 1 << 16, s, np.uint16) for s in ((9, 21), (21, 35))]
    for x in bits:
        x[rng.random(x.shape) < 0.05] = 0x8000
    a, b = (x.view(type) for x in bits)
    with np.errstate(invalid="ignore"):
        a, b = (np.where(np.isnan(x) & (rng.random(x.shape) < 0.8), type.type(0), x) for x in (a, b))
    arrays = {"A": a, "B": b, "C": np.zeros((9, 35), type)}
    single, pairs = (computed(p, f"{config} column_pairs={n}", arrays) for n in (0, 1))
    np.testing.assert_array_equal(single.view(np.uint16), pairs.view(np.uint16))
    assert np.isnan(pairs).any()
    assert not np.isnan(pairs).all()


@pytest.mark.parametrize("dtype", ["s16", "u16"])
def test_declared_integers_wrap_around_as_those_of_numpy(dtype: str) -> None:
    type = np.dtype(NUMPY[dtype])
    rng, bounds = np.random.default_rng(4), np.iinfo(type)
    a, b = (rng.integers(bounds.min, bounds.max + 1, s).astype(type) for s in ((7, 19), (19, 33)))
    step = "where (i, j) {{ reduce (k) {{ {} }} C[i, j] = accum; }}"
    cube = a[:, :, None] + b[None]
    greatest = task(f"accum: {dtype}; {step.format('accum = max(accum, A[i, k] + B[k, j]);')}")
    np.testing.assert_array_equal(greatest(a, b), cube.max(1))
    total = task(f"accum: {dtype}; {step.format('accum += A[i, k] + B[k, j] + 7;')}")
    np.testing.assert_array_equal(total(a, b), (cube + type.type(7)).sum(1, dtype=type))
    products = task(f"accum: {dtype}; {step.format('accum = min(accum, A[i, k] * B[k, j] - 3);')}")
    np.testing.assert_array_equal(products(a, b), (a[:, :, None] * b[None] - type.type(3)).min(1))
    assert (greatest(a[:, :0], b[:0]) == bounds.min).all()
    narrow = a.view(np.int8 if dtype == "s16" else np.uint8)[:, :19]
    np.testing.assert_array_equal(greatest(narrow, b), (narrow[:, :, None] + b[None]).max(1))


def test_candidates_compute_pairs_where_the_device_has_instructions() -> None:
    def pairs_of(dtype: str, on: str) -> int:
        p = Task(256, 256, 256, dtype=dtype, text=canonical(semiring_program("min_max", dtype)))
        return int(np.unique(candidates(lower(p), device(on)).column_pairs).item())

    assert [pairs_of("f16", on) for on in ("t4", "a100")] == [0, 1]
    assert [pairs_of("u16", on) for on in ("a100", "h100")] == [0, 1]
