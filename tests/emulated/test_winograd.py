"""Winograd convolutions and gradients on the emulated device: random cases, odd extents, dependent launch, padding of
matrices, slices of K."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ptxgen.codegen.config.config import PACK, SPLIT_MEMSET, SPLIT_WORKSPACE, parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.common.rules import require
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.winograd.axes import TILES
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.checks import guarded
from ptxgen.operations.conv.lowering import lower_conv
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right
from tests.lowered import form, winograd_of

H200 = device("h200")
SMALL = parse_config("family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4")

SLICED = SMALL.replace(kg=3, splitk=SPLIT_WORKSPACE)
#: of images and filters; tests that have all of them sum whole gradients and slices in turn
LAYOUTS = list(product(("NCHW", "NHWC", "CHWN"), ("KCRS", "KRSC", "CRSK")))
SMALL_4X4, SLICED_4X4 = (parse_config(str(c).replace("winograd", "winograd_4x4")) for c in (SMALL, SLICED))


@pytest.mark.each_value
@pytest.mark.parametrize("family", TILES)
@pytest.mark.parametrize("seed", range(2))
def test_random_cases(seed, family):
    for p, c in SOURCES[family].cases(seed, 2, H200, limit=40, threads=256):
        right(p, c, seed)


@pytest.mark.each_value
@pytest.mark.parametrize("pad", ["0", "1", "0x2x1x0", "3"])
@pytest.mark.parametrize("extents", ["H=3,W=4", "H=5,W=6", "H=7,W=7"])
def test_last_rows_and_columns(extents, pad):
    """Every extent and every padding with both directions."""
    p = parse(f"conv N=2,C=17,{extents},K=21,R=3,S=3,pad={pad} NCHW f32")
    gradient = (p.h + p.padding[0]) % 2
    right(replace(p, direction=("forward", "input_grad")[gradient]), SMALL, cases=(CASES[3 * gradient],))


@pytest.mark.each_value
@pytest.mark.parametrize("pad", ["0", "1", "0x2x1x0", "3"])
@pytest.mark.parametrize("extents", ["H=8,W=9", "H=11,W=10"])
def test_last_rows_and_columns_of_weight_gradients(extents, pad):
    p = parse(f"conv N=2,C=17,{extents},K=21,R=3,S=3,pad={pad} NCHW f32 direction=weight_grad")
    right(p, SMALL, cases=(CASES[(p.h + len(pad)) % 2],))


@pytest.mark.each_value
@pytest.mark.parametrize("pad", ["0", "1", "0x1x1x0"])
@pytest.mark.parametrize("extents", ["H=3,W=4", "H=5,W=6", "H=7,W=9", "H=8,W=8"])
def test_last_rows_and_columns_of_tiles_of_4x4(extents, pad):
    """Every extent and every padding with both directions. Padding of 1 is that of an input gradient whose convolution
    has none but what its filter leaves."""
    p = parse(f"conv N=2,C=33,{extents},K=37,R=3,S=3,pad={pad} NCHW f32")
    if (p.w // 2 + len(pad)) % 2:
        right(p, SMALL_4X4, cases=(CASES[0],))
    else:
        gradient = replace(p, direction="input_grad", padding={"0": 2, "1": 1, "0x1x1x0": (2, 1, 1, 3)}[pad])
        right(gradient, SMALL_4X4, cases=(CASES[3],))


@pytest.mark.each_value
@pytest.mark.parametrize("pad", ["0", "1", "0x2x1x0", "3"])
@pytest.mark.parametrize("extents", ["H=12,W=13", "H=14,W=15"])
def test_last_rows_and_columns_of_weight_gradients_of_tiles_of_4x4(extents, pad):
    p = parse(f"conv N=2,C=33,{extents},K=37,R=3,S=3,pad={pad} NCHW f32 direction=weight_grad")
    right(p, SMALL_4X4, cases=(CASES[(p.h // 2 + len(pad)) % 2],))


@pytest.mark.each_value
@pytest.mark.parametrize("filters", ["CRSK", "KCRS"])
@pytest.mark.parametrize("direction", ["forward", "input_grad"])
@pytest.mark.parametrize(("small", "channels"), [(SMALL, 17), (SMALL_4X4, 33)], ids=TILES)
def test_adjacent_images(small, channels, direction, filters):
    """Rows, columns and images of tiles have different extents, and several blocks of the transforms have them."""
    p = Conv(11, channels, 9, 14, channels + 4, 3, 3, padding=1, layout="CHWN", filters=filters, direction=direction)
    epilogue = ("scale,bias,residual,silu", "")[filters == "KCRS"]
    right(replace(p, epilogue=epilogue), small, cases=(CASES[3],))


@pytest.mark.parametrize(
    ("layout", "digits"), [("NCHW", ("tile_columns", "tile_rows")), ("CHWN", ("images", "tile_columns"))]
)
def test_adjacent_threads_transform_pixels_near_in_memory(layout, digits):
    """The numbers of the launch, by the names of the kernels' parameters: images and results have the same order."""
    p = lower(Conv(8, 16, 9, 6, 16, 3, 3, padding=1, layout=layout))
    plan = plan_for(p, SMALL, H200)
    launch = plan.launch(p)
    extents = {"images": 8, "tile_rows": 5, "tile_columns": 3}
    for step, names in ((launch.steps[1], plan.packing.tile_numbers), (launch.steps[3], plan.results.numbers)):
        first = [type_name for type_name, _ in step.arguments].index("u32")
        numbers = dict(zip(names, (n for _, n in step.arguments[first:]), strict=False))
        assert [n for n in numbers if n in extents] == [*reversed(digits)]
        assert all(numbers[name] == extents[name] for name in digits)
        assert numbers["tiles"] == 8 * 5 * 3
        assert numbers["tile_step"] == 1
        assert numbers["image_step" if layout == "CHWN" else "column_step"] == 1


