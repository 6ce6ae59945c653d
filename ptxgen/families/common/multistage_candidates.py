"""The candidate space of families whose warps all copy and multiply: slices of K, copy modes, neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import SPLIT_MEMSET, Columns, Config
from ptxgen.families.common.candidates import (
    WAVES,
    FlatGrid,
    Grid,
    Ints,
    breaks,
    default_splitk,
    first_violations,
    moves_much,
    single_axis_changes,
    whole_waves,
)
from ptxgen.families.common.geometry import LazyGeometry, geometry
from ptxgen.families.common.tile_candidates import TileSpace
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.tile_lists import lists_tiles
from ptxgen.problem.device import Device

#: least K and operations of candidates whose blocks share K iterations: of seven smaller products none gained, of four
#: greater ones three, by 6 to 13 %
STREAM_K, STREAM_FLOPS = 2_560, 4e9
THIN = 512  #: for a smaller K, stores of C bypass the caches, because C is most of the memory traffic


class MultistageSpace(TileSpace):
    """Candidates of multistage kernels."""

    extent_rules: tuple[str, ...] = (
        "range",
        "bounds",
        "kg",
        "splitk",
        "positions",
        "grid",
        "grouped_slices",
        "stream_k",
        "l2_prefetch",
        "listed_tiles",
    )

    def copy_modes(self, p: KernelProblem, every: bool = False) -> list[dict[str, int]]:
        """The modes of copying operands to shared memory, as values of axes. ``every``: include modes that are not
        candidates."""
        raise NotImplementedError

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        variables = super().variables(p)
        for name in ("stream_k", "l2_prefetch"):
            if name in self.axes and not grouped(p):
                variables[name,] = [(0,)]
        if "listed_tiles" in self.axes and not lists_tiles(p):
            variables["listed_tiles",] = [(0,)]
        return variables

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [[{"stages": n} for n in self.axes["stages"]], self.copy_modes(p)]

    def default_splitk(self, p: KernelProblem, c: Columns) -> Ints:
        """The ``splitk`` value of candidates; the search on hardware also tries the others."""
        return np.asarray(default_splitk(p, c.kg), np.int64)

    def streams(self, p: KernelProblem) -> bool:
        """True if blocks that share the K iterations of one product are candidates in the class of ``p``."""
        return False

    def slice_options(self, p: KernelProblem) -> list[dict[str, int]]:
        """Any number of slices, and shares of K iterations: these take more registers."""
        return [{"stream_k": int(n > len(WAVES))} for n in range(len(WAVES) + 2)] if self.streams(p) else []

    def accepts(self, option: dict[str, int], c: Columns) -> Any:
        """A mask of the rows that are candidates with ``option``. Shares were measured of blocks with one group of
        threads."""
        return (c.kl == 1) | (option["stream_k"] == 0)

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """Every tile with the numbers of K slices that fill whole waves, and with shares of K iterations if
        ``streams``. Empty slices do not count; each number of slices occurs once."""
        sliced = whole_waves(LazyGeometry(p, tiles).tiles, d).T
        plain = Columns({n: tiles.column(n) for n in self.tile}, len(tiles)).replace(family=self.code)
        options = self.slice_options(p) or [{}] * len(sliced)
        shared = np.arange(len(options))[:, None] >= len(sliced)
        kg = np.where(shared, 1, sliced[np.arange(len(options)) % len(sliced)])
        c = Grid.crossed(plain, [options]).replace(kg=kg)
        c = c.replace(splitk=self.default_splitk(p, c), store_policy=int(p.k < THIN), raster_group=8)
        g = LazyGeometry(p, c)
        group = np.where(g.tiles > 2 * d.sms, 8, 1) if moves_much(p, d) else 1  # does not affect the geometry
        c = c.replace(raster_group=group)
        broken = first_violations(self, p, c, d, self.extent_rules, g)
        wide = breaks(broken, "grid") & (c.raster_group == 1)  # raster_group=1 limits the grid along N
        if wide.any():
            c = c.replace(raster_group=np.where(wide, 8, c.raster_group))
            broken = first_violations(self, p, c, d, self.extent_rules, g)
        kg = np.where(broken == -1, g.slices, c.kg)
        seen = np.zeros(kg.shape, np.bool_)
        for j in range(1, len(sliced)):
            seen[j] = (kg[:j] == kg[j]).any(axis=0)
        seen |= shared & (p.k < STREAM_K or p.flops < STREAM_FLOPS)
        c = c.replace(kg=kg)
        return FlatGrid(c.replace(splitk=self.default_splitk(p, c))), np.where(seen, -2, broken).T.ravel()

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)
        if "stages" in self.axes:
            yield from ({"stages": config.stages + step} for step in (-1, 1))
        for thread, block in (("ms", "ml"), ("ns", "nl")):
            for value in self.axes[thread]:
                yield {thread: value, block: getattr(config, block) * value // getattr(config, thread)}
        for a in (1, 2, 4):
            yield from ({"ml": config.ml * a // 2, "nl": config.nl * b // 2} for b in (1, 2, 4))
        yield from self.copy_modes(p, every=True)
        counts = {int(v) for v in whole_waves(geometry(p, config).tiles, d)[0]} | {config.kg * 2, config.kg // 2}
        yield from ({"kg": kg} for kg in sorted(counts) if kg >= 1)
        for kl in self.axes["kl"]:  # exchange thread groups of a block for slices of the grid
            yield {"kl": kl, "kg": max(1, config.kg * config.kl // kl)}

    def balanced(self, p: KernelProblem, config: Config) -> dict[str, int]:
        """A join loops over the tiles that have pairs."""
        return {"listed_tiles": 1} if lists_tiles(p) and "listed_tiles" in self.axes else {}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """Sets axes that follow from the changes: ``splitk`` for several K slices, which exclude ``stream_k``;
        ``deferred_sts`` to 0 if no operand is copied through registers."""
        values = {**dict(config.items()), **changes}
        if "kg" in changes and "splitk" not in changes:
            splitk = (
                config.splitk
                if config.kg > 1
                else int(self.default_splitk(p, Columns.of([config.replace(**values)]))[0])
            )
            values["splitk"] = splitk if values["kg"] > 1 else SPLIT_MEMSET
        if values.get("listed_tiles"):
            if "listed_tiles" in changes:
                values.update(kg=1, splitk=SPLIT_MEMSET, raster_group=1)
            elif values["kg"] > 1 or values["raster_group"] > 1:
                values["listed_tiles"] = 0
        if "stream_k" in changes or "l2_prefetch" in changes:
            values.update(kg=1, splitk=SPLIT_MEMSET)
        elif "kg" in changes and config.stream_k:
            values["stream_k"] = 0
        if values.get("l2_prefetch") and (values["kg"] > 1 or values["stream_k"]):
            values["l2_prefetch" if "l2_prefetch" not in changes else "stream_k"] = 0
        if values.get("cp_async_a") == values.get("cp_async_b") == 1 and "deferred_sts" not in changes:
            values["deferred_sts"] = 0
        return [config.replace(**values)]
