"""What makes a SIMT configuration legal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device


def _loads_divide(g: SimpleNamespace, x: SimpleNamespace) -> Any:
    """Each thread's loads keep one offset from its first, whatever the thread."""
    t = np.maximum(g.threads, 1)
    across = np.maximum(x.across, 1)
    down = np.maximum(t // across, 1)
    many = x.loads > t
    few = np.logical_not(many)
    even = few | (x.loads % t == 0)
    transposed = (t % across == 0) & (few | ((x.tile % down == 0) & (x.loads // x.tile % across == 0)))
    kept = few | ((t % across == 0) & (down % 8 == 0))
    direct = few | (t % across == 0) | (across % t == 0)
    return (x.across > 0) & even & np.where(x.kept, kept, np.where(x.transposed, transposed, direct))


def _copies(p: KernelGemm, d: Device, x: SimpleNamespace) -> Any:
    """cp.async moves 4, 8 or 16 bytes as they are; transposing, one element at a time."""
    size = x.vec * p.element.bytes
    whole = (size >= 4) & (size <= 16) & (x.bytes == p.element.bytes) & d.has_async_copy
    return (x.copy == 0) | (whole & (np.logical_not(x.transposed) | (x.vec == 1)))


RULES = (
    Rule(
        "types",
        lambda p, c, g, d: (
            p.compute in ("f16", "f32", "f64") and p.element.bytes > 1 and (p.dtype != "bf16" or d.sm >= 80)
        ),
        "family simt multiplies f16, f32, f64 and, from sm_80, bf16; {p.dtype} summed in {p.compute} on {d.target}"
        " is for tensor cores",
    ),
    Rule(
        "tile_m",
        lambda p, c, g, d: c.ml % np.maximum(c.lanes_m * c.ms, 1) == 0,
        "ml={c.ml} must be a multiple of lanes_m·ms={c.lanes_m}·{c.ms}",
    ),
    Rule(
        "tile_n",
        lambda p, c, g, d: c.nl % np.maximum(WARP // np.maximum(c.lanes_m, 1) * c.ns, 1) == 0,
        "nl={c.nl} must be a multiple of 32/lanes_m·ns=32/{c.lanes_m}·{c.ns}",
    ),
    Rule(
        "warps",
        lambda p, c, g, d: (g.group >= WARP) & (g.group % WARP == 0),
        "(ml/ms)·(nl/ns)={g.group} threads must be a multiple of a warp, 32",
    ),
    Rule(
        "depth",
        lambda p, c, g, d: (
            (c.u % np.maximum(c.kl, 1) == 0)
            & (g.uk >= 2)
            & (g.uk % np.maximum(c.ks, 1) == 0)
            & (c.prefetch_k >= 0)
            & (c.prefetch_k <= np.maximum(g.uk - 2, 0))
        ),
        "u={c.u} over kl={c.kl} leaves {g.uk} steps; they must be at least 2, a multiple of ks={c.ks},"
        " and at least prefetch_k={c.prefetch_k} and two more",
    ),
    Rule(
        "kept_a",
        lambda p, c, g, d: (
            (c.kmajor_smem_a == 0)
            | (
                g.a.kmajor
                & (g.bytes >= 4)
                & (g.uk % g.a.chunk == 0)
                & (c.vec_a <= g.a.chunk)
                & np.isin(c.u // g.a.chunk, (2, 4, 8))
            )
        ),
        "kmajor_smem_a needs a K-major A of 4 or 8 bytes in shared memory, u={c.u} of 2, 4 or 8 chunks of 16 bytes,"
        " whole ones a group, and vec_a={c.vec_a} within a chunk",
    ),
    Rule(
        "kept_b",
        lambda p, c, g, d: (
            (c.kmajor_smem_b == 0)
            | (
                g.b.kmajor
                & (g.bytes >= 4)
                & (g.uk % g.b.chunk == 0)
                & (c.vec_b <= g.b.chunk)
                & np.isin(c.u // g.b.chunk, (2, 4, 8))
            )
        ),
        "kmajor_smem_b needs a K-major B of 4 or 8 bytes in shared memory, u={c.u} of 2, 4 or 8 chunks of 16 bytes,"
        " whole ones a group, and vec_b={c.vec_b} within a chunk",
    ),
    Rule(
        "packed",
        lambda p, c, g, d: (p.compute != "f16") | ((c.ms >= 2) & (c.ns >= 2)),
        "ms={c.ms} and ns={c.ns} must be even for packed f16 arithmetic",
    ),
    Rule(
        "vector_a",
        lambda p, c, g, d: (c.vec_a <= p.vectors[0]) & (c.vec_a <= np.where(g.a.kmajor, c.u, c.ml)),
        "vec_a={c.vec_a} exceeds what A's alignment, rows and tile allow, {p.vectors[0]}",
    ),
    Rule(
        "vector_b",
        lambda p, c, g, d: (c.vec_b <= p.vectors[1]) & (c.vec_b <= np.where(g.b.kmajor, c.u, c.nl)),
        "vec_b={c.vec_b} exceeds what B's alignment, rows and tile allow, {p.vectors[1]}",
    ),
    Rule(
        "async_a",
        lambda p, c, g, d: _copies(p, d, g.a),
        "cp_async_a=1 (cp.async) needs sm_80, 4 to 16 bytes an access, no conversion, and vec_a=1 where it transposes",
    ),
    Rule(
        "async_b",
        lambda p, c, g, d: _copies(p, d, g.b),
        "cp_async_b=1 (cp.async) needs sm_80, 4 to 16 bytes an access, no conversion, and vec_b=1 where it transposes",
    ),
    Rule(
        "loads_a",
        lambda p, c, g, d: _loads_divide(g, g.a),
        "the {g.a.loads} loads of A's tile, {g.a.across} side by side, do not split evenly over {g.threads} threads",
    ),
    Rule(
        "loads_b",
        lambda p, c, g, d: _loads_divide(g, g.b),
        "the {g.b.loads} loads of B's tile, {g.b.across} side by side, do not split evenly over {g.threads} threads",
    ),
    Rule(
        "deferred_sts",
        lambda p, c, g, d: (c.deferred_sts == 0) | (c.cp_async_a == 0) | (c.cp_async_b == 0),
        "deferred_sts=1 needs an operand that is copied through registers",
    ),
)