@pytest.mark.parametrize(("layout", "filters"), [LAYOUTS[0], LAYOUTS[5], LAYOUTS[7]])
def test_weight_gradients_of_tiles_of_4x4_in_every_layout(layout, filters):
    config = (SMALL_4X4, SLICED_4X4)[LAYOUTS.index((layout, filters)) % 2]
    p = parse(f"conv N=2,C=34,H=11,W=12,K=37,R=3,S=3,pad=1x0x0x1 {layout} f32 direction=weight_grad")
    right(replace(p, filters=filters), config, 3)


@pytest.mark.parametrize(("layout", "filters"), LAYOUTS)
def test_weight_gradients_in_every_layout(layout, filters):
    """All input sets, with alpha, beta and NaN around every buffer; neither channels nor tiles are multiples of 4."""
    config = (SMALL, SLICED)[LAYOUTS.index((layout, filters)) % 2]
    p = parse(f"conv N=1,C=18,H=9,W=12,K=37,R=3,S=3,pad=1x0x0x1 {layout} f32 direction=weight_grad")
    right(replace(p, filters=filters), config, 3)


def test_slices_of_weight_gradients_are_of_the_launch():
    """One kernel serves every number of slices: 9 tiles, padded to 12, make 2 of 8, and 36 make 3 of 16."""
    p = parse("conv N=4,C=16,H=6,W=6,K=16,R=3,S=3,pad=1 NCHW f32 direction=weight_grad")
    plan = plan_for(p, SLICED, H200)
    for images, tiles, slices in ((1, 12, 2), (4, 36, 3)):
        q = replace(p, n=images)
        launch = plan.launch(lower(q))
        assert launch.steps[-1].arguments[-2] == ("u32", slices)
        assert launch.workspace == 64 * (slices * 16 * 16 + 2 * 16 * tiles)
    right(p, SLICED, cases=(CASES[0],))


@pytest.mark.parametrize("config", [SLICED, SLICED_4X4], ids=TILES)
def test_slices_of_weight_gradients_are_added_in_their_order(config):
    p = parse("conv N=2,C=32,H=10,W=10,K=32,R=3,S=3,pad=1 NHWC f32 direction=weight_grad deterministic=1")
    a, b, c = operands(p, 0).values()
    runner = Runner.of(EmulatedDriver(H200), p, config)
    first, second = (guarded(runner, {"A": a, "B": b, "C": c}, 1.0, 0.0)[0]["C"] for _ in range(2))
    assert np.array_equal(first, second)
    with pytest.raises(ConfigError, match="winograd_slices"):
        plan_for(p, config.replace(splitk=SPLIT_MEMSET), H200)


@pytest.mark.parametrize("path", ["operand_path_a", "operand_path_b"])
def test_transformed_images_and_filters_are_not_packed_again(path):
    p = parse("conv N=2,C=32,H=10,W=10,K=32,R=3,S=3,pad=1 NHWC f32")
    with pytest.raises(ConfigError, match="simt_operand_path"):
        plan_for(p, SMALL.replace(cp_async_a=0, cp_async_b=0, **{path: PACK}), H200)


