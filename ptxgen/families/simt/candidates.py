"""The candidate space of SIMT kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.axes import searched
from ptxgen.codegen.config import SPLIT_MEMSET, Columns, Config
from ptxgen.families.candidates import Grid, default, legal_rows
from ptxgen.families.geometry import WARP
from ptxgen.families.multistage_candidates import MultistageSpace
from ptxgen.families.simt import axes
from ptxgen.families.simt.geometry import SimtGeometry, geometry, warp_rows
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

#: the values of each axis that are tried
AXES = searched(axes.AXES)
CLASS_AXES = {"stages": (3,), "ks": (1,)}
SMALL = 128 * 128  #: elements of a tile below which lanes are interleaved


class SimtSpace(MultistageSpace):
    name = "simt"
    axes, class_axes = AXES, CLASS_AXES
    cell = (*MultistageSpace.cell, "stream_k")
    derived = ("epilogue_smem", "vec_c", "lane_interleave", "lanes_m")
    fixed = ("simt_dtype",)
    tile_rules = ("axis", "range", "simt_tile_m", "simt_tile_n", "simt_warps", "threads", "simt_depth")
    shape = ("ms", "ns", "ml", "nl", "u", "ks", "kl")

    def operand_copy_modes(self, p: KernelGemm, operand: str) -> list[tuple[int, int, int]]:
        """(cp_async, kmajor_smem, vec) of an operand: cp.async transposes single elements only, K-major rows in shared
        memory consist of 16-byte chunks, and an MN-major operand has the same layout in shared and global memory."""
        first = operand == "a"
        widest = p.vectors[0 if first else 1]
        kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
        if not kmajor:
            return [(0, 0, widest), (1, 0, widest)]
        chunk = min(widest, 16 // p.accumulator.bytes)
        return [(0, 0, widest), (1, 0, 1), (0, 1, chunk), (1, 1, chunk)]

    def copy_modes(self, p: KernelGemm, every: bool = False) -> list[dict[str, int]]:
        a, b = self._copy_modes_by_operand(p)
        return [*a, *b] if every else [{**x, **y} for x in a for y in b]

    def _copy_modes_by_operand(self, p: KernelGemm) -> list[list[dict[str, int]]]:
        """The copy modes of A, and those of B."""
        names = ("cp_async_a", "kmajor_smem_a", "vec_a"), ("cp_async_b", "kmajor_smem_b", "vec_b")
        return [[dict(zip(n, m, strict=True)) for m in self.operand_copy_modes(p, n[0][-1])] for n in names]

    def variants(self, p: KernelGemm) -> list[list[dict[str, int]]]:
        return [[{"stages": n} for n in self.axes["stages"]], *self._copy_modes_by_operand(p)]

    def shapes(self, p: KernelGemm) -> Grid:
        shapes = Grid.combined([{n: self.axes[n]} for n in self.shape])
        return shapes.replace(lanes_m=warp_rows(shapes), raster_group=8)

    def finalize(self, p: KernelGemm, d: Device, c: Grid) -> Grid:
        """Interleaves lanes on small tiles, unless a warp has a single row or column of threads. C goes through shared
        memory where stores from registers would be scalar, if it fits: with a K-major B, and in groups whose rows of C
        are not aligned to 16 bytes."""
        interleave = (c.ml * c.nl < SMALL) & (c.lanes_m > 1) & (c.lanes_m < WARP)
        c = c.replace(lane_interleave=interleave, vec_c=p.vectors[2], raster_group=8)
        narrow = p.grouped and p.vectors[2] * p.output.bytes < 16
        wanted = ((c.kmajor_smem_b == 1) | narrow) & (c.kl == 1)
        if wanted.any():
            some, places = c.around(wanted)
            staged = np.zeros(c.size, np.bool_)
            staged[places] = legal_rows(self, p, some.replace(epilogue_smem=1), d, skip=self.tile_rules)
            wanted = wanted & staged
        return c.replace(epilogue_smem=wanted)

    def canonical(self, p: KernelGemm, c: Columns) -> Columns:
        g = geometry(p, c)
        one_row = (c.lanes_m == 1) | (c.lanes_m == WARP)
        columns = c.ns // (2 if p.accumulator.bytes == 2 else 1)
        kg = np.minimum(g.slices, c.kg)
        return c.replace(
            kg=kg,
            splitk=np.where(kg > 1, c.splitk, SPLIT_MEMSET),
            epilogue_smem=np.where(c.kl > 1, default("epilogue_smem"), c.epilogue_smem),
            lane_interleave=np.where(one_row, default("lane_interleave"), c.lane_interleave),
            mma_order=np.where((c.ms == 1) | (columns == 1), default("mma_order"), c.mma_order),
            vec_c=width_c(p, c, g),
        )

    def with_dependent_axes(self, p: KernelGemm, config: Config, changes: dict[str, int]) -> list[Config]:
        """With the same ``lanes_m``, and with the one that makes the warp tile most nearly square."""
        [plain] = super().with_dependent_axes(p, config, changes)
        if "lanes_m" in changes:
            return [plain]
        values = dict(plain.items())
        return [plain, config.replace(**{**values, "lanes_m": int(warp_rows(Config(**values)))})]


def adjacent_c(c: Any, g: SimtGeometry) -> Any:
    """Adjacent elements of C that a thread has in registers."""
    return np.where(g.b.kmajor_smem, 1, np.minimum(g.b.chunk, c.ns))


def width_c(p: KernelGemm, c: Any, g: SimtGeometry) -> Any:
    """Elements of one access of C: at most 16 bytes of sums and, from registers, the adjacent elements of a thread."""
    return np.minimum(np.minimum(c.vec_c, 16 // g.sum_bytes), np.where(g.c_via_smem, c.vec_c, adjacent_c(c, g)))
