"""TMA im2col descriptors of convolutions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxgen.codegen.config.config import FAMILIES, Columns, parse_config
from ptxgen.codegen.parts.addressing import multiplier
from ptxgen.families.common import perf_model, rules, space
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.device import device
from ptxgen.problem.reference import reference
from tests.cases.packed_copy import packed
from tests.lowered import im2col_of

H200 = device("h200")


def descriptor(shape: str, **fields: object) -> Im2colDescriptor:
    im2col = im2col_of(Conv(**{**Conv.read_shape(shape), "layout": "NHWC", "dtype": "f16", **fields}))
    assert im2col is not None
    return im2col


@pytest.mark.parametrize("direction", ["forward", "weight_grad"])
def test_corners_bound_the_pixel_box(direction):
    x = descriptor("N=2,C=64,H=9,W=11,K=8,R=3,S=4,pad=1x0x2x1,stride=2x3,dilation=2x1", direction=direction)
    p = Conv(2, 64, 9, 11, 8, 3, 4, stride=(2, 3), padding=(1, 0, 2, 1), dilation=(2, 1), layout="NHWC", dtype="f16")
    assert x.extents == (11, 9)
    assert x.positions == (p.q, p.p)
    assert x.lower == (-2, -1)
    last = [e - 1 + u for e, u in zip(x.extents, x.upper, strict=True)]
    assert last == [low + (n - 1) * step for low, n, step in zip(x.lower, x.positions, x.steps, strict=True)]
    assert x.reach == (3, 4)
    assert x.pixels == 2 * p.p * p.q


def test_input_grad_reads_result_gradients_in_reverse():
    x = descriptor("N=2,C=64,H=9,W=11,K=24,R=3,S=4,pad=1x2", direction="input_grad")
    assert (x.channels, x.extents, x.positions, x.lower, x.flipped) == (24, (12, 9), (11, 9), (-1, -1), True)


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("NHWC", "N=1,C=16,H=8,W=8,K=8,R=3,S=3,stride=2,pad=1"),
        ("NHWC", "N=1,C=8,H=9,W=11,K=8,R=1,S=2,stride=3x2"),
        ("NHWC", "N=1,C=8,H=14,W=13,K=8,R=4,S=3,stride=2x6,pad=2x1,dilation=3x4"),
        ("NHWC", "N=1,C=8,D=5,H=6,W=7,K=8,T=2,R=3,S=3,stride=2,pad=1"),
        ("NCHW", "N=1,C=3,H=8,W=7,K=8,R=5,S=5,stride=2,pad=1"),
        ("NCHW", "N=1,C=3,H=6,W=7,K=8,R=5,S=2,stride=2x3,pad=4x0x1x2"),
        ("NCHW", "N=1,C=8,D=5,H=6,W=7,K=8,T=2,R=3,S=3,stride=2,pad=1"),
        ("CHWN", "N=3,C=8,H=8,W=7,K=8,R=5,S=3,stride=2,pad=1"),
        ("CHWN", "N=2,C=8,H=9,W=11,K=8,R=1,S=2,stride=3x2"),
    ],
)
def test_phases_read_the_results_that_each_pixel_contributes_to(layout, shape):
    """Every pixel is in one phase; each of its taps multiplies the result at the tap's offset."""
    x = descriptor(shape, layout=layout, direction="input_grad")
    p = Conv(**Conv.read_shape(shape), layout=layout, dtype="f16", direction="input_grad")
    along = layout == "CHWN"  # the image index is the innermost axis
    axes = (2, 1, 0)[: len(x.extents) - along]
    digits = x.result[x.side == "b"]
    pixels: dict[int, set[tuple[int, ...]]] = {}
    for phase in x.phases:
        assert all(n <= most for n, most in zip(phase.counts, x.positions, strict=True))
        for at in np.ndindex(*phase.counts):
            start = phase.start + sum(i * step for i, (_, step) in zip(at, digits[:0:-1], strict=True))
            assert start not in pixels
            products = set()
            for tap in np.ndindex(*phase.taps):
                result = tuple(
                    low + i + shift + j * step
                    for low, i, shift, j, step in zip(x.lower, at, phase.shift, tap, x.dilation, strict=True)
                )
                number = phase.filter_tap - sum(j * n for j, n in zip(tap, x.tap_steps, strict=True))
                if all(0 <= i < n for i, n in zip(result, x.extents, strict=True)):
                    products.add((number, *result))
            pixels[start] = products
    steps, want = p.steps("x"), {}
    for image, *pixel in np.ndindex(p.n, p.d, p.h, p.w):
        want[image * steps["n"] + sum(i * steps[a] for i, a in zip(pixel, "dhw", strict=True))] = {
            ((t * p.r + r) * p.s + s, *(image,) * along, *(result[n] for n in axes))
            for t, r, s in np.ndindex(p.t, p.r, p.s)
            for result in [[(pixel[n] + p.pads[n][0] - tap * p.dilations[n]) for n, tap in enumerate((t, r, s))]]
            if all(i % p.strides[n] == 0 for n, i in enumerate(result))
            for result in [[i // p.strides[n] for n, i in enumerate(result)]]
            if all(0 <= i < p.results[n] for n, i in enumerate(result))
        }
    assert pixels == want
    assert max(x.reach) <= 255


def test_taps_of_a_row_merge_with_few_channels_and_no_padding():
    x = descriptor("N=2,C=16,H=9,W=11,K=24,R=3,S=4,stride=1x2,pad=1x0")
    assert (x.channels, x.taps, x.extents, x.steps) == (64, (1, 3), (4, 9), (1, 1))
    assert x.pitches == (32, 176, 1584)
    assert x.positions == (4, 9)


@pytest.mark.parametrize(
    "shape",
    [
        "N=2,C=16,H=9,W=11,K=24,R=3,S=4,pad=0x1",  # outside
        "N=2,C=16,H=9,W=11,K=24,R=3,S=4,dilation=2",  # separate
        "N=2,C=64,H=9,W=11,K=24,R=3,S=4",  # full boxes already
    ],
)
def test_taps_do_not_merge_otherwise(shape):
    assert descriptor(shape).taps == (4, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"groups": 4},  # channels of a group are no whole 16 bytes
        {"groups": 2, "k": 32, "layout": "CHWN"},
        {"groups": 2, "k": 32, "layout": "NCHW", "direction": "weight_grad", "dtype": "f32"},
        {"groups": 2, "k": 32, "direction": "weight_grad", "filters": "CRSK"},
        {"dtype": "e4m3", "filters": "KCRS"},  # bytes are not copied
        {"dtype": "s8", "layout": "NCHW"},
        {"layout": "CHWN", "d": 3, "t": 2},  # five axes
        {"layout": "CHWN", "d": 3, "t": 2, "stride": 2, "direction": "input_grad"},  # likewise
    ],
)
def test_convolutions_beyond_tma_have_no_descriptor(fields):
    plain = {"n": 2, "c": 16, "h": 9, "w": 9, "k": 8, "r": 3, "s": 3, "layout": "NHWC", "dtype": "f16"}
    assert im2col_of(Conv(**{**plain, **fields})) is None


