"""The rules of legal configurations of the family mma."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import DIRECT, PACK, SPLIT_FLAG, packs
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import power_of_two_in, where
from ptxgen.families import registry
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, instruction, lacks_wait, multiplies
from ptxgen.families.common.multistage_rules import SUM_A, SUM_COLUMNS
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.geometry import BYTES, MmaGeometry, MmaOperandGeometry, fragment_load
from ptxgen.lowering.bit_products import packs_bits
from ptxgen.lowering.block_scales import block_scaled, scales_of
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem
from ptxgen.problem.block_scales import DEPTH
from ptxgen.problem.device import Device

LOADS_LIMIT = 32  #: most loads in flight of one operand, per thread
PACKED_LIMIT = 1 << 36  #: most bytes of packed operands


def _times_power_of_two(block: Any, warp: Any) -> Any:
    """True if the number of warps along a side of the block's tile is a power of two."""
    warps = block // np.maximum(warp, 1)
    return (warps * warp == block) & (warps > 0) & (power_of_two_in(warps) == warps)


def _whole_bytes(p: KernelProblem, c: Any) -> Any:
    """False if ldmatrix reads pairs of 8-bit elements along a side of a warp's tile that is not a power of two."""
    first = fragment_load(p, operand_packing.kmajor(p, "a")) != BYTES
    second = fragment_load(p, operand_packing.kmajor(p, "b")) != BYTES
    return (first | (power_of_two_in(c.ms) == c.ms)) & (second | (power_of_two_in(c.ns) == c.ns))


