"""The candidate space of quantized_mma kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Config
from ptxgen.families.common.candidates import Grid, Ints
from ptxgen.families.common.geometry import WARP
from ptxgen.families.common.lane_candidates import LaneSpace, resident_blocks
from ptxgen.families.quantized_mma import axes
from ptxgen.families.quantized_mma.geometry import CHUNK, LANES, QUAD, WORD, access_of, geometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

ROWS = (2, 4, 8, 16)  #: possible numbers of rows of C of a lane
COLUMNS = (2, 4, 8)  #: possible numbers of columns of C of a lane
WARPS_LONG = (1, 2, 4, 8)  #: possible numbers of warps along N
GROUPS = (1, 2, 4, 8, 16)  #: possible numbers of warps along K
STEPS = (1, 2, 4, 8)
THREADS = (64, 512)  #: least and most threads per block


class QuantizedMmaSpace(LaneSpace):
    name = "quantized_mma"
    axes = searched(axes.AXES)
    derived = ("vec_c",)
    shape = ("ms", "ns", "ml", "nl", "kl", "u", "vec_b")
    fixed = ("quantized_mma_weights", "quantized_mma_types")
    tile_rules = ("axis", "range", "threads", "quantized_mma_tile", "quantized_mma_depth", "quantized_mma_groups")

    def _widths(self, p: KernelProblem) -> list[int]:
        """Bytes of a load of weights: the widest for which groups have whole steps, and the next narrower."""
        access = access_of(p)
        group, per_byte = access.group, access.format.per_byte
        most = group // QUAD // per_byte if group else 16
        widest = int(min(p.vectors[1], most, 16))
        return [widest, widest // 2] if widest > WORD else [widest]

    def table(self, p: KernelProblem) -> Ints:
        """Tiles of blocks and lanes: one per row, with the columns ``shape``."""
        per_byte, rows = access_of(p).format.per_byte, []
        for vec_b, ms, ns, along, kl, steps in product(self._widths(p), ROWS, COLUMNS, WARPS_LONG, GROUPS, STEPS):
            if THREADS[0] <= along * kl * WARP <= THREADS[1]:
                step_depth = QUAD * max(vec_b, WORD) * per_byte
                rows.append((ms, ns, ms // 2 * LANES, ns * LANES * along, kl, steps * kl * step_depth, vec_b))
        return np.array(rows, np.int64).reshape(-1, len(self.shape))

    def copy_modes(self, p: KernelProblem, every: bool = False) -> list[dict[str, int]]:
        """The copy modes with the widest loads of activations, by lanes or to stages."""
        vec_a = min(p.vectors[0], CHUNK)
        return [{"vec_a": vec_a, "stages": n} for n in ((0, 3) if vec_a > 1 else (0,))]

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        """Sets ``min_ctas_per_sm`` to the blocks per multiprocessor that registers allow, for the most loads in
        flight."""
        g = geometry(p, c)
        c = c.replace(vec_a=np.minimum(c.vec_a, g.depth))
        c = c.replace(vec_c=np.minimum(np.minimum(p.vectors[2], c.nl), 16 // g.sum_bytes), raster_group=8)
        return c.replace(min_ctas_per_sm=resident_blocks(g, d))

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from super().changes(p, d, config)
        for n in (1, 4):  # warps along K for warps along N, or for steps
            yield {"kl": config.kl * n // 2, "u": config.u * n // 2}
            yield {"kl": config.kl * n // 2, "nl": config.nl * 2 // n}
            yield {"kl": config.kl * n // 2, "u": config.u * n // 2, "nl": config.nl * 2 // n}
            yield {"u": config.u * n // 2, "vec_b": config.vec_b * n // 2}
            yield {"ns": config.ns * n // 2, "u": config.u * 2 // n, "nl": config.nl * n // 2}
            yield {"ms": config.ms * n // 2, "ml": config.ml * n // 2}