def test_groups_are_items_of_the_batch():
    shape = "N=2,C=192,H=9,W=11,K=128,R=3,S=4,pad=1,groups=2"
    x = descriptor(shape)
    assert (x.channels, x.count, x.extents, x.blocks) == (96, 2, (11, 9, 2), None)
    assert x.pitches == (192, 11 * 192, 9 * 11 * 192, 96)
    phased = descriptor(shape + ",stride=2", direction="input_grad")
    assert [(phase.counts, phase.taps, phase.shift) for phase in phased.phases[:2]] == [
        ((6, 4, 2), (2, 2, 1), (0, 0, 0)),
        ((5, 4, 2), (2, 2, 1), (1, 0, 0)),
    ]
    assert x.pixels == lower(Conv(**Conv.read_shape(shape), layout="NHWC", dtype="f16")).m
    # of a weight gradient, the pixels of the last stage are past the last image, in no other group
    assert descriptor(shape, direction="weight_grad").upper[-1] * 9 * 10 >= 256


def test_groups_with_few_channels_share_an_item():
    shape = "N=2,C=96,H=9,W=11,K=48,R=3,S=4,pad=1,groups=6"  # 16 channels, 8 filters
    x = descriptor(shape)
    assert (x.channels, x.count) == (48, 2)
    assert descriptor(shape, exact_nonfinite=True).channels == 16
    copy = x.copies[1]
    natural = np.arange(1, 48 * 12 * 16 + 1).reshape(48, 12, 16)  # filters, taps, channels
    blocks = np.zeros((2, 3, 8, 12, 3, 16), int)
    for group in range(3):
        blocks[:, group, :, :, group] = natural.reshape(2, 3, 8, 12, 16)[:, group]
    assert np.array_equal(packed(copy, natural)[0].ravel(), blocks.ravel())
    grads = descriptor(shape, direction="weight_grad")
    assert (grads.blocks, grads.copies) == ((8, 16, 3), (None, None))


