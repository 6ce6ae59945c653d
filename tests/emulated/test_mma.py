"""mma.sync kernels, executed with checks for races, bounds and uninitialised reads; every element is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import execute, random_epilogues, right, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.tuning import selection
from tests.cases.mma import TYPES, config, problem

SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0), (0.0, 1.0))
ON = ("emulated", "a100", "rtx4090", "b200", "t4")


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(30))
def test_random_problems_and_configurations(n):
    """Types, layouts, extents, leading dimensions, alignment, every axis; warp order and copy completion differ per
    run."""
    rng, on = np.random.default_rng(5000 + n), device(ON[n % 5])
    c = None
    while c is None:
        p = problem(rng, 90, on)
        if rng.random() < 0.4:
            starts = [
                int(rng.choice([x for x in (1, 2, 4, 8, 16) if x >= element.bytes]))
                for element in (p.element, p.element, p.output)
            ]
            p = replace(p, aligned_a=starts[0], aligned_b=starts[1], aligned_c=starts[2])
        c = config(p, on, rng, 256)
    inputs, (alpha, beta) = ("integers", "normal", "scaled")[n % 3], SCALES[n % 4]
    verify(
        p,
        c,
        inputs,
        alpha,
        beta,
        data=n,
        on=on.name,
        shift=bool(n % 2),
        seed=n,
        completion=("late", "early")[n // 2 % 2],
    )


OPTIONS = ("", "kl=2 fragment_prefetch=0", "kg=2 splitk=workspace", "operand_path_a=pack operand_path_b=pack")
#: each type with a layout and one of OPTIONS, in turn
PAIRS = [(*types, LAYOUTS[(i // 4 - i) % 4], OPTIONS[i % 4]) for i, types in enumerate(dict.fromkeys(TYPES))]


@pytest.mark.parametrize(("dtype", "compute", "out", "layout", "options"), PAIRS)
def test_every_type_layout_and_reduction(dtype, compute, out, layout, options):
    """With rows that allow no vector access: through registers, or packed first."""
    p = Gemm(37, 35, 150, layout, dtype, compute, out=out)
    size = p.element.bytes
    depth = {1: 64, 2: 32, 4: 16, 8: 8}[size] * (2 if "kl=2" in options else 1)
    copies = f"vec_a={16 // size} vec_b={16 // size}"
    if options != "operand_path_a=pack operand_path_b=pack":
        copies = f"cp_async_a={int(size > 2)} cp_async_b={int(size > 2)}"
    c = parse_config(f"family=mma ms=16 ns=16 ml=32 nl=32 u={depth} stages=2 {copies} {options}")
    on = "rtx4090" if size == 1 else "emulated"
    assert first_violation(lower(p), c, device(on)) is None
    verify(p, c, "integers", 2.0, -1.0, data=len(options), on=on)


@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 37, 1), (16, 8, 32), (17, 9, 33), (61, 7, 3), (33, 31, 0), (5, 0, 9)])
@pytest.mark.parametrize(
    "text",
    [
        "u=32 cp_async_a=0 cp_async_b=0",
        "u=32 operand_path_a=pack operand_path_b=pack vec_a=8 vec_b=8",
        "bounds=predicate kl=2 u=64 cp_async_a=0 cp_async_b=0",
    ],
)
def test_extents(shape, text):
    p = Gemm(*shape, "NT" if shape[0] % 2 else "TN", "f16")
    c = parse_config(f"family=mma ms=16 ns=8 ml=32 nl=16 {text}")
    verify(p, c, "integers", 1.0, 1.0)


def test_infinities_and_nan_propagate():
    p = Gemm(20, 24, 40, "NN", "f32", "tf32")
    a, b, c = operands(p, 1, "integers").values()
    a[3, 5], a[4, 6], b[7, 2] = np.nan, np.inf, -np.inf
    text = "family=mma ms=16 ns=16 ml=32 nl=32 u=16"
    with np.errstate(all="ignore"):
        exact = reference(p, {"A": a, "B": b, "C": c}, 1.0, 1.0).exact
    out = execute(p, parse_config(text), (a, b, c), 1.0, 1.0)
    np.testing.assert_array_equal(out.astype(np.float64), exact)


def test_random_epilogues():
    on = device("emulated")
    random_epilogues(6, 3, lambda rng: problem(rng, 48, on), lambda p, rng: config(p, on, rng, 128))


@pytest.mark.parametrize(
    "problem",
    [
        GroupedGemm(((33, 16, 48), (5, 0, 3), (7, 9, 0), (64, 64, 64)), "NT", "e4m3"),
        GroupedGemm(((24, 32, 20), (24, 32, 0), (24, 32, 33)), "TN", "e5m2", jagged="k"),
        GroupedGemm(((24, 32, 0), (5, 32, 0)), "NT", "e4m3", jagged="m"),
        Conv(2, 16, 3, 3, 24, 3, 3, dtype="e4m3"),
    ],
    ids=lambda p: p.key(),
)
def test_fp8_of_hopper_that_wgmma_does_not_compute(problem):
    on = device("h200")
    right(problem, selection.require(problem, on)[0].config, 0, on)


@pytest.mark.parametrize(
    "problem",
    [
        GroupedGemm(((33, 16, 48), (5, 0, 3), (7, 9, 0), (64, 64, 64)), "NT", "f16"),
        Conv(2, 16, 9, 9, 24, 3, 3, dtype="f16", layout="NHWC"),
        Conv(2, 32, 9, 9, 24, 3, 3, dtype="s8", layout="NHWC"),
    ],
    ids=lambda p: p.key(),
)
def test_turing_multiplies_on_tensor_cores(problem):
    on = device("t4")
    config = selection.require(problem, on)[0].config
    assert config.family == "mma"
    right(problem, config, 0, on)
