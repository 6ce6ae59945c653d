"""What the space has of streaming kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ptxgen.codegen.axes import searched
from ptxgen.codegen.config import SPLIT_MEMSET, Columns, Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.families.candidates import NEUTRAL, Grid, meetings
from ptxgen.families.geometry import WARP, ceil_div
from ptxgen.families.mma.instructions import COLUMNS, by_words
from ptxgen.families.multistage_candidates import Cooperative
from ptxgen.families.skinny import axes
from ptxgen.families.skinny.geometry import QUAD, SHORT, geometry, is_kmajor, widest
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

EACH = (1, 2, 4, 8, 16)  #: rows along the long side a thread
ALONG = (1, 2, 4, 8)  #: warps along it
STEPS = (1, 2, 4, 8, 16)
LANES = (1, 2, 4, 8, 16, 32)
GROUPS = (1, 2, 4, 8, 16, 32)
LEAST = 4  #: bytes of a load that is narrower than it could be, at least
SUMS = 64  #: a thread, at most
THREADS = (64, 1024)  #: of a block, at least and at most

POWERS = tuple(1 << n for n in range(15))
#: the values of each axis that are tried, beside the tables above
AXES = searched(axes.AXES)
ALIKE = {"fragment_prefetch": (1,)}


def thin_tile(extent: int) -> int:
    """The power of two that holds a thin extent."""
    return 1 << max(extent - 1, 0).bit_length()


def resident_blocks(g: Geometry, d: Device) -> Any:
    """Blocks that find registers on a multiprocessor, each warp on one of its quarters."""
    warps = 4 * (d.registers_sm // 4 // (ceil_div(g.registers, 8) * 8 * WARP))
    fitting = np.minimum(warps * WARP // g.threads, d.blocks_per_sm(g.threads, 32, g.shared))
    return np.maximum(fitting, 1)


class Stream(Cooperative):
    name = "skinny"
    axes, alike = AXES, ALIKE
    derived = ("epilogue_smem", "vec_c", "lanes_long")
    tile = ("ml", "nl", "u")
    fixed = ("operand_addressing", "skinny_extent", "skinny_dtype")
    tile_rules = ("axis", "range", "threads", "skinny_tile", "skinny_warps")

    def neutral(self, p: KernelGemm) -> KernelGemm:
        """Thin extents stay as they are, and so does what is one column without gaps."""
        m, n = (x if x <= SHORT else NEUTRAL for x in (p.m, p.n))
        plain = replace(super().neutral(p), m=m, n=n, lda=0, ldb=0, ldc=0)
        gaps = {f"ld{x}": 2 for x in "ab" if is_kmajor(plain, x) and not is_kmajor(p, x)}
        starts = {f"aligned_{x}": widest(p, x) * p.element.bytes for x in "ab"}
        return replace(plain, **starts, **gaps)  # type: ignore[arg-type]

    def _sides(self, p: KernelGemm) -> list[tuple[int, int]]:
        """(swap, thin tile) of each way to look at C."""
        return [(swap, thin_tile(x)) for swap, x in ((0, p.n), (1, p.m)) if x <= SHORT]

    def _pair(self, p: KernelGemm, swap: int) -> tuple[str, str]:
        return ("b", "a") if swap else ("a", "b")

    def _depths(self, p: KernelGemm, swap: int) -> list[tuple[int, int, int]]:
        """(vector of the long operand, of the thin one, elements of K a step) of each way to load."""
        x, y = self._pair(p, swap)
        size, thin = p.element.bytes, dict(self._sides(p))[swap]
        most = min(widest(p, x), 16 // size)
        if is_kmajor(p, x):
            whole, along = 16 // size, is_kmajor(p, y)
            own = min(widest(p, y), whole) if by_words(p) else 1  # which only matrix instructions take
            shifted = [(whole, v, whole) for v in sorted({1, own if own * size >= LEAST else 1})]
            return [
                (most, min(widest(p, y), most if along else thin), most),
                *(shifted if along and most < whole else []),
            ]
        narrower = [v for v in (most, most // 2, most // 4) if v * size >= LEAST] or [most]
        if not is_kmajor(p, y):
            return [(v, min(widest(p, y), thin), 1) for v in narrower]
        return [(v, w, w) for v in narrower for w in (1, 4, 8) if w <= widest(p, y)]

    def _shapes(self, p: KernelGemm) -> list[dict[str, int]]:
        out: dict[tuple[int, ...], None] = {}
        for swap, thin in self._sides(p):
            # powers of two: of equal products of steps and depths the first is kept
            reaches = dict.fromkeys(
                n * depth for n in STEPS for depth in sorted({d for _, _, d in self._depths(p, swap)})
            )
            threads = [(n, kl) for n in ALONG for kl in GROUPS if THREADS[0] <= n * kl * WARP <= THREADS[1]]
            few = [n for n in EACH if n * thin <= SUMS]
            for each, wm, (along, kl), reach in product(few, LANES, threads, reaches):
                tile, u = each * wm * along, WARP // wm * kl * reach
                sides = (thin, each, thin, tile) if swap else (each, thin, tile, thin)
                out[(*sides, wm, kl, u, swap, 0)] = None
        names = ("ms", "ns", "ml", "nl", "lanes_long", "kl", "u", "long_n", "mma_m16")
        return [*(dict(zip(names, row, strict=True)) for row in out), *self._fragments(p)]

    def _fragments(self, p: KernelGemm) -> Iterator[dict[str, int]]:
        """Tiles for matrix instructions: of the thin side always as wide as one, two sums of each lane."""
        for swap, _ in self._sides(p):
            x, _ = self._pair(p, swap)
            depth = max(d for _, _, d in self._depths(p, swap))
            if by_words(p) is None or not is_kmajor(p, x) or depth * p.element.bytes < 8:
                continue
            for each, along, kl, steps in product(EACH, ALONG, GROUPS, STEPS):
                if each % 2 == 0 and THREADS[0] <= along * kl * WARP <= THREADS[1]:
                    long, thin = (each, each * (WARP // QUAD) * along), (2, COLUMNS)
                    (ms, ml), (ns, nl) = (thin, long) if swap else (long, thin)
                    yield {
                        "ms": ms,
                        "ns": ns,
                        "ml": ml,
                        "nl": nl,
                        "lanes_long": WARP // QUAD,
                        "kl": kl,
                        "u": QUAD * kl * steps * depth,
                        "long_n": swap,
                        "mma_m16": 1,
                    }

    def tiles(self, p: KernelGemm) -> Columns:
        found = self._shapes(p)
        values = {n: sorted({row[n] for row in found}) for n in self.tile}
        return Columns.product(values).replace(family=self.code)

    def shapes(self, p: KernelGemm) -> Columns:
        found = self._shapes(p)
        columns = {n: np.array([row[n] for row in found], np.int64) for n in found[0]}
        return Columns(columns, len(found)).replace(family=self.code, raster_group=8)

    def copies(self, p: KernelGemm, every: bool = False) -> list[dict[str, int]]:
        """The widest accesses, and of a thin operand along K also narrower ones, where those decide the depth."""
        out = []
        for swap, _ in self._sides(p):
            x, y = self._pair(p, swap)
            out += [{f"vec_{x}": v, f"vec_{y}": w} for v, w, _ in self._depths(p, swap)]
        return [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(way.items())) for way in out)]

    def ways(self, p: KernelGemm) -> list[list[dict[str, int]]]:
        return [self.copies(p), [{"fragment_prefetch": n} for n in (0, 1)]]

    def finalize(self, p: KernelGemm, d: Device, c: Grid) -> Grid:
        """As many blocks on a multiprocessor as find registers there: loads under way are what counts."""
        g = geometry(p, c)
        for name, thin, along in (
            ("vec_a", c.long_n == 1, g.a.kmajor),
            ("vec_b", c.long_n == 0, g.b.kmajor),
        ):
            if not along:  # a lane has one column for matrix instructions
                c = c.replace(**{name: np.where(thin & (c.mma_m16 > 0), 1, getattr(c, name))})
        g = geometry(p, c)
        c = c.replace(vec_c=np.minimum(np.minimum(p.vectors[2], c.nl), 16 // g.sum_bytes), raster_group=8)
        return c.replace(min_ctas_per_sm=resident_blocks(g, d))

    def variables(self, p: KernelGemm) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """Tiles, the threads along K and their depth, slices with how they meet."""
        names = ("ms", "ns", "ml", "nl", "lanes_long", "kl", "u", "long_n", "mma_m16")
        shapes = [tuple(row[n] for n in names) for row in self._shapes(p)]
        known = {*names, "kg", "splitk", "vec_a", "vec_b"}
        plain = {n: v for n, v in super().variables(p).items() if n[0] not in known}
        ways: list[tuple[int, ...]] = [(way["vec_a"], way["vec_b"]) for way in self.copies(p)]
        return {names: shapes, ("vec_a", "vec_b"): ways, ("kg", "splitk"): meetings(self.axes), **plain}

    def canonical(self, p: KernelGemm, c: Columns) -> Columns:
        g = geometry(p, c)
        kg = np.minimum(g.slices, c.kg)
        return c.replace(
            kg=kg, splitk=np.where(kg > 1, c.splitk, SPLIT_MEMSET), vec_c=np.minimum(c.vec_c, 16 // g.sum_bytes)
        )

    def changes(self, p: KernelGemm, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from super().changes(p, d, config)
        tile, each = ("nl", "ns") if config.long_n else ("ml", "ms")
        long = getattr(config, tile)
        for wm in LANES:  # lanes along K for lanes along the long side, and for groups
            yield {"lanes_long": wm, "u": config.u * config.lanes_long // wm, tile: long * wm // config.lanes_long}
            yield {"lanes_long": wm, "u": config.u * config.lanes_long // wm}
            yield {"lanes_long": wm, "kl": config.kl * wm // config.lanes_long, tile: long * wm // config.lanes_long}
        for n in (1, 4):
            yield {"kl": config.kl * n // 2, "u": config.u * n // 2}
            yield {"kl": config.kl * n // 2, tile: long * 2 // n}
            yield {"kl": config.kl * n // 2, tile: long * 2 // n, "u": config.u * n // 2}
            yield {each: getattr(config, each) * n // 2, "u": config.u * 2 // n, tile: long * n // 2}
        yield from self._other(p, config)
        for way in self.copies(p):
            yield from ({**way, "u": config.u * n // 8} for n in (1, 2, 4, 16, 32, 64))

    def _other(self, p: KernelGemm, config: Config) -> Iterator[dict[str, int]]:
        """Matrix instructions for single products with as many warps and loads, and the other way around."""
        g = geometry(p, config)
        thin = thin_tile(p.m if config.long_n else p.n) if config.mma_m16 else COLUMNS
        each, wm = max(int(g.count), 2), WARP // QUAD
        long, own = (("nl", "ns"), ("ml", "ms")) if config.long_n else (("ml", "ms"), ("nl", "ns"))
        yield {
            "mma_m16": 0 if config.mma_m16 else 1,
            own[0]: thin,
            own[1]: thin if config.mma_m16 else thin // QUAD,
            long[0]: each * wm * int(g.along) // config.lanes_long,
            long[1]: each,
            "lanes_long": wm,
            "u": QUAD * config.kl * int(g.uk),
        }

    def follow(self, p: KernelGemm, config: Config, changes: dict[str, int]) -> list[Config]:
        """As it is, and with registers for as many blocks as are likely to be wanted."""
        [plain] = super().follow(p, config, changes)
        if "min_ctas_per_sm" in changes or plain.lanes_long < 1 or plain.kl < 1:
            return [plain]
        return [plain, *(plain.replace(min_ctas_per_sm=n) for n in (1, 2, 4, 8) if n < plain.min_ctas_per_sm)]