COPIES = {
    "images alone": ({"layout": "NCHW", "filters": "KRSC"}, True, False),
    "filters alone": ({"filters": "KCRS"}, False, True),
    "one tap, filters need no packing": ({"layout": "NCHW", "r": 1, "s": 1}, True, False),
    "filters, across": ({"layout": "CHWN"}, True, False),
    "f32 filters, across": ({"layout": "CHWN", "dtype": "f32", "compute": "tf32"}, True, True),
    "odd channels": ({"c": 12}, True, True),
    "an odd start": ({"aligned_input": 8}, True, False),
    "gradients contiguous along pixels": ({"layout": "CHWN", "direction": "weight_grad"}, True, False),
    "both": ({"layout": "NCHW", "direction": "weight_grad"}, True, True),
}


@pytest.mark.parametrize("case", COPIES)
def test_other_layouts_are_packed(case):
    fields, images, other = COPIES[case]
    plain = {"n": 8, "c": 16, "h": 9, "w": 9, "k": 8, "r": 3, "s": 3, "layout": "NHWC", "dtype": "f16"}
    x = im2col_of(Conv(**{**plain, **fields}))
    assert [copy is not None for copy in x.copies] == [images, other]


@pytest.mark.parametrize(
    ("shape", "fields", "extents"),
    [
        ("N=2,C=9,H=4,W=6,K=7,R=1,S=1", {}, (24,)),  # whole images
        ("N=2,C=9,D=2,H=2,W=2,K=7,R=1,S=1", {}, (8,)),
        ("N=2,C=9,H=4,W=8,K=7,R=1,S=1,stride=2x1", {}, (8, 4)),
        ("N=2,C=8,H=4,W=8,K=7,R=3,S=1,pad=1x0", {}, (8, 4)),
        ("N=2,C=8,D=3,H=4,W=8,K=7,T=2,R=3,S=1", {}, (8, 4, 3)),
        ("N=2,C=9,H=2,W=7,K=7,R=1,S=1", {}, None),  # images of 28 bytes
        ("N=2,C=9,H=2,W=2,K=7,R=1,S=1", {"dtype": "f32", "compute": "tf32"}, (4,)),
        ("N=2,C=9,H=4,W=8,K=7,R=3,S=1", {}, None),  # a box of channels has several taps
        ("N=2,C=8,H=4,W=8,K=7,R=3,S=3", {}, None),  # taps between multiples of 16 bytes
        ("N=2,C=8,H=4,W=8,K=7,R=3,S=1,pad=0x8", {}, None),
        ("N=2,C=8,H=4,W=16,K=7,R=1,S=1,stride=2", {}, None),
        ("N=2,C=8,H=4,W=8,K=7,R=1,S=1", {"aligned_input": 8}, None),
        ("N=2,C=8,H=4,W=8,K=7,R=3,S=1", {"layout": "CHWN"}, None),  # 4 bytes of images
        ("N=8,C=8,H=4,W=8,K=7,R=3,S=3,pad=1,stride=2", {"layout": "CHWN"}, (8, 8, 4)),
    ],
)
def test_weight_gradients_that_need_no_packing(shape, fields, extents):
    fields = {"dtype": "f16", "direction": "weight_grad", **fields}
    unpacked = im2col_of(Conv(**Conv.read_shape(shape), **fields)).unpacked
    assert (unpacked and unpacked.extents) == extents
    if unpacked is not None:
        assert unpacked.tiled
        assert unpacked.wgrad
        assert not any(unpacked.copies)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
@pytest.mark.parametrize("filters", ["KCRS", "KRSC", "CRSK"])
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_packed_operands_have_each_element_in_place(layout, filters, direction):
    """Packed images, as the packing kernel writes them, and the loops over them: images and the other operand of the
    GEMM."""
    p = Conv(3, 9, 4, 6, 7, 2, 3, layout=layout, filters=filters, dtype="f16", direction=direction)
    x = im2col_of(p)
    first, second = (np.arange(math.prod(s)).reshape(s) for s in p.stored[:2])
    letters = {n: "".join(i for i in p.extents(n) if i not in "dtz") for n in "xwy"}

    def moved(array, name, order):
        return array.transpose([letters[name].index(i) for i in order])

    seen = {
        "x": "hwnc" if layout == "CHWN" else "nhwc",
        "y": "pqnk" if layout == "CHWN" else "npqk",
        "w": "crsk" if direction == "input_grad" else "krsc",
    }
    for copy, array, name in zip(x.copies, (first, second), p.tensors, strict=False):
        want = moved(array, name, seen[name])
        assert np.array_equal(copied(copy, array), want.reshape(-1, want.shape[-1]))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("filters", ["KCRS", "KRSC", "CRSK"])
