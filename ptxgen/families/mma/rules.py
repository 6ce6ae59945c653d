"""What makes an mma.sync configuration legal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.config import DIRECT, PACK, SPLIT_FLAG
from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import pick
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.geometry import BYTES
from ptxgen.families.mma.instructions import COLUMNS, ROWS, instruction, multiplies
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm
from ptxgen.problem.device import Device

LOADS_LIMIT = 32  #: loads of one operand that a thread has under way


def _loads_divide(g: SimpleNamespace, x: SimpleNamespace) -> Any:
    """Each thread's loads keep one offset from its first, whatever the thread."""
    t = np.maximum(g.threads, 1)
    few = x.loads <= t
    return (x.across > 0) & (few | (x.loads % t == 0))


def _widest(p: KernelGemm, c: Any, operand: int) -> Any:
    """Elements of the widest access to an operand: copies are aligned to 16 bytes."""
    copied = operand_packing.packed(c, "ab"[operand])
    return pick(copied, 16 // p.element.bytes, p.vectors[operand])


def _repacks(p: KernelGemm, c: Any, g: SimpleNamespace) -> Any:
    """A K-major copy is longer along K, so the other operand must be copied too; flags need a cleared workspace; only
    matrices are copied."""
    first, second = operand_packing.packed(c, "a"), operand_packing.packed(c, "b")
    alone = (first & operand_packing.kmajor(p, "a") & np.logical_not(second)) | (
        second & operand_packing.kmajor(p, "b") & np.logical_not(first)
    )
    flagged = (c.kg > 1) & (c.splitk == SPLIT_FLAG)
    found = first & (p.addr_a != STRIDED) | second & (p.addr_b != STRIDED)
    fits = (g.copies < 1 << 36) & np.logical_not(alone | flagged | found)
    direct = (c.operand_path_a == DIRECT) & (c.operand_path_b == DIRECT)
    known = (c.operand_path_a >= 0) & (c.operand_path_a <= PACK) & (c.operand_path_b >= 0) & (c.operand_path_b <= PACK)
    return direct | (known & fits)


def _copies(p: KernelGemm, d: Device, x: SimpleNamespace) -> Any:
    """cp.async moves 4, 8 or 16 bytes; loads through registers any number."""
    size = x.vec * p.element.bytes
    return (x.copy == 0) | ((size >= 4) & (size <= 16) & d.has_async_copy)


def _native(p: KernelGemm, d: Device) -> bool:
    """Whether mma.sync of these types is worth having: sm_90 makes f16 of 8-bit floats first, which serves only what
    its own instruction, wgmma, cannot be fed by TMA."""
    if not p.element.fp8 or d.sm != 90:
        return True
    return any(v * p.element.bytes < 16 for v in p.vectors[:2])


RULES = (
    Rule(
        "mma_types",
        lambda p, c, g, d: multiplies(p) and d.sm >= instruction(p, d).sm,
        "{d.target} has no mma.sync for {p.dtype} summed in {p.compute}: f16, bf16, tf32, f64 and s8 need sm_80,"
        " e4m3 and e5m2 sm_89",
    ),
    Rule(
        "mma_native",
        lambda p, c, g, d: _native(p, d),
        "{d.target} emulates mma.sync of {p.dtype} in f16; wgmma multiplies it",
    ),
    Rule(
        "mma_tile",
        lambda p, c, g, d: (
            (c.ms >= 16)
            & (c.ns >= 8)
            & (c.ml % np.maximum(c.ms, 1) == 0)
            & (c.nl % np.maximum(c.ns, 1) == 0)
            & (c.ms <= 128)
            & (c.ns <= 256)
        ),
        "tiles of {c.ms}x{c.ns} a warp in {c.ml}x{c.nl} a block: from 16x8 to 128x256, and whole",
    ),
    Rule(
        "mma_columns",
        lambda p, c, g, d: (g.b.way != BYTES) | (c.ns >= 16),
        "ns={c.ns}: 8-bit columns of B that lie along N come by sixteen",
    ),
    Rule(
        "mma_depth",
        lambda p, c, g, d: (
            (c.u % np.maximum(c.kl, 1) == 0)
            & (g.uk % g.depth == 0)
            & (g.steps >= 2)
            & (c.prefetch_k >= 0)
            & (c.prefetch_k <= np.maximum(g.steps - 2, 0))
        ),
        "u={c.u} over kl={c.kl} leaves {g.steps} steps of {g.depth}; they must be whole, at least 2, and at least"
        " prefetch_k={c.prefetch_k} and two more",
    ),
    # ptxas 13.0 does not wait at the end of a loop for a DMMA whose sums the first one of the next pass adds to, where
    # fragments are read ahead and there is but one tile: sums were wrong on an H200
    Rule(
        "mma_chain",
        lambda p, c, g, d: (p.dtype != "f64") | (c.fragment_prefetch == 0) | (c.ms * c.ns > ROWS * COLUMNS),
        "ms={c.ms} and ns={c.ns} leave one tile of f64 sums, which must not be read ahead of: take fragment_prefetch=0",
    ),
    Rule(
        "mma_vector_a",
        lambda p, c, g, d: (c.vec_a <= _widest(p, c, 0)) & (c.vec_a <= g.a.length),
        "vec_a={c.vec_a} exceeds what A's alignment, rows and tile allow, {p.vectors[0]}",
    ),
    Rule(
        "mma_vector_b",
        lambda p, c, g, d: (c.vec_b <= _widest(p, c, 1)) & (c.vec_b <= g.b.length),
        "vec_b={c.vec_b} exceeds what B's alignment, rows and tile allow, {p.vectors[1]}",
    ),
    Rule(
        "mma_async_a",
        lambda p, c, g, d: _copies(p, d, g.a),
        "cp_async_a=1 (cp.async) moves 4, 8 or 16 bytes, not vec_a={c.vec_a} of {p.dtype}",
    ),
    Rule(
        "mma_async_b",
        lambda p, c, g, d: _copies(p, d, g.b),
        "cp_async_b=1 (cp.async) moves 4, 8 or 16 bytes, not vec_b={c.vec_b} of {p.dtype}",
    ),
    Rule(
        "mma_loads_a",
        lambda p, c, g, d: _loads_divide(g, g.a),
        "{g.threads} threads do not divide the {g.a.loads} loads of A's tile",
    ),
    Rule(
        "mma_loads_b",
        lambda p, c, g, d: _loads_divide(g, g.b),
        "{g.threads} threads do not divide the {g.b.loads} loads of B's tile",
    ),
    Rule(
        "mma_many",
        lambda p, c, g, d: g.most <= LOADS_LIMIT,
        "{g.most} loads a thread, stage and operand; more than 32 leave no registers",
    ),
    Rule(
        "mma_repack",
        lambda p, c, g, d: _repacks(p, c, g),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: mma takes direct or pack, pack for both where"
        " a K-major operand is packed, not with splitk=flag_red, and {g.copies} bytes of copies, at most 2^36",
    ),
    Rule(
        "mma_hold",
        lambda p, c, g, d: (c.deferred_sts == 0) | (c.cp_async_a == 0) | (c.cp_async_b == 0),
        "deferred_sts=1 needs an operand that is copied through registers",
    ),
)
