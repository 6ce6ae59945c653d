"""Convolutions with gated activations: pairs of filters in every layout of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conv_runs import H200, verify

import ptxgen
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError, DtypeError, InputError, ShapeError
from ptxgen.export.operations import epilogue_sum
from ptxgen.families import registry
from ptxgen.families.common.rules import require
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.operation import operation_of
from ptxgen.problem.registry import parse

P = Conv(2, 16, 5, 6, 24, 3, 2, padding=(1, 0, 1, 1), stride=(1, 2), dtype="f16", epilogue="scale,bias,swiglu")
SIMT = "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=2"
MMA = "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 cp_async_a=0 cp_async_b=0 vec_c=2"
WGMMA = "family=wgmma ml=64 nl=32 u=64 stages=3 vec_c=2"
PACKED = f"{WGMMA} operand_path_a=pack operand_path_b=pack"

#: what else of the problem, the configuration
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "pairs of adjacent channels, slices of K": ({"layout": "NHWC"}, f"{SIMT} kg=2 splitk=workspace"),
    "pairs in planes, groups": ({"groups": 4}, SIMT),
    "pairs in planes, slices of K": ({}, f"{SIMT} kg=2 splitk=workspace"),
    "pairs in planes of pixels times images, an expression": (
        {"layout": "CHWN", "dtype": "bf16", "out": "", "epilogue": "bias,min(x,7)*sigmoid(1.702*x)*(up+1)"},
        MMA,
    ),
    "pairs in planes, through shared memory": ({"groups": 2}, f"{MMA} epilogue_smem=1"),
    "1x1 filters of several images": ({"r": 1, "s": 1, "padding": 0, "stride": 1, "h": 4, "w": 4}, SIMT),
    "depth": ({"layout": "NHWC", "d": 3, "t": 2, "stride": 1, "padding": 1, "epilogue": "geglu"}, MMA),
    "two filters": ({"k": 2, "c": 1, "w": 40, "s": 3, "stride": 1, "padding": 1, "epilogue": "swiglu"}, SIMT),
    "f32": ({"dtype": "f32", "out": "", "s": 3, "stride": 1}, f"{SIMT} kg=2 splitk=workspace"),
    "f32, vectors of two pairs": ({"dtype": "f32", "out": "", "layout": "NHWC"}, SIMT.replace("vec_c=2", "vec_c=4")),
    "tf32": ({"dtype": "f32", "compute": "tf32", "out": "", "layout": "CHWN"}, MMA.replace("u=32", "u=16")),
    "wgmma, tf32": (
        {"dtype": "f32", "compute": "tf32", "out": "", "layout": "NHWC", "epilogue": "bias,geglu"},
        WGMMA.replace("u=64", "u=32"),
    ),
    "sums in f16": ({"layout": "NHWC", "compute": "f16"}, SIMT),
    "boxes of TMA": ({"layout": "NHWC", "k": 32}, f"{WGMMA} epilogue_smem=1"),
    "wgmma, pairs in planes": ({}, PACKED),
    "wgmma, pairs in planes of pixels times images": ({"layout": "CHWN"}, f"{WGMMA} operand_path_a=pack"),
    "wgmma, groups of one item": ({"layout": "NHWC", "groups": 2, "k": 32}, f"{WGMMA} operand_path_b=pack"),
    "wgmma, taps of a row in one stage": ({"layout": "NHWC", "s": 3, "stride": 1, "c": 64}, f"{WGMMA} row_taps=3"),
}


@pytest.mark.parametrize("case", CASES)
def test_gated_convolutions_are_right(case: str) -> None:
    fields, text = CASES[case]
    p = replace(P, **{"filters": "", **fields})
    assert parse(p.key()) == p
    verify(p, parse_config(text), "normal", 0.5)


def test_only_families_that_store_pairs_compute_them() -> None:
    few = Conv(2, 32, 8, 8, 2, 3, 3, dtype="f16")
    computing = [
        [f.name for f in registry.FAMILIES.values() if f.computes(lower(p))]
        for p in (few, replace(few, epilogue="swiglu"))
    ]
    assert set(computing[0]) - set(computing[1]) == {"tap_products"}
    assert computing[1] == ["simt", "mma", "wgmma"]


def test_rows_with_a_halo_are_not_stored_through_shared_memory() -> None:
    """Their pixels are no boxes, and a thread stores 16 bytes of elements of two bytes."""
    p = replace(P, layout="NHWC", filters="", s=3, stride=1, c=64, k=32)
    config = parse_config(f"{WGMMA} row_taps=3 epilogue_smem=1")
    require(lower(replace(p, epilogue="relu")), config, H200)
    with pytest.raises(ConfigError, match="wgmma_epilogue_smem"):
        require(lower(p), config, H200)


def test_problems_and_their_plain_convolutions() -> None:
    p = replace(P, layout="NHWC", filters="")
    assert p.stored[2] == (2, 4, 4, 12)
    assert p.broadcast_shapes["bias"] == ((24,), (1, 1, 1, -1))
    assert replace(P, groups=2).broadcast_shapes["bias"] == ((24,), (1, -1, 1, 1))
    assert p.bytes == replace(p, epilogue="").bytes - 2 * 2 * 4 * 4 * 12
    plain: Callable[[Conv], Any] | None = operation_of(p).plain
    assert plain is not None
    assert plain(p) == replace(p, epilogue="")
    assert plain(P) == P  # the convolution without an epilogue multiplies filters by images
    assert plain(replace(P, epilogue="relu")) == replace(P, epilogue="")
    with pytest.raises(InputError, match="an exported library takes scale, scale_rows"):
        epilogue_sum(P.epilogue)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
def test_calls(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(3, 4, 5)).astype(np.float16), rng.normal(size=(6, 4, 1)).astype(np.float16)
    bias = rng.normal(size=6).astype(np.float16)
    sums = np.einsum("ncw,kc->nkw", x.astype(np.float64), w[..., 0]) + bias[:, None]
    wanted = sums[:, ::2] / (1 + np.exp(-sums[:, ::2])) * sums[:, 1::2]
    order = ["NCHW".index(letter) for letter in layout if letter != "H"]
    axes = [n - (n > 2) for n in order]
    given = [np.ascontiguousarray(a.transpose(axes)) for a in (x, w)]
    for activation in ("swiglu", lambda x, up: x / (1 + ptxgen.exp(-x)) * up):
        out = ptxgen.conv1d(*given, bias=bias, activation=activation, layout=layout.replace("H", ""))
        np.testing.assert_allclose(out, wanted.transpose(axes), rtol=4e-3, atol=4e-3)


X, W = np.zeros((1, 4, 5, 5), np.float16), np.zeros((6, 4, 3, 3), np.float16)
GIVEN = {"activation": "swiglu"}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ptxgen.conv2d(X, W[:5], **GIVEN), ShapeError, "k is 5; with a gated activation it must be even"),
        (
            lambda: ptxgen.conv2d(X, W[:, :2], groups=2, **GIVEN),
            ShapeError,
            "k is 6 and groups is 2; with a gated activation k/groups must be even",
        ),
        (
            lambda: ptxgen.conv2d(X, W, bias=W[:3, 0, 0, 0], **GIVEN),
            ShapeError,
            r"bias has shape \(3,\); it must have \(6,\), one per filter",
        ),
        (
            lambda: ptxgen.conv2d(X, W, out=np.zeros((1, 6, 3, 3), np.float16), **GIVEN),
            ShapeError,
            r"out has shape \(1, 6, 3, 3\); it must be \(1, 3, 3, 3\)",
        ),
        (
            lambda: ptxgen.conv2d(X, W, residual=np.zeros((1, 3, 3, 3), np.float16), **GIVEN),
            InputError,
            "with a gated activation there may be no residual",
        ),
        (
            lambda: ptxgen.conv_transpose2d(X, W[:4], **GIVEN),
            InputError,
            "direction is input_grad; with a gated activation direction must be forward",
        ),
        (
            lambda: ptxgen.conv2d_input_grad(X, W[:4], (1, 4, 7, 7), **GIVEN),
            InputError,
            "epilogue is 'swiglu' and direction is input_grad; with a gated activation direction must be forward",
        ),
        (
            lambda: ptxgen.conv2d(X.astype(np.float64), W.astype(np.float64), activation="x*up"),
            DtypeError,
            "out is f64; with a gated activation it must be one of f16, bf16, f32",
        ),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
