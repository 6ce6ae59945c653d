"""Convolutions whose kernels store the sums beside the activation, in every layout and by every family that can."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, launches, on_host
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError, DtypeError, InputError, OverlapError, ShapeError
from ptxgen.families import registry
from ptxgen.families.common.rules import first_violation, require
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering import implicit_gemm
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv import checks
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.reference import convolve
from ptxgen.problem.device import device
from ptxgen.problem.epilogue_ops import ACTIVATION, epilogue_op
from ptxgen.problem.registry import parse
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import CASES as INPUTS
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right
from tests.tensors import LIBRARY, Tensor

H200 = device("h200")
P = Conv(2, 16, 5, 6, 24, 3, 2, padding=(1, 0, 1, 1), stride=(1, 2), dtype="f16", epilogue="bias,store_sums,gelu")
SIMT = "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=1"
MMA = "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 cp_async_a=0 cp_async_b=0"
WGMMA = "family=wgmma ml=64 nl=32 u=64 stages=3"
PACKED = f"{WGMMA} operand_path_a=pack operand_path_b=pack"

#: what else of the problem, the configuration
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "simt, NCHW, f32": ({"dtype": "f32", "epilogue": "bias,residual,store_sums,gelu"}, SIMT),
    "simt, NHWC, f32, slices of K": (
        {"dtype": "f32", "layout": "NHWC", "epilogue": "bias,residual,store_sums,gelu"},
        f"{SIMT.replace('vec_c=1', 'vec_c=4')} kg=2 splitk=workspace",
    ),
    "simt, CHWN, bf16, groups": (
        {"dtype": "bf16", "layout": "CHWN", "groups": 4, "epilogue": "scale,bias,residual,store_sums,silu"},
        SIMT,
    ),
    "simt, f64": ({"dtype": "f64", "epilogue": "residual,store_sums,relu"}, SIMT),
    "simt, 1x1 filters of several images": (
        {"r": 1, "s": 1, "padding": 0, "stride": 1, "h": 4, "w": 4, "epilogue": "bias,residual,store_sums,sigmoid"},
        SIMT,
    ),
    "simt, folded pixels": (
        {"k": 1, "c": 3, "w": 40, "s": 3, "stride": 1, "padding": 1, "dtype": "f32"},
        SIMT.replace("lanes_m=4", "lanes_m=8").replace("nl=32", "nl=16").replace("ml=16", "ml=32"),
    ),
    "simt, filters that cover their images": (
        {"r": 5, "s": 6, "padding": 0, "stride": 1, "layout": "NHWC", "epilogue": "bias,store_sums,swiglu"},
        SIMT.replace("vec_c=1", "vec_c=2"),
    ),
    "mma, patches": (
        {
            "c": 4,
            "r": 2,
            "h": 6,
            "padding": 0,
            "stride": 2,
            "layout": "NHWC",
            "epilogue": "bias,residual,store_sums,gelu",
        },
        MMA,
    ),
    "simt, a gradient": ({"dtype": "f32", "epilogue": "residual,store_sums,gelu_grad"}, SIMT),
    "simt, gated": ({"layout": "NHWC", "epilogue": "scale,bias,store_sums,swiglu"}, SIMT.replace("vec_c=1", "vec_c=2")),
    "simt, gated groups of f32": (
        {"layout": "NHWC", "dtype": "f32", "groups": 4, "epilogue": "bias,store_sums,x*up"},
        SIMT.replace("vec_c=1", "vec_c=2"),
    ),
    "simt, input gradient": ({"dtype": "f32", "direction": "input_grad"}, SIMT),
    "mma, NCHW": ({"epilogue": "bias,residual,store_sums,gelu"}, MMA),
    "mma, NCHW, through shared memory": ({"epilogue": "bias,residual,store_sums,gelu"}, f"{MMA} epilogue_smem=1"),
    "mma, NHWC, bf16": (
        {"dtype": "bf16", "layout": "NHWC", "epilogue": "residual,store_sums,x*sigmoid(1.702*x)"},
        f"{MMA} vec_c=4",
    ),
    "mma, CHWN, tf32": (
        {"dtype": "f32", "compute": "tf32", "layout": "CHWN", "epilogue": "bias,residual,store_sums,tanh"},
        MMA.replace("u=32", "u=16"),
    ),
    "mma, depth": ({"layout": "NHWC", "d": 3, "t": 2, "stride": 1, "padding": 1}, MMA),
    "mma, C of f32": ({"out": "f32", "layout": "NHWC", "groups": 2}, MMA),
    "mma, gated": ({"layout": "NHWC", "epilogue": "bias,store_sums,geglu"}, f"{MMA} vec_c=2"),
    "mma, input gradient": ({"layout": "NHWC", "direction": "input_grad"}, MMA),
    "wgmma, NHWC": ({"layout": "NHWC", "epilogue": "bias,residual,store_sums,gelu"}, WGMMA),
    "wgmma, NHWC, slices of K": (
        {"layout": "NHWC", "c": 64, "epilogue": "bias,residual,store_sums,gelu"},
        f"{WGMMA} kg=2 splitk=last_cta",
    ),
    "wgmma, NCHW": ({"epilogue": "bias,residual,store_sums,silu", "h": 8, "n": 8}, PACKED),
    "wgmma, CHWN, bf16": (
        {"dtype": "bf16", "layout": "CHWN", "n": 8, "epilogue": "bias,residual,store_sums,gelu"},
        f"{WGMMA} operand_path_b=pack",
    ),
    **{
        f"wgmma, {layout}, through shared memory, {buffers} of {subtiles}": (
            {"epilogue": f"scale,bias,store_sums,{activation}", **fields},
            f"{config} epilogue_smem=1 epilogue_subtiles={subtiles} epilogue_buffers={buffers} {more}",
        )
        for layout, fields, config, subtiles, buffers, activation, more in (
            ("NHWC", {"layout": "NHWC"}, WGMMA, 2, 1, "silu", ""),
            ("NHWC", {"layout": "NHWC"}, WGMMA, 2, 2, "gelu", "persistent=1"),
            ("NHWC", {"layout": "NHWC", "dtype": "bf16"}, WGMMA, 4, 2, "relu", "persistent=1"),
            ("NHWC", {"layout": "NHWC", "c": 64}, WGMMA, 1, 1, "gelu", "kg=2 splitk=last_cta"),
            ("NHWC, rows of any length", {"layout": "NHWC", "k": 27}, WGMMA, 2, 2, "gelu", "persistent=1"),
            ("NCHW", {"h": 8, "n": 8}, PACKED, 2, 1, "silu", "persistent=1"),
            ("NCHW", {"h": 8, "n": 8, "w": 7}, PACKED, 1, 1, "gelu", ""),
            ("CHWN", {"layout": "CHWN", "n": 8}, f"{WGMMA} operand_path_b=pack", 2, 2, "gelu", "persistent=1"),
            (
                "phases",
                {"layout": "NHWC", "direction": "input_grad", "k": 24, "c": 136, "h": 11, "w": 9, "stride": 2},
                WGMMA,
                2,
                2,
                "gelu",
                "",
            ),
        )
    },
    "wgmma, tf32": (
        {"dtype": "f32", "compute": "tf32", "layout": "NHWC", "epilogue": "bias,residual,store_sums,gelu"},
        WGMMA.replace("u=64", "u=32"),
    ),
    "wgmma, images as columns": (
        {"layout": "NHWC", "dtype": "bf16", "k": 64},
        "family=wgmma transposed_mma=1 ml=24 nl=64 u=32 stages=3",
    ),
    "wgmma, taps of a row in one stage": ({"layout": "NHWC", "s": 3, "stride": 1, "c": 64}, f"{WGMMA} row_taps=3"),
    "wgmma, groups of one item": ({"layout": "NHWC", "groups": 2, "k": 32}, f"{WGMMA} operand_path_b=pack"),
    "wgmma, gated": ({"layout": "NHWC", "epilogue": "bias,store_sums,swiglu"}, f"{WGMMA} vec_c=2"),
    "wgmma, gated, tf32": (
        {"dtype": "f32", "compute": "tf32", "layout": "NHWC", "epilogue": "bias,store_sums,swiglu"},
        f"{WGMMA.replace('u=64', 'u=32')} vec_c=2",
    ),
    "wgmma, phases of an input gradient": (
        {"layout": "NHWC", "direction": "input_grad", "k": 24, "c": 136, "h": 11, "w": 9, "stride": 2},
        "family=wgmma ml=64 nl=64 u=64 stages=3",
    ),
    "winograd, NCHW": (
        {
            "dtype": "f32",
            "c": 17,
            "k": 21,
            "s": 3,
            "stride": 1,
            "padding": 1,
            "epilogue": "bias,residual,store_sums,gelu",
        },
        "family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4",
    ),
    "winograd, NHWC": (
        {"dtype": "f32", "c": 17, "k": 21, "s": 3, "stride": 1, "padding": 1, "layout": "NHWC"},
        "family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 cp_async_a=0 cp_async_b=0 vec_c=4",
    ),
    "winograd, tiles of 4 rows, CHWN": (
        {"dtype": "f32", "c": 64, "k": 64, "s": 3, "stride": 1, "padding": 1, "layout": "CHWN"},
        "family=winograd_4x4 ms=4 ns=4 ml=32 nl=32 u=8 stages=2 cp_async_a=0 cp_async_b=0 vec_c=4",
    ),
    "depthwise strips": (
        {"dtype": "f32", "c": 34, "k": 34, "groups": 34, "epilogue": "bias,residual,store_sums,silu"},
        "family=depthwise strip_results=4 block_rows=2 block_lanes=32",
    ),
    "depthwise patches": (
        {"dtype": "bf16", "c": 40, "k": 40, "groups": 40, "s": 3, "stride": 1, "padding": 1, "layout": "NHWC"},
        "family=depthwise strip_results=4 strip_columns=2 block_lanes=64",
    ),
    "depthwise feature maps": (
        {
            "c": 34,
            "k": 34,
            "groups": 34,
            "s": 3,
            "stride": 1,
            "padding": 1,
            "epilogue": "bias,residual,store_sums,silu",
        },
        "family=depthwise strip_results=4 block_lanes=64 feature_map_bytes=2048",
    ),
    "tap products, NCHW": (
        {"c": 17, "h": 6, "w": 37, "k": 1, "s": 3, "stride": 1, "padding": 1, "dtype": "f32"},
        "family=tap_products tile_height=4 tile_width=8 block_threads=64 filter_channels=64 thread_pixels=1",
    ),
    "tap products, NHWC": (
        {"c": 72, "h": 6, "w": 7, "k": 3, "s": 3, "stride": 1, "padding": 1, "dtype": "bf16", "layout": "NHWC"},
        "family=tap_products tile_height=4 tile_width=8 block_threads=64 filter_channels=64 vec_channel=8 u=32 tap_mma=1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_store_the_sums(case: str) -> None:
    """In each case one of the inputs; guard zones surround both results."""
    fields, text = CASES[case]
    p = replace(P, **{"filters": "", "out": "", "compute": "", **fields})
    assert p.outputs == ("C", "sums")
    assert parse(p.key()) == p
    n = list(CASES).index(case)
    right(p, parse_config(text), n, H200, (INPUTS[n % len(INPUTS)],))


RANDOM = (
    *("conv_simt", "conv_mma", "conv_depthwise", "winograd", "winograd_4x4", "conv_tap_products"),
    *("conv_wgmma", "conv_wgmma_phased", "conv_wgmma_few_channels", "conv_wgmma_packed"),
    *("conv_wgmma_row_taps", "conv_wgmma_groups", "conv_wgmma_tiled"),
)
#: C and sums are stored from registers
DIRECT = {"epilogue_smem": 0, "epilogue_subtiles": 1, "epilogue_buffers": 1, "epilogue_aliases_ab": 0}


@pytest.mark.parametrize("source", RANDOM)
def test_random_convolutions_and_configurations(source: str) -> None:
    checked = 0
    for n, (p, c) in enumerate(SOURCES[source].cases(7, 10, H200)):
        before = [x for x in p.epilogue_ops if epilogue_op(x).place != ACTIVATION]
        try:
            p = replace(p, epilogue=",".join((*before, "store_sums", "clamp(-1,2)")))
        except InputError:  # weight gradients, results of 8 bits
            continue
        if c.family == "wgmma" and first_violation(lower(p), c, H200):
            c = c.replace(**DIRECT)
        if first_violation(lower(p), c, H200) is None:
            right(p, c, n, H200, (INPUTS[n % len(INPUTS)],))
            checked += 1
    assert checked > 2


def test_the_checks_compare_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sum, and a value outside the sums, are deviations."""
    p, config = replace(P, dtype="f32", out=""), parse_config(SIMT)
    whole = checks.guarded
    for at, where in ((17, (0, 1, 0, 1)), (None, (-1,))):

        def wrong(*arguments: Any, at: int | None = at) -> Any:
            outputs, unchanged = whole(*arguments)
            if at is not None:
                outputs["sums"] = outputs["sums"].copy()
                outputs["sums"].flat[at] += 1
            return outputs, unchanged and at is not None

        monkeypatch.setattr(checks, "guarded", wrong)
        first = next(iter(check(EmulatedDriver(H200), p, config)))
        assert not first.ok
        assert first.deviation.where == where


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
@pytest.mark.parametrize("element", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_calls(layout: str, element: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rng = np.random.default_rng(1)
    x, w, bias, residual = (rng.normal(size=s).astype(element) for s in ((3, 4, 5), (6, 4, 1), (6,), (3, 6, 5)))
    exact = np.einsum("ncw,kc->nkw", x.astype(float), w[..., 0].astype(float)) + bias.astype(float)[:, None]
    axes = [{"N": 0, "C": 1, "W": 2}[letter] for letter in layout if letter != "H"]
    wanted = (exact + residual.astype(float)).transpose(axes)
    given = [np.ascontiguousarray(a.transpose(axes)) for a in (x, w, residual)]
    options = {"bias": bias, "residual": given[2], "activation": "silu", "layout": layout.replace("H", "")}
    sums = np.full(wanted.shape, np.nan, element)
    bound = {"rtol": 2e-2, "atol": 2e-2} if element is not np.float32 else {"rtol": 1e-5, "atol": 1e-5}
    out = ptxgen.conv1d(*given[:2], **options, sums=sums)
    np.testing.assert_allclose(sums.astype(float), wanted, **bound)
    np.testing.assert_allclose(out.astype(float), wanted / (1 + np.exp(-wanted)), **bound)
    assert np.array_equal(out, ptxgen.conv1d(*given[:2], **options))
    strided = np.full((*wanted.shape[:-1], 2 * wanted.shape[-1]), np.nan, element)[..., ::2]
    ptxgen.conv1d(*given[:2], **options, sums=strided)
    assert np.array_equal(strided, sums)


def test_calls_in_other_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 4, 4, 5), (6, 3, 2, 3, 3)))
    plain = ptxgen.conv3d(x, w, padding=1)
    sums = np.empty_like(plain)
    out = ptxgen.conv3d(x, w, padding=1, activation="relu", sums=sums)
    np.testing.assert_allclose(sums, plain, rtol=1e-5, atol=1e-5)
    assert np.array_equal(out, np.maximum(sums, 0))
    images, filters = rng.normal(size=(2, 6, 4, 5)).astype(np.float32), w[:, :, 0]
    plain = ptxgen.conv_transpose2d(images, filters, stride=2)
    sums = np.empty_like(plain)
    out = ptxgen.conv_transpose2d(images, filters, stride=2, activation="relu", sums=sums)
    np.testing.assert_allclose(sums, plain, rtol=1e-5, atol=1e-5)
    assert np.array_equal(out, np.maximum(sums, 0))


