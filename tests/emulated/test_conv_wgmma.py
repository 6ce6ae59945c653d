"""Convolutions that TMA loads, on the emulated device: all directions, against float64. Input gradients with strides are in
``test_conv_wgmma_phases``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conv_runs import H200, TF32, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.reference import operands
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES


@pytest.mark.parametrize("seed", range(2))
def test_random_convolutions(seed):
    for n, (p, c) in enumerate(SOURCES["conv_wgmma"].cases(seed, 2, H200, limit=70)):
        inputs = ("integers", "normal", "scaled")[(n + seed) % 3]
        beta = float(n % 2)
        verify(p, c, inputs, 1.0 + beta, beta, seed=seed, completion=("early", "late")[n % 2])


def test_random_convolutions_with_packed_operands():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_packed"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


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


def test_random_convolutions_without_packing():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_tiled"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), completion=("late", "early")[n % 2])


def test_random_convolutions_of_groups():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_groups"].cases(1, 2, H200, limit=40)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), completion=("late", "early")[n % 2])


NCHW = {"layout": "NCHW"}

#: channels and filters of a group, groups, what else, configuration
GROUPS = {
    "items of one group, some channels in a further box": (72, 24, 2, {}, "ml=64 nl=32 epilogue_smem=1"),
    "a bias for each item, tiles of all items in turn": (
        64,
        64,
        2,
        {"epilogue": "bias,residual,relu"},
        "ml=64 nl=64 persistent=1 epilogue_smem=1",
    ),
    "items of several groups": (8, 16, 6, {"epilogue": "bias"}, "ml=64 nl=32 operand_path_b=pack"),
    "one item of all groups": (16, 16, 4, {"stride": 2}, "ml=64 nl=64 cluster_k=2 operand_path_b=pack"),
    "input gradients": (16, 8, 4, {"direction": "input_grad"}, "ml=64 nl=64 operand_path_b=pack"),
    "input gradients with a stride, tiles of all phases in turn": (
        64,
        24,
        3,
        {"direction": "input_grad", "stride": 2, "epilogue": "bias"},
        "ml=128 nl=64 persistent=1 pingpong=1 math_warpgroups=2 epilogue_smem=1",
    ),
    "input gradients with a stride, items of several groups": (
        16,
        8,
        8,
        NCHW | {"direction": "input_grad", "stride": (2, 3)},
        "ml=64 nl=64 operand_path_a=pack operand_path_b=pack",
    ),
    "input gradients with a stride, few channels of all groups, whose phases could be columns": (
        8,
        8,
        2,
        {"direction": "input_grad", "stride": 2, "r": 5, "s": 5, "padding": 2},
        "ml=64 nl=16",
    ),
    "images are packed, items of one group": (
        64,
        40,
        2,
        NCHW,
        "ml=64 nl=64 operand_path_a=pack operand_path_b=pack",
    ),
    "images are packed, items of several groups, input gradients": (
        16,
        8,
        8,
        NCHW | {"direction": "input_grad"},
        "ml=64 nl=64 epilogue_smem=1 operand_path_a=pack operand_path_b=pack",
    ),
    "filters of items are adjacent along a row": (
        64,
        24,
        2,
        {"filters": "CRSK"},
        "ml=24 nl=64 transposed_mma=1 epilogue_smem=1",
    ),
    "the same, images are packed": (64, 24, 2, NCHW | {"filters": "CRSK"}, "ml=64 nl=32 operand_path_b=pack"),
    "filters of items are adjacent along a row, input gradients": (
        24,
        64,
        2,
        {"filters": "CRSK", "direction": "input_grad"},
        "ml=64 nl=32",
    ),
    "one item of all groups, rows of filters in the operand": (
        16,
        16,
        4,
        {"filters": "CRSK"},
        "ml=64 nl=64 operand_path_b=pack",
    ),
    "one item of all groups, taps of a row are one": (
        8,
        16,
        3,
        {"padding": 0, "aligned_input": 4},
        "ml=64 nl=64 transposed_mma=1 cluster_k=2 operand_path_a=pack operand_path_b=pack",
    ),
    "weight gradients": (64, 24, 3, {"direction": "weight_grad"}, "ml=64 nl=192 epilogue_smem=1"),
    "blocks on the diagonal, slices": (
        8,
        16,
        8,
        {"direction": "weight_grad", "stride": 2},
        "u=16 ml=64 nl=64 kg=2 splitk=last_cta vec_c=2",
    ),
    "weight gradients of packed operands, a sum of all slices": (
        64,
        24,
        2,
        NCHW | {"direction": "weight_grad"},
        "u=32 ml=64 nl=64 kg=2 splitk=workspace operand_path_a=pack operand_path_b=pack",
    ),
    "blocks of packed operands, a cluster": (
        16,
        16,
        8,
        NCHW | {"direction": "weight_grad", "stride": 2},
        "u=16 ml=64 nl=64 cluster_k=2 transposed_mma=1 operand_path_a=pack operand_path_b=pack",
    ),
    "blocks, taps are adjacent in the gradient": (
        16,
        16,
        8,
        {"direction": "weight_grad", "filters": "KCRS"},
        "u=16 ml=64 nl=64 kg=2 splitk=last_cta",
    ),
    "blocks, an item of all groups, each slice stores a part": (
        16,
        16,
        4,
        {"direction": "weight_grad"},
        "u=16 ml=64 nl=64 kg=2 splitk=distributed transposed_mma=1",
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups_of_channels(case):
    channels, filters, groups, fields, config = GROUPS[case]
    c, k = channels * groups, filters * groups
    p = Conv(2, c, 5, 6, k, **{"r": 3, "s": 2, "layout": "NHWC", "padding": 1} | fields, groups=groups, dtype="f16")
    depth = "" if "u=" in config else "u=64 "
    config = f"family=wgmma stages=3 {depth}{config}"
    verify(p, parse_config(config), "normal" if p.epilogue else "integers", 2.0, 1.0)


def test_infinities_reach_no_other_group():
    """Past the last image, a stage of a weight gradient reads no pixel of the next group. Zeros between the filters of groups
    that share an item would multiply infinities, which ``exact_nonfinite`` excludes."""
    for fields in ({"direction": "weight_grad"}, {"exact_nonfinite": True}):
        p = Conv(1, 64, 5, 5, 64, 3, 3, groups=2, layout="NHWC", dtype="f16", **fields)
        names = ("A", "B", "C")
        a, b, c = (operands(p, 0, "normal")[name] for name in names)
        a[..., 32:] = np.inf
        runner = Runner.of(EmulatedDriver(H200), p, parse_config("family=wgmma ml=64 nl=32 u=32"))
        out = runner.compute({"A": a, "B": b, "C": np.zeros_like(c)})["C"]
        first = out[:32] if p.direction == "weight_grad" else out[..., :32]
        assert np.isfinite(first).all()


def test_blocks_of_groups_take_no_slices_in_the_workspace():
    p = Conv(2, 64, 9, 9, 64, 3, 3, groups=4, layout="NHWC", dtype="f16", direction="weight_grad")
    with pytest.raises(ConfigError) as error:
        plan_for(p, parse_config("family=wgmma ml=64 nl=64 u=16 kg=2 splitk=workspace"), H200)
    assert error.value.rule == "wgmma_blocks"


def test_a_producer_of_strided_groups_has_registers_for_one_unit():
    """Where filters come from registers, ptxas 13.0 spills 32 bytes of a producer of two units."""
    fields = TF32 | {"groups": 2, "layout": "NHWC", "direction": "input_grad", "stride": 2}
    p, c = (
        Conv(2, 512, 9, 9, 512, 3, 3, **fields),
        "family=wgmma ml=128 nl=256 stages=2 math_warpgroups=2 transposed_mma=1",
    )
    plan_for(p, parse_config(c + " u=32"), H200)
    with pytest.raises(ConfigError, match="wgmma_producer_registers"):
        plan_for(p, parse_config(c + " u=64"), H200)


#: shape, what else, configuration
TILED = {
    "one tap: images are rows, which end within a stage": ("C=20,H=6,W=6,K=40,R=1,S=1", TF32, "ml=64 nl=32 u=32"),
    "slices that begin within a row": (
        "C=40,H=4,W=12,K=70,R=1,S=1",
        {},
        "ml=64 nl=64 u=16 kg=3 splitk=last_cta",
    ),
    "one tap, a stride": ("C=24,H=9,W=24,K=40,R=1,S=1,stride=2x1", {}, "ml=64 nl=32 u=16 kg=2 splitk=workspace"),
    "boxes of several taps in a tile, and past the last": (
        "C=16,H=5,W=24,K=40,R=3,S=1,pad=1x0",
        {},
        "ml=64 nl=64 u=64",
    ),
    "images on the side of the 64 rows, in slices": (
        "C=64,H=7,W=24,K=40,R=3,S=1,stride=2x1,dilation=2x1",
        {"out": "f32", "filters": "KRSC"},
        "transposed_mma=1 ml=64 nl=128 u=64 cluster_x=2 cluster_y=2",
    ),
    "depth": ("C=16,D=4,H=4,W=24,K=40,T=2,R=3,S=1,pad=1x1x0", {}, "ml=64 nl=96 u=32 cluster_k=2 epilogue_smem=0"),
    "images as A": (
        "C=64,H=5,W=16,K=72,R=3,S=1,pad=1x0",
        {"filters": "CRSK", "dtype": "bf16"},
        "ml=128 nl=72 u=128 math_warpgroups=2 persistent=1",
    ),
    "images along a pixel, which end within a stage": (
        "N=24,C=16,H=4,W=5,K=40,R=3,S=3,pad=1,dilation=1x2",
        {"layout": "CHWN"},
        "ml=64 nl=64 u=32 kg=2 splitk=last_cta",
    ),
    "images along a pixel, a stride": (
        "N=4,C=32,H=4,W=6,K=40,R=2,S=2,stride=2x3",
        {"layout": "CHWN", **TF32},
        "transposed_mma=1 ml=48 nl=64 u=16",
    ),
    "rows of a pixel, several units of channels and boxes of a stage": (
        "N=16,C=72,H=3,W=4,K=40,R=3,S=2,pad=1,stride=2x1",
        {"layout": "CHWN", "direction": "forward"},
        "ml=64 nl=48 u=128",
    ),
    "rows of a pixel on the side of the 64 rows, packed filters": (
        "N=32,C=24,H=3,W=3,K=20,R=2,S=3,pad=1,dilation=1x2",
        {"layout": "CHWN", "direction": "forward", **TF32},
        "transposed_mma=1 ml=24 nl=64 u=32 operand_path_a=pack",
    ),
    "rows of a pixel in slices, taps in reverse order": (
        "N=32,C=20,H=3,W=4,K=40,R=3,S=3,pad=1",
        {"layout": "CHWN", "direction": "input_grad", "dtype": "bf16"},
        "ml=64 nl=128 u=64 cluster_x=2",
    ),
    "rows of a pixel in phases": (
        "N=64,C=20,H=4,W=5,K=24,R=3,S=3,pad=1,stride=2",
        {"layout": "CHWN", "direction": "input_grad"},
        "ml=64 nl=64 u=32 persistent=1",
    ),
}


@pytest.mark.parametrize("case", TILED)
def test_convolutions_without_packing(case):
    shape, fields, config = TILED[case]
    values = {"layout": "NCHW", "dtype": "f16", "direction": "weight_grad", **fields}
    p = Conv(**Conv.read_shape(shape if "N=" in shape else f"N=3,{shape}"), **values)
    verify(p, parse_config(f"family=wgmma stages=3 {config}"), "integers", 2.0, 1.0)


def test_random_weight_gradients_by_image():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_by_image"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), completion=("late", "early")[n % 2])


#: shape, what else, configuration
BY_IMAGE = {
    "an image ends within a stage": ("C=32,H=6,W=6,K=40,R=3,S=3,pad=1", {}, "ml=40 nl=64 u=32 operand_path_b=pack"),
    "strides, rows of odd length, slices that begin within an image": (
        "C=64,H=9,W=12,K=24,R=3,S=2,stride=2x1,pad=1x0",
        {},
        "ml=24 nl=64 u=16 kg=3 splitk=workspace operand_path_a=pack operand_path_b=pack",
    ),
    "a stage is longer than an image": (
        "C=32,H=5,W=5,K=16,R=1,S=1,stride=2",
        {},
        "ml=16 nl=64 u=64 operand_path_a=pack operand_path_b=pack",
    ),
    "any start, filters channels first, a cluster": (
        "C=64,H=4,W=8,K=40,R=3,S=3,pad=2,dilation=2",
        {"aligned_input": 4, "aligned_output": 4, "filters": "CRSK"},
        "ml=128 nl=40 u=16 transposed_mma=0 cluster_x=1 operand_path_a=pack operand_path_b=pack",
    ),
    "depth": (
        "C=32,D=3,H=4,W=6,K=16,T=2,R=2,S=2,pad=1x0x1",
        {},
        "ml=16 nl=64 u=16 cluster_k=2 epilogue_smem=0 operand_path_b=pack",
    ),
}


@pytest.mark.parametrize("case", BY_IMAGE)
def test_weight_gradients_by_image(case):
    """The pixels of each image are padded to whole stages."""
    shape, fields, config = BY_IMAGE[case]
    values = {"layout": "NCHW", "dtype": "f32", "compute": "tf32", "direction": "weight_grad", **fields}
    p = Conv(**Conv.read_shape("N=3," + shape), **values)
    prefix = "family=wgmma stages=3 " + ("" if "transposed" in config else "transposed_mma=1 ")
    verify(p, parse_config(prefix + config), "integers", 2.0, 1.0)


def test_no_pixel_is_multiplied_by_zeros_past_the_end_of_a_row():
    """An infinite pixel reaches the filters' taps that read it, as infinity."""
    p = Conv(2, 16, 3, 24, 8, 3, 1, padding=(1, 0), dtype="f16", direction="weight_grad")
    a, b, before = operands(p, 0, "integers").values()
    images = a.reshape(2, 16, 3, 24).copy()
    images[1, 5, 0, 23] = np.inf
    c = parse_config("family=wgmma ml=64 nl=48 u=64 stages=3")
    out = Runner.of(EmulatedDriver(H200), p, c).compute(
        {"A": images.reshape(a.shape), "B": np.abs(b) + 1, "C": before}, 1.0, 0.0
    )["C"]
    infinite = np.isinf(out.astype(np.float32))
    # row 0 of the image is read by tap 0 of result row 1 and by tap 1 of result row 0
    assert infinite[:, 5, :2].all()
    assert infinite.sum() == 2 * p.k
    assert not np.isnan(out.astype(np.float32)).any()


