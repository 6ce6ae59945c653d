"""The candidate space of mma.sync kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import DIRECT, PACK, PDL_WITHIN, SPLIT_FLAG, SPLIT_MEMSET, Columns, Config, packs
from ptxgen.codegen.geometry import accumulator_bytes, stores_via_smem
from ptxgen.codegen.split_k import slices_of_k
from ptxgen.codegen.vectorized import power_of_two_in
from ptxgen.families.common.candidates import Grid, Ints, default, effective_pdl, splitk_pairs
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, instruction
from ptxgen.families.common.multistage_candidates import MultistageSpace
from ptxgen.families.mma import axes, operand_packing
from ptxgen.families.mma.geometry import adjacent_c
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem
from ptxgen.problem.device import Device

STEPS = (2, 4, 8, 16)  #: depths of a stage, in instructions
ASYNC = (4, 16)  #: least and greatest bytes of one cp.async


PATHS = ("operand_path_a", "operand_path_b")

#: axis -> the values that are tried
AXES = searched(axes.AXES)
WARPS_F64, STEPS_F64 = 8, 8  #: for candidates in f64: most warps of a block, and most steps of a group of warps
#: sides of tiles of candidates in f64; candidates in other types have powers of two
SIDES_F64 = {
    "ms": (16, 32, 48, 64),
    "ns": (8, 16, 24, 32, 48, 64),
    "ml": (16, 32, 48, 64, 96, 128, 192, 256),
    "nl": (8, 16, 32, 48, 64, 96, 128, 192, 256),
}
CLASS_AXES = {"epilogue_smem": (1,), "fragment_prefetch": (1,)}


class MmaSpace(MultistageSpace):
    name = "mma"
    axes, class_axes = AXES, CLASS_AXES
    cell = (*MultistageSpace.cell, "stream_k", "l2_prefetch", "listed_tiles")
    tile = (*MultistageSpace.tile, "operand_path_a", "operand_path_b")
    extent_rules = (*MultistageSpace.extent_rules, "mma_operand_path")
    fixed = ("mma_dtype", "mma_native")
    tile_rules = ("axis", "range", "mma_tile", "mma_ns", "mma_depth", "threads")
    shape = ("ms", "ns", "ml", "nl", "u", "kl")

    def _operand_paths(self, p: KernelProblem) -> list[tuple[int, int]]:
        """The pairs (operand_path_a, operand_path_b). Operands with unaligned rows may be packed. A packed K-major
        operand has a padded K, so the other operand is packed, too."""
        off = [p.vectors[n] * p.element.bytes < ASYNC[1] for n in (0, 1)]
        if not any(off):
            return [(0, 0)]
        longer = any(off[n] and operand_packing.kmajor(p, "ab"[n]) for n in (0, 1))
        return [(0, 0), (PACK, PACK) if longer else (PACK * off[0], PACK * off[1])]

    def copy_modes(self, p: KernelProblem, every: bool = False) -> list[dict[str, int]]:
        """The copy modes with the widest accesses: by cp.async from 4 bytes on; below 16 bytes also through registers
        with ``deferred_sts``."""
        out = []
        for paths in [(a, b) for b in (DIRECT, PACK) for a in (DIRECT, PACK)] if every else self._operand_paths(p):
            modes: list[list[tuple[int, int]]] = []
            for n in (0, 1):
                widest = ASYNC[1] // p.element.bytes if paths[n] == PACK else p.vectors[n]
                size = widest * p.element.bytes
                modes.append([(0, widest)] * (every or size < ASYNC[1]) + [(1, widest)] * (size >= ASYNC[0]))
            names = (*PATHS, "cp_async_a", "vec_a", "cp_async_b", "vec_b", "deferred_sts")
            for a, b in product(*modes):
                out.append(dict(zip(names, (*paths, *a, *b, 1 - a[0] * b[0]), strict=True)))
        return out

    def streams(self, p: KernelProblem) -> bool:
        """True for products of aligned matrices in f64 and of complex ones, of which such kernels were measured."""
        aligned = min(p.vectors[:2]) * p.element.bytes >= ASYNC[1]
        return isinstance(p.extents, GemmExtents) and not grouped(p) and p.element.bytes >= 8 and aligned

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """The groups of axes for the sampler: copy modes; ``kg`` with ``splitk``; depths of whole instructions."""
        out, names = super().variables(p), (*PATHS, "cp_async_a", "vec_a", "cp_async_b", "vec_b")
        for name in (*names, "kg", "splitk"):
            del out[name,]
        narrow = [(DIRECT, DIRECT, *mode) for mode in self._narrower(p)]
        modes = [tuple(mode[n] for n in names) for mode in self.copy_modes(p, every=True)]
        return {
            **out,
            names: list(dict.fromkeys([*modes, *narrow])),
            ("kg", "splitk"): splitk_pairs(self.axes),
            ("u",): [(u,) for u in self._depths(p)],
        }

    def _narrower(self, p: KernelProblem) -> list[tuple[int, ...]]:
        """The copy modes whose accesses are narrower than the widest."""
        least = ASYNC[0] // p.element.bytes
        each = [
            [(x, v) for v in self.axes[name] if v <= p.vectors[n] for x in (0, 1) if x == 0 or v >= least]
            for n, name in enumerate(("vec_a", "vec_b"))
        ]
        return [(*a, *b) for a in each[0] for b in each[1]]

    def _depths(self, p: KernelProblem) -> tuple[int, ...]:
        return tuple(n for s in STEPS if (n := s * instruction(p).depth) in self.axes["u"])

    def _sides(self, p: KernelProblem, name: str) -> tuple[int, ...]:
        """The sides of tiles that are candidates; a search on hardware tries all of ``axes``."""
        if p.element.bytes >= 8:
            return tuple(n for n in self.axes[name] if n in SIDES_F64[name])
        return tuple(n for n in self.axes[name] if power_of_two_in(n) == n)

    def tiles(self, p: KernelProblem) -> Columns:
        paths = np.array(self._operand_paths(p), np.int64)
        rows = [self._sides(p, "ml"), self._sides(p, "nl"), self._depths(p), range(len(paths))]
        ml, nl, u, path = (x.ravel() for x in np.meshgrid(*(np.asarray(v, np.int64) for v in rows), indexing="ij"))
        tiles = {"ml": ml, "nl": nl, "u": u, **dict(zip(PATHS, paths[path].T, strict=True))}
        return Columns(tiles).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        values = {n: self._sides(p, n) for n in SIDES_F64} | {"u": self._depths(p), "kl": self.axes["kl"]}
        shapes = Grid.combined([{n: values[n]} for n in self.shape]).replace(family=self.code, raster_group=8)
        if p.element.bytes < 8:
            return shapes
        flat = shapes.flat()
        return flat.take(np.flatnonzero(_useful_f64(p, flat)))

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        """The variants: with and without fragment prefetch, with and without C through shared memory. If the device
        lacks cp.async, all copies go through registers."""
        stages, modes = super().variants(p, d)
        if not d.has_async_copy:
            through = [{**mode, "cp_async_a": 0, "cp_async_b": 0, "deferred_sts": 1} for mode in modes]
            modes = [mode for i, mode in enumerate(through) if mode not in through[:i]]
        return [stages, modes, *([{name: n} for n in (0, 1)] for name in ("fragment_prefetch", "epilogue_smem"))]

    def default_splitk(self, p: KernelProblem, c: Columns) -> Ints:
        """The ``splitk`` value of candidates. ``flag_red`` is excluded with packed operands, because they overwrite the
        cleared workspace that it needs."""
        plain = super().default_splitk(p, c)
        return np.where(
            (packs(c, "a") | packs(c, "b")) & (plain == SPLIT_FLAG),
            SPLIT_MEMSET,
            plain,
        )

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        return c.replace(vec_c=p.vectors[2], raster_group=8)

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """Limits ``prefetch_k`` to the steps of an iteration."""
        [plain] = super().with_dependent_axes(p, config, changes)
        steps = plain.u // plain.kl // instruction(p).depth
        return [
            plain if "prefetch_k" in changes else plain.replace(prefetch_k=max(min(plain.prefetch_k, steps - 2), 0))
        ]

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from super().changes(p, d, config)
        yield {"pdl": 0 if config.pdl else PDL_WITHIN}

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        kg = np.minimum(slices_of_k(p, c)[1], c.kg)
        one_order = (c.ms == ROWS) | (c.ns == COLUMNS)
        return c.replace(
            kg=kg,
            pdl=effective_pdl(p, c),
            splitk=np.where(kg > 1, c.splitk, SPLIT_MEMSET),
            epilogue_smem=np.where((c.kl > 1) | p.sink.shared_tile, default("epilogue_smem"), c.epilogue_smem),
            mma_order=np.where(one_order, default("mma_order"), c.mma_order),
            vec_c=width_c(p, c),
        )


def _useful_f64(p: KernelProblem, c: Columns) -> Any:
    """A mask of the shapes that are candidates in f64. In measurements of 1,608 problems, other shapes with powers of
    two were fastest for 1 to 2 %, by a median of 2 %. Sides that are not powers of two are candidates if a block has
    four warps and at least 32 rows and columns: they fill waves that powers of two do not."""
    warps = c.ml // c.ms * (c.nl // c.ns) * c.kl
    powers = (power_of_two_in(c.ml) == c.ml) & (power_of_two_in(c.nl) == c.nl)
    large = (np.minimum(c.ml, c.nl) >= 32) & (warps >= 4)
    return (warps <= WARPS_F64) & (c.u <= c.kl * instruction(p).depth * STEPS_F64) & (powers | large)


def width_c(p: KernelProblem, c: Any) -> Any:
    """The number of elements of one access to C: at most 16 bytes of sums; in stores from registers at most the
    adjacent elements of a lane."""
    vec_c = np.minimum(c.vec_c, 16 // accumulator_bytes(p))
    return np.where(stores_via_smem(p, c), vec_c, np.minimum(vec_c, adjacent_c(p, c)))
