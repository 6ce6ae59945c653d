"""The candidate space of depthwise kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import SPLIT_MEMSET, SPLIT_WORKSPACE, Columns, Config
from ptxgen.families.common.candidates import Ints, violations
from ptxgen.families.common.geometry import geometry
from ptxgen.families.common.tile_candidates import TileSpace
from ptxgen.families.depthwise import axes
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: axis -> the values that are tried
AXES = searched(axes.AXES)
THREADS = (64, 512)  #: least and most threads per block
WAVES = (1, 2, 4, 8)  #: for weight gradients: blocks per multiprocessor


class DepthwiseSpace(TileSpace):
    name = "depthwise"
    axes, class_axes = AXES, {"store_policy": (0,)}
    tile = ("strip_results", "block_rows", "block_lanes", "vec_lane", "strip_columns", "feature_map_bytes")
    cell = ("kg", "splitk")
    fixed = ("depthwise_filter",)
    tile_rules = (
        "axis",
        "range",
        "threads",
        "depthwise_strip",
        "depthwise_feature_maps",
        "depthwise_feature_map_strips",
    )
    extent_rules = ("range", "bounds", "kg", "splitk", "grid", "depthwise_block_lanes", "depthwise_feature_map_bytes")

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        widest = strips(p).vec if strips(p) is not None else 1
        return {
            **super().variables(p),
            ("vec_lane",): [(v,) for v in self.axes["vec_lane"] if v <= widest],
            ("strip_columns",): [(n,) for n in self._columns(p)],
            ("feature_map_bytes",): [(n,) for n in self._feature_map_bytes(p)],
        }

    def _columns(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``strip_columns``."""
        return self.axes["strip_columns"] if strips(p) is not None and strips(p).patch is not None else (1,)

    def _feature_map_bytes(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``feature_map_bytes``."""
        return self.axes["feature_map_bytes"] if strips(p) is not None and strips(p).feature_maps is not None else (0,)

    def tiles(self, p: KernelProblem) -> Columns:
        given = {names[0]: tuple(v for (v,) in rows) for names, rows in self.variables(p).items()}
        values = {n: given.get(n, self.axes[n]) for n in self.tile}
        return Columns.product(values).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        every = self.tiles(p)
        threads = every.block_rows * every.block_lanes
        return every.take(np.flatnonzero((threads >= THREADS[0]) & (threads <= THREADS[1])))

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [[{"store_policy": n} for n in self.axes["store_policy"]]]

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """The cells. Weight gradients have slices of K for some numbers of waves of blocks."""
        c = tiles.replace(family=self.code, kg=1)
        if strips(p) is None or not strips(p).wgrad:
            return c, violations(self, p, c, d, self.extent_rules)
        count = np.maximum(geometry(p, c).tiles, 1)
        units = -(-strips(p).rows * -(-strips(p).results // c.strip_results) // c.block_rows)
        units = np.where(c.feature_map_bytes > 0, strips(p).feature_maps.images if strips(p).feature_maps else 1, units)
        kg = np.stack([np.clip(d.sms * w // count, 1, np.maximum(units, 1)) for w in WAVES], axis=1)
        c = Columns({n: np.repeat(v, len(WAVES)) for n, v in c.columns.items()}).replace(kg=kg.ravel())
        c = c.replace(splitk=np.where(c.kg > 1, SPLIT_WORKSPACE, SPLIT_MEMSET))
        seen = np.zeros(kg.shape, bool)
        for j in range(1, len(WAVES)):
            seen[:, j] = (kg[:, :j] == kg[:, j : j + 1]).any(axis=1)
        return c, np.where(seen.ravel(), -2, violations(self, p, c, d, self.extent_rules))

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        for name, values in self.axes.items():
            yield from ({name: value} for value in values)
        yield from (
            {"block_rows": config.block_rows * a // 2, "block_lanes": config.block_lanes * 2 // a} for a in (1, 4)
        )
        if strips(p) is not None and strips(p).wgrad:
            yield from ({"kg": config.kg * a // 2} for a in (1, 3, 4))

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, Any]) -> list[Config]:
        v = {**dict(config.items()), **changes}
        if v["feature_map_bytes"]:
            v.update(block_rows=1, strip_columns=1, vec_lane=1)
        return [config.replace(**{**v, "splitk": SPLIT_WORKSPACE if v["kg"] > 1 else SPLIT_MEMSET})]