def test_random_convolutions_with_few_channels():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_few_channels"].cases(0, 2, H200, limit=60)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


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
    a, b, before = operands(p, 0, "integers").values()
    images = a.reshape(8, 9, 3).copy()
    images[4, 5, 1] = np.inf
    b = np.abs(b) + 1
    out = Runner.of(EmulatedDriver(H200), p, c).compute({"A": images.reshape(a.shape), "B": b, "C": before}, 1.0, 0.0)[
        "C"
    ]
    infinite = np.isinf(out.astype(np.float32)).reshape(p.p, p.q, p.k).all(-1)
    want = [[abs(2 * i - 4) <= 1 and abs(2 * j - 5) <= 1 for j in range(p.q)] for i in range(p.p)]
    assert np.array_equal(infinite, want)
    assert not np.isnan(out.astype(np.float32)).any()


#: layout, shape, what else, configuration: stages have several taps of a filter row
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
    "through shared memory, pairs of pixels of a row": (
        "NCHW",
        "C=64,H=5,W=18,K=72,R=3,S=3,pad=1",
        {"epilogue": "bias,relu"},
        "ml=64 nl=64 u=64 row_taps=3 epilogue_smem=1 operand_path_a=pack operand_path_b=pack",
    ),
    "through shared memory, rows begin at any element": (
        "NCHW",
        "C=64,H=5,W=13,K=72,R=3,S=3,pad=1",
        {},
        "ml=64 nl=128 u=64 row_taps=3 epilogue_smem=1 epilogue_subtiles=2 operand_path_a=pack operand_path_b=pack",
    ),
    "through shared memory, pixels on the 64-row side, a halo of one pixel": (
        "NCHW",
        "C=16,H=4,W=10,K=24,R=2,S=2,pad=1",
        {},
        "ml=24 nl=64 u=16 row_taps=2 transposed_mma=1 epilogue_smem=1 operand_path_a=pack operand_path_b=pack",
    ),
    "through shared memory, groups, every second tap": (
        "NCHW",
        "C=32,H=9,W=19,K=32,R=3,S=3,stride=2,pad=1,groups=2",
        {},
        "ml=64 nl=64 u=32 row_taps=2 epilogue_smem=1 math_warpgroups=2 pingpong=1 persistent=1"
        " operand_path_a=pack operand_path_b=pack",
    ),
    "every third tap, some parts of a row lack the last one": (
        "NHWC",
        "C=64,H=7,W=9,K=72,R=3,S=4,pad=2x1,stride=2x3",
        {},
        "ml=64 nl=64 u=64 row_taps=2 transposed_mma=1",
    ),
    "every second tap, items of several groups": (
        "NHWC",
        "C=128,H=7,W=8,K=128,R=3,S=3,pad=1,stride=2,groups=16",
        {"epilogue": "bias"},
        "ml=64 nl=64 u=64 row_taps=2 operand_path_b=pack persistent=1 epilogue_smem=1",
    ),
    "taps in reverse order, groups, packed images": (
        "NCHW",
        "C=128,H=5,W=6,K=128,R=3,S=3,pad=1,groups=2",
        {"direction": "input_grad"},
        "ml=64 nl=64 u=64 row_taps=3 operand_path_a=pack operand_path_b=pack",
    ),
    "depth": ("NHWC", "C=64,D=3,H=5,W=6,K=72,T=3,R=3,S=3,pad=1", {"dtype": "e4m3"}, "ml=128 nl=64 u=64 row_taps=3"),
}


