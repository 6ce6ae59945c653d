"""Convolutions through offset tables and of the depthwise family, executed with checks for bounds, races and
uninitialised reads; every element is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import Placed, right

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.common.rules import first_violation, require
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.implicit_gemm import IM2COL
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import DIRECTIONS, FILTERS, Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import C
from ptxgen.problem.device import device
from ptxgen.problem.reference import Array, compare, epilogue_arrays, operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases.conv import config, problem
from tests.lowered import strips_of

EMULATED = device("emulated")


def execute(
    v: Conv,
    c: Config,
    arrays: tuple[Array, Array, Array],
    beta: float,
    more: dict[str, Array] | None = None,
    shift: bool = False,
    **options: object,
) -> Array:
    """The result, in guarded memory; operands must not change."""
    driver = EmulatedDriver(EMULATED, **options)
    runner = Runner.of(driver, v, c)
    starts = {"x": v.aligned_input, "w": v.aligned_filter, "y": v.aligned_output}
    rows = [(Gemm(1, x.size, 1), C, x.reshape(1, -1)) for x in arrays]  # each as one row
    placed = [Placed(driver, *row, starts[name], shift) for row, name in zip(rows, v.tensors, strict=True)]
    with Buffers(driver, more or {}) as buffers:
        at = {name: x.address for name, x in zip("ABC", placed, strict=True)}
        runner.bind(at | buffers.addresses, 1.0, beta)()
    for x in placed[:2]:
        assert np.array_equal(x.read().view(np.uint8), x.array.view(np.uint8)), "an operand has changed"
    return placed[2].read().reshape(v.stored[2])


def verify(v: Conv, c: Config, inputs: str, beta: float = 0.0, seed: int = 0, **how: object) -> None:
    a, b, out = operands(v, seed, inputs).values()
    out = np.full_like(out, v.output.poison) if beta == 0 else out
    more = epilogue_arrays(v, seed, inputs)
    ref = reference(v, {"A": a, "B": b, "C": out, **more}, 1.0, beta)
    got = execute(v, c, (a, b, out), beta, more, seed=seed, **how)
    deviation = compare(got, ref)
    what = f"{v.key()} | {c} | {inputs}, beta={beta}"
    assert deviation.ok, f"{deviation}: {what}"
    if inputs == "integers":
        assert np.array_equal(got.astype(np.float64), ref.rounded), f"not exact: {what}"


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(27))
def test_random_convolutions_and_configurations(n: int) -> None:
    """Every direction, layout, type and axis; unaligned starts; results that are read or must not be read."""
    rng = np.random.default_rng(7000 + n)
    c = None
    while c is None:
        v = replace(problem(rng, n), direction=DIRECTIONS[n % 3], epilogue="")
        if v.direction != "weight_grad" and v.dtype != "s8" and rng.random() < 0.4:
            v = replace(v, epilogue=str(rng.choice(["bias", "scale,bias,relu", "residual", "bias,residual"])))
        if rng.random() < 0.3:
            starts = [int(rng.choice([x for x in (1, 2, 4, 8, 16) if x >= v.dtype_of(name).bytes])) for name in "xwy"]
            v = replace(v, aligned_input=starts[0], aligned_filter=starts[1], aligned_output=starts[2])
        c = config(v, EMULATED, rng)
    verify(v, c, ("integers", "normal", "integers", "scaled")[n % 4], float(n % 2), n, shift=bool(n % 2))


@pytest.mark.each_value
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize(
    "text",
    [
        "kg=1",
        "kg=2 splitk=memset_red",
        "kg=2 splitk=flag_red",
        "kg=2 splitk=workspace",
        "kl=2",
        "epilogue_smem=1",
        "bounds=predicate",
    ],
)
def test_every_reduction(direction: str, layout: str, text: str) -> None:
    """Strides of 2: input gradients have phases of different extents."""
    v = Conv(3, 5, 7, 9, 6, 3, 2, stride=2, padding=(1, 2, 0, 1), layout=layout, direction=direction)
    c = parse_config(f"ms=2 ns=2 ml=16 nl=16 u=8 stages=2 cp_async_a=0 cp_async_b=0 {text}")
    verify(v, c, "integers", 1.0)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize("filters", FILTERS.values())
@pytest.mark.parametrize("extents", [(3, 2), (1, 1)], ids=["3x2", "1x1"])
@pytest.mark.parametrize("groups", [1, 2])
def test_filters_that_cover_an_image_are_one_product(direction, layout, filters, extents, groups) -> None:
    """Elements of images and filters in the same order are rows of matrices, of any stride; others are not."""
    h, w = extents
    v = Conv(5, 4, h, w, 6, h, w, stride=2, groups=groups, layout=layout, filters=filters, direction=direction)
    ordered = (layout == "NHWC") == (filters == "KRSC") and not (layout == "NHWC" and groups > 1)
    if h == 1 or ordered:
        p = lower(v)
        assert sorted((p.m, p.n, p.k)) == sorted((5, 4 * h * w // groups, 6 // groups))
        assert {"strided", "strided_output"} <= p.needs
    for epilogue in ("", "bias,relu", "residual") if direction != "weight_grad" else ("",):
        problem = replace(v, epilogue=epilogue)
        verify(problem, parse_config("ms=2 ns=2 ml=16 nl=16 u=8 stages=2 cp_async_a=0 cp_async_b=0"), "integers", 1.0)


@pytest.mark.parametrize(
    ("v", "loaded"),
    [
        (Conv(2, 3, 20, 40, 9, 10, 10, stride=10, layout="NHWC", dtype="f16"), False),  # 60 bytes in a row of a patch
        (Conv(2, 4, 20, 40, 16, 10, 10, stride=10, layout="NHWC", dtype="f16"), True),
        (Conv(3, 3, 8, 16, 16, 8, 8, stride=8, layout="NHWC", dtype="f16"), True),
        (Conv(2, 1, 48, 16, 24, 16, 16, stride=16, layout="NHWC", epilogue="bias,relu"), True),
        (Conv(2, 8, 40, 20, 24, 20, 10, stride=(20, 10), layout="NHWC", epilogue="residual"), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_patches_are_pixels_of_more_channels(v, loaded, direction) -> None:
    v = replace(v, direction=direction, epilogue="" if direction == "weight_grad" else v.epilogue)
    if direction != "input_grad":
        p = lower(v)
        direct = [x for x in p.forms if im2col(x).channels == v.c * v.s and im2col(x).copies == (None, None)]
        assert loaded == (bool(direct) or "offset_table" not in p.needs)
    verify(v, parse_config("ms=2 ns=2 ml=16 nl=16 u=8 stages=2 cp_async_a=0 cp_async_b=0"), "integers", 1.0)


def test_a_stage_of_b_is_aligned_behind_a_stage_of_a_of_eight_bytes() -> None:
    v = Conv(1, 2, 7, 7, 2, 2, 1, padding=(2, 1), groups=2, layout="NHWC", dtype="f16", compute="f16")
    v = replace(v, direction="weight_grad")
    verify(v, parse_config("ms=2 ns=8 ml=2 nl=256 u=2 ks=2 kl=1 lanes_m=1 cp_async_a=0 cp_async_b=0"), "integers", 1.0)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "v",
    [
        Conv(1, 1, 1, 200, 1, 1, 40, padding=(0, 20)),
        Conv(2, 3, 4, 37, 6, 3, 3, padding=1, groups=3, epilogue="bias,residual,relu"),
        Conv(1, 1, 1, 99, 1, 1, 7, padding=(3,), epilogue="bias", dtype="f16"),
        Conv(1, 2, 3, 70, 2, 2, 5, stride=2, layout="CHWN", dtype="f64"),
    ],
)
@pytest.mark.parametrize("text", ["ml=16 u=8", "ml=32 u=8 kg=2 splitk=workspace stages=2"])
def test_few_filters(v: Conv, text: str) -> None:
    """Signals, and images with one filter per group: pixels of a row become columns of the GEMM."""
    verify(v, parse_config(f"ms=2 ns=2 nl=16 cp_async_a=0 cp_async_b=0 {text}"), "integers", 1.0)


@pytest.mark.each_value
@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize(("dtype", "epilogue"), [("f32", "scale,bias,relu"), ("f16", "residual"), ("f64", "")])
def test_depthwise_forward(layout: str, dtype: str, epilogue: str) -> None:
    """Strides, dilation, padding, strips that end past the last result; depth too."""
    for n, v in enumerate(
        (
            Conv(2, 40, 9, 5, 40, 3, 3, padding=1, groups=40),
            Conv(3, 2, 10, 7, 2, 3, 2, padding=(0, 3, 2, 1), stride=(2, 1), dilation=(1, 3), groups=2),
            Conv(1, 3, 5, 4, 3, 2, 3, d=4, t=2, padding=1, stride=2, groups=3),
            Conv(2, 34, 6, 5, 34, 3, 2, padding=(0, 1, 2, 1), dilation=2, groups=34, direction="input_grad"),
        )
    ):
        v = replace(
            v,
            layout=layout,
            filters="",
            dtype=dtype,
            compute="",
            out="",
            epilogue=epilogue,
        )
        for text in (
            "strip_results=4 block_rows=2 block_lanes=32",
            f"strip_results=1 block_rows=1 block_lanes=64 vec_lane={strips_of(v).vec}",
            "strip_results=4 block_rows=4 block_lanes=8",
        ):
            if "block_lanes=8" not in text or (strips_of(v).lanes <= 8 and strips_of(v).feature_maps is None):
                verify(v, parse_config(f"family=depthwise {text}"), "integers", float(n % 2))


def test_few_threads_along_the_lane_axis_have_all_lanes() -> None:
    """A block of 8 or 16 threads along that axis, as for few images in CHWN."""
    config = parse_config("family=depthwise strip_results=2 block_rows=4 block_lanes=8")
    p = Conv(6, 5, 9, 7, 5, 3, 3, padding=1, stride=2, groups=5, layout="CHWN")
    verify(p, config, "normal", 0.5)
    for other in (replace(p, n=9), replace(p, direction="weight_grad")):
        with pytest.raises(ConfigError, match="depthwise_block_lanes"):
            require(lower(other), config, device("h200"))


PATCHES = {
    "channels end within a block": Conv(2, 40, 9, 5, 40, 3, 3, padding=1, groups=40, dtype="f16"),
    "a gradient": Conv(2, 40, 9, 5, 40, 3, 3, padding=1, groups=40, dtype="bf16", direction="input_grad"),
    "strides and dilation": Conv(
        3, 6, 10, 7, 6, 3, 2, padding=(0, 3, 2, 1), stride=(2, 1), dilation=(1, 3), groups=6, epilogue="bias,relu"
    ),
    "one row, tf32": Conv(3, 12, 1, 18, 12, 1, 3, padding=(0, 1), stride=(1, 2), groups=12, compute="tf32"),
    "depth without taps": Conv(2, 3, 6, 5, 3, 3, 3, d=3, padding=1, groups=3, dtype="f16", epilogue="residual"),
    "filters of even extent, doubles": Conv(
        2, 34, 6, 5, 34, 2, 4, padding=(0, 1, 2, 1), dilation=2, groups=34, dtype="f64", direction="input_grad"
    ),
}


@pytest.mark.parametrize("case", PATCHES)
def test_depthwise_patches(case: str) -> None:
    """Several strips of a thread: patches that end past the last result along both axes."""
    v = replace(PATCHES[case], layout="NHWC", filters="KCRS" if "doubles" in case else "KRSC")
    vec = strips_of(v).patch.vec
    for beta, text in (
        (0.0, "strip_results=4 strip_columns=2 block_lanes=64"),
        (1.0, f"strip_results=2 strip_columns=4 block_lanes=32 vec_lane={vec}"),
    ):
        verify(v, parse_config(f"family=depthwise {text}"), "integers", beta, shift=beta > 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": "NCHW"},
        {"filters": "CRSK"},
        {"stride": 2, "direction": "input_grad"},
        {"direction": "weight_grad"},
        {"aligned_filter": 2},
        {"block_rows": 2},
    ],
)
def test_patches_need_contiguous_filters_of_adjacent_channels(changes: dict[str, object]) -> None:
    c = parse_config("family=depthwise strip_results=4 strip_columns=2 block_lanes=64 vec_lane=2")
    p = Conv(2, 40, 9, 6, 40, 3, 3, padding=1, groups=40, dtype="f16", layout="NHWC")
    assert first_violation(lower(p), c, EMULATED) is None
    if "block_rows" in changes:
        c = c.replace(**changes)
    else:
        p = replace(p, **{"filters": "", **changes})
    broken = first_violation(lower(p), c, EMULATED)
    assert broken is not None
    assert broken.name == "depthwise_strip_columns"


FEATURE_MAPS = {
    "7x7, a gradient of any alignment": Conv(
        3,
        7,
        7,
        7,
        7,
        3,
        3,
        padding=1,
        groups=7,
        dtype="bf16",
        direction="input_grad",
        aligned_input=2,
        aligned_output=2,
    ),
    "14x14, f16": Conv(2, 3, 14, 14, 3, 3, 3, padding=1, groups=3, dtype="f16", aligned_input=4, aligned_output=8),
    "5x9 with strides": Conv(2, 7, 5, 9, 7, 3, 3, padding=1, stride=2, groups=7, aligned_input=4, aligned_output=4),
    "5x5 filters, uneven padding": Conv(2, 7, 5, 9, 7, 5, 5, padding=(0, 3, 2, 1), groups=7, epilogue="bias,relu"),
    "7x7 filters, f16": Conv(1, 3, 9, 8, 3, 7, 7, padding=3, groups=3, dtype="f16", epilogue="residual"),
    "filters of even extent, bf16": Conv(2, 7, 5, 9, 7, 2, 2, padding=(0, 1, 1, 0), groups=7, dtype="bf16"),
    "a gradient, filters of even extent, other results": Conv(
        2, 7, 5, 9, 7, 2, 2, padding=(0, 1, 1, 0), groups=7, dtype="f16", out="f32", direction="input_grad"
    ),
    "a gradient with strides": Conv(
        2, 5, 9, 7, 5, 3, 3, padding=1, stride=2, groups=5, dtype="bf16", direction="input_grad", epilogue="bias"
    ),
    "a gradient with strides and dilation": Conv(
        2, 5, 9, 7, 5, 3, 2, padding=(1, 2, 0, 2), stride=(2, 3), dilation=(1, 2), groups=5, direction="input_grad"
    ),
    "a gradient, more padding than taps": Conv(1, 3, 9, 8, 3, 3, 3, padding=4, groups=3, direction="input_grad"),
    "dilation, doubles": Conv(2, 5, 9, 7, 5, 3, 3, padding=2, dilation=2, groups=5, dtype="f64", epilogue="residual"),
    "one pixel, one feature map": Conv(1, 1, 1, 1, 1, 3, 3, padding=1, dtype="f16"),
    "tf32, wide images": Conv(2, 3, 4, 37, 3, 3, 3, padding=1, groups=3, compute="tf32", epilogue="scale,bias,relu"),
}


@pytest.mark.parametrize("case", FEATURE_MAPS)
def test_depthwise_feature_maps(case: str) -> None:
    """Runs of feature maps that begin at any element, a last block with fewer maps, several strips of a thread."""
    v = FEATURE_MAPS[case]
    for beta, text in (
        (0.0, "strip_results=4 block_lanes=64 feature_map_bytes=2048"),
        (1.0, "strip_results=8 block_lanes=32 feature_map_bytes=4096 store_policy=streaming"),
    ):
        c = parse_config(f"family=depthwise {text}")
        verify(v, c, "integers", beta, shift=beta > 0)
        verify(v, c, "normal", beta, shift=True)


FEATURE_MAP_GRADIENTS = {
    "7x7, any start, bf16": Conv(5, 19, 7, 7, 19, 3, 3, padding=1, groups=19, dtype="bf16", aligned_input=2),
    "5x5 filters with strides": Conv(2, 3, 15, 20, 3, 5, 5, padding=2, stride=2, groups=3, aligned_output=4),
    "strides and dilation, f16": Conv(
        2, 3, 12, 9, 3, 3, 3, padding=(1, 0), stride=(1, 2), dilation=(2, 1), groups=3, dtype="f16", aligned_input=2
    ),
    "7x7 filters, channels first": Conv(2, 5, 9, 8, 5, 7, 7, padding=3, groups=5, filters="CRSK"),
    "filters of even extent, doubles": Conv(2, 6, 9, 5, 6, 2, 3, padding=(0, 1, 2, 0), groups=6, dtype="f64"),
    "tf32, more strips than threads": Conv(2, 2, 4, 37, 2, 3, 3, padding=1, groups=2, compute="tf32"),
    "one pixel, one feature map": Conv(1, 1, 1, 1, 1, 3, 3, padding=1, dtype="f16"),
}


@pytest.mark.parametrize("case", FEATURE_MAP_GRADIENTS)
def test_depthwise_filter_gradients_of_feature_maps(case: str) -> None:
    """Runs that begin at any element, a last block with fewer channels, several strips of a thread, slices of images,
    one of them without images."""
    v = replace(FEATURE_MAP_GRADIENTS[case], direction="weight_grad")
    slices = "kg=3 splitk=workspace" if v.n > 1 else "kg=1"
    for beta, text in (
        (0.0, f"strip_results=4 block_lanes=64 feature_map_bytes=2048 {slices}"),
        (1.0, "strip_results=8 block_lanes=32 feature_map_bytes=8192"),
    ):
        c = parse_config(f"family=depthwise {text}")
        verify(v, c, "integers", beta, shift=beta > 0)
        verify(v, c, "normal", beta, shift=True)


def test_no_pixel_of_a_feature_map_is_multiplied_by_missing_results() -> None:
    """An infinite pixel of the last row reaches the taps that read it only, as infinity."""
    v = Conv(2, 3, 7, 7, 3, 3, 3, padding=1, groups=3, dtype="f32", direction="weight_grad")
    c = parse_config("family=depthwise strip_results=4 block_lanes=64 feature_map_bytes=4096")
    a, b, before = operands(v, 0, "integers").values()
    images = a.reshape(2, 3, 7, 7).copy()
    images[1, 1, 6, 3] = np.inf
    runner = Runner.of(EmulatedDriver(EMULATED), v, c)
    out = runner.compute({"A": images.reshape(a.shape), "B": np.abs(b) + 1, "C": before}, 1.0, 0.0)["C"]
    infinite = np.isinf(out.reshape(3, 3, 3))
    assert not np.isnan(out).any()
    assert infinite[1, 1:].all()  # tap row 0 reads no pixel of the last row
    assert infinite.sum() == 6


@pytest.mark.parametrize("direction", ["forward", "weight_grad"])
def test_feature_maps_through_registers_where_cp_async_does_not_exist(direction: str) -> None:
    v = Conv(3, 7, 7, 7, 7, 3, 3, padding=1, groups=7, dtype="f16", aligned_input=2, direction=direction)
    right(v, "family=depthwise strip_results=8 block_lanes=32 feature_map_bytes=2048", on="t4")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("depthwise_feature_maps", {"layout": "NHWC"}),
        ("depthwise_feature_maps", {"filters": "CRSK"}),
        ("depthwise_feature_maps", {"direction": "weight_grad", "r": 7, "s": 8, "padding": (3, 4)}),
        ("depthwise_feature_maps", {"d": 2}),
        ("depthwise_feature_maps", {"r": 1, "s": 51, "padding": (0, 50)}),
        ("depthwise_feature_maps", {"block_rows": 2}),
        ("depthwise_feature_map_strips", {"strip_results": 1}),
        ("depthwise_feature_map_bytes", {"feature_map_bytes": 512}),
    ],
)
def test_feature_maps_are_those_of_images_that_fit(name: str, changes: dict[str, object]) -> None:
    c = parse_config("family=depthwise strip_results=4 block_lanes=64 feature_map_bytes=4096")
    v = Conv(2, 40, 9, 16, 40, 3, 3, padding=1, groups=40, direction="input_grad", stride=(2, 1))
    assert first_violation(lower(v), c, EMULATED) is None
    axes = {k: x for k, x in changes.items() if k in dict(c.items())}
    fields = {k: x for k, x in changes.items() if k not in axes}
    if "strip_results" in axes:  # along the width, if lanes are rows
        v = replace(v, w=1)
    broken = first_violation(lower(replace(v, **({"filters": ""} | fields))), c.replace(**axes), EMULATED)
    assert broken is not None
    assert broken.name == name


@pytest.mark.each_value
@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize(
    ("stride", "taps", "dilation", "padding"),
    [
        (2, (3, 3), 1, 1),
        ((2, 1), (1, 4), (1, 2), (0, 2, 1, 0)),
        ((1, 2), (3, 2), 1, 0),
        (4, (3, 5), 1, (1, 0, 2, 2)),
        (2, (3, 3), 2, 2),
    ],
)
def test_depthwise_input_grad_with_strides(layout, stride, taps, dilation, padding) -> None:
    """Pixels that no tap reads, taps outside the image, strips that end within a stride."""
    v = Conv(
        2,
        5,
        9,
        7,
        5,
        *taps,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=5,
        layout=layout,
        direction="input_grad",
        epilogue="bias",
    )
    for beta, text in (
        (0.0, "strip_results=4 block_rows=2 block_lanes=32"),
        (1.0, "strip_results=8 block_rows=1 block_lanes=64"),
    ):
        verify(v, parse_config(f"family=depthwise {text}"), "integers", beta)


@pytest.mark.each_value
@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize(("dtype", "filters"), [("f32", ""), ("f16", ""), ("f64", "CRSK")])
def test_depthwise_weight_grad(layout, dtype, filters) -> None:
    """More filters than a block has lanes, more units than slices, empty slices, lanes without a filter, depth."""
    for n, v in enumerate(
        (
            Conv(2, 40, 9, 6, 40, 3, 3, padding=1, groups=40),
            Conv(34, 3, 10, 7, 3, 3, 2, padding=(0, 3, 2, 1), stride=(2, 1), dilation=(1, 3), groups=3),
            Conv(1, 34, 5, 4, 34, 2, 3, d=4, t=2, padding=1, stride=2, groups=34),
        )
    ):
        v = replace(v, layout=layout, filters=filters, dtype=dtype, compute="", out="", direction="weight_grad")
        texts = (
            "strip_results=4 block_rows=2 block_lanes=32 kg=3 splitk=workspace",
            f"strip_results=2 block_rows=1 block_lanes=64 vec_lane={strips_of(v).vec}",
        )
        text = texts[(n + list(FILTERS).index(layout) + len(filters)) % 2]
        verify(v, parse_config(f"family=depthwise {text}"), "integers", float(n % 2))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", ["64 2 5 1 1 2", "128 4 3 2 1 1", "192 4 4 1 3 0"])
def test_strips_of_images_with_one_axis(case: str, direction: str) -> None:
    """Results along the axis are split into parts; a strip of eight results ends past the last part."""
    results, parts, taps, stride, dilation, pad = map(int, case.split())
    back = direction == "input_grad"
    pixels = results if back else (results - 1) * stride + (taps - 1) * dilation + 1 - 2 * pad
    v = Conv(2, 3, 1, pixels, 3, 1, taps, groups=3, stride=(1, 1 if back else stride), padding=(0, pad))
    v = replace(v, dilation=(1, dilation), direction=direction)
    strip = strips_of(v)
    assert (strip.lanes, strip.results, strip.taps, strip.outer_taps) == (results // parts, parts, 1, taps)
    kg = "kg=2 splitk=workspace" if direction == "weight_grad" else ""
    verify(v, parse_config(f"family=depthwise strip_results=8 block_rows=2 block_lanes=32 {kg}"), "integers")


def test_vector_accesses_of_images() -> None:
    """Four channels, or four images, per access; padding splits no access."""
    for layout, keep in (("NHWC", "kmajor_smem_a=1 kmajor_smem_b=1 vec_b=4"), ("CHWN", "vec_b=4")):
        v = Conv(4, 8, 5, 6, 12, 3, 3, padding=1, layout=layout)
        wide = "vec_a=4 vec_c=4 cp_async_a=1 cp_async_b=1"
        verify(v, parse_config(f"ms=2 ns=4 ml=16 nl=32 u=16 stages=3 {keep} {wide}"), "integers")


def test_padding_is_not_read() -> None:
    """The first pixel's window begins before the image and the last one's ends past it; guards are there."""
    v = Conv(1, 1, 3, 3, 1, 3, 3, padding=1, aligned_input=4)
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    w = np.ones((1, 1, 3, 3), np.float32)
    c = parse_config("ms=2 ns=2 ml=16 nl=16 u=8 cp_async_a=0 cp_async_b=0")
    p = lower(v)
    assert p.operand("B").access.mode == IM2COL
    assert first_violation(p, c, EMULATED) is None
    got = execute(v, c, (x, w, np.full((1, 1, 3, 3), np.nan, np.float32)), 0.0, shift=True)
    padded = np.pad(x[0, 0], 1)
    assert np.array_equal(got[0, 0], [[padded[i : i + 3, j : j + 3].sum() for j in range(3)] for i in range(3)])


@pytest.mark.each_value
@pytest.mark.parametrize(("n", "c", "k"), [(0, 2, 3), (2, 0, 3), (2, 2, 0)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_empty_convolutions(n: int, c: int, k: int, direction: str) -> None:
    v = Conv(n, c, 4, 5, k, 2, 3, direction=direction)
    verify(v, parse_config("ms=2 ns=2 ml=16 nl=16 u=8 cp_async_a=0 cp_async_b=0"), "integers")
