"""The candidate configurations of one kernel family. Rules, not this module, decide which of them are legal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import (
    AXIS,
    FAMILIES,
    PACK,
    PDL_WITHIN,
    SPLIT_FLAG,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Columns,
    Config,
)
from ptxgen.families.geometry import geometry
from ptxgen.families.rules import reducible, rules_of
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

Ints = NDArray[np.int64]

#: numbers of blocks per multiprocessor that slices of K are chosen for
WAVES = (1, 2, 3, 4, 6, 8)

NEUTRAL = 1 << 15  #: an extent that no rule rejects


class CandidateSpace:
    """The candidate space of one family.

    ``axes``: the values that a search on hardware tries around a good configuration, and that the sampler draws;
    ``tile``: the axes that determine the number of blocks; ``cell``: the axes that ``cells`` sets, from the extents;
    ``alike``: the axes in which rows of one equivalence class differ, best values first; ``derived``: axes that are
    computed from the others and do not distinguish classes. Names of rules: ``fixed`` read only the problem and the
    device, ``tile_rules`` only the axes that ``shapes`` sets, ``extent_rules`` an extent or a number of slices; tests
    check that.
    """

    name: str
    axes: Mapping[str, tuple[int, ...]]
    tile: tuple[str, ...] = ("ml", "nl", "u")
    cell: tuple[str, ...] = ("kg", "splitk", "raster_group", "store_policy")
    alike: Mapping[str, tuple[int, ...]]
    derived: tuple[str, ...] = ("epilogue_smem", "vec_c")
    fixed: tuple[str, ...]
    tile_rules: tuple[str, ...]
    extent_rules: tuple[str, ...]

    @property
    def code(self) -> int:
        """The value of the ``family`` axis."""
        return FAMILIES.index(self.name)

    def neutral(self, p: KernelGemm) -> KernelGemm:
        """The representative of a problem's class: the same types, layout and alignment, with neutral extents."""
        size, (a, b, c) = p.element.bytes, p.vectors
        return replace(
            p.shape_class,
            m=NEUTRAL,
            n=NEUTRAL,
            k=NEUTRAL,
            lda=0,
            ldb=0,
            ldc=0,
            batch=1,
            aligned_a=a * size,
            aligned_b=b * size,
            aligned_c=c * p.output.bytes,
        )

    def variables(self, p: KernelGemm) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """Groups of axes that the sampler draws independently, with their values. Axes are in one group if few
        combinations of their values are legal. Accesses are no wider than the alignment allows."""
        widest = dict(zip(("vec_a", "vec_b", "vec_c"), p.vectors, strict=True))
        return {(n,): [(v,) for v in values if v <= widest.get(n, v)] for n, values in self.axes.items()}

    # ---- the rows of a base, which extents do not affect; ``p`` is the representative of a class

    def tiles(self, p: KernelGemm) -> Columns:
        """Every combination of the axes ``tile``."""
        raise NotImplementedError

    def shapes(self, p: KernelGemm) -> Columns:
        """Tiles of blocks, warps and threads."""
        raise NotImplementedError

    def variants(self, p: KernelGemm) -> list[dict[str, int]]:
        """Values of the other axes that each shape is combined with: copy modes, stages, epilogues."""
        raise NotImplementedError

    def finalize(self, p: KernelGemm, d: Device, c: Columns) -> Columns:
        """Sets the axes that are computed from the others. Rows may still be illegal."""
        return c

    def slice_options(self, p: KernelGemm) -> list[dict[str, int]]:
        """Representatives of the slices that ``cells`` enumerates for each tile, if the legality of a row depends on
        them; else none."""
        return []

    def accepts(self, option: dict[str, int], c: Columns) -> Any:
        """The rows that are candidates with one of ``slice_options``."""
        return True

    # ---- cells: the axes that extents affect

    def cells(self, p: KernelGemm, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """Every tile combined with its slices of K, ordered by tile, and the rule that each breaks (-1: legal, -2: a
        duplicate)."""
        raise NotImplementedError

    # ---- one configuration

    def canonical(self, p: KernelGemm, c: Columns) -> Columns:
        """The same kernels, with every axis that has no effect at its default. Rows must be legal."""
        raise NotImplementedError

    def changes(self, p: KernelGemm, d: Device, config: Config) -> Iterator[dict[str, int]]:
        """The axes that each neighbour of ``config`` changes, with the new values."""
        raise NotImplementedError

    def with_dependent_axes(self, p: KernelGemm, config: Config, changes: dict[str, int]) -> list[Config]:
        """``config`` with ``changes``, and with the values of other axes that these require."""
        raise NotImplementedError


def violations(
    f: CandidateSpace, p: KernelGemm, c: Columns, d: Device, names: tuple[str, ...] | None, skip: tuple[str, ...] = ()
) -> Ints:
    """As ``rules.rejections``, over the named rows of the table only (None: all) but ``skip``."""
    result = np.full(len(c), -1, np.int64)
    if not len(c):
        return result  # columns without rows have no family, so no geometry
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        for i, rule in rules_of(f.name):
            if (names is None or rule.name in names) and rule.name not in skip:
                result[(result < 0) & ~np.broadcast_to(rule.holds(p, c, g, d), len(c))] = i
    return result


def picked(c: Columns, rows: NDArray[Any]) -> Columns:
    """As ``c.take(rows)``; broadcast columns stay broadcast."""
    size = int(rows.sum()) if rows.dtype == bool else len(rows)
    return Columns(
        {n: np.broadcast_to(v[:1].sum(), size) if v.strides == (0,) else v[rows] for n, v in c.columns.items()}, size
    )


def crossed(shapes: Columns, variants: list[dict[str, int]]) -> Columns:
    """Every shape with every variant; the rows of a variant are contiguous."""
    size = len(shapes) * len(variants)
    values = {n: np.tile(v, len(variants)) for n, v in shapes.columns.items() if v.strides != (0,)}
    fixed = {n: np.broadcast_to(v[:1].sum(), size) for n, v in shapes.columns.items() if v.strides == (0,) and len(v)}
    for name in variants[0]:
        values[name] = np.repeat(np.array([v[name] for v in variants], np.int64), len(shapes))
    return Columns({**fixed, **values}, size)


def whole_waves(tiles: Any, d: Device) -> Ints:
    """Slice counts that fill whole waves, one row for each number of tiles; the last column is 1."""
    tiles = np.maximum(np.atleast_1d(np.asarray(tiles, np.int64)), 1)
    counts = [np.maximum(d.sms * w // tiles, 1) for w in WAVES]
    return np.stack([*counts, np.ones_like(tiles)], axis=-1)


def default_splitk(p: KernelGemm, kg: Any) -> Any:
    """The ``splitk`` of candidates; the search on hardware tries the others."""
    return np.where(np.asarray(kg) > 1, SPLIT_FLAG if reducible(p) else SPLIT_WORKSPACE, SPLIT_MEMSET)


def effective_pdl(p: KernelGemm, c: Columns) -> Any:
    """``pdl`` without ``within_launch`` for launches of one kernel: only packing and reductions launch more."""
    several = (
        (c.operand_path_a == PACK)
        | (c.operand_path_b == PACK)
        | (p.compute == "f32_bf16x6")
        | ((c.splitk == SPLIT_WORKSPACE) & (c.kg > 1))
    )
    return np.where((c.pdl == PDL_WITHIN) & np.logical_not(several), 0, c.pdl)


def splitk_pairs(axes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Legal pairs of ``kg`` and ``splitk``."""
    return [(kg, split) for kg in axes["kg"] for split in (axes["splitk"] if kg > 1 else (SPLIT_MEMSET,))]


def single_axis_changes(f: CandidateSpace) -> Iterator[dict[str, int]]:
    """Every change of one axis."""
    for name, values in f.axes.items():
        yield from ({name: v} for v in values)


def default(name: str) -> int:
    return AXIS[name].default
