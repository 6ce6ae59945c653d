"""The geometry of mma.sync kernels: each warp computes a tile of C; ldmatrix or vector loads fill the fragments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import BOUNDS_PREDICATE
from ptxgen.codegen.geometry import MultistageGeometry, OperandGeometry, accumulator_bytes, stores_via_smem
from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import WARP, BoolOrColumn, IntOrColumn, ceil_div, power_of_two_in, where
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, instruction, lacks_wait
from ptxgen.families.mma import operand_packing
from ptxgen.lowering.block_scales import block_scaled, scales_of
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem

#: how fragments are loaded from shared memory
MATRIX = 0  #: ldmatrix: K-major rows, or .trans of 16-bit elements of MN-major rows
BYTES = 1  #: ldmatrix.trans of pairs of 8-bit elements, which two prmt then separate
VECTOR = 2  #: vector loads along M (or N), one row of K each
SINGLE = 3  #: one f64, or the two of a complex element, per load, of K-major rows

GUARDED = 6  #: registers per predicated load of 16 bytes
#: if a thread has this many narrower predicated loads, they take as many registers as four loads of 16 bytes
MANY_LOADS = 32
DEEP = 256  #: a stage counts as deep if it has this many elements of K
DEEP_REGISTERS = 32  #: registers kept in reserve for deep stages of fp8
SCALE_ADDRESSES = 24  #: registers for the addresses of block scales, and for a result before it is scaled
EARLY_STEPS = 4  #: most steps whose block scales are in registers at once
FULL_THREADS = 256  #: threads per multiprocessor up to which each can have 255 registers
#: registers for the parts of an element of a complex A with prefetched fragments: without and with conjugation
JOINED = 7, 12
POINTERS_LIMIT = 4  #: with more loads per thread, all share one pointer and each has a 32-bit offset


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MmaOperandGeometry(OperandGeometry):
    """The geometry of A or B in a block. Its *side* is M for A, N for B."""

    name: str  #: a or b
    tile: IntOrColumn  #: elements of the block tile along its side
    warp_tile: IntOrColumn  #: elements of the warp tile along its side
    warps: IntOrColumn  #: warps of the block along its side
    vec: IntOrColumn  #: elements per global load
    cp_async: IntOrColumn  #: 1: cp.async copies the operand, 0: it passes through registers
    kmajor: bool  #: True if K is contiguous, in global and in shared memory
    fragment_load: int  #: MATRIX, BYTES, VECTOR or SINGLE
    adjacent: IntOrColumn  #: adjacent rows (columns) of C that a lane holds
    row_pitch: IntOrColumn  #: elements from one row to the next in shared memory
    stage_bytes: IntOrColumn  #: bytes of a stage
    rows: IntOrColumn  #: rows of a stage
    row_elements: IntOrColumn  #: elements of a row of a stage, without padding
    row_loads: IntOrColumn  #: global loads per row of a stage
    run: IntOrColumn  #: adjacent loads of a row that adjacent threads make, a power of two
    run_loads: IntOrColumn  #: loads of this run in all rows together
    swizzled: BoolOrColumn  #: True if 16-byte chunks are swizzled in shared memory; else rows are padded
    bytes: int  #: bytes of an element
    chunk: int  #: elements per 16 bytes


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MmaGeometry(MultistageGeometry):
    """The geometry of an mma.sync kernel."""

    a: MmaOperandGeometry
    b: MmaOperandGeometry
    steps: IntOrColumn  #: MMA steps along K per K iteration
    depth: int  #: elements of K of an MMA step
    loads_per_thread: IntOrColumn  #: global loads of a thread per stage, for the operand that has more
    expected_registers: IntOrColumn  #: mean number of 32-bit registers that ptxas gives a thread
    packed_bytes: IntOrColumn  #: bytes of workspace for packed operands


def fragment_load(p: KernelProblem, kmajor: bool) -> int:
    """The way in which fragments of an operand are loaded from shared memory: MATRIX, BYTES, VECTOR or SINGLE."""
    size = p.element.bytes
    if size >= 8:
        return SINGLE if kmajor else VECTOR
    if kmajor or size == 2:
        return MATRIX
    return BYTES if size == 1 else VECTOR


def adjacent(p: KernelProblem, warp_tile: Any, first: bool, load: int) -> Any:
    """The number of adjacent rows (or columns) of C that one lane holds: the number of elements of a vector load. It is
    1 if more would take moves between registers, because the registers of a fragment are consecutive."""
    most = {BYTES: 2, VECTOR: 2 if first else 4 if p.element.bytes == 4 else 1}.get(load, 1)
    most = min(most, 16 // p.element.bytes)
    return np.maximum(np.minimum(power_of_two_in(warp_tile // 8), most), 1)


def adjacent_c(p: KernelProblem, c: Any) -> Any:
    """The number of adjacent elements of a row of C that a lane has in registers."""
    return 2 * adjacent(p, c.ns, False, fragment_load(p, p.layout[1] == "T"))


def operand(p: KernelProblem, c: Any, name: str) -> MmaOperandGeometry:
    """The geometry of operand ``name``."""
    first = name == "a"
    kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
    tile, warp_tile = (c.ml, c.ms) if first else (c.nl, c.ns)
    vec, cp_async = (c.vec_a, c.cp_async_a) if first else (c.vec_b, c.cp_async_b)
    bytes_, load = p.element.bytes, fragment_load(p, kmajor)
    row_elements, row_bytes = (c.u if kmajor else tile), tile * bytes_
    swizzled: Any = load != VECTOR
    if kmajor:
        pad: Any = 0
    elif load == VECTOR:  # rows of K that a quad of lanes reads have a distance of 32 bytes modulo 64
        pad = where(row_bytes % 64 == 32, 0, 32 // bytes_)
    else:  # eight rows start at different chunks modulo 128 bytes: they are swizzled, or have an odd number of chunks
        swizzled = power_of_two_in(tile) == tile
        pad = where(swizzled | (row_bytes % 32 == 16), 0, 16 // bytes_)
    row_loads = row_elements // vec
    run = power_of_two_in(row_loads)
    rows = tile if kmajor else c.u
    return MmaOperandGeometry(
        name=name,
        tile=tile,
        warp_tile=warp_tile,
        warps=tile // warp_tile,
        vec=vec,
        cp_async=cp_async,
        kmajor=kmajor,
        fragment_load=load,
        adjacent=adjacent(p, warp_tile, first, load),
        row_pitch=row_elements + pad,
        stage_bytes=bytes_ * (row_elements + pad) * rows,
        rows=rows,
        row_elements=row_elements,
        row_loads=row_loads,
        run=run,
        run_loads=where(run == row_loads, tile * c.u // vec, run * rows),
        swizzled=swizzled,
        loads=tile * c.u // vec,
        bytes=bytes_,
        chunk=16 // bytes_,
    )


def _c_row_pitch(nl: Any, sum_bytes: int, a: MmaOperandGeometry, b: MmaOperandGeometry) -> Any:
    """The number of elements from one row of C to the next in shared memory. With this pitch the stores of a warp have
    few bank conflicts: from lane to lane, rows differ by ``a.adjacent``, and vectors of up to 16 bytes by ``2
    b.adjacent`` columns."""
    if sum_bytes == 16:  # vectors of one element, at every other 16 bytes: an odd pitch fills the gaps
        return nl + 1
    if sum_bytes == 8:
        return nl + where(a.adjacent > 1, 4, (8 - nl) % 16)
    plain = where(a.adjacent > 1, 4, (8 - nl) % 32)
    return nl + where(b.adjacent > 2, 4, where(b.adjacent > 1, where(a.adjacent > 1, 8, 16), plain))


def _joined_parts(algebra: ComplexProduct, c: Any, elements: Any) -> Any:
    """The number of registers for negated and exchanged parts of ``elements`` elements of A; with prefetched fragments,
    ptxas spilled in none of 230 random kernels that have this many."""
    return elements * where(c.fragment_prefetch == 1, JOINED[algebra.conjugates[0]], 2 * len(algebra.negated))


def lane_scales(p: KernelProblem, c: Any) -> Any:
    """The number of block scales that a lane loads for a step: one for each of its rows and columns, or one for all."""
    rows, columns = (where(scales_of(p, x).rows == 1, side, 1) for x, side in (("A", c.ms // 8), ("B", c.ns // 4)))
    return rows + columns


def _smallest_part(p: KernelProblem, c: Any) -> tuple[Any, Any]:
    """Rows and columns of the smallest part of a warp's tile with a K loop of its own."""
    rows = where(c.ms % (2 * ROWS) == 0, c.ms // 2, c.ms)
    columns = where(c.ns % (2 * COLUMNS * max(1, 4 // p.element.bytes)) == 0, c.ns // 2, c.ns)
    columns = where(lacks_wait(p.element.bytes, c.fragment_prefetch, rows, columns), c.ns, columns)
    return where(lacks_wait(p.element.bytes, c.fragment_prefetch, rows, columns), c.ms, rows), columns


def counts(p: KernelProblem, c: Any) -> dict[str, Any]:
    """The geometry that depends only on tiles, extents and slices: threads, tiles and slices of K."""
    group, sum_bytes, depth = c.ml // c.ms * (c.nl // c.ns) * WARP, accumulator_bytes(p), instruction(p).depth
    packed_bytes = operand_packing.workspace(p, c)
    counted = tiles_and_slices(p, c, sum_bytes)
    return {
        "group": group,
        "threads": group * c.kl,
        "uk": c.u // c.kl,
        "steps": c.u // c.kl // depth,
        "depth": depth,
        "sum_bytes": sum_bytes,
        "packed_bytes": packed_bytes,
        **counted | {"workspace": counted["workspace"] + packed_bytes},
    }


def geometry(p: KernelProblem, c: Any) -> MmaGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    i, counted = instruction(p), counts(p, c)
    a, b = operand(p, c, "a"), operand(p, c, "b")
    threads = counted["threads"]
    stage_bytes = a.stage_bytes + b.stage_bytes
    sum_bytes = counted["sum_bytes"]
    c_row_pitch = _c_row_pitch(c.nl, sum_bytes, a, b)
    c_via_smem = stores_via_smem(p, c)
    shared = np.maximum(c.stages * stage_bytes, where(c_via_smem, c.ml * c_row_pitch * c.kl * sum_bytes, 0))
    words = max(p.element.bytes // 8 * 2, 1)
    permuted = 4 * sum(x.fragment_load == BYTES for x in (a, b)) + (32 if p.element.fp8 else 0)
    fragments = (c.ms // ROWS * i.registers_a + c.ns // COLUMNS * i.registers_b) * words
    if p.element.fp8:  # where they are multiplied as f16, both halves are live at once
        permuted = permuted + 3 * fragments + where((c.vec_a == 16) | (c.vec_b == 16), 24, 0)
    if isinstance(p.algebra, ComplexProduct):
        permuted = permuted + _joined_parts(p.algebra, c, c.ms // ROWS * i.registers_a)
    each = [np.maximum(ceil_div(x.loads, np.maximum(threads, 1)), 1) for x in (a, b)]
    in_flight = sum(
        where(x.cp_async == 0, n * np.maximum(x.vec * x.bytes // 4, 1), 0) for n, x in zip(each, (a, b), strict=True)
    )
    # each load that shares a pointer has an offset, which ptxas may widen to an address; beside block scales it keeps
    # one of them
    each_shared = 2 if block_scaled(p) else 3
    pointers = sum(
        where(n > POINTERS_LIMIT, where((x.cp_async == 1) & (n <= 16), 2 * n, each_shared * n), 2 * n)
        + where(c.bounds == 2, n, 0)
        + (0 if addressing == STRIDED else 5)
        for n, x, addressing in zip(each, (a, b), (p.operand("A").access.mode, p.operand("B").access.mode), strict=True)
    )
    if block_scaled(p):
        early = np.minimum(counted["steps"], EARLY_STEPS)  # ptxas moves loads of scales to earlier steps
        permuted = permuted + (2 + early) * lane_scales(p, c) + SCALE_ADDRESSES
    sums = c.ms * c.ns // WARP * i.sums // 4 * words
    # ptxas need not hold all prefetched fragments
    inverted = fragments if i.inverts else 0
    fragments = (
        inverted
        + fragments * (c.fragment_prefetch + 1)
        - where(c.fragment_prefetch == 1, fragments // 4 * (words - 1), 0)
    )
    registers = sums + fragments + permuted + in_flight + pointers + 32 + 8 * min(words, 2)
    live = sums + fragments + permuted + in_flight
    expected_registers = np.minimum(registers, live + sum(np.minimum(2 * n, n + 4) for n in each) + 22)
    guarded = sum(
        where(
            (x.cp_async == 0) & (c.bounds == BOUNDS_PREDICATE),
            GUARDED * where(x.vec * x.bytes == 16, n, where(n >= MANY_LOADS, 4, 1)),
            0,
        )
        for n, x in zip(each, (a, b), strict=True)
    )
    deep = where(c.u >= DEEP, DEEP_REGISTERS, 0) if p.element.fp8 else 0
    part_m, part_n = _smallest_part(p, c)
    return MmaGeometry(
        a=a,
        b=b,
        bytes=p.element.bytes,
        loads_per_thread=np.maximum(*each),
        stage_bytes=stage_bytes,
        part_m=part_m,
        part_n=part_n,
        shared=shared,
        c_row_pitch=c_row_pitch,
        c_via_smem=c_via_smem,
        registers=registers,
        expected_registers=expected_registers,
        # ptxas uses more registers where each thread can have 255
        reg_margin=where(threads * c.min_ctas_per_sm <= FULL_THREADS, np.minimum(guarded, 8 * GUARDED) + deep, 0),
        **counted,
    )
