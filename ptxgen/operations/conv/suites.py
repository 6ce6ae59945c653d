"""Suites of convolutions: the paper's Table 5, layers of networks, signal filters, odd and small shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from ptxgen.operations.conv.problem import FILTERS, Conv
from ptxgen.problem.operation import Case, Suite, by_name
from ptxgen.problem.public_shapes import public_shapes

#: Table 5 with DeepBench's images: N, C, H, W, K, R, S, stride, padding. (The paper exchanges K and P in the rows
#: Conv11 and Conv12.)
_TABLE_5 = (
    ("DeepSpeech", "Conv1", 16, 1, 161, 700, 32, 5, 20, 2, 0),
    ("DeepSpeech", "Conv2", 16, 32, 79, 341, 32, 5, 10, 2, 0),
    ("OCR", "Conv3", 16, 16, 24, 240, 32, 3, 3, 1, 1),
    ("OCR", "Conv4", 16, 32, 12, 120, 64, 3, 3, 1, 1),
    ("Face Recognition", "Conv5", 8, 64, 54, 54, 64, 3, 3, 1, 1),
    ("Face Recognition", "Conv6", 8, 128, 27, 27, 128, 3, 3, 1, 1),
    ("Face Recognition", "Conv7", 16, 512, 14, 14, 48, 5, 5, 1, 2),
    ("Face Recognition", "Conv8", 16, 832, 7, 7, 128, 5, 5, 1, 2),
    ("Vision", "Conv9", 8, 64, 112, 112, 128, 3, 3, 1, 1),
    ("Vision", "Conv10", 8, 128, 56, 56, 256, 3, 3, 1, 1),
    ("Speaker ID", "Conv11", 16, 64, 350, 80, 128, 5, 5, 2, 1),
    ("Speaker ID", "Conv12", 16, 128, 175, 40, 256, 5, 5, 2, 1),
    ("ResNet", "Conv13", 16, 512, 7, 7, 512, 3, 3, 1, 1),
    ("ResNet", "Conv14", 16, 1024, 14, 14, 2048, 1, 1, 2, 0),
)


def _isaac(**fields: Any) -> Iterator[Case]:
    """The convolutions of the paper's Table 5."""
    for task, name, n, c, h, w, k, r, s, stride, padding in _TABLE_5:
        yield Case(f"{name} {task}", Conv(n, c, h, w, k, r, s, stride=stride, padding=padding, **fields))


BATCH = 32  #: images per batch of ResNet-50 and MobileNetV2


def _layer(name: str, c: int, k: int, filter_: int, size: int, stride: int = 1, **fields: Any) -> Case:
    """A layer on square images of ``size`` with ``same`` padding."""
    problem = Conv(
        fields.pop("n", BATCH), c, size, size, k, filter_, filter_, stride=stride, padding=filter_ // 2, **fields
    )
    return Case(name, problem)


def _distinct(build: Callable[..., Iterator[Case]]) -> Callable[..., Iterator[Case]]:
    """The suite ``build`` with only the first of the layers that have equal problems."""

    @wraps(build)
    def distinct(**fields: Any) -> Iterator[Case]:
        first: dict[Any, Case] = {}
        for case in build(**fields):
            first.setdefault(case.problem, case)
        return iter(first.values())

    return distinct