@pytest.mark.each_value
@pytest.mark.parametrize("pdl", ["on_exit", "on_start", "within_launch"])
@pytest.mark.parametrize(
    ("plain", "direction"), [(SMALL, "forward"), (SMALL_4X4, "weight_grad")], ids=["winograd", "winograd_4x4"]
)
def test_dependent_launch(plain, direction, pdl):
    p = parse("conv N=1,C=32,H=10,W=10,K=32,R=3,S=3,pad=1 NCHW f32")
    config = parse_config(f"{plain} pdl={pdl}")
    right(replace(p, direction=direction), config, cases=(CASES[3],))


def test_a_nan_stays_in_the_gradients_of_its_filter():
    p = parse("conv N=2,C=16,H=8,W=8,K=16,R=3,S=3,pad=1 NCHW f32 direction=weight_grad")
    a, b, c = operands(p, 0, "integers").values()
    b[0, 5, 2, 2] = np.nan
    outputs, unchanged = guarded(
        Runner.of(EmulatedDriver(H200), p, SLICED), {"A": a, "B": b, "C": np.full_like(c, np.nan)}, 1.0, 0.0
    )
    out = outputs["C"]
    exact = reference(p, {"A": a, "B": b, "C": c}).exact
    assert unchanged
    assert np.isnan(out[5]).all()
    others = np.arange(16) != 5
    assert np.array_equal(out[others], exact[others])


def test_beta_zero_does_not_read_the_result_and_nan_stays_in_its_windows():
    p = parse("conv N=1,C=16,H=8,W=8,K=16,R=3,S=3,pad=1 NCHW f32")
    a, b, c = operands(p, 0, "integers").values()
    a[0, 3, 0, 0] = np.nan
    driver = EmulatedDriver(H200)
    outputs, unchanged = guarded(Runner.of(driver, p, SMALL), {"A": a, "B": b, "C": np.full_like(c, np.nan)}, 1.0, 0.0)
    out = outputs["C"]
    exact = reference(p, {"A": a, "B": b, "C": c}).exact
    assert unchanged
    assert np.isnan(out[np.isnan(exact)]).all()
    # a patch is as far as a NaN spreads: the tiles whose patches have the pixel
    assert np.array_equal(out[..., 2:], exact[..., 2:])


@pytest.mark.each_value
@pytest.mark.parametrize("direction", ["forward", "weight_grad"])
@pytest.mark.parametrize("small", [SMALL, SMALL_4X4], ids=TILES)
def test_error_beside_that_of_direct_products(small, direction):
    """The error is at most a few times that of a direct convolution in f32, relative to float64."""
    p = parse("conv N=1,C=64,H=12,W=12,K=32,R=3,S=3,pad=1 NCHW f32")
    p = replace(p, direction=direction)
    a, b, c = operands(p, 0).values()
    exact = reference(p, {"A": a, "B": b, "C": c}).exact
    errors = []
    for config in (small, parse_config("ms=4 ns=4 ml=32 nl=32 vec_a=1 vec_b=1 vec_c=1 u=8 stages=2")):
        outputs, _ = guarded(Runner.of(EmulatedDriver(H200), p, config), {"A": a, "B": b, "C": c}, 1.0, 0.0)
        errors.append(float(np.sqrt(np.mean((outputs["C"] - exact) ** 2))))
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
        {"direction": "weight_grad", "stride": 2},
        {"direction": "weight_grad", "c": 15},
        {"direction": "weight_grad", "h": 7, "padding": 0},
        {"c": 15},
        {"n": 0},
        {"d": 3, "t": 3, "padding": 1},
    ],
    ids=str,
)
def test_other_convolutions_are_refused(change):
    fields = {"n": 2, "c": 16, "h": 9, "w": 9, "k": 16, "r": 3, "s": 3, "padding": 1} | change
    with pytest.raises(ConfigError, match="capabilities"):
        plan_for(Conv(**fields), SMALL, H200)