@pytest.mark.parametrize(
    ("shape", "dtype", "padded"),
    [
        ("N=2,C=3,H=9,W=11,K=8,R=7,S=7,stride=2,pad=3", "f16", 4),  # two pixels in 16 bytes
        ("N=2,C=3,H=5,W=6,K=8,R=3,S=3,pad=1x1x2x0", "bf16", 8),
        ("N=2,C=1,H=5,W=18,K=8,R=2,S=5,stride=1x4", "f16", 2),
        ("N=2,C=3,D=3,H=5,W=6,K=8,T=2,R=3,S=2,pad=1", "f32", 4),
    ],
)
def test_padded_pixels_make_a_row_of_taps_adjacent(layout, filters, shape, dtype, padded):
    """The product of the copies, as the descriptor addresses them, is the convolution."""
    compute = "tf32" if dtype == "f32" else ""
    p = Conv(**Conv.read_shape(shape), layout=layout, filters=filters, dtype=dtype, compute=compute)
    x, rng = im2col_of(p), np.random.default_rng(0)
    first, second = (rng.integers(-3, 4, s) for s in p.stored[:2])
    images, taps = (packed(copy, a)[0].reshape(-1) for copy, a in zip(x.copies, (first, second), strict=True))
    assert (x.channels, x.copies[0].padded, x.taps[0], x.steps[0]) == (padded * p.s, padded, 1, 1)
    assert all(n * p.element.bytes % 16 == 0 for n in (*x.pitches, x.row))
    got = np.zeros((x.pixels, p.k))
    for n, (image, *place) in enumerate(np.ndindex(x.count, *x.positions[::-1])):
        for tap, number in enumerate(np.ndindex(*x.taps[::-1])):
            axes = zip(place, number, *(v[::-1] for v in (x.lower, x.steps, x.dilation)), strict=True)
            pixel = [low + i * step + r * dilation for i, r, low, step, dilation in axes]
            if all(0 <= i < e for i, e in zip(pixel, x.extents[::-1], strict=True)):
                at = image * x.pitches[-1] + np.dot(pixel, x.pitches[-2::-1])
                filters_of_tap = taps.reshape(p.k, x.tap_count, x.row)[:, tap, : x.channels]
                got[n] += filters_of_tap @ images[at : at + x.channels]
    want = reference(p, {"A": first.astype(np.float64), "B": second.astype(np.float64)}).exact
    order = "nkzpq" if layout == "NCHW" else "nzpqk"
    extents = {"n": p.n, "k": p.k, **dict(zip("zpq", p.results, strict=True))}
    values = np.asarray(want).reshape([extents[i] for i in order])
    assert np.array_equal(got, values.transpose([order.index(i) for i in "nzpqk"]).reshape(-1, p.k))


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": "CHWN"},
        {"s": 1},  # one column of taps
        {"dilation": (1, 2)},  # columns of taps that are not adjacent
        {"c": 9},  # a pixel has more than 16 bytes
        {"direction": "weight_grad"},
        {"direction": "input_grad"},
    ],
)
def test_pixels_are_not_padded_otherwise(fields):
    plain = {"n": 8, "c": 3, "h": 9, "w": 9, "k": 8, "r": 3, "s": 3, "layout": "NHWC", "dtype": "f16"}
    assert im2col_of(Conv(**plain)).copies[0].zeros
    copy = im2col_of(Conv(**{**plain, **fields})).copies[0]
    assert copy is None or not copy.zeros


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
def test_packed_images_of_one_tap_have_only_its_pixels(layout):
    p = Conv(3, 5, 9, 8, 8, 1, 1, stride=(2, 3), layout=layout, dtype="f16")
    x, images = im2col_of(p), np.arange(math.prod(p.stored[0])).reshape(p.stored[0])
    order = "hwnc" if layout == "CHWN" else "nhwc"
    want = images.transpose([layout.lower().index(i) for i in order])
    want = want[::2, ::3] if layout == "CHWN" else want[:, ::2, ::3]
    assert np.array_equal(copied(x.copies[0], images), want.reshape(-1, 5))
    assert (x.extents[-2:], set(x.steps)) == (x.positions[-2:], {1})
    assert x.positions[-2:] == (p.q, p.p)


