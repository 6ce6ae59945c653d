"""Layouts of SIMT kernels: the elements that threads load, their positions in shared memory, the contents of fragments. The
address parts of a thread repeat templates/addr/strided.mako and thread_fragments.mako."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.common.fma.layout import fits_32bit_offsets
from ptxgen.families.common.issue_order import products
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.simt.plan import SimtPlan
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from tests.cases import SOURCES
from tests.lowered import first_violation

H200 = device("h200")
COUNT = 24  #: random plans


def simt_plan(p: Gemm, c: Config) -> SimtPlan:
    plan = plan_for(p, c, H200)
    assert isinstance(plan, SimtPlan)
    return plan


@cache
def plans(seed: int, count: int, threads: int = 256) -> list[SimtPlan]:
    sources = SOURCES["simt"], SOURCES["simt_wide"]
    return [simt_plan(p, c) for source in sources for p, c in source.cases(seed, count, H200, threads=threads)]


def every_plan() -> list[SimtPlan]:
    return plans(1, COUNT // 2)


def start(x, thread: int) -> tuple[int, int, int]:
    """The tuple (row along M or N, k) of a thread's first load, and its element of the stage."""
    if x.kmajor_smem:
        mn, k = thread >> x.log2_across, (thread & x.across - 1) * x.vec
        chunk = (mn >> x.swizzle_shift ^ k >> x.log2_chunk) & x.swizzle_q - 1
        return mn, k, (mn * x.swizzle_q + chunk) * x.chunk + (k & x.chunk - 1)
    if x.transposed:
        rest = thread >> x.log2_across
        mn, k = rest & x.tile - 1, ((rest >> x.log2_tile) * x.across + (thread & x.across - 1)) * x.vec
    else:
        mn, k = (thread & x.across - 1) * x.vec, thread >> x.log2_across
    return mn, k, k * x.row + mn


def stores(x, load) -> list[int]:
    """Bytes from the thread's first address to each element of a load."""
    if x.asynchronous:
        return [load.offset + j * x.bytes for j in range(x.vec)]
    puts = x.shared_stores[load.index]
    each = x.vec // len(puts)
    return [put.offset + j * x.bytes for put in puts for j in range(each)]


def stage(x, threads: int) -> dict[int, tuple[int, int]]:
    """Byte of the operand's part of a stage -> its (row, k)."""
    out: dict[int, tuple[int, int]] = {}
    for t in range(min(threads, x.vectors)):
        mn, k, place = start(x, t)
        for load in x.loads:
            for j, at in enumerate(stores(x, load)):
                where = (mn + load.mn, k + load.k + j) if x.kmajor else (mn + load.mn + j, k + load.k)
                byte = place * x.bytes + at
                assert byte not in out, "two elements in one place"
                assert byte % x.bytes == 0
                assert 0 <= byte <= x.size - x.bytes
                out[byte] = where
    return out


def first(plan: SimtPlan, x, thread: int) -> tuple[int, int]:
    """The pair (group that shares K, first row or column) of a thread."""
    lane, warp = thread & 31, (thread & plan.mainloop.group - 1) >> 5
    if plan.mainloop.interleaved:
        ln, lm = lane & 1, lane >> 1 & 1
        rest = lane >> 2
        ln += 2 * (rest & (1 << plan.mainloop.bits_n - 1) - 1)
        lm += 2 * (rest >> plan.mainloop.bits_n - 1)
    else:
        ln, lm = lane & plan.mainloop.warp_n - 1, lane >> plan.mainloop.bits_n
    row = (warp >> plan.mainloop.log2_warps_across) * plan.mainloop.warp_m * plan.mainloop.ms + lm * plan.a.contiguous
    column = (warp & plan.mainloop.warps_across - 1) * plan.mainloop.warp_n * plan.mainloop.ns + ln * plan.b.contiguous
    return thread >> plan.mainloop.log2_group, row if x is plan.a else column


