"""The rules of legal configurations of FMA kernels."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import DIRECT, PACK, SPLIT_FLAG
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.geometry import stores_via_smem
from ptxgen.codegen.vectorized import WARP
from ptxgen.families import registry
from ptxgen.families.common.fma import operand_packing
from ptxgen.families.common.fma.geometry import (
    SMALL_K,
    FmaGeometry,
    FmaOperandGeometry,
    adjacent_c,
    loads_fragments,
    packs_operands,
    pairs_columns,
    plain_sums,
    widest_load,
)
from ptxgen.families.common.multistage_rules import SUM_A, SUM_COLUMNS
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


def _loads_divide(g: FmaGeometry, x: FmaOperandGeometry) -> Any:
    """True if the loads of every thread have the same offsets from the thread's first load."""
    threads, row_loads = np.maximum(g.threads, 1), np.maximum(x.row_loads, 1)
    rows = np.maximum(threads // row_loads, 1)
    single = x.loads <= threads
    even = single | (x.loads % threads == 0)
    whole_rows = threads % row_loads == 0
    transposed = whole_rows & (single | ((x.tile % rows == 0) & (x.loads // x.tile % row_loads == 0)))
    kmajor_smem = single | (whole_rows & (rows % 8 == 0))
    direct = single | whole_rows | (row_loads % threads == 0)
    return (x.row_loads > 0) & even & np.where(x.kmajor_smem, kmajor_smem, np.where(x.transposed, transposed, direct))


def _computes(p: KernelProblem, d: Device) -> bool:
    """True if the device has scalar instructions of the problem's types."""
    if any(d.sm < x.element.sm for x in p.operands):
        return False
    if isinstance(p.algebra, InnerExpression):
        return p.accumulator.bytes >= 4
    sums = p.compute == p.accumulator.real or (p.compute == "tf32" and loads_fragments(p))
    return sums and p.element.bytes > 1


def _types(p: KernelProblem, c: Any, g: FmaGeometry | None, d: Device) -> str:
    """The message of the rule ``simt_dtype``."""
    if isinstance(p.algebra, InnerExpression):
        a, b = (x.dtype for x in p.operands)
        return (
            f"A is {a} and B is {b}, reduced in {p.compute} on {d.target}; family {c.family} reduces in f32, f64, s32"
            " and u32, and reads bf16 from sm_80 on"
        )
    return (
        f"family {c.family} multiplies f16, f32, f64, c64, c128 and, from sm_80, bf16; {p.dtype} summed in {p.compute}"
        f" on {d.target} is for tensor cores, unless it is tf32 with K of at most {SMALL_K}, which is multiplied in f32"
    )


def _pairs(p: KernelProblem, c: Any, g: FmaGeometry | None, d: Device) -> str:
    """The message of the rule ``simt_column_pairs``."""
    return (
        f"column_pairs={c.column_pairs}, ns={c.ns}, stages={c.stages}: pairs of columns need steps on f16, bf16, s16 or"
        f" u16 of A and B alone, with the results of the reduction in {p.compute}, instructions of {d.target} for them"
        " (s16, u16: from sm_90 on; f16, bf16: from sm_80 on), an even ns, and stages in shared memory"
    )


def _cp_async(d: Device, x: FmaOperandGeometry) -> Any:
    """True if cp.async can copy the operand: in 4, 8 or 16 bytes without conversion, and by single elements if it
    transposes."""
    size = x.vec * x.element
    copies = (size >= 4) & (size <= 16) & np.logical_not(x.converted) & d.has_async_copy
    return (x.cp_async == 0) | (copies & (np.logical_not(x.transposed) | (x.vec == 1)))


def _kmajor_smem(c: Any, g: FmaGeometry, x: FmaOperandGeometry) -> Any:
    """True if K-major rows in shared memory can be swizzled: a row has 2, 4 or 8 chunks of 16 bytes, and each thread
    group has whole chunks."""
    chunks = np.isin(c.u // x.chunk, (2, 4, 8)) & (g.uk % x.chunk == 0)
    return x.kmajor & (x.bytes >= 4) & chunks & (x.vec <= x.chunk)


def _loads_fragments(p: KernelProblem, c: Any, g: FmaGeometry) -> Any:
    """True if a configuration without shared memory uses no axis of shared memory, and a thread can use the elements of
    its loads."""
    unset = ("cp_async_a", "cp_async_b", "kmajor_smem_a", "kmajor_smem_b", "epilogue_smem", "prefetch_k")
    paths = "operand_path_a", "operand_path_b"
    off = reduce(and_, (getattr(c, name) == 0 for name in (*unset, *paths, "fragment_prefetch", "deferred_sts")))
    loads = (c.vec_a <= widest_load(c, g.a)) & (c.vec_b <= widest_load(c, g.b))
    return plain_sums(p) & off & (c.ks == 1) & (c.kl == 1) & loads


def _operand_path(p: KernelProblem, c: Any, g: FmaGeometry) -> Any:
    """True if the operand paths are possible: only matrices of one product, or of a batch of products, are packed;
    flags need a cleared workspace."""
    direct = (c.operand_path_a == DIRECT) & (c.operand_path_b == DIRECT)
    known = (c.operand_path_a >= 0) & (c.operand_path_a <= PACK) & (c.operand_path_b >= 0) & (c.operand_path_b <= PACK)
    flags = (c.kg > 1) & (c.splitk == SPLIT_FLAG)
    able = "packed_operands" in registry.of(c).provides and packs_operands(p)
    packs = able & (g.packed_bytes < operand_packing.LIMIT)
    return direct | (known & packs & np.logical_not(flags))


RULES = (
    Rule(
        "simt_dtype",
        lambda p, c, g, d: _computes(p, d),
        _types,
    ),
    Rule(
        "simt_tile_m",
        lambda p, c, g, d: c.ml % np.maximum(c.lanes_m * c.ms, 1) == 0,
        "ml={c.ml} must be a multiple of lanes_m·ms={c.lanes_m}·{c.ms}",
    ),
    Rule(
        "simt_tile_n",
        lambda p, c, g, d: c.nl % np.maximum(WARP // np.maximum(c.lanes_m, 1) * c.ns, 1) == 0,
        "nl={c.nl} must be a multiple of 32/lanes_m·ns=32/{c.lanes_m}·{c.ns}",
    ),
    Rule(
        "simt_warps",
        lambda p, c, g, d: (g.group >= WARP) & (g.group % WARP == 0),
        "(ml/ms)·(nl/ns)={g.group} threads must be a multiple of a warp, 32",
    ),
    Rule(
        "simt_depth",
        lambda p, c, g, d: (
            (c.u % np.maximum(c.kl, 1) == 0)
            & ((g.uk >= 2) | (c.u == 1))
            & (g.uk % np.maximum(c.ks, 1) == 0)
            & (c.prefetch_k >= 0)
            & (c.prefetch_k <= np.maximum(g.uk - 2, 0))
        ),
        "u={c.u} over kl={c.kl} leaves {g.uk} steps; they must be at least 2 (u=1: one), a multiple of ks={c.ks},"
        " and at least prefetch_k={c.prefetch_k} and two more",
    ),
    Rule(
        "simt_stages",
        lambda p, c, g, d: np.where(
            c.stages == 0,
            np.any(c.stages == 0) and _loads_fragments(p, c, g),
            (c.stages >= 2) & (c.u > 1) & (p.compute != "tf32"),
        ),
        "stages={c.stages}, u={c.u}: kernels with shared memory have two stages or more and u of 2 or more, and do not"
        " compute tf32; stages=0 is for one product of plain matrices with sums in f32 or f64, and takes"
        " ks=1, kl=1, cp_async_a=0, cp_async_b=0, kmajor_smem_a=0, kmajor_smem_b=0, epilogue_smem=0, prefetch_k=0,"
        " fragment_prefetch=0, deferred_sts=0, operand_path=direct, and vec_a={c.vec_a}, vec_b={c.vec_b} of at most u"
        " along K, else of at most the thread tile and 16 bytes of sums",
    ),
    Rule(
        "simt_kmajor_smem_a",
        lambda p, c, g, d: (c.kmajor_smem_a == 0) | _kmajor_smem(c, g, g.a),
        "kmajor_smem_a needs a K-major A with elements of 4 or 8 bytes in shared memory; u={c.u} must be 2, 4 or 8"
        " chunks of 16 bytes, whole ones per thread group, and vec_a={c.vec_a} at most a chunk",
    ),
    Rule(
        "simt_kmajor_smem_b",
        lambda p, c, g, d: (c.kmajor_smem_b == 0) | _kmajor_smem(c, g, g.b),
        "kmajor_smem_b needs a K-major B with elements of 4 or 8 bytes in shared memory; u={c.u} must be 2, 4 or 8"
        " chunks of 16 bytes, whole ones per thread group, and vec_b={c.vec_b} at most a chunk",
    ),
    Rule(
        "simt_f16x2",
        lambda p, c, g, d: (p.accumulator.bytes != 2) | ((c.ms >= 2) & (c.ns >= 2)),
        "ms={c.ms} and ns={c.ns} must be even for packed f16 arithmetic",
    ),
    Rule(
        "simt_gated",
        lambda p, c, g, d: ("store_gated" not in p.needs) | stores_via_smem(p, c) | (adjacent_c(p, c) > 1),
        "ns={c.ns}, kmajor_smem_b={c.kmajor_smem_b}: a gated activation makes an element of C of two adjacent sums of a"
        " thread; it takes ns of 2 or more and kmajor_smem_b=0, or epilogue_smem=1",
    ),
    Rule(
        "simt_column_pairs",
        lambda p, c, g, d: (c.column_pairs == 0) | (pairs_columns(p, d) & (c.ns >= 2) & (c.stages > 0)),
        _pairs,
    ),
    Rule(
        "simt_vec_a",
        lambda p, c, g, d: (
            (c.vec_a <= operand_packing.widest_load(p, c, "a")) & (c.vec_a <= np.where(g.a.kmajor, c.u, c.ml))
        ),
        "vec_a={c.vec_a} exceeds {p.vectors[0]}, the limit by A's alignment, rows and tile, or 16 bytes of a packed A",
    ),
    Rule(
        "simt_vec_b",
        lambda p, c, g, d: (
            (c.vec_b <= operand_packing.widest_load(p, c, "b")) & (c.vec_b <= np.where(g.b.kmajor, c.u, c.nl))
        ),
        "vec_b={c.vec_b} exceeds {p.vectors[1]}, the limit by B's alignment, rows and tile, or 16 bytes of a packed B",
    ),
    Rule(
        "simt_cp_async_a",
        lambda p, c, g, d: _cp_async(d, g.a),
        "cp_async_a=1 (cp.async) needs sm_80, 4 to 16 bytes an access, no conversion, and vec_a=1 where it transposes",
    ),
    Rule(
        "simt_cp_async_b",
        lambda p, c, g, d: _cp_async(d, g.b),
        "cp_async_b=1 (cp.async) needs sm_80, 4 to 16 bytes an access, no conversion, and vec_b=1 where it transposes",
    ),
    Rule(
        "simt_loads_a",
        lambda p, c, g, d: (c.stages == 0) | _loads_divide(g, g.a),
        "the {g.a.loads} loads of A's tile, {g.a.row_loads} side by side, do not split evenly over {g.threads} threads",
    ),
    Rule(
        "simt_loads_b",
        lambda p, c, g, d: (c.stages == 0) | _loads_divide(g, g.b),
        "the {g.b.loads} loads of B's tile, {g.b.row_loads} side by side, do not split evenly over {g.threads} threads",
    ),
    Rule(
        "simt_positions",
        lambda p, c, g, d: (c.kl == 1) | (p.algebra.state is None),
        "kl={c.kl}: a reduction to positions along K is joined in registers; it takes kl=1",
    ),
    Rule(
        "simt_deferred_sts",
        lambda p, c, g, d: (c.deferred_sts == 0) | (c.cp_async_a == 0) | (c.cp_async_b == 0),
        "deferred_sts=1 needs an operand that is copied through registers",
    ),
    Rule(
        "simt_operand_path",
        lambda p, c, g, d: _operand_path(p, c, g),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: direct, or pack for plain matrices"
        " of elements of 2 or 4 bytes, not with kg={c.kg} of splitk=flag_red;"
        " {g.packed_bytes} bytes of packed operands, less than 2^34",
    ),
    SUM_COLUMNS,
    SUM_A,
)
