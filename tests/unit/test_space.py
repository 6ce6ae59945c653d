"""The legal space: every legal candidate once, and no illegal one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, is_dataclass, replace
from itertools import product

import numpy as np
import pytest

from ptxgen.codegen.config.config import (
    AXIS,
    SPLIT_DISTRIBUTED,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Columns,
    Config,
    axes_of,
    parse_config,
)
from ptxgen.codegen.render import render
from ptxgen.families import registry
from ptxgen.families.common.candidates import Grid, GridRows
from ptxgen.families.common.fma import candidates as fma
from ptxgen.families.common.fma.geometry import warp_rows
from ptxgen.families.common.geometry import LazyGeometry, ceil_div
from ptxgen.families.mma import candidates as mma
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.skinny import candidates as skinny
from ptxgen.families.wgmma import candidates as wgmma
from ptxgen.families.wgmma.geometry import resident_blocks
from ptxgen.families.winograd.axes import TILES
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.search.sampler import Categorical
from tests.lowered import (
    first_violations,
    form,
    geometry,
    kernel,
    legal_rows,
    rules,
    space,
    space_bases,
    user,
    violations,
    whole_waves,
)

SIMT, MMA, WGMMA, STREAM, SLIDE, WINOGRAD, WINOGRAD_4X4, *_ = space.SPACES
H200, T4 = device("h200"), device("t4")

PROBLEMS = [
    kernel(2560, 16, 2560, "TN"),
    kernel(64, 48, 1000, "NT"),
    kernel(777, 1000, 1333, "NT"),
    kernel(130, 66, 514, "TT", "f64"),
    kernel(256, 256, 512, "NN", "f16"),
    kernel(256, 250, 512, "NT", "f16", "f16"),
    kernel(96, 96, 4096, "NN", deterministic=True),
    kernel(300, 200, 40, "NN", lda=41, aligned_b=4),
]
SMALL = {
    "ms": (4, 8),
    "ns": (2, 4),
    "ml": (32, 128),
    "nl": (64,),
    "u": (8, 32),
    "ks": (1, 2),
    "kl": (1, 4),
    "stages": (2, 4),
}
SMALL_MMA = {
    "ms": (16, 64),
    "ns": (16, 48),
    "ml": (32, 128),
    "nl": (32, 96),
    "u": (16, 32, 128),
    "kl": (1, 2),
    "stages": (2, 4),
}
SMALL_WGMMA = {
    "LONG": ((1, 1, 0), (2, 2, 0), (1, 2, 1)),
    "SHORT": (8, 48, 256),
    "PADDED_SHORT": (48,),
    "DEPTHS": (64, 256),
    "STAGES": (2, 4),
    "CLUSTERS": ((1, 1, 1), (2, 2, 1), (1, 1, 4)),
    "EPILOGUES": ((0, 1, 1, 0), (1, 2, 2, 0), (1, 1, 1, 1)),
}
SMALL_SKINNY = {
    "COUNTS": (2, 8, 16),
    "LANES": (1, 8, 32),
    "WARPS_LONG": (1, 4),
    "GROUPS": (2, 4),
    "STEPS": (1, 4),
}


def plain(c: Columns) -> Columns:
    """The same rows without the data that a space stores with them."""
    return Columns({name: c.column(name) for name in ("family", *AXIS)}, len(c))


def configs(c: Columns) -> set[Config]:
    """The rows as configurations, made from whole columns."""
    distinct = set()
    for family in np.unique(c.column("family")):
        name, rows = space.FAMILIES[family], np.flatnonzero(c.column("family") == family)
        names = [axis.name for axis in axes_of(name)]
        columns = [c.column(axis)[rows].tolist() for axis in names]
        distinct |= {Config(family=name, **dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)}
    return distinct


@pytest.fixture
def small_axes(monkeypatch):
    for name, values in SMALL.items():
        monkeypatch.setitem(fma.AXES, name, values)
    for name, values in SMALL_MMA.items():
        monkeypatch.setitem(mma.AXES, name, values)
    for name, values in SMALL_WGMMA.items():
        monkeypatch.setattr(wgmma, name, values)
    for name, values in SMALL_SKINNY.items():
        monkeypatch.setattr(skinny, name, values)
    space_bases._base.cache_clear()
    yield
    space_bases._base.cache_clear()


def of(c: Columns, family: int) -> set[Config]:
    """The candidates of one family. The space must have each of them exactly once."""
    rows = np.flatnonzero(c.column("family") == family)
    configurations = configs(c.take(rows))
    assert len(configurations) == len(rows), "a configuration appears twice"
    return configurations


def copy_options(p: KernelProblem, name: str) -> list[dict[str, int]]:
    """Values of an operand's axes: the widest loads that copying and K-major storage allow; K-major and unaligned
    operands of up to four bytes also packed."""
    kmajor = p.layout[0] == "N" if name == "a" else p.layout[1] == "T"
    widest = p.vectors["ab".index(name)]
    out = []
    for copy, keep in product((0, 1), (0, 1) if kmajor else (0,)):
        vec = min(widest, 16 // p.accumulator.bytes) if keep else 1 if copy and kmajor else widest
        out.append({f"cp_async_{name}": copy, f"kmajor_smem_{name}": keep, f"vec_{name}": vec})
    size = p.element.bytes
    if size <= 4 and p.accumulator.bytes >= 4 and (kmajor or widest * size < 16):
        out.append({f"operand_path_{name}": 1, f"cp_async_{name}": 1, f"vec_{name}": 16 // size})
    return out


def legal(p: KernelProblem, configurations: list[Config], d) -> list[Config]:
    """The legal ones of ``configurations``."""
    return [c for c, ok in zip(configurations, rules.legal(p, Columns.of(configurations), d), strict=True) if ok]


def is_large(p: KernelProblem, d) -> bool:
    """True if A, B and C have more than a fifth of the L2 cache."""
    return (p.m * p.k + p.k * p.n) * p.element.bytes + p.m * p.n * p.output.bytes > d.l2 / 5


def by_hand(p: KernelProblem, d) -> set[Config]:
    """Every legal configuration of the given axes, made one at a time."""
    configurations = []
    for values in product(*SMALL.values()):
        c = Config(**dict(zip(SMALL, values, strict=True)), vec_c=p.vectors[2])
        c = c.replace(lanes_m=int(warp_rows(c)), store_policy=int(p.k < 512))
        tiles = geometry(p, c).tiles
        c = c.replace(raster_group=8 if tiles > 2 * d.sms and is_large(p, d) else 1)
        small = c.ml * c.nl < 128 * 128 and 1 < c.lanes_m < 32
        slices = {max(d.sms * w // max(tiles, 1), 1) for w in (1, 2, 3, 4, 6, 8)} | {1}
        for a, b, kg in product(copy_options(p, "a"), copy_options(p, "b"), slices):
            free = p.dtype in ("f32", "f64") and not p.deterministic
            packed = "operand_path_a" in a or "operand_path_b" in b
            split = 0 if kg == 1 or (free and packed) else 1 if free else 2
            full = c.replace(**a, **b, kg=kg, lane_interleave=int(small), splitk=split)
            configurations.append(full)
    staged = [c for c in configurations if (c.kmajor_smem_b or c.operand_path_b) and c.kl == 1]
    better = {c.replace(epilogue_smem=0): c for c in legal(p, [c.replace(epilogue_smem=1) for c in staged], d)}
    configurations = legal(p, [better.get(c, c) for c in configurations], d)
    return configs(space.canonical(p, Columns.of(configurations)))


@pytest.mark.parametrize(("p", "d"), [*((p, H200) for p in PROBLEMS), (PROBLEMS[1], T4)])
def test_simt_candidates_are_the_legal_rows_of_the_product(small_axes, p, d):
    c = space.candidates(p, d)
    configurations = of(c, 0)
    assert configurations == by_hand(p, d)


MMA_PROBLEMS = [
    kernel(2560, 16, 2560, "TN", "f16"),
    kernel(777, 1001, 1333, "NT", "f16"),
    kernel(130, 65, 514, "TT", "f64"),
    kernel(96, 96, 4096, "NN", "f32", "tf32"),
    kernel(64, 60, 9000, "TN", "f32", "tf32", deterministic=True),
    kernel(256, 250, 512, "NT", "s8"),
    kernel(254, 250, 512, "TN", "e4m3"),
    kernel(254, 250, 512, "TN", "e4m3", block_a="1x128", block_b="128x128"),
    kernel(300, 200, 40, "NN", "bf16", lda=41),
    kernel(300, 200, 40, "TN", "bf16", epilogue="bias_row,relu"),
]


def mma_copies(p: KernelProblem) -> list[dict[str, int]]:
    """Every operand with its widest accesses: by cp.async from 4 bytes, through registers below 16; unaligned operands
    also packed, and with a K-major one the other too."""
    size, out = p.element.bytes, []
    off = [p.vectors[n] * size < 16 for n in (0, 1)]
    major = [p.layout[0] == "N", p.layout[1] == "T"]
    longer = any(o and m for o, m in zip(off, major, strict=True))
    for paths in ([False, False], [True, True] if longer else off) if any(off) else ([False, False],):
        each = []
        for n, name in enumerate("ab"):
            v = 16 // size if paths[n] else p.vectors[n]
            each.append(
                [{f"cp_async_{name}": x, f"vec_{name}": v} for x in (0, 1) if (v * size < 16, v * size >= 4)[x]]
            )
        out += [{"operand_path_a": int(paths[0]), "operand_path_b": int(paths[1]), **a, **b} for a, b in product(*each)]
    return [{**modes, "deferred_sts": 1 - modes["cp_async_a"] * modes["cp_async_b"]} for modes in out]


def mma_by_hand(p: KernelProblem, d) -> set[Config]:
    configurations = []
    names = [*SMALL_MMA, "fragment_prefetch", "epilogue_smem"]
    for values in product(*SMALL_MMA.values(), (0, 1), (0, 1)):
        c = Config(
            family="mma", **dict(zip(names, values, strict=True)), vec_c=p.vectors[2], store_policy=int(p.k < 512)
        )
        if c.u // mma.instruction(p).depth not in mma.STEPS:
            continue
        warps = c.ml // c.ms * (c.nl // c.ns) * c.kl
        if p.dtype == "f64" and (warps > 8 or c.u // c.kl > 32 or (c.nl == 96 and warps < 4)):
            continue  # slower in measurements
        if p.dtype != "f64" and c.nl == 96:
            continue
        tiles = ceil_div(p.m, c.ml) * ceil_div(p.n, c.nl)
        c = c.replace(raster_group=8 if tiles > 2 * d.sms and is_large(p, d) else 1)
        slices = {max(d.sms * w // tiles, 1) for w in (1, 2, 3, 4, 6, 8)} | {1}
        for modes, kg in product(mma_copies(p), slices):
            adds = p.out in ("f32", "f64", "s32") and not p.deterministic and not p.sink.epilogue
            split = (
                0 if kg == 1 or (adds and (modes["operand_path_a"] or modes["operand_path_b"])) else 1 if adds else 2
            )
            configurations.append(c.replace(**modes, kg=kg, splitk=split))
    return configs(space.canonical(p, Columns.of(legal(p, configurations, d))))


@pytest.mark.parametrize("p", MMA_PROBLEMS, ids=str)
def test_mma_candidates_are_the_legal_rows_of_the_product(small_axes, p):
    c = space.candidates(p, H200)
    configurations = of(c, 1)
    assert configurations == mma_by_hand(p, H200)
    assert configurations


WGMMA_PROBLEMS = [
    kernel(2560, 16, 2560, "TN", "f16"),
    kernel(64, 64, 60000, "NN", "bf16"),
    kernel(512, 768, 640, "TT", "f16"),
    kernel(32, 4096, 4096, "NT", "f16"),
    kernel(256, 256, 2048, "NT", "f32", "tf32"),
    kernel(200, 300, 4096, "NT", "s8"),
    kernel(200, 304, 4096, "NT", "e4m3"),
    kernel(256, 250, 4096, "TN", "f16", lda=264, ldb=256, ldc=256),
    kernel(256, 256, 2048, "NN", "f32", "tf32"),
    kernel(256, 250, 2048, "TT", "s8", ldc=256),
    kernel(208, 304, 4096, "TT", "e4m3"),
    kernel(208, 304, 4096, "TN", "f32", "tf32"),
    kernel(256, 320, 2048, "NN", "f16", "f16"),
    kernel(255, 320, 2047, "NN", "f16"),
    kernel(64, 63, 2048, "TN", "s8"),
    kernel(64, 64, 4096, "NT", "f32", "tf32", deterministic=True),
    kernel(512, 512, 4096, "NT", "bf16", epilogue="relu"),
]


def wgmma_copies(p: KernelProblem) -> list[tuple[int, int]]:
    """Operands of one or four bytes that are not K-contiguous: one of both, or one or none; and all whose rows are no
    multiple of 16 bytes."""
    strided = [n + 1 for n, far in enumerate((p.layout[0] == "T", p.layout[1] == "N")) if far and p.element.bytes != 2]
    off = sum(
        n + 1 for n, ld in enumerate((p.operand("A").access.ld, p.operand("B").access.ld)) if ld * p.element.bytes % 16
    )
    if off and p.element.bytes == 2:  # or without packing
        return [(off & 1, off >> 1), (2 * (off & 1), 2 * (off >> 1))]
    return sorted({(n & 1 | off & 1, n >> 1 | off >> 1) for n in (strided if len(strided) == 2 else [0, *strided])})


def wgmma_by_hand(p: KernelProblem, d) -> set[Config]:
    configurations, x = [], SMALL_WGMMA
    for (n, wg, pingpong), short, depth, swap, (
        cluster_x,
        cluster_y,
        cluster_k,
    ), persistent, stages, epilogue, paths in product(
        x["LONG"], x["SHORT"], x["DEPTHS"], (0, 1), x["CLUSTERS"], (0, 1), x["STAGES"], x["EPILOGUES"], wgmma_copies(p)
    ):
        promotes = p.element.promotion_k > 0 and p.compute == "f32"
        u = depth // p.element.bytes
        ml, nl = (short, 64 * n) if swap else (64 * n, short)
        names = ("epilogue_smem", "epilogue_subtiles", "epilogue_buffers", "epilogue_aliases_ab")
        c = Config(
            family="wgmma",
            ml=ml,
            nl=nl,
            u=u,
            transposed_mma=swap,
            math_warpgroups=wg,
            pingpong=pingpong,
            persistent=persistent,
            cluster_x=cluster_x,
            cluster_y=cluster_y,
            cluster_k=cluster_k,
            stages=stages,
            operand_path_a=paths[0],
            operand_path_b=paths[1],
            **dict(zip(names, epilogue, strict=True)),
        )
        m, n_ = ceil_div(p.m, ml), ceil_div(p.n, nl)
        blocks = ceil_div(n_ if swap else m, cluster_x) * cluster_x * ceil_div(m if swap else n_, cluster_y) * cluster_y
        room = {1: 132, 4: 120}[cluster_x * cluster_y * cluster_k]
        side = 1 if n_ == 1 and p.m > p.n else 2 if m == 1 and p.n > p.m else 0
        held = p.element.bytes != 2 and p.layout[1] == "N" and paths != (0, 1)
        wide = 1 if c.epilogue_smem else min(p.vectors[2], 1 if swap and not held else 2)
        group = 8 if cluster_k == 1 and blocks > room and is_large(p, H200) else 1
        c = c.replace(raster_group=group, l2_evict_first=side, vec_c=wide)
        k_iters = ceil_div(p.k, u)
        adds = p.out in ("f32", "s32") and (p.out == "s32" or not p.deterministic) and not p.sink.epilogue
        reductions = {(1, 0)}
        for halves, splits in (
            (1, (SPLIT_LAST_CTA, SPLIT_DISTRIBUTED)),
            (2, (SPLIT_LAST_CTA, SPLIT_DISTRIBUTED)),
            (4, (0 if adds else 2,)),
        ):
            most = min(room * halves // (blocks * cluster_k), k_iters * min(halves, 2) // cluster_k) // 2
            reductions |= {(min(most, 64) if s > 2 else most, s) for s in splits if most > 1}
        loaded = {0} | {next((r for r in (16, 32) if e <= r), 0) for e in (p.m, p.n)}
        padded = (0, 1)[: 1 + (short in x["PADDED_SHORT"] and p.element.bytes == 2)]
        for (kg, split), rows, buffers, boxes in product(reductions, loaded, (1, 2)[: 1 + promotes], padded):
            given = {"kg": kg, "splitk": split, "tma_rows": rows, "promotion_buffers": buffers, "y_boxes": boxes}
            early = 1 in paths and kg == cluster_k == 1 and not is_large(p, H200)
            configurations.append(c.replace(**given, pdl=3 if early else 0))
    configurations = legal(p, configurations, d)
    shared = [c for c in configurations if c.splitk == SPLIT_DISTRIBUTED and c.epilogue_subtiles == 1]
    fewer = {*legal(p, [c.replace(kg=2) for c in shared] + [c.replace(kg=1, splitk=0) for c in shared], d)}
    two = {c for c in shared if {c.replace(kg=2), c.replace(kg=1, splitk=0)} <= fewer}
    return {c for c in configurations if c.splitk != SPLIT_DISTRIBUTED or c in two}


@pytest.mark.parametrize("p", WGMMA_PROBLEMS, ids=str)
def test_wgmma_candidates_are_the_legal_rows_of_the_product(small_axes, p):
    c = space.candidates(p, H200)
    configurations = of(c, 2)
    assert configurations == wgmma_by_hand(p, H200)
    assert configurations


STREAM_PROBLEMS = [
    kernel(1, 4096, 4096, "NT", "f16"),
    kernel(3, 1000, 4096, "NN", "bf16"),
    kernel(4096, 1, 4096, "TN"),
    kernel(777, 5, 1001, "NT", "f64"),
    kernel(4, 4096, 512, "TN", "s8"),
    kernel(1, 1, 70000, "NT", "f32", "tf32"),
    kernel(8, 300, 4096, "TT", "e4m3", ldb=4097),
    kernel(3, 100, 4096, "NT", "bf16", ldb=4100),
    kernel(4, 512, 300, "TN", "f64"),
    kernel(2, 300, 40, "NT", "bf16", epilogue="relu"),
]


def skinny_by_hand(p: KernelProblem, d) -> set[Config]:
    configurations, size = [], p.element.bytes
    along_k = {
        "a": p.layout[0] == "N" or p.m == p.operand("A").access.ld == 1,
        "b": p.layout[1] == "T" or p.n == p.operand("B").access.ld == 1,
    }
    vec = dict(zip("ab", p.vectors, strict=False))
    for n, letter in (("a", "N"), ("b", "T")):
        if along_k[n] and p.layout["ab".index(n)] != letter:  # one column without gaps
            vec[n] = 16 // size if p.k * size % 16 == 0 else 1
    for swap, extent in ((0, p.n), (1, p.m)):
        if extent > 8:
            continue
        thin = next(t for t in (1, 2, 4, 8) if t >= extent)
        x, y = ("b", "a") if swap else ("a", "b")
        if along_k[x]:
            loads = [(min(vec[y], vec[x] if along_k[y] else thin), vec[x])]
        elif along_k[y]:
            loads = [(v, v) for v in (1, 4, 8) if v <= vec[y]]
        else:
            loads = [(min(vec[y], thin), 1)]
        wide = [vec[x]] if along_k[x] else [v for v in (vec[x], vec[x] // 2, vec[x] // 4) if v * size >= 4] or [vec[x]]
        pairs = list(product(wide, [v for v, _ in loads]))
        if along_k[x] and along_k[y] and vec[x] * size < 16:  # whole chunks of rows that nothing aligns
            pairs, loads = [*pairs, (16 // size, 1)], [*loads, (1, 16 // size)]
        *threads, steps = SMALL_SKINNY.values()
        reaches = sorted({s * depth for s in steps for _, depth in loads})
        made = []
        for each, lanes_long, n, kl, reach, (w, v), prefetch in product(*threads, reaches, pairs, (0, 1)):
            if each * thin > 64 or not 64 <= n * kl * 32 <= 1024:
                continue
            tile = each * lanes_long * n
            sides = (thin, tile, thin, each) if swap else (tile, thin, each, thin)
            made.append(
                Config(
                    family="skinny",
                    **dict(zip(("ml", "nl", "ms", "ns"), sides, strict=True)),
                    lanes_long=lanes_long,
                    kl=kl,
                    long_n=swap,
                    u=32 // lanes_long * kl * reach,
                    fragment_prefetch=prefetch,
                    **{f"vec_{x}": w, f"vec_{y}": v},
                )
            )
        # matrix instructions: 16 rows of eight lanes, eight columns, four lanes along K
        each, _, warps, groups = threads
        pairs = [(vec[x], min(vec[y], vec[x]) if along_k[y] else 1)] if vec[x] * size >= 8 else []
        if along_k[y] and vec[x] * size < 16:
            pairs += [(16 // size, v) for v in {1, min(vec[y], 16 // size) if vec[y] * size >= 4 else 1}]
        tensor_cores = along_k[x] and (p.dtype, p.compute) != ("f32", "f32") and p.dtype != "f64"
        reaches = {s * max(w for w, _ in pairs) for s in steps if pairs}
        for e, n, kl, reach, (w, v), prefetch in product(
            each, warps, groups, reaches, pairs, (0, 1) if tensor_cores else ()
        ):
            if 64 <= n * kl * 32 <= 1024:
                sides = (8, 8 * e * n, 2, e) if swap else (8 * e * n, 8, e, 2)
                made.append(
                    Config(
                        family="skinny",
                        **dict(zip(("ml", "nl", "ms", "ns"), sides, strict=True)),
                        lanes_long=8,
                        kl=kl,
                        long_n=swap,
                        u=4 * kl * reach,
                        fragment_prefetch=prefetch,
                        mma_m16=1,
                        **{f"vec_{x}": w, f"vec_{y}": v},
                    )
                )
        for c in made:
            narrow = 2 if p.dtype == "f64" else 4
            c = c.replace(vec_c=min(p.vectors[2], c.nl, narrow), store_policy=int(p.k < 512))
            g = geometry(p, c)
            warps = 4 * (16384 // (-(-g.registers // 8) * 8 * 32))
            fits = min(warps * 32 // g.threads, 2048 // g.threads, int(d.shared_sm // (g.shared + 1024)))
            c = c.replace(min_ctas_per_sm=max(fits, 1), raster_group=8 if g.tiles > 2 * d.sms and is_large(p, d) else 1)
            adds = p.out in ("f32", "f64", "s32") and not p.deterministic and not p.sink.epilogue
            for kg in {max(d.sms * w // max(g.tiles, 1), 1) for w in (1, 2, 3, 4, 6, 8)} | {1}:
                configurations.append(c.replace(kg=kg, splitk=0 if kg == 1 else 1 if adds else 2))
    return configs(space.canonical(p, Columns.of(legal(p, configurations, d))))


@pytest.mark.parametrize("p", STREAM_PROBLEMS, ids=str)
def test_skinny_candidates_are_the_legal_rows_of_the_product(small_axes, p):
    c = space.candidates(p, H200)
    configurations = of(c, 3)
    assert configurations == skinny_by_hand(p, H200)
    assert configurations


def clusters(*sizes: int) -> Columns:
    return Columns({"cluster_x": np.array(sizes)})


def test_clusters_fill_the_multiprocessors():
    assert resident_blocks(H200, clusters(1, 2, 3, 4, 8, 16)).tolist() == [132, 132, 117, 120, 120, 128]
    assert resident_blocks(device("emulated"), clusters(1, 2, 4)).tolist() == [4, 4, 4]
    c = space.candidates(kernel(64, 64, 60000, "NN", "f16"), H200)
    eights = (c.family == 2) & (c.cluster_k == 8) & (c.ml == 64) & (c.nl == 64) & (c.splitk == SPLIT_LAST_CTA)
    assert set(np.unique(c.kg[eights])) == {7, 15}


ALL = [
    *PROBLEMS,
    kernel(2560, 16, 2560, "NN", "f16"),
    kernel(777, 1001, 1331, "TT", "bf16"),
    kernel(512, 512, 4096, "NT", "s8"),
    kernel(2048, 2048, 2048, "NT", "f32", "tf32"),
    kernel(100, 100, 900, "TN", "f64"),
    kernel(320, 30, 4096, "NT", "e5m2"),
]


@pytest.mark.parametrize("space_of_tiles", [WINOGRAD, WINOGRAD_4X4], ids=lambda f: f.name)
def test_every_searched_value_of_a_winograd_axis_is_legal(space_of_tiles):
    """Its products are no list, and only those of weight gradients are split along K."""
    p = Conv(8, 64, 56, 56, 64, 3, 3, padding=1)
    plain_config = Config(family=space_of_tiles.name, ml=64, nl=64, vec_a=4, vec_b=4, vec_c=4)
    values = {axis.name: axis.values for axis in axes_of(space_of_tiles.name)}
    assert values["stream_k"] == (0,)
    for direction in ("forward", "input_grad", "weight_grad"):
        lowered = lower(replace(p, direction=direction))
        for kg, splitk in product(values["kg"], values["splitk"]):
            legal = splitk == SPLIT_MEMSET if kg == 1 else splitk == SPLIT_WORKSPACE and direction == "weight_grad"
            broken = rules.first_violation(lowered, replace(plain_config, kg=kg, splitk=splitk), H200)
            assert (broken is None) == legal, (direction, kg, splitk)
        c = space.candidates(lowered, H200)
        assert (c.kg[c.family == space_of_tiles.code] > 1).any() == (direction == "weight_grad")


def test_families_are_those_that_compute_the_types():
    def names(p: KernelProblem, d=H200) -> list[str]:
        return [space.FAMILIES[f.code] for f in space.families(p, d)]

    assert names(kernel(8, 16, 8)) == ["simt", "skinny"]
    assert names(kernel(16, 16, 8, "NT", "f32", "tf32")) == ["simt", "mma", "wgmma"]
    assert names(kernel(16, 16, 8, "TN", "f32", "tf32")) == ["simt", "mma", "wgmma"]
    assert names(kernel(9, 9, 9, "NN", "f32", "tf32")) == ["simt", "mma", "wgmma"]
    assert names(kernel(9, 9, 17, "NN", "f32", "tf32")) == ["mma", "wgmma"]
    assert names(kernel(16, 16, 8, "NN", "f16")) == ["simt", "mma", "wgmma"]
    assert names(kernel(9, 8, 9, "NN", "f16")) == ["simt", "mma", "wgmma", "skinny"]
    assert names(kernel(9, 9, 9, "NN", "f16")) == ["simt", "mma", "wgmma"]
    assert names(kernel(9, 1, 8, "NN", "f64")) == ["simt", "mma", "skinny"]
    assert names(kernel(16, 16, 16, "NT", "e4m3")) == ["wgmma"]
    assert "wgmma" in names(kernel(16, 16, 16, "TN", "e4m3"))
    assert names(kernel(16, 16, 17, "NT", "e4m3")) == ["mma", "wgmma"]
    assert names(kernel(9, 9, 9, "NN", "f16"), T4) == ["simt", "mma"]
    assert names(kernel(9, 8, 9, "NN", "bf16"), T4) == []
    assert names(kernel(9, 9, 9, "NN", "f16"), device("a100")) == ["simt", "mma"]
    c = space.candidates(kernel(512, 512, 512, "NT", "f32", "tf32"), T4)
    assert len(c) == 0
    assert len(np.asarray(c.family)) == 0


@pytest.mark.parametrize("code", range(4))
def test_candidates_of_every_family_become_kernels(code, draws):
    """Some of each family, over types, layouts and alignments; with --exhaustive of all problems."""
    rng = np.random.default_rng(code)
    made = 0
    problems = [
        p
        for p in (*ALL, *MMA_PROBLEMS, *WGMMA_PROBLEMS, *STREAM_PROBLEMS)
        if space.SPACES[code] in space.families(p, H200)
    ]
    for p in problems if draws > 1 else problems[code::6]:
        c = space.candidates(p, H200)
        rows = np.flatnonzero(c.family == code)
        for i in rng.choice(rows, min(2, len(rows)), replace=False):
            plan = plan_for(user(p), c.row(int(i)), H200)
            assert render(plan).text
            assert plan.launch(p).steps
            made += 1
    assert made >= 4


@pytest.mark.parametrize("p", ALL, ids=str)
def test_whole_space_is_legal_and_canonical(p):
    c = space.candidates(p, H200)
    picked = plain(c.take(np.random.default_rng(0).integers(0, len(c), 20_000)))
    assert len(c) > 1000
    assert rules.legal(p, picked, H200).all()
    again = space.canonical(p, picked)
    for a in AXIS.values():
        assert (again.column(a.name) == picked.column(a.name)).all(), a.name


@pytest.mark.parametrize(
    "p",
    [
        kernel(0, 5, 3),
        kernel(5, 3, 0),
        kernel(1, 1, 1),
        kernel(1, 70000, 1, "TT"),
        kernel(3, 2, 5, "NT", "f16"),
        kernel(0, 8, 8, "NT", "f16"),
        kernel(8, 8, 0, "NN", "bf16"),
        kernel(1, 1, 1, "NT", "f64"),
        kernel(8, 1 << 20, 8, "NT", "f16"),
        kernel(1 << 20, 8, 8, "NN", "f16"),
        kernel(16, 16, 0, "NT", "s8"),
        kernel(1, 4096, 4096, "NT", "bf16"),
    ],
)
def test_degenerate_problems_have_candidates(p):
    c = space.candidates(p, H200)
    assert len(c)
    assert rules.legal(p, plain(c), H200).all()


@pytest.mark.parametrize("p", [kernel(64, 48, 1000, "NT"), kernel(512, 512, 4096, "NT", "f16")], ids=str)
def test_reading_lazily_and_by_row_agree(p):
    c = space.candidates(p, H200)
    some = c.take(np.array([5, 0, len(c) - 1]))
    assert [some.row(i) for i in range(3)] == [c.row(5), c.row(0), c.row(len(c) - 1)]
    assert [plain(some).row(i) for i in range(3)] == [some.row(i) for i in range(3)]
    assert (some.replace(ks=1).ks == 1).all()
    mixed = c.take(np.random.default_rng(0).permutation(len(c))[:50])
    assert [plain(mixed).row(i) for i in range(50)] == [mixed.row(i) for i in range(50)]
    assert sum(len(rows) for _, _, rows, _ in mixed.groups()) == 50


@pytest.mark.parametrize(
    "p",
    [kernel(64, 48, 4096, "NT"), kernel(512, 384, 4096, "NT", "f16"), kernel(3, 256, 4096, "NN", "bf16")],
    ids=str,
)
def test_members_of_all_classes_are_all_candidates(p):
    """One row of each class and slices of K represents the others: the one with the preferred values of ``class_axes``."""
    whole, some = space.candidates(p, H200), space.candidates(p, H200, representatives=True)
    assert len(some) < len(whole)
    pairs = set(zip(whole.rows.tolist(), whole.cell.tolist(), strict=True))
    assert set(zip(some.rows.tolist(), some.cell.tolist(), strict=True)) < pairs
    every = space.members(some)
    assert len(every) <= len(whole)
    members = list(zip(every.rows.tolist(), every.cell.tolist(), strict=True))
    assert len(set(members)) == len(members)
    assert set(members) <= pairs
    missing = pairs - set(members)  # classes whose representative does not come with these slices
    assert len(missing) < 0.05 * len(pairs)
    few = some.take(np.array([3, len(some) - 1]))
    near = space.members(few)
    for part, _, rows, cells in near.groups():
        mine = [(r, c) for q, _, r, c in few.groups() if q is part]
        assert set(part.base.equivalence_class[rows]) == set(part.base.equivalence_class[mine[0][0]])
        assert set(cells.tolist()) == set(mine[0][1].tolist())


@pytest.mark.parametrize(
    ("p", "left_out"),
    [
        (kernel(512, 384, 65, "NT", "f16"), {"simt"}),
        (kernel(512, 384, 64, "NT", "f16"), set()),
        (kernel(512, 384, 4096, "NT"), set()),
        (kernel(65, 384, 4096, "NT", "f64"), {"simt"}),
        (kernel(64, 384, 4096, "NT", "f64"), set()),
        (kernel(16, 384, 16, "NT", "bf16"), {"wgmma"}),
        (kernel(17, 384, 16, "NT", "bf16"), set()),
        (lower(Conv(2, 64, 9, 9, 64, 3, 3, layout="NHWC", dtype="f16")), {"simt"}),
        (lower(Conv(2, 64, 9, 9, 32, 3, 3, layout="NHWC", dtype="f16")), set()),
    ],
)
def test_search_leaves_out_dominated_families(p, left_out):
    every, some = space.candidates(p, H200), space.candidates(p, H200, searched=True)
    assert {part.base.family.name for part in every.parts} - {part.base.family.name for part in some.parts} == left_out


def test_search_leaves_out_narrow_boxes_of_large_weight_gradients():
    v = Conv(2, 256, 9, 9, 512, 3, 3, layout="NHWC", dtype="f16", direction="weight_grad")
    sides = []
    for p in (lower(v), lower(replace(v, c=32, k=96))):
        every, some = space.candidates(p, H200), space.candidates(p, H200, searched=True)
        for c in (every, some):
            rows = c.take(np.flatnonzero(c.family == WGMMA.code))
            sides.append({*np.where(rows.transposed_mma == 1, rows.ml, rows.nl).tolist()})
    assert sides[0] - sides[1] == {80, 112, 176}
    assert sides[2] == sides[3]


@pytest.mark.parametrize(
    ("p", "packed"),
    [
        (kernel(1024, 512, 512, "NT"), {(0, 0), (0, 1), (1, 0), (1, 1)}),
        (kernel(1024, 512, 512, "TN"), {(0, 0)}),
        (kernel(1025, 512, 512, "TN"), {(0, 0), (1, 0)}),
        (kernel(1024, 512, 464, "NT"), {(0, 0)}),
        (kernel(8192, 8192, 64, "NT", "f16"), {(0, 0)}),
        (kernel(8192, 127, 512, "NT"), {(0, 0), (0, 1)}),
        (kernel(127, 8192, 512, "NT"), {(0, 0), (1, 0)}),
    ],
)
def test_search_packs_operands_of_large_products(p, packed):
    c = space.candidates(p, H200, searched=True)
    [rows] = [part.base.columns for part in c.parts if part.base.family.name == "simt"]
    assert {*zip(rows.operand_path_a.tolist(), rows.operand_path_b.tolist(), strict=True)} == packed


def test_small_k_has_small_depths():
    """At most the least depth of one iteration, and the exact one without shared memory."""
    depths = {k: space.SPACES[0].depths(kernel(64, 64, k, "NT")) for k in (1, 5, 9, 16, 17)}
    assert depths == {1: (1, 8), 5: (8,), 9: (8, 16), 16: (8, 16), 17: (8, 16, 32)}


def test_grids_compute_what_columns_compute():
    """Rules and geometry on shapes combined with variants, and row by row."""
    for f in space.SPACES[:4]:
        p = f.neutral(CLASSES[f.code][0])
        shapes = f.shapes(p)
        if isinstance(shapes, Grid):
            legal = legal_rows(f, p, shapes, H200, f.tile_rules)
            shapes = shapes.flat()
            assert legal.any()
            assert ((violations(f, p, shapes, H200, f.tile_rules) < 0) == legal.ravel()).all()
        some = shapes.take(np.random.default_rng(0).integers(0, len(shapes), 40))
        grid = f.finalize(p, H200, Grid.crossed(some, f.variants(p, H200)))
        legal = legal_rows(f, p, grid, H200)
        assert legal.any()
        assert ((violations(f, p, grid.flat(), H200, None) < 0) == legal.ravel()).all()


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 3, 1), (1, 1, 1)])
def test_columns_of_a_grid_are_gathered_as_if_they_had_every_dimension(shape):
    for size, column in (
        ((2, 3, 4), np.arange(np.prod(shape)).reshape(shape) * 7),
        ((2, 1, 3, 5, 4), np.arange(5 * np.prod(shape)).reshape(shape[0], 1, shape[1], 5, shape[2])),
    ):
        mask = np.random.default_rng(0).random(size) < 0.6
        for dtype in (np.int32, np.int64):
            rows = GridRows(Grid({}, size), np.flatnonzero(mask).astype(dtype))
            assert rows.values(column).tolist() == np.broadcast_to(column, size)[mask].tolist()


@pytest.mark.parametrize("shape", [(2, 3, 0), (1, 1, 0)])
def test_columns_of_a_grid_without_rows_are_gathered(shape):
    assert GridRows(Grid({}, (2, 3, 0)), np.zeros(0, np.int32)).values(np.zeros(shape, np.int64)).tolist() == []


def test_rows_of_a_grid_are_rows_of_its_smallest_subgrid():
    """The second shape, the last stage and the first epilogue have no rows. An epilogue between used ones stays."""
    shapes = Columns({"ml": np.array([16, 32, 64, 128])})
    stages, smem = ([{n: v} for v in range(4)] for n in ("stages", "epilogue_smem"))
    rows = GridRows(Grid.crossed(shapes, [stages, smem]), np.array([4, 6, 15, 20, 36], np.int32))
    some = rows.compact()
    assert some.grid.size == (3, 3, 3)
    assert some.columns.keys() == rows.columns.keys()
    assert all(some.column(n).tolist() == rows.column(n).tolist() for n in rows.columns)
    assert [some.row(i) for i in range(5)] == [rows.row(i) for i in range(5)]


@pytest.mark.parametrize("f", [SIMT, MMA, STREAM], ids=lambda f: space.FAMILIES[f.code])
def test_the_raster_does_not_affect_the_geometry(f):
    """``cells`` evaluates the rules with the geometry of another raster."""
    p = CLASSES[f.code][0]
    c = Grid.crossed(f.tiles(f.neutral(p)), [[{"kg": 1}, {"kg": 1 << 12}]]).replace(raster_group=1)
    other = c.replace(raster_group=8)
    g, h = geometry(p, c), geometry(p, other)
    for name in ("threads", "shared", "registers", "tiles_m", "tiles_n", "tiles", "slices", "blocks", "workspace"):
        assert np.array_equal(getattr(g, name), getattr(h, name)), name
    known = first_violations(f, p, other, H200, f.extent_rules, g)
    assert (known == first_violations(f, p, other, H200, f.extent_rules)).all()
    assert (known >= 0).any()


def test_explain_accounts_for_every_row(small_axes):
    p = kernel(64, 48, 1000, "NT")
    counts = space.explain(p, H200)
    assert set(counts) <= {r.name for r in rules.RULES}
    assert {"kg", "simt_loads_a", "threads", "registers"} <= set(counts)
    total = 0
    shapes = np.prod([len(SMALL[n]) for n in ("ms", "ns", "ks", "kl", "stages")]) * 25
    for ml, nl, u in product(SMALL["ml"], SMALL["nl"], SMALL["u"]):
        tiles = ceil_div(p.m, ml) * ceil_div(p.n, nl)
        slices = {max(H200.sms * w // tiles, 1) for w in (1, 2, 3, 4, 6, 8)} | {1}
        blocks = ceil_div(p.k, u)
        legal = {ceil_div(p.k, ceil_div(ceil_div(p.k, kg), u) * u) for kg in slices if kg <= blocks}
        total += shapes * len(legal | {kg for kg in slices if kg > blocks})
    # f32 in f32, no short side
    cannot = {"mma_dtype": 1, "wgmma_dtype": 1, "skinny_extent": 1, "quantized_mma_weights": 1}
    cannot["capabilities"] = 11  # strips, tap products, tiles of 2x2 and 4x4, five of a sparse matrix, groups, rows
    assert {n: counts.pop(n) for n in cannot} == cannot
    assert sum(counts.values()) + len(space.candidates(p, H200)) == total


def test_explain_covers_every_family():
    counts = space.explain(kernel(512, 512, 4096, "NT", "f16"), H200)
    assert {
        "mma_tile",
        "wgmma_accumulators",
        "wgmma_splitk",
        "wgmma_epilogue_smem",
        "simt_tile_n",
        "shared_memory",
    } <= set(counts)
    assert space.explain(kernel(513, 513, 4097, "NT", "f16"), H200)[
        "wgmma_operand_path"
    ]  # packing, and slices that wait


def test_slices_fill_whole_waves():
    assert whole_waves(20, H200).tolist() == [[6, 13, 19, 26, 39, 52, 1]]
    p = kernel(16, 2560, 2560, "NN")
    c = plain(space.candidates(p, H200))
    tile = (c.ml == 16) & (c.nl == 128) & (c.u == 8)
    # 26 slices of 2560 are 25 of 104
    assert set(np.unique(c.kg[tile])) == {1, 6, 13, 19, 25, 36, 46}


@pytest.mark.parametrize(
    ("p", "columns"),
    [
        (kernel(900, 701, 1, "TN"), {1}),
        (kernel(900, 701, 2, "TN", "f64"), {1}),
        (kernel(900, 701, 3, "TN"), {1, 2, 4, 8, 16}),
        (kernel(900, 700, 1, "TN"), {2, 4, 8, 16}),
        (kernel(900, 701, 1, "TN", "bf16"), {2, 4, 8, 16}),
        (kernel(900, 701, 100, "TN"), {2, 4, 8, 16}),
    ],
    ids=str,
)
def test_threads_with_one_column_fill_sectors_of_odd_rows(p, columns):
    c = space.candidates(p, H200)
    assert set(c.ns[c.family == space.FAMILIES.index("simt")].tolist()) == columns


def test_many_tiles_do_not_split_k():
    c = space.candidates(kernel(4096, 4096, 4096, "TN"), H200)
    big = (c.ml == 128) & (c.nl == 128)
    assert big.any()
    assert (c.kg[big] == 1).all()
    assert (c.raster_group[big] == 8).all()


def test_deterministic_split_k_uses_a_workspace():
    c = space.candidates(kernel(96, 96, 4096, "NN", deterministic=True), H200)
    assert (c.kg > 1).any()
    assert (c.splitk[c.kg > 1] == 2).all()


def test_no_asynchronous_copies_before_sm_80():
    c = space.candidates(kernel(512, 512, 512, "NT"), T4)
    assert len(c)
    assert not c.cp_async_a.any()
    assert not c.cp_async_b.any()


def test_problems_of_one_class_share_a_base():
    a, b, c = kernel(2560, 16, 2560, "NN"), kernel(128, 64, 4096, "NN"), kernel(128, 63, 4096, "NN")
    assert space.base(SIMT, a, H200) is space.base(SIMT, b, H200)
    assert space.base(SIMT, a, H200) is not space.base(SIMT, c, H200)
    assert space.class_key(a, H200) == space.class_key(b, H200) != space.class_key(c, H200)
    thin, thick = kernel(2560, 16, 2560, "NN", "f16"), kernel(2560, 40, 2560, "NN", "f16")
    assert space.base(MMA, thin, H200) is space.base(MMA, thick, H200)
    assert space.class_key(thin, H200) != space.class_key(thick, H200)  # wgmma may load fewer rows of a tile


def random_rows(f: space.CandidateSpace, n: int, seed: int) -> Columns:
    rng = np.random.default_rng(seed)
    values = {a.name: rng.choice(np.array(a.values or (a.default,)), n) for a in axes_of(f.name)}
    return Columns(values, n).replace(family=f.code)


def outcomes(f: space.CandidateSpace, p: KernelProblem, c: Columns, names) -> np.ndarray:
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        chosen = [r for _, r in rules.rules_of(f.name) if r.name in names]
        assert len(chosen) == len(set(names))
        return np.stack([np.broadcast_to(r.holds(p, c, g, H200), len(c)) for r in chosen])


def nearest(n: int, dtype: str) -> Task:
    """The nearest of n points for each of 64 n."""
    step = "(A[i,k]-B[k,j])*(A[i,k]-B[k,j])"
    text = f"A:{dtype}[i,k];B:{dtype}[k,j];accum:{dtype};where(i,j){{reduce(k){{accum+={step};}}C[i]argmin=accum;}}"
    return Task(64 * n, n, 3, "NT", dtype, text=text)


def element_sums(n: int, dtype: str) -> Task:
    """Sums of the elements of n × 3n in 9 groups of columns."""
    head = f"A:f32[i,k];B:f32[k,j];g:s32[j];x:{dtype}[i,j];"
    return Task(
        n, 3 * n, 0, text=f"{head}where(i,j){{reduce(k){{accum+=A[i,k]*B[k,j];}}C[i,g[j]]+=x[i,j];}}", groups=f"{n},9"
    )


#: of each family: two problems of one class, and one of another
CLASSES = {
    0: (kernel(2560, 16, 2560, "NN"), kernel(64, 4096, 128, "NN"), kernel(77, 300, 19, "TT", "f64")),
    1: (
        kernel(2560, 16, 2560, "NN", "f16"),
        kernel(64, 4096, 128, "NN", "f16"),
        kernel(80, 304, 24, "NN", "f16", lda=88),
    ),
    2: (
        kernel(2560, 48, 2560, "NN", "f16"),
        kernel(64, 4096, 128, "NN", "f16"),
        kernel(80, 304, 24, "NN", "bf16"),
    ),
    3: (
        kernel(4, 4096, 2560, "NT", "f16"),
        kernel(4, 64, 128, "NT", "f16"),
        kernel(4, 304, 24, "NT", "f16", lda=25),
    ),
    4: tuple(
        form(Conv(2, 40 * n, 9, 12 * n, 40 * n, 3, 3, padding=1, groups=40 * n, dtype=element), "depthwise")
        for n, element in ((1, "f32"), (2, "f32"), (1, "f64"))
    ),
    **{
        5 + i: tuple(
            form(Conv(2, 40 * n, 9, 12 * n, 40, 3, 3, padding=1, layout=layout), family)
            for n, layout in ((1, "NCHW"), (2, "NCHW"), (1, "NHWC"))
        )
        for i, family in enumerate(TILES)
    },
    7: tuple(
        form(Spmm(n, 64 * n, 3 * n, dtype=element, pattern="banded:width=3"), "row_split")
        for n, element in ((9, "f16"), (50, "f16"), (9, "f64"))
    ),
    8: tuple(
        form(Spmm(n, 64 * n, 3 * n, dtype=element, pattern="banded:width=3", calls=calls), "shared_slab")
        for n, element, calls in ((9, "f16", 150), (50, "f16", 150), (9, "f64", 150))
    ),
    9: tuple(
        form(Spmm(n, 64 * n, 3 * n, dtype=element, compute=compute, pattern="banded:width=4", calls=1000), "vector_mma")
        for n, element, compute in ((9, "f16", ""), (50, "f16", ""), (9, "f32", "tf32"))
    ),
    10: tuple(
        form(Spmm(n, 64 * n, 3 * n, dtype=element, pattern="banded:width=3", calls=1000), "tca")
        for n, element in ((9, "f16"), (50, "f16"), (9, "bf16"))
    ),
    11: tuple(
        form(Spmm(64 * n, n, 3 * n, dtype=element, pattern="banded:width=3", calls=1000), "compressed_tiles")
        for n, element in ((8, "f16"), (16, "f16"), (8, "f32"))
    ),
    12: tuple(
        form(element_sums(n, element), "private_groups") for n, element in ((64, "f32"), (300, "f32"), (64, "f64"))
    ),
    14: tuple(
        form(QuantizedGemm(3 * n, 48 * n, 256 * n, dtype=element, weights="s4", group=128), "quantized_mma")
        for n, element in ((1, "f16"), (9, "f16"), (1, "bf16"))
    ),
    15: tuple(
        form(Conv(2, 40 * n, 9, 12 * n, 2, 3, 3, padding=1, layout="NHWC", dtype=element), "tap_products")
        for n, element in ((1, "f16"), (2, "f16"), (1, "f32"))
    ),
    13: tuple(form(nearest(n, element), "resident_rows") for n, element in ((700, "f32"), (5000, "f32"), (700, "f64"))),
}


@pytest.mark.parametrize("f", space.SPACES, ids=lambda f: space.FAMILIES[f.code])
def test_rules_of_tiles_read_only_the_axes_of_shapes(f):
    p, _, q = CLASSES[f.code]
    a, b = random_rows(f, 3000, 1), random_rows(f, 3000, 2)
    later = {*(name for some in f.variants(p, H200) for name in some[0]), *f.cell}
    later |= {"vec_c", "epilogue_smem", "lane_interleave"}
    shared = {name.name: a.column(name.name) for name in AXIS.values() if name.name not in later}
    assert (outcomes(f, p, a, f.tile_rules) == outcomes(f, q, b.replace(**shared), f.tile_rules)).all()


@pytest.mark.parametrize("f", space.SPACES, ids=lambda f: space.FAMILIES[f.code])
def test_only_rules_of_extents_read_extents_and_slices(f):
    p, q, _ = CLASSES[f.code]
    assert f.neutral(p) == f.neutral(q)
    a, b = (random_rows(f, 3000, seed).replace(stream_k=0) for seed in (1, 2))  # the space has no shares
    mine = {r.name for _, r in rules.rules_of(f.name)}
    options = {n for option in f.slice_options(p) for n in option}
    rest = (mine - set(f.extent_rules) | {"range"}) if not options else mine - set(f.extent_rules)
    free = {n: b.column(n) for n in f.cell if n not in options}
    assert (outcomes(f, p, a, rest) == outcomes(f, q, a.replace(**free), rest)).all()
    # and those read nothing but what a cell has
    cell = {n: a.column(n) for n in (*f.tile, *f.cell, "bounds")}
    stages = {"stages": np.maximum(b.stages, 2)}  # one stage is for one K iteration, and not in the space
    names = [n for n in f.extent_rules if n != "range"]
    a = a.replace(stages=np.maximum(a.stages, 2))
    if f.name == "wgmma":  # the space has no resident B, only refinements have
        a, b = a.replace(resident_b=0), b.replace(resident_b=0)
    assert (outcomes(f, p, a, names) == outcomes(f, p, b.replace(**cell, **stages), names)).all()


@pytest.mark.parametrize("f", [f for f in space.SPACES if f.slice_options(CLASSES[f.code][0])], ids=lambda f: f.name)
def test_only_rules_of_slices_and_extents_read_the_options_of_slices(f):
    p = CLASSES[f.code][0]
    assert f.slice_rules is not None
    rest = {r.name for r in rules.RULES if r.family in ("", f.name)} - {*f.slice_rules, *f.extent_rules}
    assert not set(f.slice_rules) & {*f.tile_rules, *f.extent_rules}
    rows, read = random_rows(f, 3000, 1).replace(stream_k=0, l2_prefetch=0), set()
    first, *others = (rows.replace(**option) for option in f.slice_options(p))
    for other in others:
        assert (outcomes(f, p, first, rest) == outcomes(f, p, other, rest)).all()
        read |= {n for n in f.slice_rules if (outcomes(f, p, first, [n]) != outcomes(f, p, other, [n])).any()}
    assert {"shared_memory", "registers", "wgmma_persistent"} <= read


@pytest.mark.parametrize("f", [f for f in space.SPACES if f.shape_rules], ids=lambda f: f.name)
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_rules_of_shapes_leave_out_shapes_without_legal_rows(f, layout):
    """With the shapes that satisfy the rules of tiles, all that have a legal row remain."""
    p = f.neutral(kernel(1000, 999, 4001, layout, "f16"))
    shapes = f.shapes(p).flat()
    shapes = shapes.take(legal_rows(f, p, Grid.crossed(shapes, []), H200, f.tile_rules))
    grid = f.finalize(p, H200, Grid.crossed(shapes, f.variants(p, H200)))
    have = legal_rows(f, p, grid, H200).any(axis=tuple(range(len(grid.size) - 1)))
    left = space_bases._legal_shapes(f, p, H200, f.shapes(p))
    assert have.sum() < len(left) < len(shapes)

    def rows(c: Columns) -> set[tuple[int, ...]]:
        return set(
            zip(*(c.column(n).tolist() for n in (*f.tile, "math_warpgroups", "pingpong", "tma_rows")), strict=True)
        )

    assert rows(shapes.take(have)) <= rows(left)


def numbers_of(value):
    """The fields of a record; else the value alone."""
    return [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else [value]


@pytest.mark.parametrize(
    "f", [f for f in space.SPACES if f.code not in (4, 7, 8, 9, 10, 11, 12, 13, 15)], ids=lambda f: f.name
)
def test_lazy_geometry_is_the_geometry(f):
    p = CLASSES[f.code][0]
    c = f.tiles(f.neutral(p)).replace(kg=3)
    g, whole = LazyGeometry(p, c), geometry(p, c)
    counted = registry.FAMILIES[f.name].counts(p, c)
    assert {"tiles", "slices", "sum_bytes"} <= counted.keys()
    assert not {"shared", "registers"} & counted.keys()  # kernels of groups need more than the family says
    for name, value in counted.items():
        for record in (whole, g):
            same = map(np.array_equal, numbers_of(value), numbers_of(getattr(record, name)))
            assert all(same), name
    assert g._whole is None
    assert np.array_equal(g.registers, whole.registers)
    with pytest.raises(AttributeError):
        _ = g.absent


@pytest.mark.parametrize(
    ("f", "p"),
    [(WGMMA, kernel(512, 384, 4096, "NT", "f16")), (MMA, kernel(512, 384, 4096, "NT", "c128"))],
    ids=("wgmma", "mma"),
)
def test_rules_of_split_k_are_evaluated_per_option(f, p):
    """Legality of the base together with the cell is legality."""
    b = space.base(f, p, H200)
    options = f.slice_options(b.problem)
    assert not b.accepted.all()
    for j, option in enumerate(options):
        whole = violations(f, b.problem, b.columns.replace(**option), H200, None, f.extent_rules)
        taken = np.broadcast_to(f.accepts(option, b.columns), len(b.columns))
        assert (b.accepted[:, j] == (taken & (whole < 0))).all()
        assert (b.accepted[:, j] == (space_bases.refused_rows(b)[:, j] == -1)).all()


def test_shares_of_iterations_are_candidates_of_large_aligned_products_in_f64():
    def shared(p: KernelProblem) -> Columns:
        c = space.candidates(p, H200)
        return c.take(np.flatnonzero(c.stream_k == 1))

    large = kernel(984, 1072, 2992, "NN", "f64")
    c = shared(large)
    assert (c.family == MMA.code).all()
    assert (c.kg == 1).all()
    assert (c.kl == 1).all()
    assert rules.legal(large, Columns.of([c.row(i) for i in range(0, len(c), 50)]), H200).all()
    for other in (
        kernel(984, 1072, 2552, "NN", "f64"),
        kernel(256, 256, 2992, "NN", "f64"),
        kernel(983, 1071, 2991, "NN", "f64"),
        kernel(984, 1072, 2992, "NN"),
        kernel(984, 1072, 2992, "NN", "f16"),
    ):
        assert not len(shared(other)), other


@pytest.mark.first(5)
@pytest.mark.parametrize(
    "p",
    [
        kernel(256, 256, 512, "NT"),
        kernel(256, 256, 512, "TN", "f64"),
        kernel(512, 511, 513, "TN", "f32", "tf32"),
        kernel(256, 256, 4096, "NT", "s8"),
        kernel(4, 256, 4096, "NT", "s8"),
        kernel(255, 257, 129, "TT"),
        kernel(256, 256, 512, "NN", "f16"),
        kernel(256, 256, 512, "NN", "f16", "f16"),
        kernel(64, 256, 4096, "NT", "bf16"),
        kernel(256, 1, 1024, "NN", "f64"),
    ],
    ids=str,
)
def test_canonical_configurations_are_the_same_kernels(p):
    learnt = Categorical.learn(p, H200, wanted=100)
    parts = [learnt.only(code).sample(40, np.random.default_rng(3)) for code in learnt.family]
    drawn = Columns.concat(parts)
    mapped = space.canonical(p, drawn)
    assert rules.legal(p, mapped, H200).all()
    pairs = [(drawn.row(i), mapped.row(i)) for i in range(len(drawn))]
    changed = [(a, b) for a, b in pairs if a != b]
    assert len(changed) > 5
    for a, b in changed[:: -(-len(changed) // 10)]:
        one, two = plan_for(user(p), a, H200), plan_for(user(p), b, H200)
        assert render(one).digest == render(two).digest, f"{a} | {b}"
        assert geometry(p, a).blocks == geometry(p, b).blocks


def test_batches_do_not_share_the_space_of_one_gemm():
    """The bases of a problem class may be legal for one GEMM, and not for a batch."""
    for batch, paths in ((1, {(0, 0), (1, 1), (2, 2)}), (3, {(0, 0), (1, 1)})):
        p = kernel(44, 61, 71, "NT", "f16", batch=batch)
        c = space.candidates(p, H200)
        assert set(zip(c.operand_path_a.tolist(), c.operand_path_b.tolist(), strict=True)) == paths
        assert rules.legal(p, plain(c.take(np.flatnonzero(c.family == 2))), H200).all()


def test_depthwise_has_no_8_bit_types():
    for direction in ("forward", "input_grad", "weight_grad"):
        p = Conv(2, 16, 7, 10, 16, 3, 3, groups=16, direction=direction, dtype="f16")
        assert SLIDE in space.families(lower(p), H200)
        assert SLIDE not in space.families(lower(replace(p, dtype="e4m3", out="bf16")), H200)


def test_launch_of_one_kernel_does_not_overlap_within():
    """Direct operands need no packing kernel; others do."""
    p, paths = (
        kernel(255, 257, 511, "NN", "f16"),
        (("pack", "pack"), ("realign", "pack"), ("pack", "realign"), ("realign", "realign")),
    )
    text = "family=wgmma ml=64 nl=64 u=64 stages=3 pdl=within_launch"
    c = Columns.of([parse_config(f"{text} operand_path_a={a} operand_path_b={b}") for a, b in paths])
    assert rules.legal(p, c, H200).all()
    assert space.canonical(p, c).pdl.tolist() == [3, 3, 3, 0]


@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("p", "code"),
    [
        (kernel(64, 48, 4096, "NT"), 0),
        (kernel(256, 256, 512, "NN", "f16"), 1),
        (kernel(255, 256, 513, "NN", "f64"), 1),
        (kernel(32, 256, 4096, "TN", "bf16"), 2),
        (kernel(3, 256, 4096, "NN", "f16"), 3),
        (kernel(256, 256, 512, "NN", "f16", "f16"), 0),
        (kernel(256, 256, 4096, "NT", "f16"), 2),
        (kernel(256, 256, 4096, "NT", "s8"), 2),
        (kernel(256, 1, 4096, "NT"), 3),
    ],
)
def test_refinements_are_different_kernels(p, code):
    c = space.candidates(p, H200)
    mine = np.flatnonzero(c.family == code)
    config = c.row(int(mine[len(mine) // 3]))
    near = space.refinements(p, H200, config)
    assert len(near) > 20
    assert set(near.family.tolist()) == {code}
    texts = defaultdict(list)
    for x in [config, *configs(near)]:
        waits = x.splitk in (SPLIT_LAST_CTA, SPLIT_DISTRIBUTED)  # such kernels know their number of slices
        texts[render(plan_for(user(p), x, H200)).digest].append(x if waits else launched_alike(x))
    for same in texts.values():
        assert len(set(same)) == 1, [str(x) for x in same]


def launched_alike(x: Config) -> Config:
    """The configuration without numbers that launches alone have."""
    x = replace(x, kg=1)
    return replace(x, stream_waves=min(x.stream_waves, 1)) if "stream_waves" in dict(x.items()) else x


def test_refinements_reach_every_axis():
    p = kernel(512, 512, 4096, "NT")
    config = Config(
        ml=64, nl=64, u=16, kg=4, splitk=1, cp_async_a=0, cp_async_b=0, vec_a=4, vec_b=4, vec_c=4, lanes_m=4
    )
    assert rules.first_violation(p, config, H200) is None
    near = space.refinements(p, H200, config)
    neighbours = configs(near)
    assert rules.legal(p, near, H200).all()
    assert len(neighbours) == len(near)
    assert config not in neighbours
    reached = {name for x in neighbours for name, value in x.items() if value != dict(config.items())[name]}
    assert reached == set(fma.AXES) - {"l2_prefetch", "listed_tiles", "column_pairs"}
    assert replace(config, ns=4, nl=32, lanes_m=4) in neighbours
    assert any(x.ml == 128 and x.nl == 32 for x in neighbours)
    for kg in (2, 6, 8, 12, 16):
        assert replace(config, kg=kg) in neighbours
    assert replace(config, kg=1, splitk=0) in neighbours
    assert any(x.splitk == 2 and x.kg == 4 for x in neighbours)


def changed(p: KernelProblem, config: Config) -> set[str]:
    """The axes in which the neighbours of a configuration differ from it."""
    assert rules.first_violation(p, config, H200) is None, rules.first_violation(p, config, H200)
    near = space.refinements(p, H200, config)
    assert rules.legal(p, near, H200).all()
    assert config not in configs(near)
    return {name for x in configs(near) for name, value in x.items() if value != dict(config.items())[name]}


def test_refinements_of_mma_reach_every_axis():
    config = Config(
        family="mma",
        ms=32,
        ns=16,
        ml=32,
        nl=64,
        u=64,
        kg=4,
        splitk=1,
        cp_async_a=0,
        cp_async_b=0,
        vec_a=2,
        vec_b=2,
        vec_c=2,
        prefetch_k=1,
    )
    p = kernel(512, 512, 4098, "NT", "f16", out="f32")
    assert changed(p, config) == set(mma.AXES) - {
        "l2_prefetch",
        "listed_tiles",
        *mma.PATHS,
    }  # flag_red and packed operands exclude each other
    assert set(mma.PATHS) <= changed(p, replace(config, kg=1, splitk=0))


@pytest.mark.parametrize(
    ("dtype", "text"),
    [("f32", "ms=4 ns=4 ml=32 nl=32"), ("f16", "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=2 vec_b=2 vec_c=2")],
)
def test_refinements_on_lists_have_shares_of_iterations(dtype, text):
    p = lower(GroupedGemm(((64, 66, 640),) * 8, dtype=dtype))
    whole = parse_config(text)
    for config in (whole, whole.replace(kg=3, splitk=SPLIT_LAST_CTA)):
        near = configs(space.refinements(p, H200, config))
        assert {(x.kg, x.splitk) for x in near if x.stream_k or x.l2_prefetch} == {(1, 0)}
        assert {(x.stream_k, x.l2_prefetch) for x in near} >= {(0, 0), (0, 1), (1, 0)}
    sliced = configs(space.refinements(p, H200, whole.replace(stream_k=1)))
    assert any(x.kg > 1 and not x.stream_k for x in sliced)
    assert any(x.l2_prefetch and not x.stream_k for x in sliced)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("f32", "ms=4 ns=4 ml=32 nl=32 kg=2 splitk=workspace raster_group=8"),
        ("f16", "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=2 vec_b=2 raster_group=8"),
        ("f16", "family=wgmma ml=64 nl=64 u=32 stages=3 cluster_k=2 kg=2 splitk=last_cta"),
    ],
)
def test_refinements_of_joins_list_tiles(dtype, text):
    """The tile loop has one slice of K and an order of its own; candidates have no list."""
    product = "accum+=A[i,k]*B[k,j]" if dtype == "f32" else "accum+=f32(A[i,k])*f32(B[k,j])"
    body = f"where(i,j)when(input0[i]==input1[j]){{reduce(k){{{product};}}C[i]+=accum;}}"
    program = f"A:{dtype}[i,k];B:{dtype}[k,j];input0:s32[i];input1:s32[j];accum:f32;{body}"
    p = lower(Task(4096, 4096, 2048, dtype=dtype, text=program, sorted_keys=True))
    config = parse_config(text)
    listed = [x for x in configs(space.refinements(p, H200, config)) if x.listed_tiles]
    assert {(x.kg, x.splitk, x.raster_group) for x in listed} == {(1, 0, 1)}
    again = configs(space.refinements(p, H200, listed[0]))
    assert {x.listed_tiles for x in again} == {0, 1}
    assert all(x.kg == 1 for x in again if x.listed_tiles)


def test_refinements_of_wgmma_reach_every_axis():
    staged = Config(family="wgmma", ml=128, nl=128, math_warpgroups=2, u=64, stages=3, epilogue_smem=1)
    p = kernel(512, 512, 4096, "NT", "f16")
    reached = (
        changed(p, staged)
        | changed(p, replace(staged, cluster_k=4))
        | changed(p, replace(staged, epilogue_smem=0, vec_c=2))
    )
    reached |= changed(
        kernel(4096, 32, 4096, "NT", "f16"),
        Config(family="wgmma", ml=64, nl=64, u=64, epilogue_smem=1, transposed_mma=1),
    )
    narrow = Config(family="wgmma", ml=128, nl=32, u=64, stages=4, epilogue_smem=1, math_warpgroups=2, persistent=1)
    reached |= changed(kernel(4096, 32, 144, "NT", "f16"), narrow) & {"resident_b"}
    turned = Config(family="wgmma", ml=64, nl=64, u=32, operand_path_a=0, operand_path_b=1)
    reached |= changed(kernel(512, 512, 512, "TN", "f32", "tf32"), turned) & set(wgmma.PATHS)
    strided = Conv(8, 64, 16, 16, 64, 1, 1, stride=2, layout="NCHW", dtype="f16", direction="input_grad")
    scattered = Config(family="wgmma", ml=64, nl=64, u=64, operand_path_b=1)
    reached |= changed(lower(strided), scattered) & {"interleave_phases"}
    rows = Conv(8, 64, 16, 16, 64, 3, 3, padding=1, layout="NHWC", dtype="f16")
    reached |= changed(lower(rows), Config(family="wgmma", ml=64, nl=64, u=64, stages=3)) & {"row_taps"}
    across = Config(family="wgmma", ml=64, nl=96, u=64, stages=3)
    reached |= changed(kernel(512, 512, 512, "NN", "f16"), across) & {"y_boxes"}
    assert reached == set(wgmma.AXES) - {"promotion_buffers", "listed_tiles"}
    deep = Config(family="wgmma", ml=64, nl=64, u=256, stages=3)
    assert "promotion_buffers" in changed(kernel(512, 512, 4096, "NT", "e4m3"), deep)
    near = configs(space.refinements(p, H200, staged))
    assert replace(staged, transposed_mma=1) in near
    assert any(x.pingpong == 1 and x.persistent == 1 for x in near)
    assert {x.nl for x in near} >= {112, 120, 136, 144}
    assert {(x.kg, x.splitk) for x in near} >= {(8, 3), (8, 4)}


def test_refinements_of_skinny_reach_every_axis():
    p = kernel(4, 512, 4096, "NN", out="f32")
    config = Config(
        family="skinny",
        ms=4,
        ns=8,
        ml=4,
        nl=64,
        lanes_long=4,
        kl=2,
        u=64,
        vec_a=4,
        vec_b=4,
        vec_c=2,
        kg=4,
        splitk=1,
        min_ctas_per_sm=2,
        long_n=1,
    )
    reached = changed(p, config)
    both = Config(family="skinny", ms=4, ns=4, ml=4, nl=4, lanes_long=1, kl=2, u=256, vec_a=4, vec_b=4, long_n=1)
    reached |= changed(kernel(4, 4, 4096, "NT"), both)
    lines = kernel(4, 512, 4096, "NT", "f16")
    one = Config(family="skinny", ms=4, ns=4, ml=4, nl=32, lanes_long=4, kl=2, u=256, vec_a=8, vec_b=8, long_n=1)
    reached |= changed(lines, one)
    assert reached >= set(skinny.SkinnySpace.axes) - {"ms", "ml"}
    tensor_cores = next(x for x in configs(space.refinements(lines, H200, one)) if x.mma_m16)
    assert any(not x.mma_m16 for x in configs(space.refinements(lines, H200, tensor_cores)))


def test_refinements_of_an_illegal_neighbourhood_stay_legal():
    p = kernel(3, 5, 7, "TT")
    config = space.candidates(p, H200).row(0)
    near = space.refinements(p, H200, config)
    assert len(near)
    assert rules.legal(p, near, H200).all()


def test_unique_keeps_the_first_of_equal_rows():
    a, b = Config(), Config(ms=4)
    assert [space.unique(Columns.of([b, a, b, a])).row(i) for i in range(2)] == [b, a]
    assert len(space.unique(Columns.of([b, a, b, a]))) == 2


def test_equivalence_classes_differ_only_in_stages_and_sets():
    b = space.base(SIMT, kernel(512, 512, 512, "NT"), H200)
    classes = b.equivalence_class
    assert (np.bincount(classes[b.representatives]) == 1).all()
    group = np.flatnonzero(classes == classes[len(classes) // 2])
    assert 1 < len(group) <= 6
    c = b.columns.take(group)
    for a in AXIS.values():
        if a.name not in ("ks", "stages", "epilogue_smem", "vec_c"):
            assert len(set(c.column(a.name).tolist())) == 1, a.name


@pytest.mark.parametrize("f", [MMA, WGMMA, STREAM], ids=lambda f: space.FAMILIES[f.code])
def test_each_class_has_one_representative(f):
    b = space.base(f, kernel(512, 8 if f is STREAM else 512, 512, "NT", "f16"), H200)
    assert len(np.unique(b.equivalence_class)) == len(b.representatives)
    assert (np.bincount(b.equivalence_class[b.representatives]) == 1).all()
    assert b.is_representative(np.arange(len(b.columns))).sum() == len(b.representatives)
    group = b.columns.take(np.flatnonzero(b.equivalence_class == b.equivalence_class[len(b.equivalence_class) // 2]))
    for a in AXIS.values():
        if a.name not in (*f.class_axes, "vec_c"):
            assert len(set(group.column(a.name).tolist())) == 1, a.name


DEPTHWISE_GRADIENT = Conv(
    16, 96, 28, 28, 96, 3, 3, 1, 1, groups=96, layout="NHWC", dtype="f16", direction="weight_grad"
)


def test_depthwise_filter_gradients_split_the_strips_over_whole_waves():
    p = lower(DEPTHWISE_GRADIENT)
    c = space.candidates(p, H200)
    c = c.take(np.flatnonzero(c.family == SLIDE.code))
    assert rules.legal(p, c, H200).all()
    assert len(np.unique(np.stack([c.column(name) for name in c.columns], axis=1), axis=0)) == len(c)
    assert len(set(c.kg.tolist())) > 3
    assert set(zip((c.kg > 1).tolist(), c.splitk.tolist(), strict=True)) <= {(False, 0), (True, SPLIT_WORKSPACE)}
    config = c.row(int(np.flatnonzero((c.kg == np.unique(c.kg)[1]) & (c.block_rows > 2))[0]))
    near = space.refinements(p, H200, config)
    assert {config.kg // 2, config.kg * 2} <= set(near.kg.tolist())
    assert rules.legal(p, near, H200).all()
    assert {(config.block_rows // 2, config.block_lanes * 2), (config.block_rows * 2, config.block_lanes // 2)} & set(
        zip(near.block_rows.tolist(), near.block_lanes.tolist(), strict=True)
    )


def test_the_model_of_depthwise_filter_gradients_prefers_a_full_gpu():
    """One slice leaves most multiprocessors without a block."""
    ranked = Model.analytic(H200).rank(DEPTHWISE_GRADIENT, H200, 400)
    best, us = next((config, us) for config, us in ranked if config.family == "depthwise")
    assert best.kg > 1
    assert us >= ranked[0][1] > 0


def _feature_map_rows(p):
    c = space.candidates(p, H200)
    return c.take(np.flatnonzero((c.family == SLIDE.code) & (c.feature_map_bytes > 0)))


def test_depthwise_feature_maps_must_fit_shared_memory():
    """Problems of one class, whose images have different extents: the search finds what the rules allow."""
    small, large = (lower(Conv(8, 96, n, n, 96, 3, 3, padding=1, groups=96)) for n in (8, 28))
    assert SLIDE.neutral(small) == SLIDE.neutral(large)
    for p in (small, large, small):
        c = _feature_map_rows(p)
        axes = set(zip(c.strip_results.tolist(), c.block_lanes.tolist(), c.feature_map_bytes.tolist(), strict=True))
        every = product((1, 2, 4, 8, 16), (64, 128, 256), (4096, 8192, 16384, 32768))
        configs = {
            row: Config(
                family="depthwise", **dict(zip(("strip_results", "block_lanes", "feature_map_bytes"), row, strict=True))
            )
            for row in every
        }
        assert axes == {row for row, x in configs.items() if rules.first_violation(p, x, H200) is None}
        assert len(axes) == 60 if p is small else len(axes) < 60
    for layout, direction, some in (
        ("NHWC", "forward", False),
        ("NCHW", "forward", True),
        ("NCHW", "weight_grad", True),
    ):
        v = Conv(8, 96, 7, 7, 96, 3, 3, padding=1, groups=96, layout=layout, direction=direction)
        assert bool(len(_feature_map_rows(lower(v)))) == some


@pytest.mark.parametrize(("extent", "direction"), [(7, "input_grad"), (14, "forward"), (14, "weight_grad")])
def test_the_model_prefers_feature_maps_of_small_images(extent, direction):
    v = Conv(91, 720, extent, extent, 720, 3, 3, padding=1, groups=720, dtype="bf16", direction=direction)
    assert Model.analytic(H200).rank(v, H200, 1)[0][0].feature_map_bytes > 0


CELLS = [
    kernel(300, 200, 4000, "NN", "f16"),
    kernel(1, 70_000 * 16, 64, "NT"),
    lower(Conv(2, 64, 14, 14, 64, 3, 3, stride=2, padding=1, dtype="bf16", layout="NHWC", direction="input_grad")),
    lower(GroupedGemm(((64, 66, 640),) * 8)),
]


@pytest.mark.parametrize("p", CELLS, ids=("split", "grid", "phases", "group"))
def test_numbers_of_cells_are_those_of_each_cell(p):
    for part in space.candidates(p, H200).parts:
        plain = Columns(dict(part.cells.columns), len(part.cells))
        each, g = np.arange(len(plain)), geometry(part.problem, plain)
        names = ("tiles_m", "tiles_n", "tiles", "slices", "slice_k", "blocks")
        numbers = part.of_cells([getattr(part.geometry, name) for name in names], each)
        for name, of_cells in zip(names, numbers, strict=True):
            assert np.array_equal(np.broadcast_to(of_cells, len(plain)), getattr(g, name)), (
                part.base.family.name,
                name,
            )
        costs = space.cost_model(p, part.base.family.name).cell(part.problem, plain, g, H200)
        for field in fields(costs):
            of_cells, expected = (getattr(x, field.name) for x in (part.costs, costs))
            assert np.array_equal(of_cells, np.broadcast_to(expected, np.shape(of_cells))), field.name


def test_more_tiles_along_n_than_a_grid_allows_take_another_raster():
    c = space.candidates(kernel(1, 70_000 * 256, 64, "NT"), H200)
    assert set(c.raster_group[c.nl <= 256].tolist()) == {8}