def _widest(p: KernelProblem, c: Any, operand: int) -> Any:
    """The number of elements of the widest load of an operand. Packed operands are aligned to 16 bytes."""
    return where(packs(c, "ab"[operand]), 16 // p.element.bytes, p.vectors[operand])


def _operand_path(p: KernelProblem, c: Any, g: MmaGeometry) -> Any:
    """True if the operand paths are possible. If a K-major operand is packed, its K is padded, so the other one must be
    packed, too; flags need a cleared workspace; only strided operands can be packed."""
    a, b = packs(c, "a"), packs(c, "b")
    only_one = (a & operand_packing.kmajor(p, "a") & np.logical_not(b)) | (
        b & operand_packing.kmajor(p, "b") & np.logical_not(a)
    )
    flags = (c.kg > 1) & (c.splitk == SPLIT_FLAG)
    tables = a & (p.operand("A").access.mode != STRIDED) | b & (p.operand("B").access.mode != STRIDED)
    tables = tables | (a | b) & packs_bits(p)
    allowed = (not p.element.part) & (g.packed_bytes < PACKED_LIMIT) & np.logical_not(only_one | flags | tables)
    direct = (c.operand_path_a == DIRECT) & (c.operand_path_b == DIRECT)
    known = (c.operand_path_a >= 0) & (c.operand_path_a <= PACK) & (c.operand_path_b >= 0) & (c.operand_path_b <= PACK)
    return direct | (known & allowed)


def _cp_async(p: KernelProblem, d: Device, x: MmaOperandGeometry) -> Any:
    """True if cp.async can copy the operand: it copies 4, 8 or 16 bytes."""
    size = x.vec * p.element.bytes
    return (x.cp_async == 0) | ((size >= 4) & (size <= 16) & d.has_async_copy)


def _native(p: KernelProblem, d: Device) -> bool:
    """True if mma.sync of this type is useful. sm_90 converts fp8 to f16 first; this is faster than native products
    only for operands that TMA cannot load, and serves problems without native products."""
    native = bool(registry.native(p, d))
    return not native or any(v * p.element.bytes < 16 for v in p.vectors[:2])


def _scales(p: KernelProblem, c: Any) -> Any:
    """True if the tile of a warp lies in one block of 128 rows, and stages begin at multiples of their depth."""
    if not block_scaled(p):
        return True
    one = [(scales_of(p, n).rows == 1) | (DEPTH % np.maximum(side, 1) == 0) for n, side in (("A", c.ms), ("B", c.ns))]
    return one[0] & one[1] & (c.stream_k == 0)


RULES = (
    Rule(
        "mma_dtype",
        lambda p, c, g, d: multiplies(p) and instruction(p, d).sm <= d.sm <= instruction(p, d).last,
        "{d.target} has no mma.sync for {p.dtype} summed in {p.compute}: f16 and s8 need sm_75, bf16, tf32, f64 and"
        " c128 sm_80, fp8 sm_89; bits are for sm_80 to sm_90",
    ),
    Rule(
        "mma_native",
        lambda p, c, g, d: _native(p, d),
        lambda p, c, g, d: (
            f"{d.target} emulates mma.sync of {p.dtype} in f16; {' and '.join(registry.native(p, d))} multiplies it"
        ),
    ),
    Rule(
        "mma_tile",
        lambda p, c, g, d: (
            (c.ms % ROWS == 0)
            & (c.ns % COLUMNS == 0)
            & (c.ms <= 128)
            & (c.ns <= 256)
            & _times_power_of_two(c.ml, c.ms)
            & _times_power_of_two(c.nl, c.ns)
            & _whole_bytes(p, c)
        ),
        "warp tile {c.ms}x{c.ns} in block tile {c.ml}x{c.nl}: it must be a multiple of 16x8, at most"
        " 128x256, and the warps of a block along M and N a power of two; so must be sides of 8-bit operands that are"
        " not K-major",
    ),
    Rule(
        "mma_ns",
        lambda p, c, g, d: (fragment_load(p, p.layout[1] == "T") != BYTES) | (c.ns >= 16),
        "ns={c.ns}: ldmatrix loads 16 columns at a time of an 8-bit B that is not K-major",
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
    Rule(
        "mma_fragment_prefetch",
        lambda p, c, g, d: np.logical_not(lacks_wait(p.element.bytes, c.fragment_prefetch, c.ms, c.ns)),
        "ms={c.ms} and ns={c.ns}: with a single f64 MMA tile per warp take fragment_prefetch=0",
    ),
    Rule(
        "mma_vec_a",
        lambda p, c, g, d: (c.vec_a <= _widest(p, c, 0)) & (g.a.row_elements % np.maximum(c.vec_a, 1) == 0),
        "vec_a={c.vec_a} exceeds {p.vectors[0]}, the limit by A's alignment and rows, or does not divide the"
        " {g.a.row_elements} elements of a row of A's tile",
    ),
    Rule(
        "mma_vec_b",
        lambda p, c, g, d: (c.vec_b <= _widest(p, c, 1)) & (g.b.row_elements % np.maximum(c.vec_b, 1) == 0),
        "vec_b={c.vec_b} exceeds {p.vectors[1]}, the limit by B's alignment and rows, or does not divide the"
        " {g.b.row_elements} elements of a row of B's tile",
    ),
    Rule(
        "mma_cp_async_a",
        lambda p, c, g, d: _cp_async(p, d, g.a),
        "cp_async_a=1 (cp.async) copies 4, 8 or 16 bytes, not vec_a={c.vec_a} of {p.dtype}",
    ),
    Rule(
        "mma_cp_async_b",
        lambda p, c, g, d: _cp_async(p, d, g.b),
        "cp_async_b=1 (cp.async) copies 4, 8 or 16 bytes, not vec_b={c.vec_b} of {p.dtype}",
    ),
    Rule(
        "mma_loads_per_thread",
        lambda p, c, g, d: g.loads_per_thread <= LOADS_LIMIT,
        f"{{g.loads_per_thread}} loads per thread, stage and operand; the limit is {LOADS_LIMIT}",
    ),
    Rule(
        "mma_operand_path",
        lambda p, c, g, d: _operand_path(p, c, g),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: mma takes direct or pack, pack for both"
        " if a K-major operand is packed, not with splitk=flag_red; {g.packed_bytes} bytes of packed operands, less"
        " than 2^36",
    ),
    Rule(
        "mma_deferred_sts",
        lambda p, c, g, d: (c.deferred_sts == 0) | (c.cp_async_a == 0) | (c.cp_async_b == 0),
        "deferred_sts=1 needs an operand that is copied through registers",
    ),
    Rule(
        "mma_block_scales",
        lambda p, c, g, d: _scales(p, c),
        "ms={c.ms}, ns={c.ns}, stream_k={c.stream_k}: with scales of blocks, sides of a warp's tile along blocks of"
        f" {DEPTH} rows divide {DEPTH}, and stream_k is 0",
    ),
    SUM_COLUMNS,
    SUM_A,
)
