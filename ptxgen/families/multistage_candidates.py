"""What the families share in which every warp copies and multiplies: slices of K, ways of copying, kin, neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxgen.codegen.config import SPLIT_MEMSET, Columns, Config
from ptxgen.families.candidates import CandidateSpace, Ints, single, split_for, violations, whole_waves
from ptxgen.families.geometry import geometry
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

THIN = 512  #: extents of K below which C is what a kernel writes, and is written past the caches


class Cooperative(CandidateSpace):
    extent_rules: tuple[str, ...] = ("range", "bounds", "kg", "splitk", "grid", "grouped_slices")

    def copies(self, p: KernelGemm, every: bool = False) -> list[dict[str, int]]:
        """How operands reach shared memory. ``every``: also ways that a search over the whole space leaves out."""
        raise NotImplementedError

    def tiles(self, p: KernelGemm) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    def ways(self, p: KernelGemm) -> list[dict[str, int]]:
        return [{"stages": n, **way} for n in self.axes["stages"] for way in self.copies(p)]

    def split(self, p: KernelGemm, c: Columns) -> Ints:
        """The ``split`` that slices take unless the search on hardware finds better."""
        return np.asarray(split_for(p, c.kg), np.int64)

    def cells(self, p: KernelGemm, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """Slices that fill whole waves. As many as hold something are counted, and each count once."""
        count = len(tiles)
        sliced = whole_waves(geometry(p, tiles).tiles, d)
        columns = {n: np.repeat(tiles.column(n), sliced.shape[1]) for n in self.tile}
        c = Columns({**columns, "kg": sliced.ravel()}, sliced.size).replace(family=self.code)
        c = c.replace(splitk=self.split(p, c), store_policy=int(p.k < THIN), raster_group=8)
        g = geometry(p, c)
        c = c.replace(raster_group=np.where(g.tiles > 2 * d.sms, 8, 1))
        broken = violations(self, p, c, d, self.extent_rules)
        wide = (broken >= 0) & (c.raster_group == 1)  # the plain order has the narrower grid
        if wide.any():
            c = c.replace(raster_group=np.where(wide, 8, c.raster_group))
            broken = violations(self, p, c, d, self.extent_rules)
        kg = np.where(broken == -1, g.slices, c.kg).reshape(count, -1)
        seen = np.zeros_like(kg, bool)
        for j in range(1, kg.shape[1]):
            seen[:, j] = (kg[:, :j] == kg[:, j : j + 1]).any(axis=1)
        c = c.replace(kg=kg.ravel())
        return c.replace(splitk=self.split(p, c)), np.where(seen.ravel(), -2, broken)

    def changes(self, p: KernelGemm, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single(self)
        if "stages" in self.axes:
            yield from ({"stages": config.stages + step} for step in (-1, 1))
        for thread, block in (("ms", "ml"), ("ns", "nl")):
            for value in self.axes[thread]:
                yield {thread: value, block: getattr(config, block) * value // getattr(config, thread)}
        for a in (1, 2, 4):
            yield from ({"ml": config.ml * a // 2, "nl": config.nl * b // 2} for b in (1, 2, 4))
        yield from self.copies(p, every=True)
        counts = {int(v) for v in whole_waves(geometry(p, config).tiles, d)[0]} | {config.kg * 2, config.kg // 2}
        yield from ({"kg": kg} for kg in sorted(counts) if kg >= 1)
        for kl in self.axes["kl"]:  # groups of a block for slices of the grid
            yield {"kl": kl, "kg": max(1, config.kg * config.kl // kl)}

    def follow(self, p: KernelGemm, config: Config, changes: dict[str, int]) -> list[Config]:
        """A way to add slices; registers for a store that was held."""
        values = {**dict(config.items()), **changes}
        if "kg" in changes and "splitk" not in changes:
            kept = config.splitk if config.kg > 1 else int(self.split(p, Columns.of([config.replace(**values)]))[0])
            values["splitk"] = kept if values["kg"] > 1 else SPLIT_MEMSET
        if values.get("cp_async_a") == values.get("cp_async_b") == 1 and "deferred_sts" not in changes:
            values["deferred_sts"] = 0
        return [config.replace(**values)]