@_distinct
def _resnet50(**fields: Any) -> Iterator[Case]:
    """ResNet-50 v1.5 (strides in the 3x3 layers) on 224x224 images."""
    yield _layer("conv1", 3, 64, 7, 224, 2, **fields)
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 2 else 1
            name = f"conv{stage}_{block + 1}"
            yield _layer(f"{name} 1x1", channels, width, 1, size, **fields)
            yield _layer(f"{name} 3x3", width, width, 3, size, stride, **fields)
            yield _layer(f"{name} 1x1 out", width, 4 * width, 1, size // stride, **fields)
            if block == 0:
                yield _layer(f"{name} shortcut", channels, 4 * width, 1, size, stride, **fields)
            channels, size = 4 * width, size // stride


@_distinct
def _resnext101(**fields: Any) -> Iterator[Case]:
    """ResNeXt-101 32x8d on 224x224 images, NHWC unless a layout is given: 3x3 layers have 32 groups."""
    fields = {"layout": "NHWC", **fields}
    yield _layer("conv1", 3, 64, 7, 224, 2, **fields)
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate(((256, 3), (512, 4), (1024, 23), (2048, 3)), 2):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 2 else 1
            name = f"conv{stage}_{block + 1}"
            yield _layer(f"{name} 1x1", channels, width, 1, size, **fields)
            yield _layer(f"{name} 3x3", width, width, 3, size, stride, groups=32, **fields)
            yield _layer(f"{name} 1x1 out", width, width, 1, size // stride, **fields)
            if block == 0:
                yield _layer(f"{name} shortcut", channels, width, 1, size, stride, **fields)
            channels, size = width, size // stride


#: MobileNetV2: expansion factor, output channels, blocks, stride of the first block
_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@_distinct
def _mobilenet(**fields: Any) -> Iterator[Case]:
    """MobileNetV2 on 224x224 images: 1x1 layers and depthwise 3x3 layers."""
    yield _layer("first 3x3", 3, 32, 3, 224, 2, **fields)
    channels, size = 32, 112
    for expansion, out, blocks, first in _INVERTED:
        for block in range(blocks):
            stride, wide = first if block == 0 else 1, channels * expansion
            if expansion > 1:
                yield _layer(f"widen {channels} {size}", channels, wide, 1, size, **fields)
            yield _layer(f"depthwise {wide} {size}/{stride}", wide, wide, 3, size, stride, groups=wide, **fields)
            size //= stride
            yield _layer(f"narrow {wide}-{out} {size}", wide, out, 1, size, **fields)
            channels = out
    yield _layer("last 1x1", channels, 1280, 1, size, **fields)


@_distinct
def _unet(**fields: Any) -> Iterator[Case]:
    """U-Net on one 572x572 image without padding, as in its paper. Upsampling layers are input gradients of 2x2
    convolutions with stride 2."""

    def layer(name: str, c: int, k: int, size: int, filter_: int = 3) -> Case:
        return Case(name, Conv(1, c, size, size, k, filter_, filter_, **fields))

    size = 572
    for depth, (c, k) in enumerate(((1, 64), (64, 128), (128, 256), (256, 512), (512, 1024))):
        yield layer(f"down {depth + 1}a", c, k, size)
        yield layer(f"down {depth + 1}b", k, k, size - 2)
        size = (size - 4) // 2
    size = 28
    for depth, k in ((4, 512), (3, 256), (2, 128), (1, 64)):
        if fields.get("direction", "forward") == "forward":
            options = {**fields, "direction": "input_grad"}
            yield Case(f"up {depth}", Conv(1, k, 2 * size, 2 * size, 2 * k, 2, 2, stride=2, **options))
        yield layer(f"up {depth}a", 2 * k, k, 2 * size)
        yield layer(f"up {depth}b", k, k, 2 * size - 2)
        size = 2 * size - 4
    yield layer("last 1x1", 64, 2, size, 1)


def _signal(**fields: Any) -> Iterator[Case]:
    """Convolutions of one channel with one filter: signals and grey-scale images."""
    for length, taps in ((1 << 16, 16), (1 << 20, 64), (1 << 20, 257), (1 << 24, 33), (1 << 18, 1024)):
        yield Case(f"1-D {taps} taps", Conv(1, 1, 1, length, 1, 1, taps, padding=(0, taps // 2), **fields))
    for h, w, side in ((512, 512, 3), (1080, 1920, 5), (2048, 2048, 7), (2160, 3840, 11), (1024, 1024, 31)):
        yield Case(f"2-D {side}x{side}", Conv(1, 1, h, w, 1, side, side, padding=side // 2, **fields))


#: edge cases: N, C, H, W, K, R, S, other fields
_ODD: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 1, 1, 1, 1, 1, 1), {}),
    ((2, 3, 7, 5, 4, 3, 3), {"padding": 1}),
    ((1, 5, 11, 13, 7, 5, 3), {"stride": (2, 3), "padding": (0, 2, 1, 0)}),
    ((3, 4, 9, 9, 6, 3, 3), {"dilation": (2, 1), "padding": (2, 1)}),
    ((2, 6, 8, 8, 9, 3, 3), {"groups": 3, "padding": 1}),
    ((2, 8, 6, 10, 8, 3, 3), {"groups": 8, "stride": 2, "padding": 1}),
    ((1, 2, 3, 3, 65, 3, 3), {}),
    ((17, 33, 4, 4, 31, 1, 1), {"stride": 2}),
    ((1, 3, 5, 257, 5, 1, 16), {"padding": (0, 0, 15, 0)}),
    ((2, 2, 5, 6, 3, 2, 3), {"d": 4, "t": 3, "padding": 1}),
)


def _conv(shape: tuple[int, ...], *more: dict[str, Any]) -> Conv:
    fields: dict[str, Any] = dict(zip("nchwkrs", shape, strict=True))
    return Conv(**{**fields, **{name: value for some in more for name, value in some.items()}})


def _odd(**fields: Any) -> Iterator[Case]:
    for shape, more in _ODD:
        problem = _conv(shape, more, fields)
        yield Case(f"odd {problem.shape()}", problem)


#: one shape of each form, small enough for the emulated device
_SMALL: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("first layer", (1, 3, 12, 12, 8, 5, 5), {"stride": 2, "padding": 2}),
    ("3x3", (2, 8, 8, 8, 16, 3, 3), {"padding": 1}),
    ("1x1", (2, 16, 6, 6, 32, 1, 1), {}),
    ("deep", (1, 64, 4, 4, 16, 3, 3), {"padding": 1}),
    ("depthwise", (1, 16, 8, 8, 16, 3, 3), {"groups": 16, "padding": 1}),
    ("signal", (1, 1, 1, 256, 1, 1, 16), {}),
)


def _small(**fields: Any) -> Iterator[Case]:
    return (Case(name, _conv(shape, more, fields)) for name, shape, more in _SMALL)


def _public(**fields: Any) -> Iterator[Case]:
    """Layers that public documents report."""
    for x in public_shapes("conv"):
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in x.fields.items()}
        yield Case(x.name, Conv(**{**own, **fields}))


SUITES = by_name(
    Suite("isaac", "Table 5 of the paper, on DeepBench's own images", _isaac),
    Suite("resnet50", "each distinct layer of ResNet-50, 32 images of 224x224", _resnet50),
    Suite("resnext101", "each distinct layer of ResNeXt-101 32x8d, 32 images of 224x224, NHWC", _resnext101),
    Suite("mobilenet", "each distinct layer of MobileNetV2, 32 images of 224x224", _mobilenet),
    Suite("unet", "each layer of U-Net, one image of 572x572", _unet),
    Suite("signal", "one channel, one filter: signals and images", _signal),
    Suite("odd", "ones, primes, strides, uneven padding, dilation, groups, depth", _odd),
    Suite("public", "layers that people reported as slow, each with its own type, layout and direction", _public),
    Suite("small", "one shape of each form, small enough for the emulated device", _small),
)


def _numbers(values: Any) -> str:
    """Numbers along (depth, height, width) as text; one number if all are equal."""
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))


