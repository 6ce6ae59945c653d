"""Convolution problems: text form, and lowering to GEMMs, computed with the same offset tables that kernels read."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.lowering.implicit_gemm import IM2COL, TABLE, OffsetTables
from ptxgen.lowering.kernel_problem import STRIDED, MatrixAccess
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import DIRECTIONS, FILTERS, Conv
from ptxgen.operations.conv.reference import convolve
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.operation import operation_of
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.problem.registry import from_dict, parse
from tests.cases.conv import problems
from tests.lowered import strips_of


def places(access: MatrixAccess) -> np.ndarray:
    """The offsets of the elements of a matrix, by the address arithmetic of kernels."""
    if isinstance(access, OffsetTables):
        return access.maps.rows.offsets[:, None] + access.maps.columns.offsets[None, :]
    at = np.arange(access.rows)[:, None] * access.ld + np.arange(access.columns)[None, :]
    return at if access.kmajor else at.T


def fetched(access: MatrixAccess, memory: np.ndarray, item: int) -> np.ndarray:
    """The matrix of an operand, by the address arithmetic of kernels."""
    at = places(access) + item
    if not isinstance(access, OffsetTables):
        return memory[at]
    x = access.maps
    packing, word = x.packing, 1 << 32
    low = (packing.pack(x.rows, True)[:, None] + packing.pack(x.columns, False)[None, :]) % word
    inside = (~low | ~((packing.high - low) % word)) & packing.guard == 0
    assert (at[inside] >= 0).all()
    assert (at[inside] < memory.size).all()
    return np.where(inside, memory[np.where(inside, at, 0)] if memory.size else 0, 0)


def multiplied(v: Conv, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """The result as kernels compute it: every element is written once."""
    p = lower(v)
    a, b = (x.reshape(-1) for x in ((two, one) if v.swapped else (one, two)))
    out = np.full(np.prod(v.stored[2], dtype=int), np.nan)
    for part in p.gemms:
        left, right, c = (part.operand(name).access for name in "ABC")
        for i in range(p.batch):
            at = places(c) + i * c.stride
            assert np.isnan(out[at]).all()
            out[at] = fetched(left, a, i * left.stride) @ fetched(right, b, i * right.stride).T
    assert not np.isnan(out).any()
    return out


def test_lowered_gemm_is_the_convolution() -> None:
    seen = set()
    for v in problems(1, 400):
        one, two, _ = operands(v, 2, "integers").values()
        exact = convolve(v, one, two)
        assert np.array_equal(multiplied(v, one, two).reshape(-1), exact.reshape(-1)), v.key()
        p = lower(v)
        image = p.operand("B" if v.swapped else "A").access.mode
        seen.add((v.layout, v.direction, image) if "offset_table" in p.needs else "gemm")
    assert "gemm" in seen
    assert {(layout, "forward", IM2COL) for layout in FILTERS} <= seen


@pytest.mark.parametrize(
    "v",
    [
        Conv(1, 1, 1, 200, 1, 1, 40, padding=(0, 20)),
        Conv(2, 6, 5, 50, 6, 3, 3, padding=1, groups=6),
        Conv(2, 3, 6, 70, 2, 2, 5, padding=(0, 1, 2, 3), stride=2, dilation=(2, 1)),
        Conv(1, 4, 3, 40, 8, 2, 4, d=3, t=2, groups=2, layout="CHWN"),
        Conv(3, 1, 4, 90, 1, 3, 17, layout="NHWC", filters="CRSK"),
    ],
)
def test_few_filters_use_pixels_as_columns(v: Conv) -> None:
    one, two, _ = operands(v, 2, "integers").values()
    p = lower(v)
    assert p.operand("B").access.mode == IM2COL
    assert p.n >= 16
    assert np.array_equal(multiplied(v, one, two).reshape(-1), convolve(v, one, two).reshape(-1))


def test_gradients_are_adjoint() -> None:
    """<conv(x, w), y> = <x, input_grad(y, w)> = <w, weight_grad(x, y)>, in exact integers."""
    for v in problems(3, 150):
        forward = replace(v, direction="forward")
        x, w, y = operands(forward, 1, "integers").values()
        y = np.random.default_rng(4).integers(-3, 4, y.shape).astype(y.dtype)
        inner = (convolve(forward, x, w) * y).sum()
        assert inner == (convolve(replace(v, direction="input_grad"), y, w) * x).sum(), v.key()
        assert inner == (convolve(replace(v, direction="weight_grad"), x, y) * w).sum(), v.key()


def test_reference_is_the_definition() -> None:
    for v in problems(5, 30):
        v = replace(v, direction="forward", layout="NCHW", filters="KCRS", d=1, t=1, padding=v.padding[2:], stride=1)  # type: ignore[index]
        x, w, _ = operands(v, 1, "integers").values()
        out = convolve(v, x, w)
        filled = np.pad(x.astype(float), ((0, 0), (0, 0), *v.pads[1:]))
        c, k = v.c // v.groups, v.k // v.groups
        for n, f, p, q in np.ndindex(*out.shape):
            first = f // k * c
            window = filled[
                n,
                first : first + c,
                p : p + v.r * v.dilations[1] : v.dilations[1],
                q : q + v.s * v.dilations[2] : v.dilations[2],
            ]
            assert out[n, f, p, q] == (window[:, : v.r, : v.s] * w[f]).sum()


def test_key_parse_and_dict_round_trip() -> None:
    seen: dict[str, Conv] = {}
    for v in problems(7, 1000):
        assert parse(v.key()) == v
        assert from_dict(json.loads(json.dumps(v.as_dict()))) == v
        assert seen.setdefault(v.key(), v) == v


def test_the_key_is_short() -> None:
    v = Conv(16, 32, 79, 341, 32, 5, 10, stride=2)
    assert v.key() == "conv N=16,C=32,H=79,W=341,K=32,R=5,S=10,stride=2 NCHW f32"
    assert (v.p, v.q) == (38, 166)
    v = Conv(
        1, 2, 8, 9, 4, 3, 3, padding=(1, 0, 2, 1), stride=(2, 1), layout="NHWC", dtype="f16", direction="input_grad"
    )
    assert v.key() == "conv N=1,C=2,H=8,W=9,K=4,R=3,S=3,stride=2x1,pad=1x0x2x1 NHWC f16 direction=input_grad"
    assert Conv(1, 1, 1, 9, 1, 1, 3, padding=(1,)).shape() == "N=1,C=1,H=1,W=9,K=1,R=1,S=3,pad=0x1"
    # values without effect are not stored
    assert Conv(1, 1, 3, 3, 1, 3, 3, stride=2) == Conv(1, 1, 3, 3, 1, 3, 3)
    assert Conv(1, 1, 4, 4, 1, 1, 1, dilation=5) == Conv(1, 1, 4, 4, 1, 1, 1)


@pytest.mark.parametrize(
    ("shape", "layout", "filters", "stored"),
    [
        ((2, 8, 5, 5, 4, 1, 1), "NHWC", "KCRS", "KRSC"),
        ((2, 8, 5, 5, 4, 1, 1), "NCHW", "KRSC", "KCRS"),
        ((2, 8, 5, 5, 4, 1, 1), "NHWC", "CRSK", "CRSK"),
        ((2, 8, 5, 5, 1, 1, 1), "NHWC", "CRSK", "KRSC"),
        ((2, 8, 5, 5, 4, 1, 1), "CHWN", "KRSC", "KCRS"),
        ((2, 8, 5, 5, 4, 3, 1), "NHWC", "KCRS", "KCRS"),
    ],
)
def test_layouts_of_one_memory_are_one_problem(shape, layout, filters, stored) -> None:
    v = Conv(*shape, layout=layout, filters=filters)
    assert v.filters == stored
    assert v == Conv(*shape, layout=layout, filters=stored)
    depthwise = Conv(2, 8, 5, 5, 8, 3, 3, groups=8, layout="NHWC", filters="KCRS")
    assert depthwise.key() == "conv N=2,C=8,H=5,W=5,K=8,R=3,S=3,groups=8 NHWC f32"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("conv N=1,C=1 NCHW f32", ShapeError, "lacks H, W, K, R, S"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=3,S=3,X=1 NCHW f32", ShapeError, "X=1"),
        (
            "conv N=1,C=1,H=3,W=3,K=1,R=3,S=3,stride=0 NCHW f32",
            ShapeError,
            "stride is 0; it must be an integer from 1 to",
        ),
        (
            "conv N=1,C=1,H=3,W=3,K=1,R=3,S=3,dilation=1x0 NCHW f32",
            ShapeError,
            "dilation is .*; it must be an integer from 1 to",
        ),
        ("conv N=1,C=1,H=3,W=3,K=1,R=0,S=3 NCHW f32", ShapeError, "r is 0; it must be at least 1"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=5,S=3 NCHW f32", ShapeError, "h is 3; it must be at least 5"),
        (
            "conv N=1,C=3,H=3,W=3,K=2,R=1,S=1,groups=2 NCHW f32",
            ShapeError,
            "groups is 2; it must be at least 1, and divide c=3",
        ),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1,pad=1x2x3x4x5 NCHW f32", ShapeError, "padding is"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=3,S=3,stride=1x2x3 NCHW f32", ShapeError, "stride is 1x2x3; .* 1 or 2 numbers"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=3,S=3,pad=0x1x1 NCHW f32", ShapeError, "padding is 0x1x1; .* 1 or 2 or 4 numbers"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 HWCN f32", ShapeError, "layout is 'HWCN'"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW f32 filters=RSCK", ShapeError, "filters is 'RSCK'"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW f32 direction=back", InputError, "direction is 'back'"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW f32 epilogue=relu direction=weight_grad", InputError, "takes none"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW f32 epilogue=bias_row", InputError, "bias_row"),
        (
            "conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW f32 epilogue=relu,bias",
            InputError,
            "epilogue is 'relu,bias'; .* order of execution: bias,relu",
        ),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW f64 aligned_input=4", ShapeError, "aligned_input is 4"),
        ("conv N=1,C=1,H=3,W=3,K=1,R=1,S=1 NCHW s7", DtypeError, "dtype is 's7'"),
    ],
)
def test_invalid_text_is_refused(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse(text)


@pytest.mark.parametrize("layout", FILTERS)
def test_the_epilogue_is_per_filter(layout: str) -> None:
    v = Conv(2, 3, 4, 5, 6, 1, 1, d=2, layout=layout, epilogue="scale,bias,residual,relu")
    assert v.epilogue_ops == ("scale", "bias", "residual", "relu")
    a, b, c = operands(v, 1).values()
    more = epilogue_arrays(v, 1)
    bias = more["bias"]
    zeros = {name: x if name == "bias" else np.zeros_like(x) for name, x in more.items()}
    exact = reference(v, {"A": a, "B": b, "C": c, **zeros}).exact
    axis = next(n for n, extent in enumerate(exact.shape) if extent == 6)
    last = np.moveaxis(exact, axis, -1)
    assert np.array_equal(last, np.broadcast_to(np.maximum(bias, 0), last.shape))
    assert compare(
        reference(v, {"A": a, "B": b, "C": c, **more}).exact.astype(np.float32),
        reference(v, {"A": a, "B": b, "C": c, **more}),
    ).ok


PLAIN = lower(Gemm(1, 1, 1)).needs  #: what products of matrices with leading dimensions need


def test_pointwise_convolutions_are_plain_gemms() -> None:
    p = lower(Conv(4, 64, 7, 7, 32, 1, 1, layout="NHWC"))
    assert p.needs == PLAIN
    assert (p.m, p.n, p.k, p.layout) == (4 * 49, 32, 64, "NT")
    p = lower(Conv(4, 64, 7, 7, 32, 1, 1, layout="CHWN"))
    assert p.needs == PLAIN
    assert (p.m, p.n, p.k, p.layout) == (32, 49 * 4, 64, "TN")
    # however many pixels there are, however few channels
    for c, direction, letters in ((64, "forward", "NT"), (3, "forward", "NT"), (8, "weight_grad", "TN")):
        p = lower(Conv(16, c, 56, 56, 256, 1, 1, layout="NHWC", direction=direction))
        assert (p.needs, p.layout) == (PLAIN, letters)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize("filters", FILTERS.values())
@pytest.mark.parametrize("extents", [(3, 2), (1, 1), (6, 4)])
def test_headers_name_the_operands_that_kernels_read(direction, layout, filters, extents) -> None:
    """Also of filters that cover their images, whose GEMM may have other operands than those of larger images."""
    h, w = extents
    v = Conv(16, 4, h, w, 6, min(h, 3), min(w, 2), layout=layout, filters=filters, direction=direction)
    p, text = lower(v), v.description[1]
    arrays = dict(zip("AB", v.tensors, strict=False))
    names = {"x": "images", "w": "filters", "y": "results" if direction == "forward" else "gradients of results"}
    first, second = (names[arrays[p.operand(name).array]] for name in "AB")
    assert f"A is {first}, B {second}, C " in text
    if direction == "input_grad" and v.one_pixel.c > v.c:
        rows, columns = ("images (N)", "channels and pixels of images (C H W)")[:: 1 if p.m == 16 else -1]
        assert f"M counts {rows}, N {columns}, K filters (K)" in text


def test_results_of_the_plain_product_serve_epilogues_of_the_same_gemm() -> None:
    """The bias of channels of an input gradient keeps pixels apart."""
    plain = operation_of(Conv(2, 4, 3, 2, 6, 3, 2)).plain
    assert plain is not None
    v = Conv(16, 4, 3, 2, 6, 3, 2, epilogue="bias,swiglu", dtype="f16")
    assert plain(v) == replace(v, epilogue="")
    v = Conv(16, 4, 3, 2, 6, 3, 2, epilogue="bias", direction="input_grad")
    assert plain(v) == v
    assert lower(replace(v, epilogue="")).k != lower(v).k


@pytest.mark.parametrize(
    ("layout", "direction", "extents", "letters", "vectors", "accesses"),
    [
        ("NCHW", "forward", (128, 12544, 576), "NN", (4, 1, 4), (STRIDED, IM2COL, TABLE)),
        ("NHWC", "forward", (12544, 128, 576), "NT", (4, 4, 4), (IM2COL, STRIDED, STRIDED)),
        ("CHWN", "forward", (128, 12544, 576), "TN", (4, 4, 4), (STRIDED, IM2COL, STRIDED)),
        ("NHWC", "weight_grad", (128, 576, 12544), "TN", (4, 4, 4), (STRIDED, IM2COL, STRIDED)),
        ("NHWC", "input_grad", (12544, 64, 1152), "NN", (1, 4, 4), (IM2COL, TABLE, STRIDED)),
    ],
)
def test_gemms_of_a_3x3_convolution(layout, direction, extents, letters, vectors, accesses) -> None:
    v = Conv(16, 64, 28, 28, 128, 3, 3, padding=1, layout=layout, direction=direction)
    p = lower(v)
    assert ((p.m, p.n, p.k), p.layout, p.vectors) == (extents, letters, vectors)
    assert tuple(p.operand(name).access.mode for name in "ABC") == accesses
    assert p.flops == v.flops


def test_phases_of_a_strided_gradient_multiply_no_zeros() -> None:
    v = Conv(2, 4, 8, 8, 6, 3, 3, stride=2, padding=1, direction="input_grad")
    p = lower(v)
    assert sorted(part.k for part in p.parts) == [6, 12, 12, 24]


def test_coordinates_beyond_32_bits_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(1100, 1100, 1100\) need 36 bits"):
        _ = lower(Conv(1, 1, 1100, 1100, 1, 3, 3, d=1100, t=3, padding=1))
    with pytest.raises(ShapeError, match="spans 2147484673 elements"):
        _ = lower(Conv(2, 1 << 10, 1 << 10, 1 << 10, 1, 3, 3, padding=1))


def test_depth_without_extent_is_refused() -> None:
    """The error of a convolution with padding along depth alone names depth, from a key as from fields; three numbers
    without a depth are refused."""
    v = Conv(1, 1, 3, 3, 1, 3, 3, padding=(1, 1, 1))
    assert v.shape() == "N=1,C=1,H=3,W=3,K=1,R=3,S=3,D=1,T=1,pad=1x1x1"
    assert parse(v.key()) == from_dict(v.as_dict()) == v
    fields = {"operation": "conv", "n": 1, "c": 1, "h": 3, "w": 3, "k": 1, "r": 3, "s": 3}
    assert from_dict({**fields, "d": 1, "padding": [1, 1, 1]}) == v
    with pytest.raises(ShapeError, match="dilation is 1x2x3; an image has height and width"):
        from_dict({**fields, "dilation": [1, 2, 3]})


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (4, 2), (2, 3)])
def test_the_reduction_of_a_convolution_is_that_of_its_gemm(direction: str, stride: int, dilation: int) -> None:
    v = Conv(2, 8, 23, 19, 12, 3, 2, groups=2, stride=stride, dilation=dilation, padding=2, direction=direction)
    assert v.reduction == lower(v).k


def test_feature_maps_fit_shared_memory_with_their_alignment():
    """A run begins at any offset from a multiple of 16 bytes. Where two groups fit, runs of whole groups begin at one."""
    for v, group in (
        (Conv(9, 40, 7, 7, 40, 3, 3, padding=1, groups=40, dtype="bf16"), 8),
        (Conv(9, 40, 9, 5, 40, 3, 3, stride=2, groups=40, direction="input_grad"), 4),
        (Conv(9, 40, 8, 8, 40, 3, 3, padding=1, groups=40), 1),
    ):
        maps = strips_of(v).feature_maps
        for size in (0, 256, 512, 4096, 32768):
            count = maps.maps_in(size)
            last = maps.region(count) + count * maps.result_map_bytes + 15
            assert count == 0 or last <= size
            assert count < 2 * group or count % group == 0
        assert maps.maps_in(32768) > 32768 // (maps.image_bytes + maps.result_map_bytes) * 0.9 - group


def test_filters_that_cover_images_of_too_many_pixels_are_named() -> None:
    with pytest.raises(ShapeError, match=r"extents or padding are too large: an operand spans 34359738368 elements"):
        lower(Conv(1, 4096, 1024, 1024, 8, 1024, 1024, dtype="f16"))
