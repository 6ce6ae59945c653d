"""A loop of steps on operands in shared memory, which measures how fast a multiprocessor computes steps.

Threads have 8×8 accumulators, as in the kernels of family simt, and load 8 elements of each operand a step; registers
hold pairs of 16-bit elements if the device has instructions for such steps. Other arrays that a step reads are in
registers. The loop loads nothing from global memory and has no barrier. Clocks are read before and after the loop, in
cycles and nanoseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ptxgen.codegen.parts.algebra import ExpressionReducer, PairReducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.source import Source, Step
from ptxgen.expr.instructions import register_class
from ptxgen.expr.node import Node, variable
from ptxgen.expr.value_types import type_of
from ptxgen.lowering import step_rate
from ptxgen.lowering.bit_products import bit_form_on
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.lowering import in_loop, inner_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.speed import computed_steps
from ptxgen.operations.task.text_blocks import filled
from ptxgen.problem.device import Device
from ptxgen.problem.operation import MeasuredCeiling
from ptxgen.problem.peak_rates import peak_rate, scalar_rate
from ptxgen.runtime.driver import Driver

ENTRY = "step_loop"
TILE = 8  #: the rows, and the columns, of the accumulators of a thread
UNROLLED, BUFFERS = 4, 2  #: steps of an iteration, each on other elements; and buffers in shared memory
CYCLES = 20_000_000  #: about so many cycles a measurement takes
EXTENT = 128  #: the rows of A, and the columns of B, in shared memory
TEXT = """\
.version «version»
.target «target»
.address_size 64