def test_calls_with_gated_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=s).astype(np.float16) for s in ((2, 5, 6, 4), (8, 3, 3, 2)))
    plain = ptxgen.conv2d(x, w, groups=2, padding=1, layout="NHWC").astype(float)
    sums = np.full(plain.shape, np.nan, np.float16)
    out = ptxgen.conv2d(x, w, groups=2, padding=1, layout="NHWC", activation="x*up", sums=sums)
    np.testing.assert_allclose(sums.astype(float), plain, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(out.astype(float), plain[..., ::2] * plain[..., 1::2], rtol=2e-2, atol=2e-2)


LAST = (0, 2, 3, 1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    """The emulated device in place of a GPU, whose memory has the arrays."""
    driver = EmulatedDriver(H200)
    driver.name = "cuda"
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


def integers(*shape: int) -> Any:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)


def sums_of(x: Any, f: Any, bias: Any) -> Any:
    """The convolution of NCHW images with padding 1, plus the bias."""
    p = Conv(*x.shape, *f.shape[:1], *f.shape[2:], padding=1)
    return (convolve(p, x, f) + bias.reshape(-1, 1, 1)).astype(np.float32)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), LAST])
def test_sums_of_device_arrays(gpu: EmulatedDriver, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums have the memory layout of the result; a second call stores them by the cached launch."""
    x, f, bias = (integers(*shape) for shape in ((2, 4, 5, 6), (4, 4, 3, 3), (4,)))
    want = sums_of(x, f, bias)
    operands = Tensor(gpu, x, order), Tensor(gpu, f, order)
    options = {"bias": Tensor(gpu, bias), "padding": 1}
    other = Tensor(gpu, np.zeros_like(want), LAST if order != LAST else None)
    with pytest.raises(ShapeError, match=r"sums has strides .*; it must have the memory layout of out"):
        ptxgen.conv2d(*operands, **options, activation="relu", sums=other)
    both = Tensor(gpu, np.zeros_like(want), order)
    if order == LAST:
        y = ptxgen.conv2d(*operands, **options, activation="x*up", sums=both)
        assert np.array_equal(y.numpy(), want[:, ::2] * want[:, 1::2])
        assert np.array_equal(both.numpy(), want)
        both.address += 4
        with pytest.raises(ShapeError, match=r"sums starts at .*; with a gated activation it must be a multiple of 8"):
            ptxgen.conv2d(*operands, **options, activation="x*up", sums=both)
    else:
        with pytest.raises(InputError, match="with store_sums and a gated activation layout must be NHWC"):
            ptxgen.conv2d(*operands, **options, activation="x*up", sums=both)
    for _ in range(2):
        sums = Tensor(gpu, np.full_like(want, np.nan), order)
        y = ptxgen.conv2d(*operands, **options, activation="relu", sums=sums)
        assert np.array_equal(sums.numpy(), want)
        assert np.array_equal(y.numpy(), np.maximum(want, 0))
        monkeypatch.setattr("ptxgen.api.conv.launch_uncached", None)


@pytest.mark.parametrize("shape", [(2, 4, 5, 6), (1, 4, 1, 6), (2, 4, 1, 1), (1, 1, 5, 1)])
@pytest.mark.parametrize("activation", ["relu", "x*up"])
def test_results_of_one_channel_have_sums(gpu: EmulatedDriver, shape: Any, activation: str) -> None:
    """Strides along axes of one element do not count; a gated activation has two channels of sums beside one."""
    each = 2 if activation == "x*up" else 1
    x, f = integers(*shape), integers(each, shape[1], 3, 3)
    want = sums_of(x, f, np.zeros(each))
    sums = Tensor(gpu, np.full_like(want, np.nan), LAST)
    sums.strides = tuple(999 if n == 1 else s for n, s in zip(sums.shape, sums.strides, strict=True))
    y = ptxgen.conv2d(Tensor(gpu, x, LAST), Tensor(gpu, f, LAST), padding=1, activation=activation, sums=sums)
    assert np.array_equal(sums.numpy(), want)
    assert np.array_equal(y.numpy(), np.maximum(want, 0) if each == 1 else want[:, ::2] * want[:, 1::2])


def test_the_batch_of_a_large_convolution_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setattr(implicit_gemm, "EXTENT_LIMIT", 500)  # offsets have few bits
    lower.cache_clear()
    x, f, bias = (integers(*shape) for shape in ((5, 4, 6, 5), (3, 4, 3, 3), (3,)))
    want = sums_of(x, f, bias)
    sums, problems = np.full_like(want, np.nan), []
    with on_host.intercepted(problems.append):
        y = ptxgen.conv2d(x, f, bias=bias, padding=1, activation="relu", sums=sums)
    assert [p.n for p in problems] == [3, 2]
    assert np.array_equal(sums, want)
    assert np.array_equal(y, np.maximum(want, 0))
    lower.cache_clear()


X, W, OUT = (np.zeros(s, np.float32) for s in ((1, 5, 5, 4), (6, 3, 3, 4), (1, 3, 3, 6)))
GIVEN: dict[str, Any] = {"layout": "NHWC", "activation": "silu"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"activation": None, "sums": OUT}, InputError, "sums is an array; activation must then be given"),
        (
            {"sums": OUT[0]},
            ShapeError,
            r"sums has shape \(3, 3, 6\); it must have \(1, 3, 3, 6\), an element for each sum",
        ),
        ({"sums": OUT.astype(np.float16)}, DtypeError, "sums is f16; it must be f32 for results of f32"),
        ({"sums": OUT, "out": OUT}, OverlapError, "out shares memory with sums; they must not overlap"),
        ({"sums": OUT, "residual": OUT}, OverlapError, "sums shares memory with residual; they must not overlap"),
        (
            {"sums": OUT, "activation": "swiglu"},
            ShapeError,
            r"sums has shape \(1, 3, 3, 6\); it must have \(1, 3, 3, 12\), an element for each sum",
        ),
        (
            {"sums": OUT, "activation": "swiglu", "layout": "NCHW"},
            InputError,
            "layout is NCHW; with store_sums and a gated activation layout must be NHWC",
        ),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    options = {**GIVEN, **options}
    x, w = (X, W) if options["layout"] == "NHWC" else (np.zeros((1, 4, 5, 5), np.float32), W.transpose(0, 3, 1, 2))
    filters = np.concatenate([w, w]) if options["activation"] == "swiglu" else w
    with pytest.raises(error, match=message):
        ptxgen.conv2d(x, filters, **options)


def test_families_and_problems() -> None:
    p = Conv(2, 32, 8, 8, 64, 3, 3, padding=1)
    stored = replace(p, epilogue="store_sums,relu")
    names = [{f.name for f in registry.FAMILIES.values() if f.computes(lower(x))} for x in (p, stored)]
    assert names[1] == names[0] == {"simt", "wgmma", "mma", "winograd", "winograd_4x4"}
    config = parse_config(f"{WGMMA} epilogue_smem=1")
    half = replace(stored, dtype="f16", out="", compute="", layout="NHWC", filters="")
    require(lower(replace(half, epilogue="relu")), config, H200)
    require(lower(half), config, H200)
    for epilogue in ("residual,store_sums,relu", "store_sums,swiglu"):
        with pytest.raises(ConfigError, match="wgmma_epilogue_smem"):
            require(lower(replace(half, epilogue=epilogue)), config, H200)
    assert stored.bytes == p.bytes + 4 * 2 * 64 * 8 * 8
    gated = replace(half, epilogue="store_sums,swiglu")
    assert gated.bytes == replace(half, epilogue="swiglu").bytes + 2 * 2 * 64 * 8 * 8
    assert gated.of_sums() == replace(half, epilogue="")
    with pytest.raises(InputError, match="with store_sums out must be 16 or more bits wide"):
        Conv(2, 32, 8, 8, 64, 3, 3, dtype="s8", out="s8", epilogue="store_sums,relu")
    with pytest.raises(InputError, match="direction weight_grad takes none"):
        replace(stored, direction="weight_grad")


@pytest.mark.parametrize("case", CASES)
def test_kernels_assemble(case: str) -> None:
    fields, text = CASES[case]
    p = replace(P, **{"filters": "", "out": "", "compute": "", **fields})
    assert assemble(render(plan_for(p, parse_config(text), H200))).cubin
