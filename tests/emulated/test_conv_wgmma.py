"""Convolutions that TMA loads, on the emulated device: all directions, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config import Config, parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.conv import Conv
from ptxgen.problem.device import Device, device
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES

H200 = device("h200")


def verify(
    p: Conv, c: Config, kind: str, alpha: float = 1.0, beta: float = 0.0, on: Device = H200, **machine: object
) -> None:
    a, b, before = operands(p, 0, kind)
    if beta == 0:
        before = np.full_like(before, p.output.poison)
    more = epilogue_arrays(p, 0, kind)
    expected = reference(p, a, b, before, alpha, beta, more)
    out = Runner.of(EmulatedDriver(on, **machine), p, c).compute(a, b, before, alpha, beta, more)
    found = compare(out, expected)
    assert found.ok, f"{found}: {p.key()} | {c}"
    if kind == "integers" and not p.epilogue:
        assert np.array_equal(out.astype(np.float64), expected.rounded), f"not exact: {p.key()} | {c}"


@pytest.mark.parametrize("seed", range(2))
def test_random_convolutions(seed):
    for n, (p, c) in enumerate(SOURCES["conv_wgmma"].cases(seed, 3, H200, limit=70)):
        kind = ("integers", "normal", "scaled")[(n + seed) % 3]
        beta = float(n % 2)
        verify(p, c, kind, 1.0 + beta, beta, seed=seed, completion=("early", "late")[n % 2])


def test_random_convolutions_with_packed_operands():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_packed"].cases(0, 4, H200, limit=60)):
        kind = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, kind, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


#: layout, what else, shape, configuration
PACKED = {
    "images of odd size": (
        "NCHW",
        {},
        "C=16,H=5,W=7,K=24,R=3,S=2,pad=1",
        "ml=64 nl=64 operand_path_a=pack operand_path_b=pack",
    ),
    "rows of pixels on the 64-row side": (
        "NCHW",
        {},
        "C=16,H=5,W=7,K=24,R=3,S=2,pad=1",
        "transposed_mma=1 ml=24 nl=64 operand_path_a=pack operand_path_b=pack",
    ),
    "more channels than a block of the packing kernel": (
        "NCHW",
        {},
        "C=136,H=4,W=8,K=8,R=1,S=1",
        "ml=64 nl=16 operand_path_a=direct operand_path_b=pack",
    ),
    "few channels": (
        "NCHW",
        {},
        "C=3,H=16,W=17,K=8,R=3,S=2,stride=2",
        "ml=64 nl=16 operand_path_a=pack operand_path_b=pack",
    ),
    "a sum of all slices": (
        "NCHW",
        {"direction": "weight_grad"},
        "C=16,H=8,W=8,K=24,R=3,S=2",
        "ml=64 nl=32 kg=2 splitk=workspace operand_path_a=pack operand_path_b=pack",
    ),
    "slices that add to C": (
        "NCHW",
        {"direction": "weight_grad", "out": "f32"},
        "C=16,H=8,W=8,K=24,R=3,S=2",
        "ml=64 nl=32 kg=2 splitk=memset_red operand_path_a=pack operand_path_b=pack",
    ),
    "adjacent columns of C, strided rows": (
        "NCHW",
        {"direction": "weight_grad", "filters": "CRSK"},
        "C=64,H=6,W=7,K=24,R=3,S=2,pad=1",
        "transposed_mma=1 ml=32 nl=64 operand_path_a=pack operand_path_b=pack",
    ),
    "runs that end within a pair, through shared memory": (
        "NCHW",
        {},
        "C=16,H=5,W=7,K=72,R=3,S=3,pad=1",
        "ml=128 nl=48 math_warpgroups=2 epilogue_smem=1 epilogue_subtiles=2 persistent=1 operand_path_a=pack operand_path_b=pack",
    ),
    "more boxes than a kernel has instructions for": (
        "NCHW",
        {},
        "C=16,H=5,W=7,K=130,R=3,S=3,pad=1",
        "ml=256 nl=112 math_warpgroups=2 epilogue_smem=1 epilogue_subtiles=2 epilogue_buffers=2 persistent=1 operand_path_a=pack operand_path_b=pack",
    ),
    "the same of narrow boxes, an activation too": (
        "NCHW",
        {"epilogue": "scale,bias,gelu"},
        "C=16,H=4,W=7,K=130,R=3,S=3,pad=1",
        "ml=64 nl=56 epilogue_smem=1 operand_path_a=pack operand_path_b=pack",
    ),
    "pairs, and pixels on the 64-row side": (
        "NCHW",
        {"epilogue": "scale,bias,silu"},
        "C=16,H=5,W=8,K=72,R=3,S=3,pad=1",
        "ml=64 nl=128 transposed_mma=1 epilogue_smem=1 epilogue_subtiles=4 cluster_k=2 operand_path_a=pack operand_path_b=pack",
    ),
    "images along a row": (
        "CHWN",
        {},
        "C=16,H=6,W=7,K=24,R=3,S=2,pad=1",
        "ml=64 nl=32 epilogue_smem=1 operand_path_a=direct operand_path_b=pack",
    ),
    "all of an epilogue": (
        "NCHW",
        {"epilogue": "scale,bias,residual,silu"},
        "C=16,H=6,W=6,K=72,R=3,S=3,pad=1",
        "ml=64 nl=32 math_warpgroups=1 vec_c=2 operand_path_a=pack operand_path_b=pack",
    ),
}


@pytest.mark.parametrize("case", PACKED)
def test_packed_operands(case):
    layout, fields, shape, config = PACKED[case]
    p = Conv(**Conv.read_shape("N=8," + shape), layout=layout, dtype="f16", **fields)
    verify(p, parse_config("family=wgmma u=64 stages=3 " + config), "normal" if p.epilogue else "integers", 2.0, 1.0)


def test_random_convolutions_with_few_channels():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_few_channels"].cases(0, 4, H200, limit=60)):
        kind = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, kind, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


#: shape, what else, configuration
FEW_CHANNELS = {
    "a stride of two, two pixels in 16 bytes": (
        "C=3,H=17,W=19,K=24,R=7,S=7,stride=2,pad=3",
        {},
        "transposed_mma=1 ml=24 nl=64 u=32 epilogue_smem=1 persistent=1",
    ),
    "a stride of one, slices of K": ("C=3,H=9,W=9,K=24,R=3,S=3,pad=1", {}, "ml=64 nl=24 u=16 kg=2 splitk=workspace"),
    "columns of the image that no filter reads": (
        "C=2,H=15,W=20,K=8,R=3,S=3,stride=4,pad=1x1x0x0",
        {"layout": "NCHW"},
        "ml=64 nl=16 u=16",
    ),
    "f32": ("C=3,H=8,W=9,K=40,R=3,S=3,stride=2,pad=1", {"dtype": "f32", "compute": "tf32"}, "ml=64 nl=40 u=16"),
    "depth": ("C=3,D=3,H=6,W=7,K=16,T=2,R=3,S=2,pad=1", {"epilogue": "bias,relu"}, "ml=64 nl=16 u=16"),
}


@pytest.mark.parametrize("case", FEW_CHANNELS)
def test_few_channels(case):
    shape, fields, config = FEW_CHANNELS[case]
    p = Conv(**{**Conv.read_shape("N=3," + shape), "layout": "NHWC", "dtype": "f16", **fields})
    c = parse_config(f"family=wgmma stages=3 operand_path_a=pack operand_path_b=pack {config}")
    verify(p, c, "normal" if p.epilogue else "integers", 2.0, 1.0)


def test_infinities_are_multiplied_by_no_padding():
    """A pixel of the image reaches those results alone whose filters cover it."""
    p = Conv(1, 3, 8, 9, 16, 3, 3, stride=2, padding=1, layout="NHWC", dtype="f16")
    c = parse_config("family=wgmma ml=64 nl=16 u=16 stages=3 operand_path_a=pack operand_path_b=pack")
    a, b, before = operands(p, 0, "integers")
    images = a.reshape(8, 9, 3).copy()
    images[4, 5, 1] = np.inf
    b = np.abs(b) + 1
    out = Runner.of(EmulatedDriver(H200), p, c).compute(images.reshape(a.shape), b, before, 1.0, 0.0, {})
    infinite = np.isinf(out.astype(np.float32)).reshape(p.p, p.q, p.k).all(-1)
    want = [[abs(2 * i - 4) <= 1 and abs(2 * j - 5) <= 1 for j in range(p.q)] for i in range(p.p)]
    assert np.array_equal(infinite, want)
    assert not np.isnan(out.astype(np.float32)).any()


def test_random_strided_input_gradients():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_phased"].cases(0, 4, H200, limit=60)):
        kind = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, kind, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


def test_random_input_gradients_with_phases_as_columns():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_merged"].cases(0, 4, H200, limit=60)):
        kind = ("integers", "normal", "scaled")[n % 3]
        on = replace(H200, sms=12) if n % 2 else H200
        verify(p, c, kind, 1.0 + n % 2, float(n % 2), on, seed=n, completion=("late", "early")[n % 2])


TF32 = {"dtype": "f32", "compute": "tf32"}

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
    ("case", "kind"), [*((case, {"dtype": "f16"}) for case in MERGED), *((case, TF32) for case in [*MERGED][::3])]
)
def test_phases_as_columns(case, kind):
    shape, config = MERGED[case]
    p = Conv(**Conv.read_shape("N=2," + shape), layout="NHWC", direction="input_grad", **kind)
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


#: layout, shape, what else, configuration: stages have all taps of a filter row
ROW_TAPS = {
    "a slice of images, of several tiles": (
        "NHWC",
        "C=128,H=9,W=11,K=72,R=3,S=3,pad=1",
        {},
        "ml=128 nl=48 u=64 row_taps=3 math_warpgroups=2 epilogue_smem=1 epilogue_subtiles=2 persistent=1",
    ),
    "rows of 32 bytes, multicast filters, a tile for each warpgroup": (
        "NHWC",
        "C=16,H=9,W=11,K=32,R=3,S=3,pad=0x1x2x0",
        {"dtype": "bf16"},
        "ml=128 nl=32 u=16 row_taps=3 math_warpgroups=2 pingpong=1 persistent=1 cluster_x=2",
    ),
    "rows of 64 bytes, a stride along the height": (
        "NHWC",
        "C=32,H=9,W=11,K=24,R=5,S=5,stride=2x1,pad=2,dilation=2x1",
        {},
        "ml=256 nl=24 u=32 row_taps=5 math_warpgroups=2",
    ),
    "filters that stay in the stages": (
        "NHWC",
        "C=64,H=9,W=11,K=64,R=3,S=3,pad=1",
        {"epilogue": "scale,bias,residual,silu"},
        "ml=64 nl=64 u=64 row_taps=3 persistent=1 resident_b=1 epilogue_smem=1",
    ),
    "pixels on the side of the columns": (
        "NHWC",
        "C=24,H=9,W=11,K=24,R=3,S=3,pad=1",
        TF32,
        "ml=64 nl=64 u=8 row_taps=3 transposed_mma=1",
    ),
    "taps in reverse order, filters from registers": (
        "NHWC",
        "C=64,H=9,W=11,K=72,R=3,S=2,pad=1",
        TF32 | {"direction": "input_grad"},
        "ml=64 nl=64 u=16 row_taps=2 transposed_mma=1",
    ),
    "taps in reverse order, filters that are not K-major": (
        "NHWC",
        "C=72,H=9,W=11,K=64,R=3,S=3,pad=1",
        {"direction": "input_grad"},
        "ml=64 nl=64 u=64 row_taps=3",
    ),
    "packed images, adjacent columns of C are pixels of two rows": (
        "NCHW",
        "C=64,H=8,W=11,K=72,R=3,S=3,pad=1",
        {},
        "ml=64 nl=64 u=64 vec_c=2 row_taps=3 operand_path_a=pack operand_path_b=pack",
    ),
    "depth": ("NHWC", "C=64,D=3,H=5,W=6,K=72,T=3,R=3,S=3,pad=1", {"dtype": "e4m3"}, "ml=128 nl=64 u=64 row_taps=3"),
}


@pytest.mark.parametrize("case", ROW_TAPS)
def test_stages_of_all_taps_of_a_filter_row(case):
    layout, shape, fields, config = ROW_TAPS[case]
    p = Conv(**Conv.read_shape("N=2," + shape), **{"layout": layout, "dtype": "f16", **fields})
    kind = "normal" if p.epilogue or p.element.bytes == 1 else "integers"
    verify(p, parse_config("family=wgmma stages=3 " + config), kind, 2.0, 1.0)


def test_random_stages_of_all_taps_of_a_filter_row():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_row_taps"].cases(0, 4, H200, limit=48)):
        kind = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, kind, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


def test_the_corners_of_the_map_include_the_halo():
    p = Conv(**Conv.read_shape("N=1,C=64,D=2,H=5,W=4,K=64,T=1,R=3,S=3,pad=0x0x1x1x15x16"), layout="NHWC", dtype="f16")
    plain, shared = (parse_config(f"family=wgmma ml=64 nl=64 u=64 stages=3 row_taps={n}") for n in (1, 3))
    verify(p, plain, "integers")
    with pytest.raises(ConfigError, match="wgmma_row_taps_offsets"):
        plan_for(p, shared, H200)
    verify(replace(p, padding=(0, 0, 1, 1, 15, 15)), shared, "integers")


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ("R=3,S=3,pad=1,stride=2", "u=64 row_taps=3"),
        ("R=3,S=3,pad=1,dilation=2", "u=64 row_taps=3"),
        ("R=3,S=5,pad=1", "u=64 row_taps=3"),
        ("R=3,S=3,pad=1", "u=128 row_taps=3"),
        ("R=3,S=3,pad=1", "u=64 row_taps=3 kg=2"),
        ("R=3,S=3,pad=1", "u=64 row_taps=3 cluster_y=2"),
    ],
)
def test_illegal_stages_of_a_filter_row(shape, config):
    p = Conv(**Conv.read_shape("N=2,C=64,H=9,W=11,K=128," + shape), layout="NHWC", dtype="f16")
    with pytest.raises(ConfigError, match="wgmma_row_taps"):
        plan_for(p, parse_config("family=wgmma ml=64 nl=64 stages=3 " + config), H200)


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
    a, b = ("pack" if copy else "direct" for copy in lower(p).im2col.copies[::-1])
    c = parse_config(f"family=wgmma stages=3 interleave_phases=1 operand_path_a={a} operand_path_b={b} {config}")
    verify(p, c, "integers", alpha, beta, replace(H200, sms=4))


def test_interleaved_phases_are_rounded_once():
    """The product adds beta C to sums that are not rounded: 2049 + 1 is 2050 in f16, but 2049 alone rounds to 2048."""
    p = Conv(1, 8, 4, 4, 64, 1, 1, stride=2, layout="NCHW", dtype="f16", direction="input_grad")
    gradients, filters = np.ones((1, 64, 2, 2), np.float16), np.zeros((64, 8, 1, 1), np.float16)
    filters[0], filters[1] = 2048, 1
    c = parse_config("family=wgmma ml=64 nl=32 u=64 stages=3 interleave_phases=1 operand_path_b=pack")
    before = np.ones((1, 8, 4, 4), np.float16)
    out = Runner.of(EmulatedDriver(H200), p, c).compute(gradients, filters, before, 1.0, 1.0)
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
    a, b = ("pack" if copy else "direct" for copy in lower(p).im2col.copies[:: 1 if p.layout == "NHWC" else -1])
    c = parse_config(f"family=wgmma ml=64 nl=32 u=32 interleave_phases=1 operand_path_a={a} operand_path_b={b}")
    with pytest.raises(ConfigError) as error:
        plan_for(p, c, H200)
    assert error.value.rule == "wgmma_interleave_phases"


def test_random_interleaved_phases():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_interleaved"].cases(0, 4, H200, limit=60)):
        kind = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, kind, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


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


@pytest.mark.parametrize("completion", ["late", "early"])
@pytest.mark.parametrize("case", PERSISTENT_PHASES)
def test_blocks_that_compute_tiles_of_several_phases(case, completion):
    shape, config = PERSISTENT_PHASES[case]
    p = Conv(**Conv.read_shape("N=2," + shape), layout="NHWC", dtype="f16", direction="input_grad")
    c = parse_config("family=wgmma stages=3 persistent=1 " + config)
    verify(p, c, "integers", 2.0, 1.0, replace(H200, sms=4), completion=completion)


TAP_LOOPS = {
    "a tap is wider than a stage": ("C=136,H=6,W=7,K=24,R=3,S=2,pad=1", "ml=64 nl=24 u=64 stages=3"),
    "a stage has units of several taps": ("C=16,H=6,W=7,K=24,R=3,S=2,stride=2x1", "ml=64 nl=24 u=128 stages=3"),
    "the last stage ends past the last tap": ("C=16,H=6,W=7,K=24,R=3,S=3", "ml=64 nl=24 u=128 stages=3"),
    "slices begin within a tap": (
        "C=136,H=6,W=7,K=24,R=3,S=2,pad=1",
        "ml=64 nl=24 u=64 stages=3 kg=7 splitk=workspace",
    ),
    "slices begin in a row of taps": (
        "C=16,H=9,W=9,K=24,R=3,S=3,dilation=2x1",
        "ml=64 nl=24 u=16 stages=2 kg=8 splitk=last_cta",
    ),
    "pixels on the other side, for a cluster": (
        "C=32,H=9,W=9,K=72,R=3,S=3,pad=1x2",
        "transposed_mma=1 ml=32 nl=64 u=64 cluster_x=2",
    ),
    "the only place along depth is outside": (
        "C=64,H=3,W=4,D=1,K=24,R=2,S=2,T=1,pad=1x0x1x1x0x1,stride=2x1x1",
        "ml=64 nl=24 u=64",
    ),
    "one pixel": ("C=64,H=1,W=1,K=8,R=1,S=1,pad=1,stride=2", "ml=64 nl=8 u=64"),
}


@pytest.mark.parametrize("case", TAP_LOOPS)
def test_loops_over_taps(case):
    shape, config = TAP_LOOPS[case]
    p = Conv(**Conv.read_shape("N=2," + shape), layout="NHWC", dtype="f16")
    verify(p, parse_config("family=wgmma " + config), "integers")


def test_infinities_past_the_last_tap_are_not_read():
    """The rest of the stage holds zeros in both operands; pixels there are not read."""
    p = Conv(1, 16, h=4, w=4, k=16, r=3, s=3, layout="NHWC", dtype="f16")
    a, b, _ = operands(p, 0, "normal")
    a[0, 3, 3] = np.inf
    runner = Runner.of(EmulatedDriver(H200), p, parse_config("family=wgmma ml=64 nl=16 u=128"))
    out = runner.compute(a, b, np.zeros((1, 2, 2, 16), np.float16))
    assert np.isfinite(out[0, 0]).all()
    assert np.isfinite(out[0, 1, 0]).all()
    assert not np.isfinite(out[0, 1, 1]).any()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"c": 12}, "wgmma_operand_path"),
        ({"c": 12, "dtype": "e4m3"}, "wgmma_im2col"),
        ({"padding": 130, "r": 140, "s": 140}, "wgmma_im2col"),
        ({"stride": 9, "h": 40, "w": 40}, "wgmma_im2col"),
        ({"aligned_input": 8}, "wgmma_operand_path"),
        ({"dtype": "f32", "compute": "f32_bf16x6"}, "wgmma_im2col"),
        ({"layout": "NCHW"}, "wgmma_operand_path"),
        ({"groups": 2}, "operand_addressing"),
        ({"direction": "weight_grad", "c": 40}, "wgmma_im2col_channels"),
        ({"direction": "input_grad", "stride": 2, "layout": "CHWN"}, "wgmma_operand_path"),
    ],
)
def test_convolutions_that_tma_cannot_load_are_refused(changes, rule):
    fields = {"n": 2, "c": 32, "h": 20, "w": 20, "k": 32, "r": 3, "s": 3, "layout": "NHWC", "dtype": "f16"} | changes
    with pytest.raises(ConfigError) as found:
        plan_for(Conv(**fields), parse_config("family=wgmma transposed_mma=1 ml=32 nl=64 u=64"), H200)
    assert found.value.rule == rule
