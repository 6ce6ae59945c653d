"""The candidate space of wgmma kernels."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import (
    DIRECT,
    PACK,
    PDL_WITHIN,
    REALIGN,
    SPLIT_DISTRIBUTED,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Columns,
    Config,
)
from ptxgen.families.common.candidates import (
    NEUTRAL,
    FlatGrid,
    Grid,
    Ints,
    breaks,
    default,
    effective_pdl,
    first_violations,
    moves_much,
    multiplies_by,
    single_axis_changes,
    splitk_pairs,
)
from ptxgen.families.common.geometry import LazyGeometry, geometry
from ptxgen.families.common.rules import reducible
from ptxgen.families.common.tile_candidates import TileSpace
from ptxgen.families.wgmma import axes, grouped_rows, operand_packing, promotion
from ptxgen.families.wgmma.axes import B_ONCE, PADDED
from ptxgen.families.wgmma.bf16x3 import factor_bytes, planes
from ptxgen.families.wgmma.geometry import (
    COLUMNS,
    ROWS,
    SPAN,
    STEP,
    adjacent_rows,
    kmajor,
    length,
    packs_8bit,
    resident_blocks,
    widest,
    widest_unit,
)
from ptxgen.families.wgmma.operand_packing import mapped, unmapped
from ptxgen.lowering.block_scales import block_scaled
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import im2col, tma_n, with_descriptor
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import quantized_rows
from ptxgen.lowering.tile_lists import lists_tiles
from ptxgen.problem.device import Device

#: (64-row tiles per block, math warpgroups, pingpong)
LONG = ((1, 1, 0), (2, 1, 0), (2, 2, 0), (3, 3, 0), (4, 2, 0), (1, 2, 1), (2, 2, 1))
#: extents of a block's tile along the other side
SHORT = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 176, 192, 224, 256)
#: those that may be loaded by padded boxes: the ones that were measured. Exact boxes have 32 or 16 columns
PADDED_SHORT = (160, 176)
DEPTHS = (SPAN // 2, SPAN, 2 * SPAN)  #: bytes of a row of a stage
#: blocks of a cluster along X, along Y, and along K
CLUSTERS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 4, 1), (1, 1, 2), (1, 1, 3), (1, 1, 4), (1, 1, 8))
STAGES = (2, 3, 4, 6, 8, 12)
WAITING_LIMIT = 64  #: most slices that may wait for each other
REALIGNED = 2  #: element size in bytes of operands that can be realigned in shared memory
LARGE = 256  #: extents from which tiles with boxes of at most NARROW bytes are slow
NARROW = 32  #: bytes of a row of a narrow box
SMALL = 16  #: if K is not greater, and there are not more rows or columns, other families are as fast
LEAST = (16, 32)  #: values of tma_rows, besides 0
#: raster_group of experts, if wgmma's 64 rows are along N and the expert has at most FEW tiles along M
NEAR, FEW = 2, 4
#: epilogue_smem, epilogue_subtiles, epilogue_buffers, epilogue_aliases_ab
EPILOGUES = ((0, 1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1), (1, 4, 4, 0), (1, 4, 4, 1))

#: (half waves that the slices fill, splitk)
SLICES = (
    (0, SPLIT_MEMSET),
    (2, SPLIT_LAST_CTA),
    (2, SPLIT_DISTRIBUTED),
    (1, SPLIT_LAST_CTA),
    (1, SPLIT_DISTRIBUTED),
    (4, SPLIT_WORKSPACE),
)

#: the same pairs if packed operands or planes overwrite the workspace
SLICES_PLANES = ((0, SPLIT_MEMSET), (2, SPLIT_WORKSPACE), (1, SPLIT_WORKSPACE), (4, SPLIT_WORKSPACE))

PATHS = ("operand_path_a", "operand_path_b")

#: axis -> the values that are tried, besides the tables above
AXES = searched(axes.AXES)
CLASS_AXES = {"epilogue_smem": (1,), "epilogue_subtiles": (1,), "epilogue_buffers": (1,), "epilogue_aliases_ab": (0,)}


class WgmmaSpace(TileSpace):
    name = "wgmma"
    axes, class_axes = AXES, CLASS_AXES
    tile = (
        "ml",
        "nl",
        "u",
        "transposed_mma",
        "cluster_x",
        "cluster_y",
        "cluster_k",
        *PATHS,
        "interleave_phases",
        "row_taps",
    )
    cell = ("kg", "splitk", "raster_group", "l2_evict_first", "pdl")
    fixed = ("wgmma_target", "wgmma_dtype", "wgmma_im2col")
    tile_rules = (
        "axis",
        "range",
        "wgmma_kmajor_y",
        "wgmma_depth",
        "wgmma_tile_x",
        "wgmma_tile_y",
        "wgmma_accumulators",
        "wgmma_cluster",
        "wgmma_multicast_x",
        "wgmma_tma_rows",
        "wgmma_y_boxes",
        "wgmma_tensor_map_a",
        "wgmma_tensor_map_b",
        "wgmma_group_paths",
        "wgmma_interleave_phases",
        "wgmma_quantized",
    )
    slice_rules = (
        "threads",
        "shared_memory",
        "min_ctas_per_sm",
        "registers",
        "register_margin",
        "wgmma_register_file",
        "wgmma_promotion_buffers",
        "wgmma_producer_registers",
        "wgmma_persistent",
        "wgmma_stream",
        "wgmma_phases",
        "wgmma_row_taps",
        "wgmma_epilogue_smem",
        "wgmma_values",
        "wgmma_reduced_values",
        "wgmma_epilogue_aliases_ab",
    )
    shape_rules = (
        "wgmma_realign",
        "wgmma_row_taps",
        "wgmma_persistent",
        "wgmma_pingpong",
        "wgmma_promotion_buffers",
    )
    extent_rules = (
        "range",
        "kg",
        "splitk",
        "grid",
        "wgmma_raster_group",
        "wgmma_k_iters",
        "wgmma_stream_k",
        "wgmma_splitk",
        "wgmma_reduced_k",
        "wgmma_blocks",
        "wgmma_stages",
        "wgmma_bf16x3",
        "wgmma_operand_path",
        "wgmma_realign_k",
        "grouped_slices",
        "wgmma_row_taps_offsets",
        "wgmma_resident_b_stages",
        "wgmma_k",
        "wgmma_b_once",
    )

    def is_dominated(self, p: KernelProblem, others: Collection[str]) -> bool:
        """True for small products of 16-bit elements that ``mma.sync`` computes, too. Other families were as fast in
        all but two of 496 measured GEMMs of this sort."""
        small = im2col(p) is None and p.k <= SMALL and min(p.m, p.n) <= SMALL
        return small and not grouped(p) and p.element.bytes == 2 and multiplies_by(others, "mma.sync")

    def dominated_tiles(self, p: KernelProblem, tiles: Columns) -> NDArray[np.bool_] | None:
        """Tiles of large weight gradients whose Y is loaded by boxes of 32 bytes or less (80, 112 and 176 columns of
        16-bit elements), and that do not divide the extent. Other tiles were faster in 157 of 158 measured problems,
        in half of them 1.9 times and more."""
        if im2col(p) is None or not im2col(p).wgrad or min(p.m, p.n) < LARGE:
            return None
        transposed, (a_kmajor, b_kmajor) = tiles.transposed_mma == 1, kmajor(p, tiles)
        tile, extent = np.where(transposed, tiles.ml, tiles.nl), np.where(transposed, p.m, p.n)
        narrow = widest(tile, SPAN // factor_bytes(p), COLUMNS) * factor_bytes(p) <= NARROW
        boxed = narrow & (tile * factor_bytes(p) > SPAN) & np.logical_not(np.where(transposed, a_kmajor, b_kmajor))
        mask: NDArray[np.bool_] = boxed & (extent > 2 * tile) & (extent % tile > 0)
        return mask

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class. TMA can map the same operands of both problems. The extents of the
        representative are neutral, or those that ``tma_rows`` needs."""
        c = p.vectors[2] * p.output.bytes
        m, n = (next((r for r in LEAST if x <= r), NEUTRAL) for x in (NEUTRAL if grouped(p) else p.m, tma_n(p)))
        sizes = {x: p.operand(x).element.bytes for x in "AB"}
        aligned = {x: 16 if mapped(p, x.lower()) else size for x, size in sizes.items()}
        if (x := im2col(p)) is not None:
            channels = widest_unit(p) if not x.wgrad else math.gcd(x.channels, ROWS)
            n //= x.merged_phases
            p = with_descriptor(p, x.representative(channels, NEUTRAL))
        p = p.representative.with_extents(m=m, n=n, k=NEUTRAL, batch=1).with_access("C", stride=0, aligned=c)
        for name, at in aligned.items():
            p = p.with_access(name, stride=0, aligned=at, vec=at // sizes[name])
        return p

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """The groups of axes for the sampler: tiles with warpgroups, clusters, epilogues, ``kg`` with ``splitk``,
        operand paths. In each of these groups few other combinations of values are legal."""
        tiles = [
            (n * ROWS, short, 0, wg, pingpong, persistent)
            for n, wg, pingpong in LONG
            for short in SHORT
            for persistent in {pingpong, 1}
        ]
        subtiles = [(c, b) for c in self.axes["epilogue_subtiles"] for b in self.axes["epilogue_buffers"] if c % b == 0]
        joint: dict[tuple[str, ...], list[tuple[int, ...]]] = {
            ("ml", "nl", "transposed_mma", "math_warpgroups", "pingpong", "persistent"): tiles
            + [(y, x, 1, *t) for x, y, _, *t in tiles],
            ("cluster_x", "cluster_y", "cluster_k", "dsmem_completion"): [
                (*c, r) for c in CLUSTERS for r in ((0, 1) if c[2] > 1 else (0,))
            ],
            ("epilogue_smem", "epilogue_subtiles", "epilogue_buffers", "epilogue_aliases_ab"): [
                (0, 1, 1, 0),
                *((1, c, b, r) for c, b in subtiles for r in (0, 1)),
            ],
            ("kg", "splitk"): splitk_pairs(self.axes),
            PATHS: self._operand_paths(p),
            ("interleave_phases",): [(n,) for n in self._interleaving(p)],
            ("row_taps",): [(n,) for n in self._row_taps(p)],
            ("promotion_buffers",): [(n,) for n in self._promotion_buffers(p)],
            ("listed_tiles",): [(n,) for n in (0, 1)[: 1 + lists_tiles(p)]],
            ("y_boxes",): [(0,)],  # neighbours have the other
        }
        known = {name for names in joint for name in names}
        plain = {names: v for names, v in super().variables(p).items() if names[0] not in known}
        return {
            **joint,
            **plain,
            ("u",): [(u,) for u in self._depths(p)],
        }

    # ---- a base

    def _sides(self, long: Ints, short: Ints, transposed: Ints) -> dict[str, Ints]:
        return {
            "ml": np.where(transposed == 1, short, long),
            "nl": np.where(transposed == 1, long, short),
            "transposed_mma": transposed,
        }

    def _depths(self, p: KernelProblem) -> list[int]:
        """The values of ``u``. If only the narrowest box fits the channels of a convolution, a stage may be one such
        box."""
        narrow = (STEP,) if im2col(p) is not None and widest_unit(p) * factor_bytes(p) == STEP else ()
        deep = (4 * SPAN,) if quantized_rows(p) is not None else ()  # rows of weights are narrow
        return [b // factor_bytes(p) for b in (*narrow, *DEPTHS, *deep)]

    def _operand_paths(self, p: KernelProblem) -> list[tuple[int, ...]]:
        """The pairs (operand_path_a, operand_path_b). Operands that TMA cannot map are packed or realigned. If packing
        would transpose both operands, one of them is packed; if it would transpose one operand, this may be packed."""
        if planes(p) > 1 or grouped_rows.packs_items(p):
            return [(DIRECT, DIRECT)]
        if im2col(p) is not None:
            a, b = operand_packing.packs_conv(p)
            transposed = im2col(p).wgrad and im2col(p).side == "b" and operand_packing.transposes(p, "a")
            packed = (PACK * a, PACK * b) if a or b else (PACK if transposed else DIRECT, DIRECT)
            if im2col(p).unpacked is None:
                return [packed]
            return [packed, operand_packing.paths(im2col(p).unpacked)]
        off_a, off_b = unmapped(p)
        if quantized_rows(p) is not None:
            return [(PACK * off_a, DIRECT)]
        packed = PACK * off_a, PACK * off_b
        if (off_a or off_b) and factor_bytes(p) == REALIGNED and p.batch == 1:
            return [packed, (REALIGN * off_a, REALIGN * off_b)]
        a, b = operand_packing.transposes(p, "a"), operand_packing.transposes(p, "b")
        if a and b:
            return list(dict.fromkeys([(PACK, packed[1]), (packed[0], PACK)]))
        return list(dict.fromkeys([packed, (PACK * (off_a or a), PACK * (off_b or b))]))

    def _interleaving(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``interleave_phases``."""
        return (0, 1) if im2col(p) is not None and im2col(p).images is not None else (0,)

    def _short(self, p: KernelProblem) -> list[tuple[int, int]]:
        """The pairs (extent of a tile along the other side, y_boxes)."""
        padded = im2col(p) is None and not grouped(p) and factor_bytes(p) == 2 and planes(p) == 1
        return [*((n, 0) for n in SHORT), *((n, PADDED) for n in PADDED_SHORT if padded)]

    def _promotion_buffers(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``promotion_buffers``."""
        return self.axes["promotion_buffers"] if promotion.promotes(p) else (1,)

    def _row_taps(self, p: KernelProblem) -> tuple[int, ...]:
        """The values of ``row_taps``."""
        x = im2col(p)
        if x is None or not x.shares_row_taps or x.taps_of_row not in self.axes["row_taps"]:
            return (1,)
        return (1, x.taps_of_row)

    def tiles(self, p: KernelProblem) -> Columns:
        paths = np.array(self._operand_paths(p))
        grid = np.meshgrid(
            sorted({n for n, _, _ in LONG}),
            SHORT,
            self._depths(p),
            (0, 1),
            np.arange(len(CLUSTERS)),
            np.arange(len(paths)),
            self._interleaving(p),
            self._row_taps(p),
            indexing="ij",
        )
        long, short, u, transposed, index, path, interleaved, row_taps = (g.ravel() for g in grid)
        clusters = np.array(CLUSTERS)[index]
        sides = self._sides(ROWS * long, short, transposed)
        c = Columns(
            {
                **sides,
                "u": u,
                "cluster_x": clusters[:, 0],
                "cluster_y": clusters[:, 1],
                "cluster_k": clusters[:, 2],
                **dict(zip(PATHS, paths[path].T, strict=True)),
                "interleave_phases": interleaved,
                "row_taps": row_taps,
            }
        )
        return c.replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Grid:
        long, wg, pingpong = np.array(LONG).T
        x, y, k = np.array(CLUSTERS).T
        c = Grid.combined(
            [
                {"ml": ROWS * long, "math_warpgroups": wg, "pingpong": pingpong},
                dict(zip(("nl", "y_boxes"), np.array(self._short(p)).T, strict=True)),
                {"u": self._depths(p)},
                {"transposed_mma": (0, 1)},
                {"cluster_x": x, "cluster_y": y, "cluster_k": k},
                {"tma_rows": sorted({0} | {next((r for r in LEAST if x <= r), 0) for x in (p.m, tma_n(p))})},
                dict(zip(PATHS, np.array(self._operand_paths(p)).T, strict=True)),
                {"interleave_phases": self._interleaving(p)},
                {"row_taps": self._row_taps(p)},
            ]
        )
        return c.replace(family=self.code, **self._sides(c.ml, c.nl, c.transposed_mma))

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        names = ("epilogue_smem", "epilogue_subtiles", "epilogue_buffers", "epilogue_aliases_ab")
        return [
            [{"stages": s} for s in STAGES],
            [dict(zip(names, epilogue, strict=True)) for epilogue in EPILOGUES],
            [{"persistent": 0}, {"persistent": 1}],
            [{"promotion_buffers": n} for n in self._promotion_buffers(p)],
            # measured with scales of blocks; those of groups of weights have the same kind of sums
            [{"stream_waves": n} for n in (self.axes["stream_waves"] if _streams(p) else (0,))],
        ]

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        return c.replace(vec_c=width_c(p, c.replace(vec_c=p.vectors[2])))

    def slice_options(self, p: KernelProblem) -> list[dict[str, int]]:
        """One slice and two slices, each with every ``splitk``. Two slices represent any larger number: a block has the
        same registers and shared memory."""
        return [{"kg": 2 if waves else 1, "splitk": split} for waves, split in self._slices(p)]

    def accepts(self, option: dict[str, int], c: Columns) -> Any:
        """A mask of the rows that are candidates with ``option``. Persistent blocks have no slices. With
        ``distributed``, a block finishes a small part of the tile and stores it as one subtile; the possible numbers of
        subtiles depend on the number of slices."""
        whole = (c.epilogue_subtiles == 1) | (option["splitk"] != SPLIT_DISTRIBUTED)
        return (c.persistent == 0) & whole if option["kg"] > 1 else whole

    def _slices(self, p: KernelProblem) -> list[tuple[int, int]]:
        """The pairs (half waves, splitk) of the candidates. Slices that cannot wait for each other add to C or use the
        workspace."""
        many = SPLIT_MEMSET if reducible(p) else SPLIT_WORKSPACE
        packed = any(operand_packing.packs_conv(p)) and (im2col(p) is None or im2col(p).unpacked is None)
        slices = SLICES_PLANES if planes(p) > 1 or packed else SLICES
        return [(waves, many if split == SPLIT_WORKSPACE else split) for waves, split in slices]

    # ---- cells

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """The cells: slices for a half, one and two waves of clusters, with each ``splitk``. An operand that is read
        once has evict_first. Images, which every filter tap reads again, have it only if other operands are packed or
        in groups. Blocks of small products start while their operands are packed: of 112 kernels on an H200 those that
        did took 5 % less time on average, 14 % less to 11 % more; of larger ones 1 % less, up to 24 % more, and slices
        of K lost up to 30 %."""
        slices = self._slices(p)
        plain = Columns({n: tiles.column(n) for n in self.tile}, len(tiles)).replace(family=self.code)
        c = Grid.crossed(plain, [[{}] * len(slices)])
        waves, split = (np.array(column)[:, None] for column in zip(*slices, strict=True))
        g: Any = LazyGeometry(p, c)
        resident = resident_blocks(d, c)
        blocks = np.maximum(g.blocks, 1)
        most = np.minimum(resident * waves // blocks, -(-p.k // c.u) * np.minimum(waves, 2) // c.cluster_k) // 2
        waits = (split == SPLIT_LAST_CTA) | (split == SPLIT_DISTRIBUTED)
        kg = np.where(waits, np.minimum(most, WAITING_LIMIT), most)
        again = any(operand_packing.packs_conv(p)) or (im2col(p) is not None and im2col(p).groups)
        offsets = (0, 0) if again else p.offsets[:2] if p.batch > 1 else (1, 1)
        jagged_m = grouped_rows.jagged(p) == "m"
        streamed = np.where(
            (g.tiles_n == 1) & (p.m > p.n) & (offsets[0] > 0),
            1,
            np.where((g.tiles_m == 1) & (p.n > p.m) & (offsets[1] > 0), B_ONCE if jagged_m else 2, 0),
        )
        # the few tiles along M of an expert read the same B: raster groups along N are narrow
        group = np.where((c.transposed_mma == 1) & (g.tiles_m <= FEW), NEAR, 8) if jagged_m else 8
        large = moves_much(p, d)
        packed = (c.operand_path_a == PACK) | (c.operand_path_b == PACK)
        c = c.replace(
            kg=np.maximum(kg, 1),
            splitk=split,
            l2_evict_first=streamed,
            raster_group=np.where((c.cluster_k == 1) & (blocks > resident), group, 1) if large else 1,
            pdl=0 if large else np.where(packed & (c.cluster_k == 1) & (kg <= 1), PDL_WITHIN, 0),
        )
        g = geometry(p, c)  # does not depend on raster_group
        broken = first_violations(self, p, c, d, self.extent_rules, g)
        # raster_group=1 limits the grid along N
        wide = breaks(broken, "grid") & (c.raster_group == 1) & (c.cluster_k == 1)
        if wide.any():
            c = c.replace(raster_group=np.where(wide, 8, c.raster_group))
            broken = first_violations(self, p, c, d, self.extent_rules, g)
        seen = (kg <= 1) & (waves > 0)
        for j in range(1, len(slices)):
            seen[j] |= ((kg[:j] == kg[j]) & (split[:j] == split[j])).any(axis=0)
        return FlatGrid(c, g), np.where(seen, -2, broken).T.ravel()

    # ---- one configuration

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c.replace(
            splitk=np.where(c.kg > 1, c.splitk, SPLIT_MEMSET), vec_c=width_c(p, c), pdl=effective_pdl(p, c)
        )

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from (x for x in single_axis_changes(self) if not x.keys() & set(PATHS))
        yield from (dict(zip(PATHS, paths, strict=True)) for paths in self._operand_paths(p))
        yield {"pdl": 0 if config.pdl else PDL_WITHIN}
        long, short = ("nl", "ml") if config.transposed_mma else ("ml", "nl")
        yield from ({"stages": config.stages + step} for step in (-2, -1, 1, 2))
        yield from ({short: getattr(config, short) + step} for step in (-16, -8, 8, 16))
        yield from ({short: n} for n in SHORT)
        sides = {"transposed_mma": 1 - config.transposed_mma, "ml": config.nl, "nl": config.ml}
        yield sides
        before = config.operand_path_a, config.operand_path_b
        if PACK in before and REALIGN not in before:  # pack the other operand instead
            paths = (PACK * (path != PACK or off) for path, off in zip(before, unmapped(p), strict=True))
            yield {**sides, **dict(zip(PATHS, paths, strict=True))}
        for n, wg, pingpong in LONG:
            for persistent in {config.persistent, pingpong}:
                yield {long: ROWS * n, "math_warpgroups": wg, "pingpong": pingpong, "persistent": persistent}
        yield from (dict(zip(("cluster_x", "cluster_y", "cluster_k"), c, strict=True)) for c in CLUSTERS)
        for subtiles in self.axes["epilogue_subtiles"]:
            for buffers in self.axes["epilogue_buffers"]:
                yield from (
                    {
                        "epilogue_smem": 1,
                        "epilogue_subtiles": subtiles,
                        "epilogue_buffers": buffers,
                        "epilogue_aliases_ab": r,
                    }
                    for r in (0, 1)
                )
        yield {"u": config.u * 2, "stages": max(config.stages // 2, 1)}
        yield {"u": config.u // 2, "stages": config.stages * 2}
        blocks = int(geometry(p, config.replace(kg=1, splitk=0)).blocks)
        resident = int(resident_blocks(d, config))
        counts = {resident * w // 2 // max(blocks, 1) for w in (1, 2, 3, 4)} | {config.kg + n for n in (-1, 1)}
        for kg in sorted(counts | {config.kg * 2, config.kg // 2}):
            yield from ({"kg": kg, "splitk": s} for s in self.axes["splitk"] if kg > 1)
        yield {"kg": 1}
        for cluster_k in self.axes["cluster_k"]:  # exchange blocks of a cluster for slices of the grid
            yield {"cluster_k": cluster_k, "kg": max(1, config.kg * config.cluster_k // cluster_k)}

    def balanced(self, p: KernelProblem, config: Config) -> dict[str, int]:
        """Changes to kernels with one tile per block, whose blocks start when others have ended. The tiles of a
        persistent block are far from one another, and the share of skipped tiles differs: at 8192 the busiest block has
        10, the mean is 8.0. The blocks of a join loop over the tiles that have pairs."""
        if lists_tiles(p):
            return {"listed_tiles": 1}
        return {"persistent": 0} if p.mirrored and config.persistent and not config.pingpong else {}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """Sets the axes that the changed axes constrain."""
        v = {**dict(config.items()), **changes}
        if v["kg"] == 1:
            v["splitk"] = SPLIT_MEMSET
        elif "splitk" not in changes and config.kg == 1:
            v["splitk"] = SPLIT_LAST_CTA
        if v["cluster_k"] > 1 and "raster_group" not in changes:
            v["raster_group"] = 1
        if v["cluster_k"] == 1 and "dsmem_completion" not in changes:
            v["dsmem_completion"] = 0
        if v["pingpong"] and "persistent" not in changes:
            v["persistent"], v["math_warpgroups"] = 1, 2
        if v["row_taps"] > 1:
            v["u"] = widest_unit(p)
        if not v["epilogue_smem"]:
            v.update(epilogue_subtiles=1, epilogue_buffers=1, epilogue_aliases_ab=0)
        if v["stream_waves"] and "stream_waves" in changes:
            v.update(persistent=1, pingpong=0, kg=1, cluster_k=1, resident_b=0, splitk=SPLIT_MEMSET)
        elif not v["persistent"] or v["pingpong"] or v["kg"] * v["cluster_k"] > 1 or v["resident_b"]:
            v["stream_waves"] = 0
        if v["listed_tiles"]:
            if "listed_tiles" in changes:
                v.update(persistent=1, kg=1, cluster_k=1, splitk=SPLIT_MEMSET, stream_waves=0, resident_b=0, pdl=0)
                v.update(raster_group=1, dsmem_completion=0, operand_path_a=0, operand_path_b=0)
            elif not v["persistent"] or v["kg"] * v["cluster_k"] > 1 or v["resident_b"] or v["raster_group"] > 1:
                v["listed_tiles"] = 0
        if "y_boxes" not in changes and (v["ml"] if v["transposed_mma"] else v["nl"]) % (SPAN // factor_bytes(p)) == 0:
            v["y_boxes"] = 0
        if v["persistent"] and "epilogue_aliases_ab" not in changes:
            v["epilogue_aliases_ab"] = 0
        if v["resident_b"]:  # the stages hold all of K once, or several times
            iterations = max(
                -(-int(length(p, config.replace(u=max(v["u"], 1), row_taps=v["row_taps"]))) // max(v["u"], 1)), 1
            )
            held = max(v["stages"] // iterations, 1) * iterations
            return [config.replace(**{**v, "persistent": 1, "stages": n}) for n in (held, held + iterations)]
        return [config.replace(**v)]


def _streams(p: KernelProblem) -> bool:
    """True if blocks that share K iterations are candidates."""
    return block_scaled(p) or (quantized_rows(p) is not None and promotion.promotes(p))


def width_c(p: KernelProblem, c: Columns) -> Any:
    """The number of elements of one store of C: the default if TMA stores, else the adjacent elements of one thread or
    of four."""
    x = im2col(p)
    single = (c.transposed_mma == 1) & np.logical_not(adjacent_rows(p, c))
    if x is not None:
        single = single | (not x.contiguous_columns) | ((x.side == "b") & (c.row_taps > 1))
    adjacent = np.where(single, 1, np.where(packs_8bit(p, c) & (c.vec_c >= COLUMNS), COLUMNS, 2))
    return np.where(c.epilogue_smem == 1, default("vec_c"), np.minimum(c.vec_c, adjacent))
