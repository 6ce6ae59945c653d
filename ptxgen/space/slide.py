"""What the space has of sliding kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxgen.config import FAMILIES, Columns, Config
from ptxgen.device import Device
from ptxgen.problem import Gemm
from ptxgen.space.family import Family, Ints, first_broken

#: the values of each axis that are tried
AXES = {
    "ns": (1, 2, 4, 8, 16), "ml": (1, 2, 4, 8, 16), "nl": (32, 64, 128, 256), "vec_a": (1, 2, 4),
    "resident": (1, 2, 4, 8), "stream": (0, 1),
}  # fmt: skip
THREADS = (64, 512)  #: of a block, at least and at most


class Slide(Family):
    code = FAMILIES.index("slide")
    axes, alike = AXES, {"stream": (0,)}
    tile = ("ns", "ml", "nl")
    cell = ("kg",)
    fixed = ("tables", "slide_filters")
    tile_rules = ("axis", "range", "threads", "slide_strip")
    extent_rules = ("range", "bounds", "slices", "split", "grid")

    def tiles(self, p: Gemm) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    def shapes(self, p: Gemm) -> Columns:
        every = self.tiles(p)
        threads = every.ml * every.nl
        return every.take(np.flatnonzero((threads >= THREADS[0]) & (threads <= THREADS[1])))

    def ways(self, p: Gemm) -> list[dict[str, int]]:
        return [{"stream": n, "vec_a": v} for n in self.axes["stream"] for v in self.axes["vec_a"]]

    def cells(self, p: Gemm, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        c = tiles.replace(family=self.code, kg=1)
        return c, first_broken(self, p, c, d, self.extent_rules)

    def canonical(self, p: Gemm, c: Columns) -> Columns:
        return c

    def changes(self, p: Gemm, d: Device, config: Config) -> Iterator[dict[str, int]]:
        for name, values in self.axes.items():
            yield from ({name: value} for value in values)
        yield from ({"ml": config.ml * a // 2, "nl": config.nl * 2 // a} for a in (1, 4))

    def follow(self, p: Gemm, config: Config, changes: dict[str, Any]) -> list[Config]:
        return [Config(**{**dict(config.items()), **changes})]
