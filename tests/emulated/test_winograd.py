"""Winograd convolutions on the emulated device: random cases, odd extents, dependent launch, padding of matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config import parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.winograd.transforms import matrix_offsets
from ptxgen.lowering.conv_to_gemm import lower_conv
from ptxgen.lowering.lower import lower
from ptxgen.problem.conv import Conv
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import CASES
from ptxgen.runtime.conv_check import guarded
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right

H200 = device("h200")
SMALL = parse_config("family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4")


@pytest.mark.parametrize("seed", range(4))
def test_random_cases(seed):
    for p, c in SOURCES["winograd"].cases(seed, 3, H200, limit=40, threads=256):
        right(p, c, seed)


@pytest.mark.parametrize("pad", ["0", "1", "0x2x1x0", "3"])
@pytest.mark.parametrize("extents", ["H=3,W=4", "H=5,W=6", "H=7,W=7"])
def test_last_rows_and_columns(extents, pad):
    p = parse(f"conv N=2,C=17,{extents},K=21,R=3,S=3,pad={pad} NCHW f32")
    for direction, case in (("forward", CASES[0]), ("input_grad", CASES[3])):
        right(replace(p, direction=direction), SMALL, cases=(case,))


@pytest.mark.parametrize("pdl", ["on_exit", "on_start", "within_launch"])
def test_dependent_launch(pdl):
    p = parse("conv N=1,C=16,H=6,W=6,K=16,R=3,S=3,pad=1 NCHW f32")
    config = parse_config(f"{SMALL} pdl={pdl}")
    right(p, config, 2)


def test_beta_zero_does_not_read_the_result_and_nan_stays_in_its_windows():
    p = parse("conv N=1,C=16,H=8,W=8,K=16,R=3,S=3,pad=1 NCHW f32")
    a, b, c = operands(p, 0, "integers")
    a[0, 3, 0, 0] = np.nan
    driver = EmulatedDriver(H200)
    out, unchanged = guarded(Runner.of(driver, p, SMALL), a, b, np.full_like(c, np.nan), 1.0, 0.0, ())
    exact = reference(p, a, b, c).exact
    assert unchanged
    assert np.isnan(out[np.isnan(exact)]).all()
    # a patch is as far as a NaN spreads: the tiles whose patches have the pixel
    assert np.array_equal(out[..., 2:], exact[..., 2:])


def test_error_beside_that_of_direct_products():
    """The error is at most a few times that of a direct convolution in f32, relative to float64."""
    p = parse("conv N=1,C=64,H=8,W=8,K=32,R=3,S=3,pad=1 NCHW f32")
    a, b, c = operands(p, 0)
    exact = reference(p, a, b, c).exact
    errors = []
    for config in (SMALL, parse_config("ms=4 ns=4 ml=32 nl=32 vec_a=1 vec_b=1 vec_c=1 u=8 stages=2")):
        out, _ = guarded(Runner.of(EmulatedDriver(H200), p, config), a, b, c, 1.0, 0.0, ())
        errors.append(float(np.sqrt(np.mean((out - exact) ** 2))))
    assert 0 < errors[0] < 3 * errors[1]


@pytest.mark.parametrize(
    "change",
    [
        {"stride": 2},
        {"dilation": 2, "padding": 2},
        {"r": 1, "padding": 0},
        {"c": 32, "k": 32, "groups": 2},
        {"dtype": "f16"},
        {"compute": "tf32"},
        {"direction": "weight_grad"},
        {"layout": "CHWN", "filters": ""},
        {"c": 15},
        {"n": 0},
        {"d": 3, "t": 3, "padding": 1},
    ],
    ids=str,
)
def test_other_convolutions_are_refused(change):
    fields = {"n": 2, "c": 16, "h": 9, "w": 9, "k": 16, "r": 3, "s": 3, "padding": 1} | change
    with pytest.raises(ConfigError, match="winograd_filter"):
        plan_for(Conv(**fields), SMALL, H200)


def test_the_workspace_holds_the_sixteen_matrices():
    p = parse("conv N=2,C=17,H=7,W=9,K=21,R=3,S=3,pad=1 NCHW f32")
    product = lower(p).winograd
    assert (product.m, product.n, product.k, product.batch) == (24, 40, 20, 16)
    launch = plan_for(p, SMALL, H200).launch(lower(p))
    offsets = matrix_offsets(product)
    assert offsets["b"] == 16 * 24 * 20 * 4
    assert launch.workspace == offsets[""] == 64 * (24 * 20 + 20 * 40 + 24 * 40)
    assert [step.entry.rpartition("_")[2] for step in launch.steps] == ["filters", "images", "nn", "results"]


def test_a_variable_excludes_the_family(monkeypatch):
    p = parse("conv N=2,C=18,H=5,W=9,K=37,R=3,S=3,pad=1 NCHW f32")
    assert lower_conv(p).winograd is not None
    monkeypatch.setenv("PTXGEN_WINOGRAD", "off")
    assert lower_conv(p).winograd is None
