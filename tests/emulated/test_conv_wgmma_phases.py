"""Strided input gradients whose operands TMA loads, on the emulated device: a product for each phase, phases as
columns, interleaved phases, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conv_runs import H200, TF32, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.conv.problem import Conv
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.lowered import im2col_of


def test_random_strided_input_gradients():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_phased"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


def test_random_input_gradients_with_phases_as_columns():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_merged"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        on = replace(H200, sms=12) if n % 2 else H200
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), on, seed=n, completion=("late", "early")[n % 2])


#: shape, configuration: phases are columns of one product, or of one for each row of them
MERGED = {
    "the first layer of a network": ("C=3,H=12,W=16,K=64,R=7,S=7,stride=2,pad=3", "ml=64 nl=16 u=64"),
    "channels on the side of the rows": (
        "C=3,H=12,W=16,K=24,R=7,S=7,stride=2,pad=3",
        "transposed_mma=1 ml=32 nl=64 u=32 tma_rows=16",
    ),
    "strides that differ, uneven padding, pingpong": (
        "C=2,H=12,W=15,K=40,R=3,S=5,stride=2x3,pad=1x1x2x0",
        "ml=64 nl=16 u=16 persistent=1 math_warpgroups=2 pingpong=1",
    ),
    "pixels that no result reads": ("C=4,H=8,W=8,K=16,R=3,S=3,stride=2", "ml=64 nl=16 u=16"),
    "along the width, of 5x5 taps": ("C=24,H=11,W=8,K=72,R=5,S=5,stride=2,pad=1", "ml=64 nl=48 u=64 epilogue_smem=1"),
    "along the width, no taps for some rows": (
        "C=13,H=11,W=9,K=24,R=1,S=6,stride=2x3,pad=0x2",
        "transposed_mma=1 ml=40 nl=64 u=32 math_warpgroups=2 pingpong=1 persistent=1",
    ),
    "along the width, wide padding": (
        "C=8,H=6,W=10,K=40,R=4,S=7,stride=3x2,pad=5x6",
        "ml=64 nl=16 u=16 persistent=1 cluster_x=2",
    ),
}


@pytest.mark.parametrize(
    ("case", "inputs"), [*((case, {"dtype": "f16"}) for case in MERGED), *((case, TF32) for case in [*MERGED][::3])]
)
def test_phases_as_columns(case, inputs):
    shape, config = MERGED[case]
    p = Conv(**Conv.read_shape("N=2," + shape), layout="NHWC", direction="input_grad", **inputs)
    if p.element.bytes == 4:  # C of four bytes is stored from registers
        config = config.replace(" epilogue_smem=1", "")
    c = parse_config("family=wgmma stages=3 operand_path_b=pack " + config)
    verify(p, c, "integers", 2.0, 1.0, replace(H200, sms=4))


#: shape, what else, configuration
PHASES = {
    "three phases without taps": ("C=72,H=9,W=7,K=40,R=1,S=1,stride=2", {}, "ml=64 nl=48 u=64 epilogue_smem=1"),
    "the same, which store the bias": (
        "C=24,H=7,W=8,K=16,R=1,S=2,stride=3",
        {"epilogue": "bias,relu"},
        "ml=64 nl=32 u=32",
    ),
    "taps of a phase that are not adjacent": (
        "C=40,H=9,W=17,K=72,R=3,S=4,stride=2x4,pad=1x0x1x1,dilation=2x3",
        {},
        "transposed_mma=1 ml=24 nl=64 u=32 epilogue_smem=1",
    ),
    "tiles of several phases for one block, in a cluster": (
        "C=136,H=11,W=9,K=24,R=3,S=3,stride=2,pad=1",
        {},
        "ml=64 nl=64 u=64 persistent=1 cluster_x=2 epilogue_smem=1 epilogue_subtiles=2",
    ),
    "a stage has units of several taps": (
        "C=16,H=9,W=7,K=16,R=5,S=4,stride=2,pad=2",
        {"epilogue": "residual"},
        "ml=64 nl=16 u=128",
    ),
    "depth": ("C=40,D=5,H=6,W=7,K=24,T=2,R=3,S=2,stride=2,pad=1", {}, "ml=64 nl=48 u=32 epilogue_smem=1"),
    "channels that are packed, bytes that are not adjacent": (
        "C=13,H=6,W=6,K=12,R=3,S=3,stride=2,pad=1",
        {"filters": "KCRS"},
        "ml=64 nl=16 u=64 operand_path_a=pack operand_path_b=pack",
    ),
}


@pytest.mark.parametrize("case", PHASES)
def test_phases_of_strided_input_gradients(case):
    shape, fields, config = PHASES[case]
    p = Conv(**Conv.read_shape("N=2," + shape), layout="NHWC", dtype="f16", direction="input_grad", **fields)
    verify(p, parse_config("family=wgmma stages=3 " + config), "normal" if p.epilogue else "integers", 2.0, 1.0)


#: layout, shape, what else, configuration: gradients of results are packed, pixels of C are in rows of their own
PACKED_PHASES = {
    "pixels on the side of the rows": (
        "NCHW",
        "C=24,H=11,W=8,K=72,R=5,S=5,stride=2,pad=1",
        {},
        "transposed_mma=1 ml=24 nl=64 u=64",
    ),
    "pixels on the side of the columns": (
        "NCHW",
        "C=70,H=9,W=13,K=40,R=3,S=4,stride=2x3,pad=1x0x2x1,dilation=3x2",
        {"dtype": "bf16", "out": "f32"},
        "ml=64 nl=48 u=32",
    ),
    "one tap in each phase": (
        "NCHW",
        "C=40,H=10,W=14,K=36,R=2,S=2,stride=2",
        TF32,
        "transposed_mma=1 ml=40 nl=128 u=32 math_warpgroups=2 pingpong=1 persistent=1",
    ),
    "phases without taps, which store the bias": (
        "NCHW",
        "C=13,H=7,W=8,K=9,R=1,S=2,stride=3",
        {"epilogue": "bias,relu"},
        "ml=64 nl=32 u=32",
    ),
    "padding wider than the filter": (
        "NCHW",
        "C=16,H=6,W=9,K=24,R=2,S=3,stride=2,pad=4x5",
        TF32,
        "transposed_mma=1 ml=16 nl=64 u=16 persistent=1 cluster_x=2",
    ),
    "images as an axis": ("CHWN", "C=24,H=9,W=7,K=40,R=3,S=5,stride=2,pad=1", {}, "transposed_mma=1 ml=24 nl=64 u=64"),
    "images as an axis, no taps for some pixels": (
        "CHWN",
        "C=9,H=8,W=7,K=12,R=1,S=2,stride=2x3",
        {**TF32, "epilogue": "residual"},
        "ml=64 nl=32 u=32",
    ),
    "a stride along one axis": ("NCHW", "C=24,H=9,W=8,K=40,R=3,S=3,stride=2x1,pad=1", {}, "ml=64 nl=64 u=64"),
    "depth": ("NCHW", "C=20,D=5,H=6,W=7,K=24,T=2,R=3,S=2,stride=2,pad=1", {}, "transposed_mma=1 ml=24 nl=64 u=32"),
}


@pytest.mark.parametrize("case", PACKED_PHASES)
def test_phases_of_packed_gradients(case):
    layout, shape, fields, config = PACKED_PHASES[case]
    n = 9 if layout == "CHWN" else 2
    fields = {"dtype": "f16", "direction": "input_grad", "layout": layout, **fields}
    p = Conv(**Conv.read_shape(f"N={n},{shape}"), **fields)
    path = "direct" if layout == "CHWN" else "pack"
    c = parse_config(f"family=wgmma stages=3 operand_path_a={path} operand_path_b=pack {config}")
    verify(p, c, "normal" if p.epilogue else "integers", 2.0, 1.0, replace(H200, sms=4))


#: shape, what else, configuration: a kernel interleaves images of the phases
INTERLEAVED_PHASES = {
    "three phases without taps": ("C=24,H=8,W=16,K=40,R=1,S=1,stride=2", {"dtype": "bf16"}, "ml=64 nl=64 u=64"),
    "four phases of different taps, through shared memory": (
        "C=70,H=8,W=16,K=24,R=3,S=3,stride=2,pad=1",
        {},
        "ml=128 nl=48 u=64 math_warpgroups=2 pingpong=1 persistent=1 epilogue_smem=1",
    ),
    "unequal phases, rows of odd length": (
        "C=24,H=7,W=9,K=72,R=3,S=3,stride=2,pad=1",
        {},
        "transposed_mma=1 ml=24 nl=64 u=64 epilogue_smem=1",
    ),
    "an odd stride": ("C=40,H=8,W=24,K=36,R=2,S=2,stride=3", TF32, "transposed_mma=1 ml=40 nl=128 u=32"),
    "a stride along rows only, f32 from f16": (
        "C=24,H=5,W=22,K=16,R=2,S=3,stride=1x2,pad=1",
        {"out": "f32", "aligned_input": 8},
        "ml=64 nl=32 u=32",
    ),
}


@pytest.mark.parametrize("case", INTERLEAVED_PHASES)
def test_interleaved_phases(case):
    alpha, beta = ((2.0, 0.0), (1.0, -3.0))[[*INTERLEAVED_PHASES].index(case) % 2]
    shape, fields, config = INTERLEAVED_PHASES[case]
    fields = {"dtype": "f16", "direction": "input_grad", "layout": "NCHW", **fields}
    p = Conv(**Conv.read_shape(f"N=2,{shape}"), **fields)
    a, b = ("pack" if copy else "direct" for copy in im2col_of(p).copies[::-1])
    c = parse_config(f"family=wgmma stages=3 interleave_phases=1 operand_path_a={a} operand_path_b={b} {config}")
    verify(p, c, "integers", alpha, beta, replace(H200, sms=4))


def test_interleaved_phases_are_rounded_once():
    """The product adds beta C to sums that are not rounded: 2049 + 1 is 2050 in f16, but 2049 alone rounds to 2048."""
    p = Conv(1, 8, 4, 4, 64, 1, 1, stride=2, layout="NCHW", dtype="f16", direction="input_grad")
    gradients, filters = np.ones((1, 64, 2, 2), np.float16), np.zeros((64, 8, 1, 1), np.float16)
    filters[0], filters[1] = 2048, 1
    c = parse_config("family=wgmma ml=64 nl=32 u=64 stages=3 interleave_phases=1 operand_path_b=pack")
    before = np.ones((1, 8, 4, 4), np.float16)
    out = Runner.of(EmulatedDriver(H200), p, c).compute({"A": gradients, "B": filters, "C": before}, 1.0, 1.0)["C"]
    assert (out[:, :, ::2, ::2] == 2050).all()
    out[:, :, ::2, ::2] = 1
    assert (out == 1).all()


def test_interleaved_phases_with_programmatic_dependent_launch():
    p = Conv(2, 16, 8, 8, 24, 3, 3, stride=2, padding=1, layout="NCHW", dtype="f16", direction="input_grad")
    c = parse_config(
        "family=wgmma ml=64 nl=32 u=32 stages=3 interleave_phases=1 operand_path_a=pack operand_path_b=pack pdl=on_exit"
    )
    verify(p, c, "integers", 1.0, 1.0)


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ("C=24,H=8,W=16,K=40,R=3,S=3,stride=2", {"layout": "NHWC"}),
        ("C=24,H=8,W=16,K=40,R=3,S=3,stride=2x1", {}),
        ("C=24,H=8,W=16,K=40,R=3,S=3,stride=5", {}),
        ("C=24,H=8,W=16,K=40,R=3,S=3,stride=2", {"epilogue": "bias"}),
        ("C=24,D=4,H=8,W=16,K=40,T=2,R=3,S=3,stride=2", {}),
    ],
)
def test_phases_that_are_not_interleaved(shape, fields):
    p = Conv(
        **Conv.read_shape(f"N=2,{shape}"), **{"layout": "NCHW", "dtype": "f16", "direction": "input_grad", **fields}
    )
    a, b = ("pack" if copy else "direct" for copy in im2col_of(p).copies[:: 1 if p.layout == "NHWC" else -1])
    c = parse_config(f"family=wgmma ml=64 nl=32 u=32 interleave_phases=1 operand_path_a={a} operand_path_b={b}")
    with pytest.raises(ConfigError) as error:
        plan_for(p, c, H200)
    assert error.value.rule == "wgmma_interleave_phases"


def test_random_interleaved_phases():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_interleaved"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


#: shape, configuration: blocks compute tiles of several phases
PERSISTENT_PHASES = {
    "four phases of different taps": (
        "C=136,H=11,W=9,K=24,R=3,S=3,stride=2,pad=1",
        "ml=64 nl=64 u=64 math_warpgroups=2 pingpong=1 epilogue_smem=1 epilogue_subtiles=2",
    ),
    "three phases without taps": (
        "C=72,H=9,W=7,K=40,R=1,S=1,stride=2",
        "ml=64 nl=48 u=64 math_warpgroups=2 pingpong=1 epilogue_smem=1",
    ),
    "some phases without taps, in a cluster": (
        "C=72,H=19,W=17,K=40,R=1,S=2,stride=2",
        "ml=64 nl=64 u=32 math_warpgroups=2 pingpong=1 cluster_x=2",
    ),
    "the same with one warpgroup": ("C=72,H=19,W=17,K=40,R=1,S=2,stride=2", "ml=64 nl=64 u=32 cluster_x=2"),
    "pixels on the side of the columns": (
        "C=40,H=9,W=17,K=72,R=3,S=4,stride=2x4,pad=1x0x1x1,dilation=2x3",
        "transposed_mma=1 ml=24 nl=64 u=32 math_warpgroups=2 pingpong=1 epilogue_smem=1",
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "early"])
@pytest.mark.parametrize("case", PERSISTENT_PHASES)
def test_blocks_that_compute_tiles_of_several_phases(case, completion):
    shape, config = PERSISTENT_PHASES[case]
    p = Conv(**Conv.read_shape("N=2," + shape), layout="NHWC", dtype="f16", direction="input_grad")
    c = parse_config("family=wgmma stages=3 persistent=1 " + config)
    verify(p, c, "integers", 2.0, 1.0, replace(H200, sms=4), completion=completion)
