"""The candidate space of FMA kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import DIRECT, PACK, PDL_WITHIN, SPLIT_FLAG, SPLIT_MEMSET, Columns, Config, packs
from ptxgen.codegen.geometry import GROUPED_SHARED, accumulator_bytes, stores_via_smem
from ptxgen.codegen.split_k import slices_of_k
from ptxgen.families.common.candidates import (
    CandidateSpace,
    Grid,
    Ints,
    default,
    effective_pdl,
    multiplies_by,
)
from ptxgen.families.common.fma import axes, operand_packing
from ptxgen.families.common.fma.geometry import (
    adjacent_c,
    geometry,
    has_paired_steps,
    loads_fragments,
    packs_operands,
    pairs_columns,
    plain_sums,
    staging_bytes,
    values_in_register,
    warp_rows,
    widest_load,
)
from ptxgen.families.common.geometry import WARP
from ptxgen.families.common.multistage_candidates import MultistageSpace
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype

PATHS = ("operand_path_a", "operand_path_b")

#: axis -> the values that are tried
AXES = searched(axes.AXES)
CLASS_AXES = {"stages": (3,), "ks": (1,)}
SMALL = 128 * 128  #: lanes are interleaved in tiles of fewer elements than this
#: a search packs operands with elements of this size, of products of at least so many operations, where at least so
#: many rows or columns multiply the operand. Of products of 0.46 and 0.61 GFLOP, packing slowed one by 4 % and
#: accelerated the other by 1 %
PACKED_BYTES, PACKED_FLOPS, WIDE = 4, 5e8, 128
SHALLOW = 64  #: if K is greater, tensor cores are as fast on problems that are not narrow
#: element size in bytes -> rows or columns up to which a GEMM is narrow; the same limit for convolutions
NARROW, NARROW_CONV = {1: 0, 2: 0, 4: 0, 8: 64}, 32


class FmaSpace(MultistageSpace):
    """The candidates of FMA kernels for the family ``name``. ``packed``: the operands that may be packed."""

    axes, class_axes = AXES, CLASS_AXES
    cell = (*MultistageSpace.cell, "stream_k", "l2_prefetch", "listed_tiles")
    tile = (*MultistageSpace.tile, *PATHS)
    extent_rules = (*MultistageSpace.extent_rules, "simt_operand_path")
    derived = ("epilogue_smem", "vec_c", "lane_interleave", "lanes_m")
    fixed = ("simt_dtype",)
    tile_rules = ("axis", "range", "simt_tile_m", "simt_tile_n", "simt_warps", "threads", "simt_depth")
    shape = ("ms", "ns", "ml", "nl", "u", "ks", "kl")

    def __init__(self, name: str, packed: str = "ab") -> None:
        self.name, self.packed = name, packed

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class. If kernels without shared memory are candidates, its K is their
        depth."""
        depth = self.unstaged_depth(p)
        return super().neutral(p).with_extents(k=depth) if depth else super().neutral(p)

    def is_dominated(self, p: KernelProblem, others: Collection[str]) -> bool:
        """True for problems of many rows, columns and terms that tensor cores compute, too. Among measured problems of
        this sort, tensor cores were as fast in all of 425 convolutions and 82 GEMMs of f64, and in all but one of 1,022
        GEMMs of 16-bit elements."""
        narrow = NARROW[p.element.bytes] if plain_sums(p) else NARROW_CONV
        wide = p.k > SHALLOW and min(p.m, p.n) > narrow and not grouped(p)
        return wide and multiplies_by(others, "mma.sync")

    @property
    def key(self) -> str:
        return f"{self.name} {self.packed}"

    def searched(self, p: KernelProblem) -> CandidateSpace:
        """The space without packed operands of products that are too small to repay a copy, of elements without
        measurements, and where the other operand is narrow."""
        large = p.flops >= PACKED_FLOPS and p.element.bytes == PACKED_BYTES
        wide = {"a": p.n >= WIDE, "b": p.m >= WIDE}
        may = [name for name in self.packed if self.may_pack(p, name)]
        packed = [name for name in may if large and wide[name]]
        return self if packed == may else _with_packed(self, "".join(packed))

    def unstaged_depth(self, p: KernelProblem) -> int:
        """The ``u`` of candidates without shared memory, whose loop has one iteration; 0: there are no such
        candidates."""
        return 1 << max(p.k - 1, 0).bit_length() if loads_fragments(p) else 0

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        variables = super().variables(p)
        if not has_paired_steps(p):
            variables["column_pairs",] = [(0,)]
        for name in "ab":
            path, vec = f"operand_path_{name}", f"vec_{name}"
            variables[path,] = [(DIRECT,)]
            if self.may_pack(p, name):  # with loads of 16 bytes
                packed = (PACK, operand_packing.ACCESS // p.element.bytes)
                del variables[path,]
                variables[path, vec] = [*((DIRECT, v) for (v,) in variables.pop((vec,))), packed]
        return variables

    def may_pack(self, p: KernelProblem, name: str) -> bool:
        """True if a search packs operand ``name``, because its rows are along K, or too unaligned for 16 bytes."""
        if name not in self.packed or PACK not in self.axes[f"operand_path_{name}"] or not packs_operands(p):
            return False
        return operand_packing.kmajor(p, name) or p.vectors["ab".index(name)] * p.element.bytes < operand_packing.ACCESS

    def depths(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``u`` of candidates. If K is small, the greatest is the least value that needs one
        iteration."""
        unstaged = self.unstaged_depth(p)
        staged = [u for u in self.axes["u"] if not unstaged or u <= max(unstaged, self.axes["u"][0])]
        return tuple(sorted({*staged, unstaged} - {0}))

    def tiles(self, p: KernelProblem) -> Columns:
        values = {n: self.axes[n] for n in self.tile} | {"u": self.depths(p)}
        values |= {f"operand_path_{x}": (DIRECT, PACK) if self.may_pack(p, x) else (DIRECT,) for x in "ab"}
        return Columns.product(values).replace(family=self.code)

    def operand_copy_modes(self, p: KernelProblem, operand: str) -> list[tuple[int, int, int]]:
        """The triples (cp_async, kmajor_smem, vec) for an operand. cp.async can transpose only single elements; K-major
        rows in shared memory consist of 16-byte chunks; an MN-major operand has the same layout in shared and global
        memory."""
        first = operand == "a"
        widest = p.vectors[0 if first else 1]
        kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
        if not kmajor:
            return [(0, 0, widest), (1, 0, widest)]
        chunk = min(widest, 16 // dtype(p.held_type(operand.upper())).bytes)
        narrower = [(0, 0, chunk)] if p.operand(operand.upper()).element.bytes == 1 and chunk < widest else []
        return [(0, 0, widest), *narrower, (1, 0, 1), (0, 1, chunk), (1, 1, chunk)]

    def copy_modes(self, p: KernelProblem, every: bool = False) -> list[dict[str, int]]:
        a, b = self._copy_modes_by_operand(p)
        return [*a, *b] if every else [{**x, **y} for x in a for y in b]

    def _path_changes(self, p: KernelProblem, config: Config) -> Iterator[dict[str, int]]:
        """The changes that pack an operand, or both, and copy it by cp.async; for a packed operand those that read it
        directly, and that start the main kernel early."""
        both: dict[str, int] = {}
        for name, modes in zip("ab", self._copy_modes_by_operand(p), strict=True):
            path = f"operand_path_{name}"
            if packs(config, name):
                yield from ({path: DIRECT, **mode} for mode in modes)
                yield {"pdl": 0 if config.pdl else PDL_WITHIN}
            elif self.may_pack(p, name):
                packed = self._packed_mode(p, name)
                yield packed
                both |= packed
        yield both

    def _copy_modes_by_operand(self, p: KernelProblem) -> list[list[dict[str, int]]]:
        """The copy modes of A, and the copy modes of B."""
        names = ("cp_async_a", "kmajor_smem_a", "vec_a"), ("cp_async_b", "kmajor_smem_b", "vec_b")
        return [[dict(zip(n, m, strict=True)) for m in self.operand_copy_modes(p, n[0][-1])] for n in names]

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        unstaged = (0,) if self.unstaged_depth(p) else ()
        staged = self.axes["stages"] if p.compute == p.accumulator.real else ()
        modes = []
        for name, direct in zip("ab", self._copy_modes_by_operand(p), strict=True):
            packed = [self._packed_mode(p, name)] * self.may_pack(p, name)
            modes.append([*({f"operand_path_{name}": DIRECT, **mode} for mode in direct), *packed])
        return [[{"stages": n} for n in (*unstaged, *staged)], *modes]

    def _packed_mode(self, p: KernelProblem, name: str) -> dict[str, int]:
        """The mode that packs an operand and copies it by cp.async."""
        vec = operand_packing.ACCESS // p.element.bytes
        return {f"operand_path_{name}": PACK, f"cp_async_{name}": 1, f"kmajor_smem_{name}": 0, f"vec_{name}": vec}

    def default_splitk(self, p: KernelProblem, c: Columns) -> Ints:
        """The ``splitk`` value of candidates. Packed operands overwrite the cleared workspace that flags need."""
        plain = super().default_splitk(p, c)
        packed = packs(c, "a") | packs(c, "b")
        return np.where(packed & (plain == SPLIT_FLAG), SPLIT_MEMSET, plain)

    def thread_columns(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``ns`` of candidates. If K is small and rows of C are stored by single elements of four bytes
        or more, a thread may have one column: the stores of a warp then fill whole sectors, with two columns half of
        each. If K is 1 or 2 it must: of three such products on an H200 each was fastest so. The choice with two
        columns took 36.3 µs for 4024×2719×1 in f64, tiles of 16×128 with one 24.8."""
        depth = self.unstaged_depth(p)
        if not depth or p.vectors[2] > 1 or p.output.bytes < 4:
            return self.axes["ns"]
        return (1,) if depth <= 2 else (1, *self.axes["ns"])

    def shapes(self, p: KernelProblem) -> Grid:
        own = {"u": self.depths(p), "ns": self.thread_columns(p)}
        shapes = Grid.combined([{n: own.get(n, self.axes[n])} for n in self.shape])
        return shapes.replace(lanes_m=warp_rows(shapes), raster_group=8)

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        """Sets the axes that depend on others. Lanes are interleaved on small tiles, unless a warp has a single row or
        column of threads. C is stored through shared memory, if it fits, where stores from registers would be scalar:
        with a K-major B, and in groups whose rows of C are not aligned to 16 bytes; also with a packed B: 13 of 18
        measured kernels were faster so, by up to 39 %, the others slower by at most 3 %."""
        interleave = (c.ml * c.nl < SMALL) & (c.lanes_m > 1) & (c.lanes_m < WARP)
        c = c.replace(
            lane_interleave=interleave, vec_c=p.vectors[2], raster_group=8, column_pairs=int(pairs_columns(p, d))
        )
        if depth := self.unstaged_depth(p):
            c = self._without_shared_memory(p, c, depth)
        narrow = grouped(p) and p.vectors[2] * p.output.bytes < 16
        wanted = ((c.kmajor_smem_b == 1) | packs(c, "b") | narrow) & (c.kl == 1) & (c.stages > 0 if depth else True)
        if wanted.any():  # the stages of legal rows fit without it
            size = staging_bytes(p, c) + (GROUPED_SHARED if grouped(p) else 0)
            wanted = wanted & (size <= d.most_shared(c.min_ctas_per_sm))
        return c.replace(epilogue_smem=wanted)

    def _without_shared_memory(self, p: KernelProblem, c: Grid, depth: int) -> Grid:
        """Sets the axes of kernels without shared memory: lanes along N, for stores of whole cache lines; the widest
        loads; ``u`` equal to ``depth``. Other kernels have a ``u`` in ``axes``. Rows with any other ``u`` become
        illegal."""
        unstaged, g = c.stages == 0, geometry(p, c)
        lanes_n = np.minimum(c.nl // c.ns, WARP)
        vec_a, vec_b = (
            np.where(unstaged, np.minimum(vec, widest_load(c, x)), vec) for vec, x in ((c.vec_a, g.a), (c.vec_b, g.b))
        )
        fits = np.where(unstaged, c.u == depth, np.isin(c.u, self.axes["u"]))
        return c.replace(
            stages=np.where(fits, c.stages, 1),
            lanes_m=np.where(unstaged, WARP // np.maximum(lanes_n, 1), c.lanes_m),
            lane_interleave=np.where(unstaged, 0, c.lane_interleave),
            fragment_prefetch=np.where(unstaged, 0, default("fragment_prefetch")),
            vec_a=vec_a,
            vec_b=vec_b,
        )

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        """Adds changes of operand paths, changes between kernels with and without shared memory, and changes to small
        depths of the latter."""
        yield from (x for x in super().changes(p, d, config) if not x.keys() & set(PATHS))
        yield from self._path_changes(p, config)
        if loads_fragments(p):
            off = ("cp_async_a", "cp_async_b", "kmajor_smem_a", "kmajor_smem_b", "epilogue_smem", "prefetch_k")
            unset = dict.fromkeys((*off, "fragment_prefetch", "deferred_sts", "stages"), 0) | {"ks": 1, "kl": 1}
            unset |= dict.fromkeys(PATHS, DIRECT)
            for u in (1, 2, 4, 8, 16):
                yield {**unset, "u": u, "vec_a": min(config.vec_a, u), "vec_b": min(config.vec_b, u)}

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        one_row = (c.lanes_m == 1) | (c.lanes_m == WARP)
        columns = c.ns // values_in_register(p, c)
        kg = np.minimum(slices_of_k(p, c)[1], c.kg)
        return c.replace(
            kg=kg,
            pdl=effective_pdl(p, c),
            splitk=np.where(kg > 1, c.splitk, SPLIT_MEMSET),
            epilogue_smem=np.where((c.kl > 1) | p.sink.shared_tile, default("epilogue_smem"), c.epilogue_smem),
            lane_interleave=np.where(one_row, default("lane_interleave"), c.lane_interleave),
            mma_order=np.where((c.ms == 1) | (columns == 1), default("mma_order"), c.mma_order),
            vec_c=width_c(p, c),
        )

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """Returns two configurations: one with the same ``lanes_m``, one with the ``lanes_m`` that makes the warp tile
        most nearly square. Packed operands overwrite the cleared workspace that ``flag_red`` needs, which becomes
        ``memset_red``."""
        [plain] = super().with_dependent_axes(p, config, changes)
        if packs(plain, "a") or packs(plain, "b"):
            plain = plain.replace(splitk=SPLIT_MEMSET if plain.splitk == SPLIT_FLAG else plain.splitk)
        if "lanes_m" in changes:
            return [plain]
        values = dict(plain.items())
        return [plain, config.replace(**{**values, "lanes_m": int(warp_rows(Config(**values)))})]


@cache
def _with_packed(space: FmaSpace, packed: str) -> FmaSpace:
    """The same space, where only the operands ``packed`` may be packed."""
    return type(space)(space.name, packed)


def width_c(p: KernelProblem, c: Any) -> Any:
    """The number of elements of one access to C: at most 16 bytes of sums; in stores from registers at most the
    adjacent elements of a thread."""
    vec_c = np.minimum(c.vec_c, 16 // accumulator_bytes(p))
    return np.where(stores_via_smem(p, c), vec_c, np.minimum(vec_c, adjacent_c(p, c)))