def readers(plan: SimtPlan, x, thread: int) -> list[int]:
    """The addresses that a thread reads, in bytes of the operand's part of a stage."""
    group, row = first(plan, x, thread)
    if not x.kmajor_smem:
        return [(group * plan.mainloop.steps * x.row + row) * x.bytes]
    turn = (row >> x.swizzle_shift ^ group * (plan.mainloop.steps // x.chunk)) & x.swizzle_q - 1
    return [row * x.depth * x.bytes + (turn ^ q) * 16 for q in range(x.swizzle_q)]


def names(registers: str) -> list[str]:
    return registers.strip("{}").split(", ")


def fragment_loads(plan: SimtPlan, x, k: int) -> list[tuple[int, int, list[str]]]:
    """Triples (address index, offset, registers) of the fragment loads of a step."""
    out = []
    for read in x.fragment_loads(k, x.buffer(k)):
        reader, offset = re.fullmatch(rf"%frag_ptr_{x.name}(\d+)\+(\d+)", read.address).groups()
        out.append((int(reader), int(offset), names(read.registers)))
    return out


@pytest.mark.every(2)
@pytest.mark.parametrize("n", range(0, COUNT, 3))
def test_loads_cover_the_stage_and_fragments_match(n):
    plan = every_plan()[n]
    for x in plan.mainloop.operands:
        contents = stage(x, plan.threads)
        assert sorted(contents.values()) == [(mn, k) for mn in range(x.tile) for k in range(x.depth)]
        per = 2 if plan.mainloop.packed else 1  # elements of a register
        for t in range(0, plan.threads, 7 if plan.threads > 64 else 1):
            group, row = first(plan, x, t)
            at = readers(plan, x, t)
            held: dict[str, tuple[int, int]] = {}
            for k in range(plan.mainloop.steps):
                for reader, offset, registers in fragment_loads(plan, x, k):
                    for e, name in enumerate(registers):
                        held[name] = contents[at[reader] + offset + e * per * x.bytes]
                for i in range(0, x.thread, per):
                    name = x.fragment[x.buffer(k), i // 2] if plan.mainloop.packed else x.element(i, k)
                    assert held[name] == (row + x.offset(i), group * plan.mainloop.steps + k)
        if plan.mainloop.packed:
            assert x.offset(1) == 1  # the other half of a register


@pytest.mark.parametrize("n", range(COUNT))
def test_threads_of_a_group_partition_the_tile_of_c(n):
    plan = every_plan()[n]
    for group in range(plan.config.kl):
        seen: Counter[tuple[int, int]] = Counter()
        for t in range(group * plan.mainloop.group, (group + 1) * plan.mainloop.group):
            (g, row), (_, column) = first(plan, plan.a, t), first(plan, plan.b, t)
            assert g == group
            rows = [row + plan.a.offset(i) for i in range(plan.mainloop.ms)]
            seen.update((r, column + plan.b.offset(j)) for r in rows for j in range(plan.mainloop.ns))
        assert seen == Counter({(r, c): 1 for r in range(plan.config.ml) for c in range(plan.config.nl)})


def test_prefetched_fragments_do_not_overwrite_current_ones():
    """With fragment_prefetch, a step's fragments go to the other buffer, also from one iteration to the next."""
    checked = 0
    for plan in every_plan():
        for x in plan.mainloop.operands:
            if not x.prefetches:
                continue
            current = {
                x.element(i, k) if not plan.mainloop.packed else x.fragment[x.buffer(k), i // 2]
                for k in [plan.mainloop.steps - 1]
                for i in range(x.thread)
            }
            following = {r for _, _, registers in fragment_loads(plan, x, 0) for r in registers}
            assert not current & following
            checked += 1
    assert checked > 5


def wavefronts(addresses: list[int], size: int) -> int:
    """Shared-memory wavefronts of a warp's access; wide accesses proceed in halves or quarters of a warp."""
    lanes = 32 * 4 // max(size, 4)
    out = 0
    for n in range(0, 32, lanes):
        words = {a + o for a in addresses[n : n + lanes] for o in range(0, max(size, 4), 4)}
        out += max(Counter(w // 4 % 32 for w in {w & ~3 for w in words}).values())
    return out


@pytest.mark.each_pair
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    "tile", ["ms=8 ns=4 ml=64 nl=64 lanes_m=4", "ms=4 ns=8 ml=128 nl=64 lanes_m=8", "ms=4 ns=4 ml=64 nl=64 lanes_m=4"]
)
@pytest.mark.parametrize("lanes", [0, 1])
def test_fragment_loads_have_no_bank_conflicts(dtype, layout, tile, lanes):
    """For every layout: each part of an access of the first and the last warp takes one wavefront."""
    p, made = Gemm(256, 256, 256, layout, dtype), 0
    for u, keep in itertools.product((8, 16, 32), (0, 1)):
        keeps = f"kmajor_smem_a={keep * (layout[0] == 'N')} kmajor_smem_b={keep * (layout[1] == 'T')}"
        c = parse_config(f"{tile} u={u} stages=2 lane_interleave={lanes} {keeps}")
        if first_violation(p, c, H200):
            continue
        plan = simt_plan(p, c)
        made += 1
        for x in plan.mainloop.operands:
            for warp in {0, plan.threads - 32}:
                at = [readers(plan, x, t) for t in range(warp, warp + 32)]
                for k in range(plan.mainloop.steps):
                    for reader, offset, registers in fragment_loads(plan, x, k):
                        size = len(registers) * x.bytes
                        assert wavefronts([a[reader] + offset for a in at], size) == size // 4
    assert made >= 3


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("vec", [1, 2, 4])
def test_transposing_stores_have_no_bank_conflicts(dtype, vec):
    p = Gemm(256, 256, 256, "NT", dtype)
    for u in (8, 16, 32):
        c = Config(ms=4, ns=4, u=u, vec_a=vec, vec_b=vec, cp_async_a=0, cp_async_b=0, stages=2)
        if first_violation(p, c, H200):
            continue
        plan = simt_plan(p, c)
        for x in plan.mainloop.operands:
            assert x.transposed
            for warp in range(0, plan.threads, 32):
                places = [start(x, t)[2] * x.bytes for t in range(warp, warp + 32)]
                for load in x.loads:
                    for at in stores(x, load):
                        assert wavefronts([a + at for a in places], x.bytes) == x.bytes // 4


def test_missing_swizzle_shows_bank_conflicts():
    """The counter above works: rows of 128 bytes without swizzle conflict."""
    assert wavefronts([128 * n for n in range(32)], 4) == 32
    assert wavefronts([128 * n for n in range(32)], 16) == 32
    assert wavefronts([4 * n for n in range(32)], 4) == 1
    assert wavefronts([16 * n for n in range(32)], 16) == 4
    assert wavefronts([0] * 32, 4) == 1
    assert wavefronts([8 * n for n in range(32)], 8) == 2


def test_every_product_occurs_once_and_neighbours_share_operands():
    for ms, ns in ((1, 1), (1, 8), (8, 1), (4, 8), (16, 2)):
        every = {(i, j) for i in range(ms) for j in range(ns)}
        for order in (0, 1, 2):
            made = products(ms, ns, order)
            assert len(made) == ms * ns
            assert set(made) == every
            if order < 2:
                assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(made))
    assert products(2, 3, 2) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert products(2, 3, 0) == [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    assert products(2, 3, 1) == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]


def test_32_bit_offsets_are_used_only_if_sufficient():
    """With many loads a thread keeps one pointer and 32-bit offsets, unless they span four gigabytes."""
    text = "ml=256 nl=64 u=16 stages=2 cp_async_b=0"
    rows, deep, most = (1 << 32) // 4 // 255, (1 << 32) // 4 // 15, (1 << 31) - 1
    for layout in ("NT", "TN"):
        down = layout == "TN"  # the leading dimension is along K, of which there is less
        for ld, expected in (
            (512, True),
            (rows - 1, True),
            (rows + 1, down),
            (1 << 25, down),
            (deep + 1, False),
            (most, False),
        ):
            p = Gemm(512, 512, 512, layout, lda=ld)
            x = simt_plan(p, parse_config(text if down else f"{text} kmajor_smem_a=1 cp_async_a=0")).a
            assert len(x.loads) > 4
            offsets = [
                (mn + q.mn) * ld + k + q.k if x.kmajor else (k + q.k) * ld + mn + q.mn
                for t in range(64)
                for mn, k, _ in [start(x, t)]
                for q in x.loads
            ]
            fits = max(offsets) * x.global_bytes < 1 << 32
            assert fits_32bit_offsets(x, ld) == x.shared_pointer == expected
            assert fits or not x.shared_pointer


def test_thread_offsets_match_numpy():
    """offset(i): contiguous runs, interleaved over the threads of a warp."""
    for plan in every_plan():
        for x in plan.mainloop.operands:
            run = x.contiguous
            expected = np.arange(x.thread) // run * x.warp * run + np.arange(x.thread) % run
            assert [x.offset(i) for i in range(x.thread)] == expected.tolist()
