"""Random small convolutions of any kind, computed through offset tables or by the depthwise family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ptxgen.codegen.config.axes import COMMON
from ptxgen.codegen.config.config import SPLIT_MEMSET, SPLIT_WORKSPACE, Config
from ptxgen.errors import ShapeError
from ptxgen.families.common import rules
from ptxgen.families.depthwise.rules import supports
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import DIRECTIONS, FILTERS, Conv
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import HALVES
from tests.cases import mma, simt
from tests.lowered import form, strips_of

TYPES = (
    ("f32", ""),
    ("f32", ""),
    ("f64", ""),
    ("f16", ""),
    ("f16", "f16"),
    ("f32", "tf32"),
    ("bf16", ""),
    ("s8", ""),
)


def any_problem(rng: np.random.Generator) -> Conv:
    """A small convolution of any kind."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    while True:
        deep, flat, groups = rng.random() < 0.2, rng.random() < 0.15, int(rng.choice([1, 1, 1, 2, 3]))
        pads = tuple(some(0, 4) for _ in range(4)) if rng.random() < 0.5 else 0 if flat else some(0, 3)
        depthwise = rng.random() < 0.15
        try:
            v = Conv(
                0 if rng.random() < 0.05 else some(1, 4),
                groups * some(1, 4),
                1 if flat else some(1, 9),
                some(1, 9),
                groups * some(1, 4),
                1 if flat else some(1, 4),
                some(1, 4),
                d=some(1, 5) if deep else 1,
                t=some(1, 3) if deep else 1,
                stride=(some(1, 4), some(1, 4)) if rng.random() < 0.7 else some(1, 4),
                padding=pads,
                dilation=some(1, 4),
                groups=groups,
                layout=str(rng.choice(list(FILTERS))),
                filters=str(rng.choice(["", *FILTERS.values()])),
                direction=str(rng.choice(DIRECTIONS)),
            )
            return replace(v, c=groups, k=groups) if depthwise else v
        except ShapeError as error:
            if "dilated filter" not in str(error):
                raise


def problems(seed: int, n: int) -> list[Conv]:
    """``n`` small convolutions of any kind."""
    rng = np.random.default_rng(seed)
    return [any_problem(rng) for _ in range(n)]


def problem(rng: np.random.Generator, n: int) -> Conv:
    """A small convolution of the ``n``-th type. Those that can have a gated activation have one."""
    dtype, compute = TYPES[n % len(TYPES)]
    v = replace(any_problem(rng), dtype=dtype, compute=compute, out="")
    return with_gate(v, "bias,swiglu")


def with_gate(v: Conv, epilogue: str) -> Conv:
    """The problem with ``epilogue``, which has a gated activation; the problem itself if it cannot have one."""
    pairs = v.direction == "forward" and v.out in HALVES and v.k // v.groups % 2 == 0
    return replace(v, epilogue=epilogue) if pairs else v


def config(
    v: Conv, d: Device, rng: np.random.Generator, family: str | None = None, threads: int = 128
) -> Config | None:
    """A random legal configuration, or None if none was drawn. ``family``: of this family alone."""
    if supports(form(v, "depthwise")) and family in (None, "depthwise"):
        some = [n for n in (1, 2, 4, 8) if n % strips_of(v).ratio == 0]
        if not some:
            return None
        results, rows, resident, stream = (int(rng.choice(x)) for x in (some, (1, 2, 4), (1, 2), (0, 1)))
        wide, kg = int(rng.choice([1, strips_of(v).vec])), int(rng.choice([1, 2, 5])) * strips_of(v).wgrad
        kg = max(1, min(kg, -(-lower(v).k // COMMON["u"].default)))
        split = SPLIT_WORKSPACE if kg > 1 else SPLIT_MEMSET
        columns = int(rng.choice([1, 2, 4])) if strips_of(v).patch is not None else 1
        feature_maps = int(rng.choice([0, 1024, 4096])) if strips_of(v).feature_maps is not None else 0
        rows = 1 if columns > 1 or feature_maps else rows
        wide = 1 if feature_maps else wide
        plain = not strips_of(v).wgrad and strips_of(v).feature_maps is None
        few = [n for n in (8, 16) if plain and rows * n >= 32 and n * wide >= strips_of(v).lanes]
        c = Config(
            family="depthwise",
            vec_lane=wide,
            strip_columns=columns,
            feature_map_bytes=feature_maps,
            strip_results=results,
            block_rows=rows,
            block_lanes=[*few, 32][0],
            min_ctas_per_sm=resident,
            store_policy=stream,
            kg=kg,
            splitk=split,
        )
        return c if rules.first_violation(lower(v), c, d) is None else None
    tensor = v.compute in ("tf32", "s32") or v.dtype == "bf16" or (v.dtype in ("f16", "f64") and rng.random() < 0.5)
    if family not in (None, "mma" if tensor else "simt"):
        return None
    return mma.config(lower(v), d, rng, threads) if tensor else simt.wide_config(lower(v), d, rng, threads)


@dataclass(frozen=True)
class ConvCases:
    """A case source: types in rotation. ``family``: cases of this family alone; None: of all."""

    name: str
    family: str | None = None

    def supports(self, device: Device) -> bool:
        return device.sm >= 80

    def cases(
        self, seed: int, count: int, device: Device, limit: int | None = None, threads: int = 128
    ) -> Iterator[tuple[Conv, Config]]:
        """As ``CaseSource.cases``; the problems are small, and ``limit`` has no effect."""
        rng = np.random.default_rng(seed)
        made = tried = 0
        while made < count and self.supports(device):
            v = problem(rng, made if self.family is None else tried)
            tried += 1
            c = config(v, device, rng, self.family, threads)
            if c is not None:
                made += 1
                yield v, c


SOURCES = (
    ConvCases("conv"),
    ConvCases("conv_simt", "simt"),
    ConvCases("conv_mma", "mma"),
    ConvCases("conv_depthwise", "depthwise"),
)
