"""Draws problems to measure: a mixture of kinds, each problem a function of the seed and its number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from ptxgen.arguments import shown
from ptxgen.errors import InputError, ShapeError
from ptxgen.problem.conv import Conv
from ptxgen.problem.gemm import LAYOUTS, THIN, Gemm
from ptxgen.problem.grouped import GroupedGemm
from ptxgen.problem.registry import Problem
from ptxgen.problem.suites import cases

#: arithmetic -> the fields of a problem, and its default weight
ARITHMETIC: dict[str, tuple[dict[str, str], float]] = {
    "f32": ({"dtype": "f32"}, 1.0),
    "tf32": ({"dtype": "f32", "compute": "tf32"}, 1.0),
    "bf16": ({"dtype": "bf16"}, 1.5),
    "f16": ({"dtype": "f16"}, 1.0),
    "f64": ({"dtype": "f64"}, 0.7),
}
NETWORKS = ("resnet50", "mobilenet", "unet", "isaac")  #: suites of conv whose layers are varied
DIRECTIONS = {"forward": 0.5, "input_grad": 0.25, "weight_grad": 0.25}
BATCH = 512  #: the most products of a batch
IMAGES = 256  #: the most images of a convolution
CONV_BYTES = 1 << 28  #: of its tensors: larger ones take long to make and add little
WIDTHS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  #: factors of the channels of a layer
LEAST_BOUND = 64  #: of the extents of the items of a group
MULTIPLE = 8  #: half of the problems have extents that are multiples of this


@dataclass(frozen=True)
class Limits:
    """The largest problems: extents of a GEMM, bytes of the operands, floating-point operations."""

    extent: int = 8192
    bytes: int = 1 << 30
    flops: int = 2_000_000_000_000

    def admits(self, p: Problem) -> bool:
        return bool(p.bytes <= self.bytes and p.flops <= self.flops)


@dataclass(frozen=True)
class ProblemGenerator:
    """Problem number i of a seed is always the same. ``kinds``, ``arithmetic``: weights by name; a name that is absent
    has weight 0. InputError: an unknown name, or no positive weight."""

    seed: int = 0
    kinds: Mapping[str, float] = field(default_factory=lambda: {n: weight for n, (_, weight) in KINDS.items()})
    arithmetic: Mapping[str, float] = field(
        default_factory=lambda: {n: weight for n, (_, weight) in ARITHMETIC.items()}
    )
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        check_weights("mixture", self.kinds, KINDS)
        check_weights("dtypes", self.arithmetic, ARITHMETIC)

    def __iter__(self) -> Iterator[Problem]:
        """The problems in order, without end."""
        number = 0
        while True:
            yield self.problem(number)
            number += 1

    def problem(self, number: int) -> Problem:
        rng = np.random.default_rng([self.seed, number])
        draw = KINDS[pick(rng, self.kinds)][0]
        values = ARITHMETIC[pick(rng, self.arithmetic)][0]
        while True:
            try:
                found = draw(rng, values, self.limits)
            except ShapeError:  # a filter that is larger than its image, or more memory than a GPU has
                continue
            if self.limits.admits(found):
                return found


def check_weights(name: str, weights: Mapping[str, float], known: Mapping[str, object]) -> None:
    """InputError: a weight of ``name`` breaks a rule."""
    for key, weight in weights.items():
        if key not in known:
            raise InputError(f"{name} has {shown(key)}; it must be one of {', '.join(known)}")
        if not 0 <= weight < math.inf:
            raise InputError(f"{name} has {key}={weight:g}; a weight must be finite and not negative")
    if not sum(weights.values()) > 0:
        raise InputError(f"{name} has no positive weight; one of {', '.join(known)} must have one")


def read_weights(name: str, text: str) -> dict[str, float]:
    """Weights written as ``f32=2,f16=1``; a name alone has weight 1. InputError: the text has another form."""
    out: dict[str, float] = {}
    for part in text.split(","):
        key, _, number = part.strip().partition("=")
        try:
            out[key] = float(number or 1)
        except ValueError:
            raise InputError(f"{name} has {shown(part)}; it must be names with weights, as f32=2,f16=1") from None
    return out


def pick(rng: np.random.Generator, weights: Mapping[str, float]) -> str:
    """A name with a chance in proportion to its weight."""
    total = sum(weights.values())
    return str(rng.choice(list(weights), p=[w / total for w in weights.values()]))


def log_uniform(rng: np.random.Generator, largest: int) -> int:
    """An integer from 1 to ``largest`` whose logarithm is uniform."""
    return min(int(2.0 ** rng.uniform(0.0, math.log2(largest + 1))), largest)


def _extent(rng: np.random.Generator, largest: int, multiple: int) -> int:
    value = log_uniform(rng, largest)
    return min(-(-value // multiple) * multiple, max(largest // multiple, 1) * multiple)


def _gemm(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Problem:
    multiple = MULTIPLE if rng.random() < 0.5 else 1
    m, n, k = (_extent(rng, limits.extent, multiple) for _ in "mnk")
    return Gemm(m, n, k, str(rng.choice(LAYOUTS)), **values)


def _thin(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Problem:
    """One extent is small and the others are not."""
    p = _gemm(rng, values, limits)
    long = {name: max(getattr(p, name), _extent(rng, limits.extent, MULTIPLE)) for name in "mnk"}
    return replace(p, lda=0, ldb=0, ldc=0, **{**long, str(rng.choice(list("mnk"))): log_uniform(rng, THIN)})


def _batch(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Problem:
    smaller = replace(limits, extent=max(limits.extent // 4, 1))
    return replace(_gemm(rng, values, smaller), batch=1 + log_uniform(rng, min(BATCH, limits.extent)))


def _grouped(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Problem:
    """Items with extents from 1 to a random bound, or an array of rows (a third of the groups) or of K (a sixth) that
    experts share in random proportions."""
    multiple = MULTIPLE if rng.random() < 0.5 else 1
    count = log_uniform(rng, min(BATCH, limits.extent))
    bound = max(limits.extent // 4, 1)
    largest = [max(_extent(rng, bound, multiple), min(LEAST_BOUND, bound) // multiple * multiple) for _ in "mnk"]
    jagged = ("", "", "", "m", "m", "k")[rng.integers(6)]
    layout = str(rng.choice(LAYOUTS))
    if not jagged:
        drawn = rng.integers(1, np.array(largest) // multiple + 1, (count, 3)) * multiple
        return GroupedGemm(tuple((m, n, k) for m, n, k in drawn.tolist()), layout, **values)
    share = np.arange(1, count + 1) ** -float(rng.choice([0.0, 0.5, 1.0]))
    total = _extent(rng, 4 * limits.extent, 1)
    sizes = rng.multinomial(total, rng.permutation(share / share.sum())).tolist()
    m, n, k = largest
    items = tuple((s, n, k) if jagged == "m" else (m, n, s) for s in sizes)
    layout = ("N" + layout[1]) if jagged == "m" else "TN"
    return GroupedGemm(items, layout, jagged=jagged, **values)


@cache
def _layers() -> list[Conv]:
    """The layers of public networks."""
    problems = (case.problem for name in NETWORKS for case in cases(name, "conv"))
    return list(dict.fromkeys(p for p in problems if isinstance(p, Conv)))


def _conv(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Problem:
    """A layer of a network with a random number of images and random width, smaller until it is within the limits."""
    layers = _layers()
    base, width = layers[int(rng.integers(len(layers)))], float(rng.choice(WIDTHS))
    limits = replace(limits, bytes=min(limits.bytes, CONV_BYTES))
    narrow = values["dtype"] in ("f16", "bf16")
    layout = str(rng.choice(["NHWC", "NCHW", "CHWN"], p=[0.75, 0.2, 0.05] if narrow else [0.4, 0.5, 0.1]))
    fields: dict[str, Any] = {"compute": "", "out": "", "filters": "", **values}
    fields |= {"layout": layout, "direction": pick(rng, DIRECTIONS)}
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


def _channels(count: int, factor: float) -> int:
    """Channels times ``factor``, a multiple of 8 at least; few channels, as of an image, stay as they are."""
    return count if count < MULTIPLE else max(MULTIPLE, round(count * factor / MULTIPLE) * MULTIPLE)


Draw = Callable[[np.random.Generator, dict[str, Any], Limits], Problem]
#: kinds of problems, and their default weights
KINDS: dict[str, tuple[Draw, float]] = {
    "gemm": (_gemm, 0.45),
    "thin": (_thin, 0.25),
    "batch": (_batch, 0.08),
    "conv": (_conv, 0.22),
    "grouped": (_grouped, 0.0),
}