@pytest.mark.parametrize(
    "change",
    [
        {"padding": 2},
        {"padding": (1, 1, 0, 2)},
        {"direction": "input_grad", "padding": 0},
        {"direction": "input_grad", "padding": (1, 1, 1, 0)},
        {"direction": "weight_grad", "h": 9},
        {"direction": "weight_grad", "h": 11, "padding": 0},
        {"c": 31},
        {"k": 31},
        {"stride": 2},
        {"n": 0},
    ],
    ids=str,
)
def test_convolutions_with_larger_errors_have_no_tiles_of_4x4(change):
    """With more padding, fewer pixels or channels, sums have few products of the patch whose errors they get."""
    fields = {"n": 2, "c": 32, "h": 12, "w": 12, "k": 32, "r": 3, "s": 3, "padding": 1}
    direction = {"direction": change.get("direction", "forward")}
    assert plan_for(Conv(**fields | direction), SMALL_4X4, H200)
    with pytest.raises(ConfigError, match=r"capabilities.*winograd_4x4 lacks .*it computes f32 convolutions"):
        plan_for(Conv(**fields | change), SMALL_4X4, H200)


@pytest.mark.parametrize(("plain", "other"), [(SMALL, "winograd_4x4"), (SMALL_4X4, "winograd")], ids=TILES)
def test_a_family_does_not_compute_the_gemms_of_another(plain, other):
    p = lower(Conv(2, 32, 12, 12, 32, 3, 3, padding=1))
    with pytest.raises(ConfigError, match="capabilities"):
        require(form(p, other), plain, H200)


def test_integers_are_checked_by_the_tolerance():
    """Interpolation points are fractions, so the products of integers are rounded."""
    p = parse("conv N=1,C=32,H=10,W=10,K=32,R=3,S=3,pad=1 NCHW f32")
    deviation = check(EmulatedDriver(H200), p, SMALL_4X4)
    assert [x.inputs for x in deviation] == [
        "integers",
        "normal",
        "scaled",
        "positive",
        "normal, alpha=-1.5, beta=0.75",
    ]
    assert 0 < deviation[0].deviation.ratio < 0.5
    assert check(EmulatedDriver(H200), p, SMALL)[0].deviation.ratio == 0


def test_the_workspace_holds_the_thirty_six_matrices():
    p = parse("conv N=2,C=34,H=7,W=9,K=37,R=3,S=3,pad=1 NCHW f32")
    product = winograd_of(p, 4)
    assert (product.m, product.n, product.k, product.batch) == (40, 12, 36, 36)
    launch = plan_for(p, SMALL_4X4, H200).launch(lower(p))
    assert launch.workspace == sum(-(-4 * 36 * n // 128) * 128 for n in (40 * 36, 36 * 12, 40 * 12))


def test_the_workspace_holds_the_sixteen_matrices():
    p = parse("conv N=2,C=17,H=7,W=9,K=21,R=3,S=3,pad=1 NCHW f32")
    product = winograd_of(p, 2)
    assert (product.m, product.n, product.k, product.batch) == (24, 40, 20, 16)
    launch = plan_for(p, SMALL, H200).launch(lower(p))
    assert dict(zip("abc", launch.steps[2].arguments[-3:], strict=True)) == {
        "a": ("u32", 64 * 24 * 40 // 128),
        "b": ("u32", 64 * (24 * 40 + 24 * 20) // 128),
        "c": ("u32", 0),
    }
    assert launch.workspace == 64 * (24 * 20 + 20 * 40 + 24 * 40)
    assert [step.entry.rpartition("_")[2] for step in launch.steps] == ["filters", "images", "nn", "results"]


@pytest.mark.parametrize(("layout", "filters", "m", "n"), [("NCHW", "", 24, 20), ("NHWC", "CRSK", 20, 24)])
def test_the_gemms_of_weight_gradients_sum_over_tiles(layout, filters, m, n):
    p = Conv(2, 17, 7, 9, 21, 3, 3, padding=1, layout=layout, filters=filters, direction="weight_grad")
    product = winograd_of(p, 2)
    assert (product.m, product.n, product.k, product.batch) == (m, n, 40, 16)
    launch = plan_for(p, SMALL, H200).launch(lower(p))
    assert launch.workspace == 64 * (24 * 40 + 20 * 40 + 24 * 20)
    names = [step.entry.rpartition("_")[2] for step in launch.steps]
    assert (names[:2], names[3]) == (["gradients", "images"], "results")


def test_a_variable_excludes_the_family(monkeypatch):
    p = parse("conv N=2,C=34,H=5,W=9,K=37,R=3,S=3,pad=1 NCHW f32")
    assert all(winograd_of(lower_conv(p), tile) is not None for tile in TILES.values())
    monkeypatch.setenv("PTXGEN_WINOGRAD", "off")
    assert all(winograd_of(lower_conv(p), tile) is None for tile in TILES.values())
