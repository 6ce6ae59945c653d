"""Random convolutions to measure."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np

from ptxgen.errors import ShapeError
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.suites import SUITES
from ptxgen.tuning.draws import Limits, log_uniform, varied_extent, weighted_choice

NETWORKS = ("resnet50", "mobilenet", "unet", "isaac")  #: suites whose layers are varied
DIRECTIONS = {"forward": 0.5, "input_grad": 0.25, "weight_grad": 0.25}
IMAGES = 256  #: the most images
BYTES = 1 << 28  #: the most bytes of tensors: larger ones take long to make and add little
WIDTHS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  #: factors of the channels of a layer
MULTIPLE = 8  #: channels are multiples of this


@cache
def _layers() -> list[Conv]:
    """The layers of public networks."""
    return list(dict.fromkeys(cast(Conv, case.problem) for name in NETWORKS for case in SUITES[name].build()))


def conv(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Conv:
    """A random layer of a network with a random number of images and a random width, which is made smaller until it is
    within the limits."""
    layers = _layers()
    base, width = layers[int(rng.integers(len(layers)))], float(rng.choice(WIDTHS))
    limits = replace(limits, bytes=min(limits.bytes, BYTES))
    narrow = values["dtype"] in ("f16", "bf16")
    layout = str(rng.choice(["NHWC", "NCHW", "CHWN"], p=[0.75, 0.2, 0.05] if narrow else [0.4, 0.5, 0.1]))
    fields: dict[str, Any] = {"compute": "", "out": "", "filters": "", **values}
    fields |= {"layout": layout, "direction": weighted_choice(rng, DIRECTIONS)}
    n, h, w = log_uniform(rng, IMAGES), base.h, base.w
    while True:
        c, k = _channels(base.c, width), _channels(base.k, width)
        groups = 1 if base.groups == 1 else c
        try:
            p = replace(base, n=n, c=c, k=k if groups == 1 else c, h=h, w=w, groups=groups, **fields)
        except ShapeError:
            h, w = h + base.r, w + base.s  # the image is smaller than the filter
            continue
        if limits.admits(p):
            return p
        if n > 1:
            n //= 2
        elif width * max(base.c, base.k) > MULTIPLE:
            width /= 2
        elif min(h, w) > max(base.r, base.s) + 1:
            h, w = max(h // 2, base.r), max(w // 2, base.s)
        else:
            base = layers[int(rng.integers(len(layers)))]
            h, w = base.h, base.w


def varied(rng: np.random.Generator, p: Conv, limits: Limits) -> Conv:
    """The problem with other numbers of images and channels, and another image size. ShapeError: it exceeds the
    limits."""
    limits = replace(limits, bytes=min(limits.bytes, BYTES))
    c, k = (varied_extent(rng, x, limits.extent) if x >= MULTIPLE else x for x in (p.c, p.k))
    scale = 2.0 ** rng.uniform(-1.0, 1.0)
    h, w = (max(1, round(x * scale)) for x in (p.h, p.w))
    n, one = varied_extent(rng, p.n, IMAGES, 1), p.groups == 1
    out = replace(p, n=n, c=c, k=k if one else c, h=h, w=w, groups=1 if one else c)
    if not limits.admits(out):
        raise ShapeError(f"{out.key()} is larger than the limits")
    return out


def _channels(count: int, factor: float) -> int:
    """``count`` channels times ``factor``, rounded to a positive multiple of MULTIPLE; fewer channels than that, as of
    an image, do not change."""
    return count if count < MULTIPLE else max(MULTIPLE, round(count * factor / MULTIPLE) * MULTIPLE)