.visible .entry step_loop(.param .u64 results, .param .u64 clocks, .param .u32 count)
.maxntid «threads», 1, 1
.minnctapersm 1
{
    .shared .align 16 .b8 staged[«bytes»];
    .reg .pred %more;
    .reg .b32 %thread, %lane, %warp, %count, %at, %at_a, %at_b, %word, %half, %i, %j, %k, %M, %N, %K;
    .reg .b64 %to, %cycles, %cycles_end, %ns, %ns_end;
    «registers»

    // ---- operands in shared memory
    mov.u32 %thread, %tid.x;
    mov.u32 %at, staged;
    mad.lo.u32 %at, %thread, 4, %at;
    mad.lo.u32 %word, %thread, 77, 0x3F800000;
    «fill»
    mov.u32 %i, %thread;
    mov.u32 %j, %thread;
    mov.u32 %k, %thread;
    mov.u32 %M, 4096;
    mov.u32 %N, 4096;
    mov.u32 %K, 4096;
    «others»
    «clear»
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    and.b32 %at_a, %warp, 3;
    shl.b32 %at_a, %at_a, 5;
    shr.u32 %word, %lane, 3;
    mad.lo.u32 %at_a, %word, 4, %at_a;
    shr.u32 %at_b, %warp, 2;
    and.b32 %at_b, %at_b, 1;
    shl.b32 %at_b, %at_b, 6;
    and.b32 %word, %lane, 7;
    mad.lo.u32 %at_b, %word, 4, %at_b;
    mov.u32 %at, staged;
    mad.lo.u32 %at_a, %at_a, «bytes_a», %at;
    mad.lo.u32 %at_b, %at_b, «bytes_b», %at;
    ld.param.u32 %count, [count];
    bar.sync 0;

    // ---- the loop
    mov.u64 %ns, %globaltimer;
    mov.u64 %cycles, %clock64;
LOOP:
    «steps»
    xor.b32 %half, %half, 1;
    mad.lo.u32 %word, %half, «buffer_a», 0;
    sub.u32 %at_a, %at_a, %moved_a;
    add.u32 %at_a, %at_a, %word;
    mov.u32 %moved_a, %word;
    mad.lo.u32 %word, %half, «buffer_b», 0;
    sub.u32 %at_b, %at_b, %moved_b;
    add.u32 %at_b, %at_b, %word;
    mov.u32 %moved_b, %word;
    sub.u32 %count, %count, 1;
    setp.ne.u32 %more, %count, 0;
    @%more bra LOOP;
    bar.sync 0;
    mov.u64 %cycles_end, %clock64;
    mov.u64 %ns_end, %globaltimer;

    // ---- one result for each thread, and the clocks of the block
    «joined»
    mov.u32 %word, %ctaid.x;
    mad.lo.u32 %at, %word, «threads», %thread;
    ld.param.u64 %to, [results];
    cvta.to.global.u64 %to, %to;
    mad.wide.u32 %to, %at, «bytes_c», %to;
    st.global.«store» [%to], «first»;
    setp.ne.u32 %more, %thread, 0;
    @%more ret;
    sub.u64 %cycles, %cycles_end, %cycles;
    sub.u64 %ns, %ns_end, %ns;
    ld.param.u64 %to, [clocks];
    cvta.to.global.u64 %to, %to;
    mad.wide.u32 %to, %word, 16, %to;
    st.global.u64 [%to], %cycles;
    st.global.u64 [%to+8], %ns;
    ret;
}
"""


def _size(type: str) -> int:
    """The bytes of a value of this type in shared memory."""
    return max(type_of(type).bits // 8, 2 if type_of(type).floating else 4)


def threads_of(p: Task) -> int:
    """The threads of a block. A multiprocessor runs one block, whose accumulators are in registers."""
    return 256 if type_of(p.compute).bits == 64 else 512


def values_of(p: Task, d: Device) -> int:
    """The number of steps that one sequence of instructions computes: 2 if it computes pairs, else 1."""
    pairs = step_rate.of_pairs(lower(p).algebra, d)
    return 1 if pairs is None else pairs.values


def source_of(p: Task, d: Device) -> Source:
    """The source of the kernel ``ENTRY`` for the step of a task."""
    problem = lower(p)
    if values_of(p, d) == 1:
        problem = replace(problem, algebra=inner_of(in_loop(p.roles, p.algebra)[0], p.algebra))
        reducer = ExpressionReducer(problem, Arithmetic.of(problem), d.sm)
    else:
        reducer = PairReducer(problem, Arithmetic.of(problem), d.sm)
    algebra = reducer.algebra
    types = {"a": algebra.a.type, "b": algebra.b.type, "acc": algebra.type}
    classes = {name: register_class(element_type) for name, element_type in types.items()}
    size_a, size_b = _size(types["a"]), _size(types["b"])
    region_a = BUFFERS * UNROLLED * EXTENT * size_a
    size = region_a + BUFFERS * UNROLLED * EXTENT * size_b
    threads = threads_of(p)
    registers = [f".reg .{classes['acc']} %acc<{TILE * TILE}>;"]
    registers += [f".reg .{classes[x]} %{x}<{TILE}>;" for x in "ab"]
    registers += [".reg .b32 %moved_a, %moved_b;"]
    others = ["mov.u32 %half, 0;", "mov.u32 %moved_a, 0;", "mov.u32 %moved_b, 0;"]
    for name, element_type in [(v.name, v.element.type) for v in algebra.vectors] + [
        (s.name, s.type) for s in algebra.scalars
    ]:
        registers.append(f".reg .{register_class(element_type)} %{name};")
        others.append(_some(name, element_type))
    registers += [*reducer.step_temporaries, *reducer.temporaries]
    known = {variable(axis, "s32"): f"%{axis}" for axis in "ijk"}
    known |= {v.element: f"%{v.name}" for v in algebra.vectors}
    blocks = {
        "registers": registers,
        "fill": [f"st.shared.u32 [%at+{at}], %word;" for at in range(0, size, threads * 4)],
        "others": others,
        "clear": [f"mov.{_plain(classes['acc'])} %acc{n}, {reducer.identity};" for n in range(TILE * TILE)],
        "steps": _steps(reducer, known, types, region_a),
        "joined": [line for n in range(1, TILE * TILE) for line in reducer.join("%acc0", f"%acc{n}")],
    }
    words = {
        "version": d.ptx_version,
        "target": d.target,
        "threads": str(threads),
        "bytes": str(-(-size // (threads * 4)) * threads * 4),
        "bytes_a": str(size_a),
        "bytes_b": str(size_b),
        "bytes_c": str(_size(types["acc"])),
        "buffer_a": str(UNROLLED * EXTENT * size_a),
        "buffer_b": str(UNROLLED * EXTENT * size_b),
        "store": _memory(types["acc"]),
        "first": "%acc0",
    }
    return Source(filled(TEXT, blocks, words), (ENTRY,), d.target)


def _plain(register: str) -> str:
    """The type of the ``mov`` instruction for a register of this type."""
    return {"b32": "u32", "b64": "u64"}.get(register, register)


def _memory(type: str) -> str:
    """The type of the load and store instructions for a value of this type."""
    size = _size(type)
    return {"f32": "f32", "f64": "f64"}.get(type, f"b{8 * size}")


def _some(name: str, element_type: str) -> str:
    """The instruction that sets a register to some value that differs between threads."""
    register = register_class(element_type)
    if register == "b32":
        return f"mov.u32 %{name}, %thread;"
    to = {"b16": "u16", "b64": "u64"}.get(register, f"rn.{register}")
    return f"cvt.{to}.u32 %{name}, %thread;"


def _steps(reducer: ExpressionReducer, known: Mapping[Node, str], types: Mapping[str, str], region_a: int) -> list[str]:
    """The instructions of an iteration. Rows are computed in ascending order, columns alternately in ascending and
    descending order, so that consecutive steps share a register."""
    lines: list[str] = []
    for k in range(UNROLLED):
        for name, start, gap in (("a", 0, 16), ("b", region_a, 32)):
            size = _size(types[name])
            width = min(4, 16 // size)
            for n in range(0, TILE, width):
                at = start + (k * EXTENT + n // 4 * gap + n % 4) * size
                held = ", ".join(f"%{name}{n + x}" for x in range(width))
                lines.append(f"ld.shared.v{width}.{_memory(types[name])} {{{held}}}, [%at_{name}+{at}];")
        for i in range(TILE):
            for j in range(TILE)[:: 1 if i % 2 == 0 else -1]:
                read = {reducer.algebra.a: f"%a{i}", reducer.algebra.b: f"%b{j}", **known}
                lines += reducer.step([f"%acc{i * TILE + j}"], read)
    return lines


def _timed(p: Task, d: Device) -> bool:
    """True if scalar instructions set the ceiling of the task, and an accumulator is one register."""
    if bit_form_on(lower(p), d) is not None:
        return False
    algebra = lower(p).algebra
    scalar = algebra.name == "inner_expression" or peak_rate(p.element, p.compute, d) <= scalar_rate(p.accumulator, d)
    return scalar and algebra.state is None


def measured(driver: Driver, p: Task) -> MeasuredCeiling | None:
    """The ceiling of a task as the loop measures it, at the clock while the loop ran. None: tensor cores compute the
    task, its reduction returns positions, or the device is emulated."""
    d = driver.device
    if driver.clock != "hardware" or not _timed(p, d):
        return None
    per_iteration = threads_of(p) * TILE * TILE * UNROLLED * values_of(p, d)
    count = max(1, round(CYCLES * step_rate.ceiling(lower(p), d) / per_iteration))
    clocks = run(driver, p, d.sms, count)
    cycles, ns = (statistics.median(float(x) for x in column) for column in clocks.T)
    rate, clock = per_iteration * count / cycles, cycles / ns * 1e3
    return MeasuredCeiling(computed_steps(p) / (rate * d.sms * clock), rate, clock)


def run(driver: Driver, p: Task, blocks: int, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """The cycles and nanoseconds of each block, as rows of an array. The kernel is launched twice; the first launch
    only warms the device up."""
    kernel, threads = driver.load(source_of(p, driver.device)), threads_of(p)
    results, clocks = driver.allocate(blocks * threads * 8), driver.allocate(blocks * 16)
    step = Step(ENTRY, (blocks, 1, 1), (threads, 1, 1), 0, (("u64", results), ("u64", clocks), ("u32", count)))
    try:
        for _ in range(2):
            driver.launch(kernel, step, step.pack({}))
        driver.synchronize()
        out = np.empty((blocks, 2), np.uint64)
        driver.download(clocks, out)
    finally:
        driver.release(results)
        driver.release(clocks)
    return out