def copied(copy, array):
    return packed(copy, array)[0].reshape(-1, copy.pitch)[:, : copy.depth]


def test_representative_keeps_channels_and_taps_only():
    like = descriptor("N=2,C=64,H=9,W=11,K=8,R=3,S=4,pad=1x0x2x1").representative(32, 1 << 15)
    assert (like.channels, like.taps, like.pixels) == (32, (4, 1 << 15), 1)
    assert like.shares_row_taps
    assert like.reach == (3, 0)
    assert math.prod(like.steps) == 1


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ("N=16,C=512,H=14,W=14,K=48,R=5,S=5,pad=2", {}),
        ("N=2,C=16,H=24,W=240,K=32,R=3,S=3,pad=1", {}),
        ("N=1,C=24,H=9,W=9,K=40,R=3,S=3", {"dtype": "f32", "compute": "tf32"}),
        ("N=2,C=64,H=9,W=11,K=24,R=3,S=4,pad=1x2", {"direction": "input_grad"}),
        ("N=2,C=64,H=9,W=11,K=24,R=3,S=4,stride=2", {"direction": "input_grad"}),
        ("N=2,C=96,H=9,W=11,K=24,R=3,S=4,stride=2", {"direction": "weight_grad"}),
        ("N=2,C=64,H=9,W=11,K=32,R=3,S=4", {"direction": "input_grad", "dtype": "e4m3"}),
        ("N=2,C=64,H=9,W=11,K=24,R=3,S=4", {"direction": "weight_grad", "dtype": "f32", "compute": "tf32"}),
        ("N=2,C=8,H=9,W=11,K=24,R=3,S=3,pad=1", {"direction": "weight_grad"}),
        ("N=2,C=64,H=9,W=11,K=24,R=3,S=4,pad=1x2", {"layout": "NCHW"}),
        ("N=2,C=60,H=9,W=12,K=24,R=3,S=4,pad=1x2", {"layout": "NCHW", "direction": "input_grad"}),
        ("N=2,C=96,H=9,W=11,K=24,R=3,S=4,stride=2", {"layout": "NCHW", "direction": "weight_grad"}),
        ("N=2,C=96,H=14,W=28,K=24,R=1,S=1", {"layout": "NCHW", "direction": "weight_grad"}),
        ("N=2,C=96,H=14,W=32,K=24,R=3,S=1", {"layout": "NCHW", "direction": "weight_grad"}),
        ("N=2,C=3,H=64,W=64,K=64,R=7,S=7,stride=2,pad=3", {}),
        ("N=2,C=3,H=64,W=64,K=64,R=7,S=7,stride=2,pad=3", {"direction": "input_grad"}),
        ("N=2,C=3,H=64,W=64,K=64,R=3,S=3,pad=1", {"layout": "NCHW", "dtype": "f32", "compute": "tf32"}),
        ("N=16,C=24,H=9,W=9,K=40,R=3,S=3", {"layout": "CHWN", "dtype": "f32", "compute": "tf32"}),
    ],
)
def test_space_of_im2col_has_legal_rows_only(shape, fields):
    """Bases are cached by class: problems whose channels fill boxes alike, with any number of pixels."""
    p = lower(Conv(**{**Conv.read_shape(shape), "layout": "NHWC", "dtype": "f16", **fields}))
    columns = space.candidates(p, H200)
    ours = columns.take(np.flatnonzero(columns.family == FAMILIES.index("wgmma")))
    if fields.get("direction") != "weight_grad" or im2col_of(p).channels > 8:
        assert len(ours) > 1000
    for i in np.random.default_rng(0).choice(len(ours), min(len(ours), 150), replace=False):
        assert rules.first_violation(p, ours.row(int(i)), H200) is None


@pytest.mark.parametrize(
    "shape", ["N=16,C=32,H=12,W=120,K=64,R=3,S=3,pad=1", "N=32,C=256,H=14,W=14,K=256,R=3,S=3,pad=1"]
)
def test_model_prefers_packing_and_wgmma_to_offset_tables(shape):
    p = lower(Conv(**Conv.read_shape(shape), dtype="f16"))
    columns = space.candidates(p, H200)
    us, family = perf_model.predict(p, columns, H200), columns.columns["family"]
    assert family[np.argmin(us)] == FAMILIES.index("wgmma")


