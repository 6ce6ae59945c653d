"""The geometry of FMA kernels: each thread computes a tile of C by FFMA, DFMA or HFMA2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import BOUNDS_NONE, BOUNDS_PREDICATE, packs
from ptxgen.codegen.geometry import MultistageGeometry, OperandGeometry, accumulator_bytes, stores_via_smem
from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import SECTOR, WARP, BoolOrColumn, IntOrColumn, ceil_div, where
from ptxgen.expr.node import variables
from ptxgen.families.common.fma import operand_packing
from ptxgen.lowering import step_rate
from ptxgen.lowering.algebra import PLUS_TIMES, InnerExpression
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.implicit_gemm import IM2COL, TABLE
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype

#: address mode -> registers that a thread keeps for each row and column of its loads
TABLE_REGISTERS = {STRIDED: 0, TABLE: 1, IM2COL: 2}

#: the estimate of registers counts addresses and predicates for at most this many loads of a thread, and at most this
#: many rows (columns) of loads
LOADS, LINES = 16, 4
F16X2_MARGIN = 5  #: registers in reserve for packed f16 arithmetic, or for several accumulator sets
PREDICATE_MARGIN = 10  #: registers in reserve for predicated loads
KMAJOR_MARGIN = 12  #: registers in reserve for K-major rows of two operands in shared memory
LDG_MARGIN = 12  #: registers in reserve for operands that pass through registers
F64_MARGIN = 20  #: further registers in reserve if these operands have 64-bit elements
#: bytes of a widened element -> registers of loads in flight per loaded register
IN_FLIGHT = {1: 5, 2: 2}
SMALL_K = 16  #: the greatest K for which kernels without shared memory are candidates
#: for arrays that steps read besides A and B: loads along K that ptxas hoists; steps of loads along K and M or N that
#: ptxas hoists; registers in reserve
STEP_LOADS, STEPS_AHEAD, STEP_MARGIN = 8, 4, 18
#: a thread with at least this many accumulators has so many steps that ptxas keeps the values of several; the number of
#: registers that these take
STEP_TILE, STEP_VALUES = 128, 64
FULL_THREADS = 256  #: the most threads per multiprocessor for which each can have 255 registers


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FmaOperandGeometry(OperandGeometry):
    """The geometry of A or B in a block. Its *side* is M for A, N for B."""

    name: str  #: a or b
    tile: IntOrColumn  #: elements of the block tile along its side
    thread_tile: IntOrColumn  #: elements of the thread tile along its side
    warp_threads: IntOrColumn  #: threads of a warp along its side
    vec: IntOrColumn  #: elements per global load
    cp_async: IntOrColumn  #: 1: cp.async copies the operand, 0: it passes through registers
    kmajor: BoolOrColumn  #: True if K is contiguous in global memory
    kmajor_smem: BoolOrColumn  #: True if K is contiguous in shared memory, too
    transposed: BoolOrColumn  #: True if the operand is transposed on the way to shared memory
    row_pitch: IntOrColumn  #: elements from one row to the next in shared memory
    stage_bytes: IntOrColumn  #: bytes of a stage
    row_loads: IntOrColumn  #: adjacent global loads of consecutive lanes along a row
    row_chunks: IntOrColumn  #: chunks of 16 bytes of a K-major row in shared memory, else 0
    element: int  #: bytes of an element in global memory
    bytes: IntOrColumn  #: bytes of an element in shared memory
    converted: BoolOrColumn  #: True if elements have another type in shared memory
    chunk: IntOrColumn  #: elements per 16 bytes
    addressing: str  #: how global memory is addressed: strided, or by offset tables


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FmaGeometry(MultistageGeometry):
    """The geometry of an FMA kernel."""

    a: FmaOperandGeometry
    b: FmaOperandGeometry
    packed_bytes: IntOrColumn  #: bytes of workspace for packed operands


def has_paired_steps(p: KernelProblem) -> bool:
    """True if a register may hold the accumulators of two columns of an inner expression."""
    return isinstance(p.algebra, InnerExpression) and p.algebra.paired is not None


def values_in_register(p: KernelProblem, c: Any) -> Any:
    """The number of adjacent columns of C whose accumulators share one register."""
    if has_paired_steps(p):
        return 1 + c.column_pairs
    return 2 if p.accumulator.bytes == 2 else 1


def pairs_columns(p: KernelProblem, d: Device) -> bool:
    """True if the device has the instructions for the paired steps of a problem."""
    return step_rate.of_pairs(p.algebra, d) is not None


def staged_bytes(p: KernelProblem, c: Any, name: str) -> Any:
    """The number of bytes of one element of operand ``name`` in shared memory, which holds the type of the arithmetic:
    16-bit elements that are summed in f32 are stored as f32. If steps are paired, each element of A is stored twice and
    those of B unchanged."""
    held = dtype(p.held_type(name.upper())).bytes
    if name == "a" or held == 2:
        return held
    return where(values_in_register(p, c) == 2, 2, held)


def element_bytes(p: KernelProblem) -> tuple[int, int]:
    """Bytes of one element of A and of B in global memory."""
    a, b = (x.element.bytes for x in p.operands)
    return a, b


def row_pitch_c(c: Any) -> Any:
    """The number of elements from one row of C to the next in shared memory."""
    return c.nl + 4


def staging_bytes(p: KernelProblem, c: Any) -> Any:
    """The number of bytes of shared memory through which the epilogue stores C."""
    return c.ml * row_pitch_c(c) * c.kl * accumulator_bytes(p)


def kmajor_global(p: KernelProblem, c: Any, name: str) -> Any:
    """True if K is contiguous in operand ``name`` in global memory. The rows of a packed copy are along M (N)."""
    return operand_packing.kmajor(p, name) and np.logical_not(packs(c, name))


def kmajor_in_smem(p: KernelProblem, c: Any, name: str) -> Any:
    """True if K is contiguous in operand ``name`` in shared memory."""
    return ((c.kmajor_smem_a if name == "a" else c.kmajor_smem_b) == 1) & kmajor_global(p, c, name)


def adjacent_c(p: KernelProblem, c: Any) -> Any:
    """The number of adjacent elements of a row of C that a thread has in registers."""
    return np.where(kmajor_in_smem(p, c, "b"), 1, np.minimum(16 // staged_bytes(p, c, "b"), c.ns))


def operand(p: KernelProblem, c: Any, name: str) -> FmaOperandGeometry:
    """The geometry of operand ``name``."""
    first = name == "a"
    kmajor, kmajor_smem = kmajor_global(p, c, name), kmajor_in_smem(p, c, name)
    tile, thread_tile = (c.ml, c.ms) if first else (c.nl, c.ns)
    vec, cp_async = (c.vec_a, c.cp_async_a) if first else (c.vec_b, c.cp_async_b)
    keeps_layout = c.kmajor_smem_a if first else c.kmajor_smem_b
    element, held = p.operand(name.upper()).element, dtype(p.held_type(name.upper()))
    bytes_ = staged_bytes(p, c, name)
    transposed = (keeps_layout == 0) & kmajor
    pad = np.maximum(4, 16 // bytes_)  # rows stay 16-byte aligned, and stores across rows have no bank conflicts
    row_pitch = where(kmajor_smem, c.u, where(transposed, tile + pad, tile))
    stage_bytes = ceil_div(bytes_ * row_pitch * where(kmajor_smem, tile, c.u), 16) * 16  # B follows A
    sector_loads = SECTOR // (vec * element.bytes)
    row_loads = where(kmajor_smem, c.u // vec, where(transposed, np.minimum(sector_loads, c.u // vec), tile // vec))
    return FmaOperandGeometry(
        name=name,
        tile=tile,
        thread_tile=thread_tile,
        warp_threads=c.lanes_m if first else WARP // c.lanes_m,
        vec=vec,
        cp_async=cp_async,
        kmajor=kmajor,
        kmajor_smem=kmajor_smem,
        transposed=transposed,
        row_pitch=row_pitch,
        stage_bytes=stage_bytes,
        row_loads=row_loads,
        loads=tile * c.u // vec,
        row_chunks=where(kmajor_smem, c.u * bytes_ // 16, 0),
        element=element.bytes,
        bytes=bytes_,
        converted=(held is not element) & (bytes_ == held.bytes),
        chunk=16 // bytes_,
        addressing=p.operand("A").access.mode if first else p.operand("B").access.mode,
    )


def _lines(x: FmaOperandGeometry, threads: Any, loads: Any) -> Any:
    """The number of rows of A, or columns of B, from which a thread loads. ``loads``: the number of its loads."""
    one = np.maximum(x.row_loads // np.maximum(threads, 1), 1)
    many = np.maximum(x.tile * x.row_loads // np.maximum(threads, 1), 1)
    return np.minimum(loads, where(x.kmajor_smem | x.transposed, many, one))


def _early(p: KernelProblem, c: Any, operands: tuple[Any, Any], each: list[Any], threads: Any, packed: Any) -> Any:
    """The registers that ptxas uses beyond the live values: for addresses of loads that it hoists out of the loop; for
    bounds checks beyond the seven predicate registers; for several accumulator sets; for early loads of K-major rows,
    of 64-bit and of 16-bit elements."""
    loads = sum(n if x.addressing == STRIDED else 0 for x, n in zip(operands, each, strict=True))
    addresses = 2 * np.maximum(loads - LOADS, 0) + 2 * np.maximum(loads - 3 * LOADS // 2, 0)
    bounds = 0
    if np.any(c.bounds == BOUNDS_PREDICATE):  # few candidates have predicates
        lines = sum(_lines(x, threads, n) for x, n in zip(operands, each, strict=True))
        bounds = where(c.bounds == BOUNDS_PREDICATE, 11 * np.maximum(lines - LINES, 0) + 8, 0)
    sets = where(
        c.ks > 1, where(c.bounds == BOUNDS_PREDICATE, 56, where(c.bounds == BOUNDS_NONE, 0, where(c.ks > 2, 32, 6))), 0
    )
    if max(element_bytes(p)) >= 8:
        by_type = 4 + where(c.ks > 1, 20, 0) + where(c.bounds == BOUNDS_PREDICATE, 16, 0)
    elif min(element_bytes(p)) < 4:
        by_type = 4 + where(c.ks > 1, 12, 0) + (c.ms + c.ns) // 2 + where(packed == 2, 24, 0)
    else:
        by_type = 0
    chunks = sum(x.row_chunks for x in operands) // 2
    return addresses + bounds + chunks + (sets + by_type + 6 * c.deferred_sts)  # few operations on whole grids


def _reg_margin(c: Any, operands: tuple[Any, Any], each: list[Any], threads: Any, packed: Any, words: int) -> Any:
    """The number of registers kept in reserve. If each thread can have 255 registers, ptxas hoists addresses of loads,
    above all of loads through offset tables, of predicated loads and of loads to registers."""
    a, b = operands
    kmajor_smem, through_registers = a.kmajor_smem | b.kmajor_smem, c.cp_async_a + c.cp_async_b < 2
    table_loads = sum(n if x.addressing != STRIDED else 0 for x, n in zip(operands, each, strict=True))
    most = 2 * np.maximum(table_loads - LOADS, 0)
    if np.any(c.bounds == BOUNDS_PREDICATE):
        most = most + where(c.bounds == BOUNDS_PREDICATE, PREDICATE_MARGIN + 2 * np.maximum(sum(each) - LOADS, 0), 0)
    most = most + where((packed == 2) | ((table_loads > 0) & (c.ks > 1)), F16X2_MARGIN, 0)
    most = most + where((table_loads > 0) & kmajor_smem & through_registers, 2 * KMAJOR_MARGIN, 0)
    ldg = where(table_loads == 0, through_registers, (c.cp_async_a + c.cp_async_b == 0) & (c.ks > 1))
    most = most + where(ldg, LDG_MARGIN + (F64_MARGIN if words >= 2 else 0), 0)
    resident = threads * c.min_ctas_per_sm
    rows = (a.kmajor_smem & b.kmajor_smem) & (c.bounds != BOUNDS_NONE) & (resident > 3 * FULL_THREADS - 1)
    tables = where(table_loads > 0, 1 + through_registers, 0)
    sets = where(c.ks > 1, (1 + tables) * F16X2_MARGIN, 0)
    return where(resident <= FULL_THREADS, most, where(rows, KMAJOR_MARGIN, 0) + sets)


def counts(p: KernelProblem, c: Any) -> dict[str, Any]:
    """The geometry that depends only on tiles, extents and slices: threads, tiles and slices of K."""
    group, sum_bytes = c.ml // c.ms * (c.nl // c.ns), accumulator_bytes(p)
    packed_bytes, counted = operand_packing.packed_bytes(p, c), tiles_and_slices(p, c, sum_bytes)
    return {
        "group": group,
        "threads": group * c.kl,
        "uk": c.u // c.kl,
        "sum_bytes": sum_bytes,
        "packed_bytes": packed_bytes,
        **counted | {"workspace": counted["workspace"] + packed_bytes},
    }


def geometry(p: KernelProblem, c: Any) -> FmaGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    counted = counts(p, c)
    a, b = operand(p, c, "a"), operand(p, c, "b")
    bytes_ = max(dtype(p.held_type(name)).bytes for name in "AB")
    narrow = min(element_bytes(p))
    threads = counted["threads"]
    stage_bytes = a.stage_bytes + b.stage_bytes
    c_via_smem = stores_via_smem(p, c)
    shared = np.maximum(c.stages * stage_bytes, where(c_via_smem, staging_bytes(p, c), 0))
    words = max(1, bytes_ // 4, p.accumulator.bytes // 4)
    packed = values_in_register(p, c)
    fragments = (c.fragment_prefetch + 1) * (
        c.ms * where(a.kmajor_smem, a.chunk, 1) + c.ns * where(b.kmajor_smem, b.chunk, 1) // packed
    )
    in_flight = (
        sum(
            where(x.cp_async == 0, np.maximum(x.loads // np.maximum(threads, 1), 1) * x.vec, 0) * x.element
            for x in (a, b)
        )
        // 4
    )
    in_flight = in_flight * IN_FLIGHT.get(narrow, 1)
    each = [np.maximum(x.loads // np.maximum(threads, 1), 1) for x in (a, b)]
    pointers = sum(n if x.addressing == STRIDED else 0 for x, n in zip((a, b), each, strict=True))
    tables = sum(TABLE_REGISTERS[x.addressing] * (n + 3) for x, n in zip((a, b), each, strict=True))
    # ptxas uses more for conversions of 16-bit elements, and for early loads of K-major rows
    beyond = 0
    if narrow <= 2:
        beyond = (
            2 * np.maximum(pointers - 8, 0) + where(a.kmajor_smem | b.kmajor_smem, 24, 0) + where(packed == 2, 24, 0)
        )
    elif words >= 2:
        beyond = where(a.kmajor_smem & b.kmajor_smem, fragments * words, where(a.kmajor_smem | b.kmajor_smem, 8, 0))
    live = (c.ms * c.ns * c.ks // packed + fragments) * words + in_flight
    early = _early(p, c, (a, b), each, threads, packed)
    registers = live + np.minimum(2 * pointers, 16) + early + (tables + beyond + 34) + step_registers(p, c)
    g = FmaGeometry(
        a=a,
        b=b,
        bytes=bytes_,
        stage_bytes=stage_bytes,
        part_m=_part(a, c.ms, c.lanes_m),
        part_n=_part(b, c.ns, WARP // np.maximum(c.lanes_m, 1)),
        shared=shared,
        c_row_pitch=row_pitch_c(c),
        c_via_smem=c_via_smem,
        registers=registers,
        reg_margin=_reg_margin(c, (a, b), each, threads, packed, words),
        **counted,
    )
    return _without_shared_memory(p, c, g) if np.any(c.stages == 0) else g


def step_registers(p: KernelProblem, c: Any) -> Any:
    """The number of registers of an inner expression for the values of steps, the arrays that steps read besides A and
    B, indices and addresses; 0 for a product."""
    if not isinstance(p.algebra, InnerExpression):
        return 0
    sides = {"i": c.ms, "j": c.ns, "k": np.minimum(c.u // np.maximum(c.kl, 1), STEP_LOADS)}
    held = where(c.ms * c.ns // values_in_register(p, c) >= STEP_TILE, STEP_VALUES, 0)
    for v in p.algebra.vectors:
        count = STEPS_AHEAD if len(v.axis) > 1 and "k" in v.axis else 1
        for axis in v.axis if len(v.axis) == 1 else v.axis.replace("k", ""):
            count = count * sides[axis]
        held = held + count * max(dtype(v.element.type).bytes // 4, 1) + 2
    if p.algebra.state is not None:
        held = held + c.ms * c.ns * c.ks * max(dtype(p.algebra.state.type).bytes // 4, 1)
    indexed = {axis for v in p.algebra.matrices for axis in v.axis} | {*variables(*p.algebra.next)}
    held = held + sum(sides[axis] if axis != "k" else 2 for axis in "ijk" if axis in indexed)
    return held + STEP_MARGIN * bool(p.algebra.vectors or indexed & set("ijk"))


def plain_sums(p: KernelProblem) -> bool:
    """True if the problem is a product, or a batch of products, of plain matrices with sums in f32 or f64."""
    return (
        p.algebra == PLUS_TIMES
        and not p.sink.shared_tile
        and not grouped(p)
        and p.operand("A").access.mode == p.operand("B").access.mode == p.operand("C").access.mode == STRIDED
        and p.accumulator.bytes >= 4
    )


def packs_operands(p: KernelProblem) -> bool:
    """True if operands may be packed: plain matrices of one type, with elements of a size that is packed."""
    a, b = p.operands
    return plain_sums(p) and a.dtype == b.dtype and p.element.bytes in operand_packing.SIZES


def loads_fragments(p: KernelProblem) -> bool:
    """True if kernels without shared memory are candidates, because K is small."""
    return plain_sums(p) and p.k <= SMALL_K


def widest_load(c: Any, x: FmaOperandGeometry) -> Any:
    """The most elements that one load of operand ``x`` may have. If ``x`` is K-major, these are the elements of a K
    iteration, else the adjacent elements of a thread."""
    return where(x.kmajor, np.minimum(c.u, 16), np.minimum(x.chunk, x.thread_tile))


def _without_shared_memory(p: KernelProblem, c: Any, g: FmaGeometry) -> FmaGeometry:
    """The geometry ``g`` with the numbers of kernels without shared memory where ``stages`` is 0."""
    unstaged = c.stages == 0
    words = p.accumulator.bytes // 4

    def operand(x: FmaOperandGeometry) -> tuple[FmaOperandGeometry, Any]:
        """The operand's geometry, and the registers for its loads, elements and pointers."""
        lines = where(x.kmajor, x.thread_tile, ceil_div(x.thread_tile, x.vec))
        loads = lines * where(x.kmajor, ceil_div(c.u, x.vec), c.u)
        held = loads * np.maximum(x.vec * x.element // 4, 1)
        held = held + (x.thread_tile * where(x.kmajor, x.vec, 1) if x.element < 4 else 0)
        return replace(x, loads=where(unstaged, loads * g.threads, x.loads)), held + 2 * lines

    (a, registers_a), (b, registers_b) = operand(g.a), operand(g.b)
    registers = c.ms * c.ns * words + registers_a + registers_b + 34
    return replace(
        g,
        a=a,
        b=b,
        stage_bytes=where(unstaged, 0, g.stage_bytes),
        registers=where(unstaged, registers, g.registers),
        reg_margin=where(unstaged, 0, g.reg_margin),
    )


def _part(x: FmaOperandGeometry, thread_tile: Any, lanes: Any) -> Any:
    """Half of a warp's tile along one side if it corresponds to half of each thread's tile, else the whole."""
    adjacent = where(x.kmajor_smem, 1, np.minimum(x.chunk, thread_tile))
    return lanes * where(thread_tile > adjacent, thread_tile // 2, thread_tile)


def warp_rows(c: Any) -> Any:
    """The value of ``lanes_m`` that makes the warp tile most nearly square and keeps it within the block tile."""
    best, score = np.ones_like(c.ms), np.inf
    for lanes_m in (1, 2, 4, 8, 16, 32):
        fits = (c.ml % (lanes_m * c.ms) == 0) & (c.nl % (WARP // lanes_m * c.ns) == 0)
        skew = np.abs(np.log2(lanes_m * c.ms / (WARP / lanes_m * c.ns)) + 0.1)
        better = fits & (skew < score)
        best, score = where(better, lanes_m, best), where(better, skew, score)
    return best