def cells(row: dict[str, Any]) -> list[Any]:
    v = row["problem"]
    deep = v["d"] > 1 or v["t"] > 1
    image = [v["d"]] * deep + [v["h"], v["w"]]
    taps = [v["t"]] * deep + [v["r"], v["s"]]
    at = 0 if deep else 1
    pads = v["padding"][2 * at :]
    even = pads[::2] == pads[1::2]
    more = [
        "" if set(v["stride"][at:]) == {1} else _numbers(v["stride"][at:]),
        "" if not any(pads) else _numbers(pads[::2] if even else pads),
        "" if set(v["dilation"][at:]) == {1} else _numbers(v["dilation"][at:]),
        "" if v["groups"] == 1 else v["groups"],
    ]
    natural = FILTERS[v["layout"]] == v["filters"]
    others = (v[field] if v[field] != v["dtype"] else "" for field in ("compute", "out"))
    return [
        f"{v['n']},{v['c']},{'x'.join(map(str, image))}",
        f"{v['k']},{'x'.join(map(str, taps))}",
        *more,
        "" if v["direction"] == "forward" else v["direction"],
        v["layout"],
        "" if natural else v["filters"],
        v["dtype"],
        *others,
        v["epilogue"],
    ]


TITLES = (
    "N,C,HxW",
    "K,RxS",
    "stride",
    "pad",
    "dilation",
    "groups",
    "direction",
    "layout",
    "filters",
    "dtype",
    "compute",
    "out",
    "epilogue",
)