@pytest.mark.parametrize("direction", ["forward", "input_grad"])
@pytest.mark.parametrize("filters", ["KCRS", "CRSK"])
def test_pointwise_nchw_is_a_batch_if_rows_are_16_byte_multiples(direction, filters):
    fields = {"dtype": "f16", "direction": direction, "filters": filters}
    p = lower(Conv(4, 24, 4, 6, 40, 1, 1, **fields))
    assert (p.batch, p.n, p.operand("A").access.stride, im2col_of(p)) == (4, 24, 0, None)
    assert {p.m, p.k} == {24, 40}
    assert p.layout == ("TN" if (direction == "forward") == (filters == "CRSK") else "NN")
    for changes in ({"h": 5, "w": 5}, {"stride": 2}, {"padding": 1}, {"layout": "CHWN", "filters": "CRSK"}, {"n": 1}):
        few = {"n": 4, "c": 24, "h": 4, "w": 6, "k": 40, "r": 1, "s": 1} | fields | changes
        assert lower(Conv(**few)).batch == 1


def test_division_by_multiplication_below_2_to_the_31():
    rng = np.random.default_rng(0)
    for n in (
        1,
        2,
        3,
        5,
        7,
        9,
        14,
        56,
        112,
        240,
        641,
        65535,
        65537,
        (1 << 30) + 1,
        (1 << 31) - 1,
        *rng.integers(1, 1 << 31, 200),
    ):
        by, shift = multiplier(int(n))
        assert by < 1 << 32
        near = [int(n) * int(q) + e for q in rng.integers(0, (1 << 31) // int(n) + 1, 50) for e in (-1, 0, 1)]
        for x in (0, 1, (1 << 31) - 1, *near):
            if 0 <= x < 1 << 31:
                assert x * by >> shift == x // int(n)


@pytest.mark.parametrize(
    ("shape", "merged"),
    [
        ("N=2,C=3,H=16,W=16,K=64,R=7,S=7,stride=2,pad=3", 4),
        ("N=2,C=3,H=18,W=16,K=64,R=5,S=5,stride=3x2,pad=1", 6),
        ("N=2,C=3,H=15,W=16,K=64,R=7,S=7,stride=2,pad=3", 2),  # no whole number of strides along the height
        ("N=2,C=16,H=16,W=16,K=64,R=7,S=7,stride=2,pad=3", 2),  # too many columns for all phases
        ("N=2,C=64,H=16,W=16,K=64,R=5,S=5,stride=2,pad=1", 2),
        ("N=2,C=65,H=16,W=16,K=64,R=5,S=5,stride=2,pad=1", 1),  # too many columns
        ("N=2,C=64,H=16,W=15,K=64,R=5,S=5,stride=2,pad=1", 1),  # no whole number of strides
        ("N=2,C=64,H=16,W=16,K=64,R=3,S=3,stride=2,pad=1", 1),  # few taps
        ("N=2,C=64,H=16,W=16,K=64,R=6,S=6,stride=2,pad=1", 1),  # 8 columns of taps for 6
        ("N=2,C=3,H=16,W=16,K=64,R=2,S=2,stride=2", 4),
        ("N=2,C=3,H=16,W=16,K=64,R=1,S=1,stride=2", 1),  # one tap
        ("N=2,C=3,H=16,W=16,K=60,R=7,S=7,stride=2,pad=3", 1),  # gradients of results are packed
    ],
)
def test_phases_are_columns_where_that_saves_loads(shape, merged):
    x = descriptor(shape, direction="input_grad")
    assert x.merged_phases == merged
    assert len(x.phases) == {1: 4, 2: 2}.get(merged, 0)


def test_unequal_phases_are_predicted_slower_in_persistent_blocks():
    """The first persistent block has the longest tile of each round: with few rounds the others wait for it."""
    p = lower(Conv(32, 512, 14, 14, 512, 3, 3, stride=2, padding=1, layout="NHWC", dtype="f16", direction="input_grad"))
    text = "family=wgmma ml=112 nl=128 u=64 stages=6 epilogue_smem=1 raster_group=8 transposed_mma=1 persistent={}"
    one_tile, persistent = (parse_config(text.format(n)) for n in (0, 1))
    c = Columns({name: np.array([getattr(x, name) for x in (one_tile, persistent)]) for name, _ in one_tile.items()})
    us = perf_model.predict(p, c.replace(family=FAMILIES.index("wgmma")), H200)
    assert us[1] > 1.1 * us[0]
