"""Arguments of convolutions: axes, strides of memory, padding."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.api.arrays import tensor
from ptxgen.api.conv_layouts import ConvArguments, inverse
from ptxgen.errors import InputError, ShapeError

IMAGES, FILTERS = {"d": 1, "h": 5, "w": 8}, {"t": 1, "r": 3, "s": 4}


def padding_pairs(padding: object, stride: object = 1, dilation: object = 1) -> tuple[int, ...]:
    return ConvArguments(2, stride, padding, dilation).resolved().padding_pairs(IMAGES, FILTERS)


@pytest.mark.parametrize(
    ("padding", "made"),
    [
        (0, (0, 0, 0, 0, 0, 0)),
        (2, (0, 0, 2, 2, 2, 2)),
        ((1, 2), (0, 0, 1, 1, 2, 2)),
        ([np.int64(1), 2], (0, 0, 1, 1, 2, 2)),
        (((1, 0), (2, 3)), (0, 0, 1, 0, 2, 3)),
        ("valid", (0, 0, 0, 0, 0, 0)),
        ("same", (0, 0, 1, 1, 1, 2)),
    ],
)
def test_padding_is_a_number_pairs_or_a_word(padding: object, made: tuple[int, ...]) -> None:
    assert padding_pairs(padding) == made


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 2), (1, 3), (7, 1)])
def test_same_gives_a_result_for_each_stride(stride: int, dilation: int) -> None:
    made = padding_pairs("same", stride, dilation)
    for axis, (extent, taps) in enumerate(((1, 1), (5, 3), (8, 4))):
        room = extent + made[2 * axis] + made[2 * axis + 1] - dilation * (taps - 1) - 1
        assert room // (stride if axis else 1) + 1 == -(-extent // (stride if axis else 1))
        assert 0 <= made[2 * axis + 1] - made[2 * axis] <= 1


@pytest.mark.parametrize("padding", ["full", -1, (1,), (1, 2, 3), ((1, 2), 3), 1.5, None, (True, 1), "11"])
def test_other_padding_is_refused(padding: object) -> None:
    with pytest.raises(InputError, match="padding is"):
        padding_pairs(padding)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stride": (1, 2, 3)}, r"stride is \(1, 2, 3\); it must be an integer from 1, or 2"),
        ({"dilation": "2"}, "dilation is '2'"),
        ({"layout": "NCW"}, "layout is 'NCW'; it must be one of NCHW, NHWC, CHWN"),
        ({"filters": "KRS"}, "filter_layout is 'KRS'; it must be one of KCRS, KRSC, CRSK"),
    ],
)
def test_errors_name_the_argument(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConvArguments(2, **given).resolved()


def test_default_filter_layout_follows_the_images() -> None:
    for dims, pairs in ((1, "NCW KCS CWN CSK"), (2, "NCHW KCRS NHWC KRSC"), (3, "NDHWC KTRSC CDHWN CTRSK")):
        words = pairs.split()
        for layout, filters in zip(words[::2], words[1::2], strict=True):
            assert ConvArguments(dims, layout=layout).resolved().filters == filters


def test_shape_must_have_the_axes_of_its_layout() -> None:
    arguments = ConvArguments(1).resolved()
    assert arguments.extents("images", (2, 3, 4), "images") == {"d": 1, "h": 1, "n": 2, "c": 3, "w": 4}
    with pytest.raises(ShapeError, match=r"images has shape \(2, 3\); it must have 3 axes, NCW"):
        arguments.extents("images", (2, 3), "images")


def test_memory_layout_is_read_from_strides() -> None:
    arguments = ConvArguments(2).resolved()
    x = np.zeros((2, 3, 4, 5), np.float32)

    def memory_layouts(y: np.ndarray, role: str = "images") -> list[str]:
        return arguments.memory_layouts(role, tensor(y, role))

    last = np.zeros((2, 4, 5, 3), np.float32).transpose(0, 3, 1, 2)
    assert memory_layouts(x) == ["NCHW"]
    assert memory_layouts(last) == ["NHWC"]
    assert memory_layouts(last, "results") == ["NHWC"]
    assert memory_layouts(np.zeros((3, 4, 5, 2), np.float32).transpose(3, 0, 1, 2)) == ["CHWN"]
    for unordered in (x[:, :, ::2], x[:, :, ::-1], np.zeros((2, 3, 5, 4), np.float32).swapaxes(2, 3)):
        assert memory_layouts(unordered) == []
    assert memory_layouts(np.zeros((4, 1, 5, 3), np.float32).transpose(0, 3, 1, 2), "filters") == ["KRSC"]


def test_strides_of_axes_of_extent_one_decide_between_layouts() -> None:
    arguments = ConvArguments(2).resolved()
    for shape in ((2, 3, 1, 1), (2, 1, 4, 5)):
        n, c, h, w = shape
        first = np.zeros(shape, np.float32)
        last = np.zeros((n, h, w, c), np.float32).transpose(0, 3, 1, 2)
        assert arguments.memory_layouts("images", tensor(first, "images")) == ["NCHW", "NHWC"]
        assert arguments.memory_layouts("images", tensor(last, "images")) == ["NHWC", "NCHW"]
    neither = np.zeros((2, 2, 4, 5), np.float32)[:, :1]
    neither = np.lib.stride_tricks.as_strided(
        neither, strides=(80, 8, 20, 4)
    )  # contiguous, but for the axis of extent 1
    assert arguments.memory_layouts("images", tensor(neither, "images")) == ["NCHW", "NHWC"]  # the user's own first


def test_axes_in_memory_and_back() -> None:
    arguments = ConvArguments(2).resolved()
    assert arguments.axis_permutation("images", "NHWC") == (0, 2, 3, 1)
    assert arguments.axis_permutation("filters", "CRSK") == (1, 2, 3, 0)
    assert ConvArguments(2, layout="NHWC").resolved().axis_permutation("results", "NCHW") == (0, 3, 1, 2)
    assert inverse((0, 2, 3, 1)) == (0, 3, 1, 2)
    x = np.zeros((2, 3, 4, 5))
    assert x.transpose((1, 3, 0, 2)).transpose(inverse((1, 3, 0, 2))).shape == x.shape
