"""Random groups: items with extents of 0, 1, primes and around tiles, longer rows, jagged axes; families with a tile
loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.problem.block_scales import SCALINGS
from ptxgen.problem.device import Device
from tests.cases import mma, simt, wgmma
from tests.cases.source import RandomCases, extents, pairs, with_both_floats_8

MAX_ITEMS = 40


def group(
    rng: np.random.Generator,
    limit: int,
    types: tuple[str, str, str],
    aligned: float = 0,
    axes: tuple[str, ...] = ("", "", "m", "k"),
    layouts: tuple[str, ...] = LAYOUTS,
    scaled: bool = False,
) -> GroupedGemm:
    """A random group. ``aligned``: the share of groups with rows of whole 16 bytes; ``axes``, ``layouts``: the jagged
    axes and layouts to choose from; ``scaled``: True for scales of blocks."""
    dtype, compute, out = types
    jagged = axes[rng.integers(len(axes))]
    items = [extents(rng, limit) for _ in range(int(rng.integers(1, MAX_ITEMS)))]
    whole = rng.random() < aligned
    if whole:
        items = [tuple(-(-x // 16) * 16 for x in item) for item in items]
    if jagged:
        m, n, k = items[0]
        sizes = [item[0] for item in items]
        items = [(s, n, k) if jagged == "m" else (m, n, s) for s in sizes]
    empty = [axis for axis in range(3) if not jagged or "mnk"[axis] == jagged]
    items = [tuple(0 if x in empty and rng.random() < 0.04 else v for x, v in enumerate(item)) for item in items]
    p = GroupedGemm(tuple(items), layouts[rng.integers(len(layouts))], dtype, compute, out=out, jagged=jagged)
    if rng.random() < 0.4:
        pads = rng.choice([0, 16] if whole else [0, 1, 2, 3, 8], p.lds.shape if not jagged else (1, 3))
        lds = p.lds + pads
        p = replace(p, ld=write_leading_dimensions(lds))
    if scaled:
        blocks = [word for word, s in SCALINGS.items() if s.rows == 1]
        block_a = rng.choice(blocks if jagged else list(SCALINGS))
        block_b = rng.choice(blocks if jagged == "k" else list(SCALINGS))
        p = replace(p, block_a=str(block_a), block_b=str(block_b))
    return with_both_floats_8(p, bool(len(items) % 2))


@dataclass(frozen=True)
class GroupedCases:
    """Groups of the types and configurations of another source."""

    source: RandomCases
    types: tuple[tuple[str, str, str], ...]
    index: int
    aligned: float = 0
    axes: tuple[str, ...] = ("", "", "m", "k")
    layouts: tuple[str, ...] = LAYOUTS
    scaled: bool = False

    @property
    def name(self) -> str:
        return f"grouped_{self.source.name}"

    def supports(self, device: Device) -> bool:
        return self.source.supports(device)

    def cases(
        self, seed: int, count: int, device: Device, limit: int | None = None, threads: int = 1024
    ) -> Iterator[tuple[GroupedGemm, Config]]:
        rng = np.random.default_rng([seed, self.index])

        def config(p: GroupedGemm) -> Config | None:
            config_of_group = self.source.config(lower(p), device, rng, threads)  # type: ignore[arg-type]
            lists = config_of_group is not None and not p.jagged and not self.scaled
            if lists and config_of_group.kg == 1 and rng.random() < 0.4:  # type: ignore[union-attr]
                return config_of_group.replace(stream_k=1, l2_prefetch=0)  # type: ignore[union-attr]
            return config_of_group

        return pairs(
            count if self.supports(device) else 0,
            lambda: group(
                rng,
                limit or 100,
                self.types[rng.integers(len(self.types))],
                self.aligned,
                self.axes,
                self.layouts,
                self.scaled,
            ),
            config,
        )


SOURCES = (
    GroupedCases(simt.SOURCE, (("f32", "", ""), ("f32", "", ""), ("f64", "", ""), ("f16", "", "")), 0),
    GroupedCases(
        mma.SOURCE,
        (("f16", "", ""), ("bf16", "", ""), ("f32", "tf32", ""), ("f64", "", ""), ("bf16", "", "f32")),
        1,
        0.5,
    ),
    GroupedCases(
        wgmma.SOURCE,
        (("bf16", "", ""), ("f16", "", ""), ("bf16", "", "f32"), ("f32", "tf32", ""), ("e4m3", "", "")),
        2,
        1.0,
        ("m", "k"),
        ("NN", "NT", "TN"),
    ),
    GroupedCases(
        wgmma.SCALED,
        (("e4m3", "", "f32"), ("e5m2", "", "bf16")),
        3,
        0.7,
        ("", "m", "k"),
        scaled=True,
    ),
    GroupedCases(mma.SCALED, (("e4m3", "", "f32"), ("e5m2", "", "bf16")), 4, 0.6, ("", "m", "k"), scaled=True),
)
