"""The base class of families whose blocks compute tiles of C, M by N, with K slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ptxgen.codegen.config.axes import SPLIT_WORKSPACE
from ptxgen.codegen.geometry import ThreadLoadGeometry, TileGeometry
from ptxgen.families.common.feature_values import log
from ptxgen.families.registry import Family
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

if TYPE_CHECKING:
    from ptxgen.families.common.perf_blocks import Work


def thread_tile(p: KernelProblem, c: Any, g: ThreadLoadGeometry) -> tuple[Any, Any, Any, Any, Any]:
    """The ``issuer_tile`` of families in which a thread or warp has a tile of ms by ns."""
    return c.ms, c.ns, g.uk, g.a.loads, g.b.loads


def thread_products(c: Any) -> Any:
    """The number of multiply-adds per iteration of a thread or warp that has a tile of ms by ns."""
    return c.ms * c.ns * (c.u // np.maximum(c.kl, 1))


def complex_products(family: str, p: KernelProblem) -> str:
    """The ``training_class`` of a family whose products of complex numbers are counted apart from its real ones."""
    return f"{family} complex" if isinstance(p.algebra, ComplexProduct) else ""


@dataclass(frozen=True, eq=False, kw_only=True)
class TileFamily(Family):
    """A family with tiles. The common rules of tiles apply to it, and its geometry is a ``TileGeometry``.

    ``rate(p, d)``: multiply-adds per clock and multiprocessor. ``issuer_tile(p, c, g)``: five numbers for one MMA
    issuer (thread, warp or warpgroup): rows and columns of its accumulator tile, depth of an iteration, loads of A and
    loads of B per iteration; TMA counts as loads of 16 bytes. ``thread_products(c)``: multiply-adds of one thread per
    iteration. ``splitk``: the greatest value of the ``splitk`` axis.
    """

    rate: Callable[[KernelProblem, Device], float]
    issuer_tile: Callable[[KernelProblem, Any, Any], tuple[Any, Any, Any, Any, Any]] = thread_tile
    thread_products: Callable[[Any], Any] = thread_products
    splitk: int = SPLIT_WORKSPACE

    tiles: ClassVar[bool] = True

    def own_features(self, p: KernelProblem, c: Any, g: Any, w: Work, d: Device) -> Mapping[str, Any]:
        rows, columns, depth, loads_a, loads_b = self.issuer_tile(p, c, g)
        moved = w.moved_a + w.moved_b
        tile_m, tile_n = self.column(c, "ml"), self.column(c, "nl")
        return {
            "tile_intensity": log(tile_m * tile_n / (tile_m + tile_n)),
            "thread_intensity": log(rows * columns / (rows + columns)),
            "issuer_products": log(depth * rows * columns),
            "loads_a": log(loads_a / g.threads),
            "loads_b": log(loads_b / g.threads),
            "issue_cycles": log(w.busy / (tile_m * tile_n * c.u)),
            "latency_cycles": log(w.latency / c.u),
            "store_cycles": log(w.store),
            "reduction_cycles": log(w.red),
            "peak_rate": log(self.rate(p, d)),
            "math_fraction": log(w.math / w.busy),
            "bytes_per_product": log(moved / (tile_m * tile_n * c.u)),
            "smem_fraction": log(w.shared / w.busy),
            "bytes_in_flight": log(w.resident * (c.stages - 1) * moved),
        }

    def extent_features(self, p: KernelProblem, c: Any, g: TileGeometry) -> Mapping[str, Any]:
        tile_m, tile_n = self.column(c, "ml"), self.column(c, "nl")
        return {
            "kg": log(g.slices),
            "tiles": log(g.tiles),
            "iterations": log(np.minimum(g.slice_k, max(p.k, 1)) / c.u),
            "padding": p.results / np.maximum(g.tiles * tile_m * tile_n, 1),
            "operand_bytes": log(g.tiles * (tile_m + tile_n) * p.k * p.element.bytes),
            "reduction_bytes": log((g.slices - 1) * (p.results * g.sum_bytes) + 1),
            "tiles_m": log(g.tiles_m),
            "tiles_n": log(g.tiles_n),
        }

    def iterations(self, p: KernelProblem, c: Any, g: TileGeometry) -> Any:
        return np.maximum(-(-np.minimum(g.slice_k, p.k) // c.u), 1)

    def iteration_work(self, c: Any, w: Work) -> tuple[Any, Any]:
        return self.thread_products(c), w.moved_a + w.moved_b
