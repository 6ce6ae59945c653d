"""The baseline Gluon: a kernel with stages of A and B in shared memory, copied by cp.async, and accumulators with an
explicit layout."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ptxgen.expr.python_text import GLUON, type_in
from ptxgen.operations.task.baselines.checked import Candidate
from ptxgen.operations.task.baselines.libraries import load_gluon, module_of
from ptxgen.operations.task.baselines.operands import padded_extents
from ptxgen.operations.task.baselines.parts import Parts
from ptxgen.operations.task.baselines.triton_outer import GROUP, OfTiles, blocks_of, tensors_of
from ptxgen.operations.task.text_blocks import filled
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.vendor_libraries import load_torch


class Tile(NamedTuple):
    """A tile of C, ``bm``×``bn``, with the steps per stage, the number of stages, and the warps along M and N."""

    bm: int
    bn: int
    steps: int
    stages: int
    warps_m: int
    warps_n: int


TILES = (Tile(128, 128, 8, 3, 4, 2), Tile(128, 128, 16, 3, 4, 2), Tile(64, 64, 16, 3, 2, 2))
SOURCE = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@gluon.jit
def kernel(A, B, C, «arrays»M, N, K, MP, NP, KP, BM: gl.constexpr, BN: gl.constexpr, STEPS: gl.constexpr,
           STAGES: gl.constexpr, GROUP: gl.constexpr, L: gl.constexpr, LA: gl.constexpr, LB: gl.constexpr,
           SHARED: gl.constexpr):
    block = gl.program_id(0)
    tiles_m = MP // BM
    tiles_n = NP // BN
    first = block // (GROUP * tiles_n) * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    row = (first + block % (GROUP * tiles_n) % rows) * BM
    column = block % (GROUP * tiles_n) // rows * BN
    shared_a = gl.allocate_shared_memory(«type_a», [STAGES, STEPS, BM], SHARED)
    shared_b = gl.allocate_shared_memory(«type_b», [STAGES, STEPS, BN], SHARED)
    rows_a = gl.arange(0, STEPS, gl.SliceLayout(1, LA))[:, None] * MP
    at_a = A + rows_a + (row + gl.arange(0, BM, gl.SliceLayout(0, LA)))[None, :]
    rows_b = gl.arange(0, STEPS, gl.SliceLayout(1, LB))[:, None] * NP
    at_b = B + rows_b + (column + gl.arange(0, BN, gl.SliceLayout(0, LB)))[None, :]
    accum = gl.full([BM, BN], «identity», «type», L)
    i = row + gl.arange(0, BM, gl.SliceLayout(1, L))
    j = column + gl.arange(0, BN, gl.SliceLayout(0, L))
    «vectors»
    for stage in gl.static_range(STAGES - 1):
        async_copy.async_copy_global_to_shared(shared_a.index(stage), at_a)
        async_copy.async_copy_global_to_shared(shared_b.index(stage), at_b)
        async_copy.commit_group()
        at_a += STEPS * MP
        at_b += STEPS * NP
    count = KP // STEPS
    for n in range(count):
        async_copy.wait_group(STAGES - 2)
        gl.thread_barrier()
        into = (n + STAGES - 1) % STAGES
        more = n + STAGES - 1 < count
        async_copy.async_copy_global_to_shared(shared_a.index(into), at_a, mask=gl.full([STEPS, BM], more, gl.int1, LA))
        async_copy.async_copy_global_to_shared(shared_b.index(into), at_b, mask=gl.full([STEPS, BN], more, gl.int1, LB))
        async_copy.commit_group()
        at_a += STEPS * MP
        at_b += STEPS * NP
        stage_a = shared_a.index(n % STAGES)
        stage_b = shared_b.index(n % STAGES)
        for step in gl.static_range(STEPS):
            k = n * STEPS + step
            a = stage_a.slice(step, 1, 0).permute((1, 0)).load(L)
            b = stage_b.slice(step, 1, 0).load(L)
            «along_k»
            «step»
    «elements»
    «value»
    gl.store(C + i[:, None].to(gl.int64) * NP + j[None, :], «result»)
"""


def source_of(parts: Parts) -> str:
    """The source of the module with the kernel. DtypeError: Gluon lacks an operator or a type."""
    blocks, words = blocks_of(parts, GLUON, "gl")
    types = {u.role: type_in(GLUON, u.dtype) for u in parts.problem.roles.uses}
    result = words["result"].replace("gl.full((BM, BN), ", "gl.full([BM, BN], ")
    if result.startswith("gl.full(["):
        result = f"{result[:-1]}, L)"
    return filled(SOURCE, blocks, words | {"type_a": types["A"], "type_b": types["B"], "result": result})


def copy_layout(gl: Any, extent: int, size: int, warps: int) -> Any:
    """The layout in which threads copy a stage, 16 bytes each. ``extent``: elements of a row; ``size``: bytes of an
    element; ``warps``: warps of a block."""
    width = 16 // size
    lanes = min(32, extent // width)
    return gl.BlockedLayout([1, width], [32 // lanes, lanes], [warps, 1], [1, 0])


class GluonStaged(OfTiles):
    """The staged kernel in Gluon, with each tile of ``TILES``."""

    title = "Gluon"

    def candidates(self, sets: Sequence[Mapping[str, int]]) -> Iterator[Candidate]:
        load_gluon()
        torch, p = load_torch(), self.problem
        module = module_of(source_of(self.parts))
        gl = module.gl
        m, n, k = padded_extents(p)
        sizes = {u.role: dtype(u.dtype).bytes for u in p.roles.uses}
        pointers = [tensors_of(torch, self.parts, addresses) for addresses in sets]
        for tile in TILES:
            warps = tile.warps_m * tile.warps_n
            options = {
                "BM": tile.bm,
                "BN": tile.bn,
                "STEPS": tile.steps,
                "STAGES": tile.stages,
                "GROUP": GROUP,
                "L": gl.BlockedLayout([4, 4], [4, 8], [tile.warps_m, tile.warps_n], [1, 0]),
                "LA": copy_layout(gl, tile.bm, sizes["A"], warps),
                "LB": copy_layout(gl, tile.bn, sizes["B"], warps),
                "SHARED": gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
                "num_warps": warps,
            }
            grid = (m // tile.bm * (n // tile.bn),)
            launches = [
                functools.partial(module.kernel[grid], *each, p.m, p.n, p.k, m, n, k, **options) for each in pointers
            ]
            yield Candidate(f"{tile.bm}×{tile.bn}×{tile.steps}", launches)