@pytest.mark.parametrize("case", ROW_TAPS)
def test_stages_of_taps_of_a_filter_row(case):
    layout, shape, fields, config = ROW_TAPS[case]
    p = Conv(**Conv.read_shape("N=2," + shape), **{"layout": layout, "dtype": "f16", **fields})
    inputs = "normal" if p.epilogue or p.element.bytes == 1 else "integers"
    verify(p, parse_config("family=wgmma stages=3 " + config), inputs, 2.0, 1.0)


def test_random_stages_of_all_taps_of_a_filter_row():
    for n, (p, c) in enumerate(SOURCES["conv_wgmma_row_taps"].cases(0, 2, H200, limit=48)):
        inputs = ("integers", "normal", "scaled")[n % 3]
        verify(p, c, inputs, 1.0 + n % 2, float(n % 2), seed=n, completion=("late", "early")[n % 2])


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
        ("R=3,S=3,pad=1,stride=3", "u=64 row_taps=2"),
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


def test_exact_convolutions_have_no_tap_that_a_filter_row_lacks():
    shape, config = (
        "N=2,C=64,H=9,W=11,K=128,R=3,S=3,pad=1,stride=2",
        "family=wgmma ml=64 nl=64 u=64 stages=3 row_taps=2",
    )
    for taps, rejected in ((3, True), (4, False)):
        fields = {**Conv.read_shape(shape), "s": taps, "layout": "NHWC", "dtype": "f16", "exact_nonfinite": True}
        if rejected:
            with pytest.raises(ConfigError, match="wgmma_row_taps"):
                plan_for(Conv(**fields), parse_config(config), H200)
        else:
            plan_for(Conv(**fields), parse_config(config), H200)


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
    a, b, _ = operands(p, 0, "normal").values()
    a[0, 3, 3] = np.inf
    runner = Runner.of(EmulatedDriver(H200), p, parse_config("family=wgmma ml=64 nl=16 u=128"))
    out = runner.compute({"A": a, "B": b, "C": np.zeros((1, 2, 2, 16), np.float16)})["C"]
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
        ({"groups": 8}, "capabilities"),
        ({"direction": "weight_grad", "c": 40}, "wgmma_im2col_channels"),
        ({"direction": "weight_grad", "layout": "NCHW", "w": 24}, "wgmma_operand_path"),
        ({"direction": "input_grad", "stride": 2, "layout": "CHWN"}, "wgmma_operand_path"),
    ],
)
def test_convolutions_that_tma_cannot_load_are_refused(changes, rule):
    fields = {"n": 2, "c": 32, "h": 20, "w": 20, "k": 32, "r": 3, "s": 3, "layout": "NHWC", "dtype": "f16"} | changes
    with pytest.raises(ConfigError) as error:
        plan_for(Conv(**fields), parse_config("family=wgmma transposed_mma=1 ml=32 nl=64 u=64"), H200)
    assert error.value.rule == rule
