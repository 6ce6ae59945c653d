"""The candidate space of skinny kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Config
from ptxgen.families.common.candidates import NEUTRAL, Grid, Ints
from ptxgen.families.common.geometry import WARP
from ptxgen.families.common.lane_candidates import LaneSpace, resident_blocks
from ptxgen.families.common.matrix_instructions import COLUMNS, by_words
from ptxgen.families.skinny import axes
from ptxgen.families.skinny.geometry import QUAD, SHORT, geometry, is_kmajor, widest
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import aligned_access
from ptxgen.problem.device import Device

COUNTS = (1, 2, 4, 8, 16)  #: elements of a thread along the long side
WARPS_LONG = (1, 2, 4, 8)  #: warps along the long side
STEPS = (1, 2, 4, 8, 16)
LANES = (1, 2, 4, 8, 16, 32)
GROUPS = (1, 2, 4, 8, 16, 32)
LEAST = 4  #: least bytes of a load that is narrower than the alignment allows
SUMS = 64  #: most accumulators per thread
THREADS = (64, 1024)  #: least and most threads per block

POWERS = tuple(1 << n for n in range(15))


def short_tile(extent: int) -> int:
    """The least power of two that is at least ``extent``, an extent of the short side."""
    return 1 << max(extent - 1, 0).bit_length()


class SkinnySpace(LaneSpace):
    name = "skinny"
    axes = searched(axes.AXES)
    derived = ("epilogue_smem", "vec_c", "lanes_long")
    shape = ("ms", "ns", "ml", "nl", "lanes_long", "kl", "u", "long_n", "mma_m16")
    fixed = ("skinny_extent", "skinny_dtype")
    tile_rules = ("axis", "range", "threads", "skinny_tile", "skinny_warps")

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class. The representative has the same short extents, and the same
        operands are one contiguous column."""
        m, n = (x if x <= SHORT else NEUTRAL for x in (p.m, p.n))
        plain = super().neutral(p).with_extents(m=m, n=n)
        for x in "AB":
            size, kmajor = p.element.bytes, is_kmajor(p, x.lower())
            if is_kmajor(plain, x.lower()) and not kmajor:
                plain = plain.with_access(x, ld=2)
            at = widest(p, x.lower()) * size
            ld, columns = plain.operand(x).access.ld, plain.operand(x).access.columns
            plain = plain.with_access(x, aligned=at, vec=aligned_access(at, columns, ld, 0, size))
        return plain

    def _sides(self, p: KernelProblem) -> list[tuple[int, int]]:
        """For each side that may be the short one: the value of ``long_n``, and the tile along the short side."""
        return [(long_n, short_tile(x)) for long_n, x in ((0, p.n), (1, p.m)) if x <= SHORT]

    def _pair(self, p: KernelProblem, long_n: int) -> tuple[str, str]:
        return ("b", "a") if long_n else ("a", "b")

    def _depths(self, p: KernelProblem, long_n: int) -> list[tuple[int, int, int]]:
        """For each copy mode: elements per load of the long operand, elements per load of the short operand, elements
        of K per step."""
        x, y = self._pair(p, long_n)
        size, short = p.element.bytes, dict(self._sides(p))[long_n]
        most = min(widest(p, x), 16 // size)
        if is_kmajor(p, x):
            whole, along = 16 // size, is_kmajor(p, y)
            own = min(widest(p, y), whole) if by_words(p) else 1  # only matrix instructions read wider loads
            shifted = [(whole, v, whole) for v in sorted({1, own if own * size >= LEAST else 1})]
            return [
                (most, min(widest(p, y), most if along else short), most),
                *(shifted if along and most < whole else []),
            ]
        narrower = [v for v in (most, most // 2, most // 4) if v * size >= LEAST] or [most]
        if not is_kmajor(p, y):
            return [(v, min(widest(p, y), short), 1) for v in narrower]
        return [(v, w, w) for v in narrower for w in (1, 4, 8) if w <= widest(p, y)]

    def table(self, p: KernelProblem) -> Ints:
        """Tiles of blocks and threads: one per row, with the columns ``shape``."""
        out = []
        for long_n, short in self._sides(p):
            # powers of two: of equal products of steps and depths the first is kept
            depths = sorted({depth for _, _, depth in self._depths(p, long_n)})
            reaches = list(dict.fromkeys(n * depth for n in STEPS for depth in depths))
            warps = [(n, kl) for n in WARPS_LONG for kl in GROUPS if THREADS[0] <= n * kl * WARP <= THREADS[1]]
            counts = [n for n in COUNTS if n * short <= SUMS]
            count, lanes, warp, reach = (
                x.ravel() for x in np.meshgrid(counts, LANES, np.arange(len(warps)), reaches, indexing="ij")
            )
            along, kl = np.array(warps).reshape(-1, 2)[warp].T
            tile, u, sides = count * lanes * along, WARP // lanes * kl * reach, np.full_like(count, short)
            block = (sides, count, sides, tile) if long_n else (count, sides, tile, sides)
            out.append(np.stack([*block, lanes, kl, u, np.full_like(u, long_n), np.zeros_like(u)], axis=1))
        return np.concatenate([*out, self._fragments(p)])

    def _fragments(self, p: KernelProblem) -> Ints:
        """Tiles for matrix instructions: one instruction wide along the short side, with two sums per lane."""
        rows: list[tuple[int, ...]] = []
        for long_n, _ in self._sides(p):
            x, _ = self._pair(p, long_n)
            depth = max(d for _, _, d in self._depths(p, long_n))
            if by_words(p) is None or not is_kmajor(p, x) or depth * p.element.bytes < 8:
                continue
            for count, along, kl, steps in product(COUNTS, WARPS_LONG, GROUPS, STEPS):
                if count % 2 == 0 and THREADS[0] <= along * kl * WARP <= THREADS[1]:
                    long, short = (count, count * (WARP // QUAD) * along), (2, COLUMNS)
                    (ms, ml), (ns, nl) = (short, long) if long_n else (long, short)
                    rows.append((ms, ns, ml, nl, WARP // QUAD, kl, QUAD * kl * steps * depth, long_n, 1))
        return np.array(rows, np.int64).reshape(-1, len(self.shape))

    def copy_modes(self, p: KernelProblem, every: bool = False) -> list[dict[str, int]]:
        """The copy modes with the widest accesses; for a K-major short operand also narrower ones that set the depth of
        a step."""
        out = []
        for long_n, _ in self._sides(p):
            x, y = self._pair(p, long_n)
            out += [{f"vec_{x}": v, f"vec_{y}": w} for v, w, _ in self._depths(p, long_n)]
        return [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(mode.items())) for mode in out)]

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        """Sets ``min_ctas_per_sm`` to the blocks per multiprocessor that registers allow, for the most loads in
        flight."""
        for name, short in (("a", c.long_n == 1), ("b", c.long_n == 0)):
            if not is_kmajor(p, name):  # a lane has one column for matrix instructions
                vec = f"vec_{name}"
                c = c.replace(**{vec: np.where(short & (c.mma_m16 > 0), 1, c.column(vec))})
        g = geometry(p, c)
        c = c.replace(vec_c=np.minimum(np.minimum(p.vectors[2], c.nl), 16 // g.sum_bytes), raster_group=8)
        return c.replace(min_ctas_per_sm=resident_blocks(g, d))

    def access_widths(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        return {("vec_a", "vec_b"): [(mode["vec_a"], mode["vec_b"]) for mode in self.copy_modes(p)]}

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from super().changes(p, d, config)
        tile, count = ("nl", "ns") if config.long_n else ("ml", "ms")
        long = getattr(config, tile)
        for lanes in LANES:  # exchange lanes along K for lanes along the long side, and for thread groups
            yield {
                "lanes_long": lanes,
                "u": config.u * config.lanes_long // lanes,
                tile: long * lanes // config.lanes_long,
            }
            yield {"lanes_long": lanes, "u": config.u * config.lanes_long // lanes}
            yield {
                "lanes_long": lanes,
                "kl": config.kl * lanes // config.lanes_long,
                tile: long * lanes // config.lanes_long,
            }
        for n in (1, 4):
            yield {"kl": config.kl * n // 2, "u": config.u * n // 2}
            yield {"kl": config.kl * n // 2, tile: long * 2 // n}
            yield {"kl": config.kl * n // 2, tile: long * 2 // n, "u": config.u * n // 2}
            yield {count: getattr(config, count) * n // 2, "u": config.u * 2 // n, tile: long * n // 2}
        yield from self._other_math(p, config)
        for mode in self.copy_modes(p):
            yield from ({**mode, "u": config.u * n // 8} for n in (1, 2, 4, 16, 32, 64))

    def _other_math(self, p: KernelProblem, config: Config) -> Iterator[dict[str, int]]:
        """The changes that replace FMA by mma.sync, or the reverse, with the same warps and loads."""
        g = geometry(p, config)
        short = short_tile(p.m if config.long_n else p.n) if config.mma_m16 else COLUMNS
        count, lanes = max(int(g.count), 2), WARP // QUAD
        long, own = (("nl", "ns"), ("ml", "ms")) if config.long_n else (("ml", "ms"), ("nl", "ns"))
        yield {
            "mma_m16": 0 if config.mma_m16 else 1,
            own[0]: short,
            own[1]: short if config.mma_m16 else short // QUAD,
            long[0]: count * lanes * int(g.along) // config.lanes_long,
            long[1]: count,
            "lanes_long": lanes,
            "u": QUAD * config.kl * int(g.uk),
        }
