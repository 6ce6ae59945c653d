"""Instructions into which calls and indexed branches (brx) are expanded: checks, and the passing of parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.global_memory import typed_views
from ptxgen.emulator.ops.data_movement.load_store import elements, mark_local, remember, undefined_local, vector
from ptxgen.emulator.ops.data_movement.move import copies
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import DTYPES, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Flt, Imm, Instruction, Mem, Operand, Reg, Sym, Vec
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import DivergenceFault, Fault, OutOfBoundsFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


def check_uniform(c: WarpBatch, lanes: Array, value: Array, ins: Instruction) -> None:
    """Faults if lanes of one warp have different values of the operand of a .uni instruction."""
    if value.ndim == 0:
        return
    rows, executing = value.reshape(-1, 32), lanes.reshape(-1, 32)
    first = rows[np.arange(len(rows)), executing.argmax(axis=1)]
    wrong = (rows != first[:, None]) & executing
    if any_true(wrong):
        lane = int(np.argmax(wrong.reshape(-1)))
        raise fault(DivergenceFault, f"lanes of one warp have different operands at a .uni {ins.op}", c, ins, lane)


def raw(b: Builder, op: Operand) -> int:
    """The view of a register as unsigned integers, or of a predicate as truth values."""
    ptx_type = b.register_type(op)
    return b.src(op, "pred" if ptx_type == "pred" else f"u{8 * SIZES[ptx_type]}")


@instruction("call")
def call(b: Builder, ins: Instruction) -> Step:
    """A call; the body of the function follows. The operands are the guard and the function pointer, if the call has
    them."""
    for m in ins.mods:
        if m != "uni":
            raise b.unsupported(f".{m}")
    uniform = [raw(b, op) for op in ins.operands if "uni" in ins.mods]

    def step(c: WarpBatch, m: Mask) -> None:
        for view in uniform:
            check_uniform(c, c.live() if m is None else m, c.v[view], ins)

    return step


@instruction("*bad_function_pointer")
def bad_function_pointer(b: Builder, ins: Instruction) -> Step:
    target = raw(b, ins.operands[0])

    def step(c: WarpBatch, m: Mask) -> None:
        lane = int(np.argmax(c.live() if m is None else m))
        address = int(spread(c.v[target], c.n)[lane])
        raise fault(
            Fault, "the pointer is not the address of a function that this call may reach", c, ins, lane, address
        )

    return step


@instruction("brx.idx")
def brx(b: Builder, ins: Instruction) -> Step:
    """The check of the index of a brx. The operands are index, number of targets and, if the brx has one, the guard."""
    if not set(ins.mods) <= {"idx", "uni"}:
        raise b.unsupported()
    index, limit = b.src(ins.operands[0], "u32"), ins.operands[1]
    assert isinstance(limit, Imm)
    guard = b.src(ins.operands[2], "pred") if len(ins.operands) > 2 else None

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = c.live() if m is None else m
        if guard is not None:
            if "uni" in ins.mods:
                check_uniform(c, lanes, c.v[guard], ins)
            lanes = lanes & (~c.v[guard] if ins.negated else c.v[guard])
        value = spread(c.v[index], c.n)
        bad = lanes & (value >= np.uint32(limit.value))
        if any_true(bad):
            lane = int(np.argmax(bad))
            raise fault(Fault, f"the index is {value[lane]}, there are {limit.value} targets", c, ins, lane)
        if "uni" in ins.mods and any_true(lanes):
            check_uniform(c, lanes, value, ins)

    return step


@instruction("*case")
def case(b: Builder, ins: Instruction) -> Step:
    equal, value, number = ins.operands
    assert isinstance(number, Imm)
    src = raw(b, value)
    dst = b.dst(equal, "pred")
    constant = np.array(number.value, f"<u{SIZES[b.register_type(value)]}")
    return lambda c, m: np.copyto(c.v[dst], c.v[src] == constant, where=True if m is None else m)


# ---- parameters


def typed(b: Builder, ins: Instruction) -> tuple[str, int]:
    """The pair (type, size in bytes) of an ld.param or st.param."""
    allowed = {"param", "param::func", "v2", "v4", *SIZES}
    for m in ins.mods:
        if m not in allowed:
            raise b.unsupported(f".{m}")
    ptx_type = ins.types[-1]
    return ptx_type, SIZES[ptx_type]


def source(b: Builder, op: Operand, ptx_type: str) -> int:
    return b.src(op, ptx_type if isinstance(op, Flt) else f"u{8 * SIZES[ptx_type]}")


@instruction("*st.param_registers")
def store_param_registers(b: Builder, ins: Instruction) -> Step:
    ptx_type, size = typed(b, ins)
    registers = ins.operands[0]
    assert isinstance(registers, Vec)
    items = elements(b, ins.operands[1], len(registers.items))
    return copies(
        b,
        [
            (b.dst(reg, ptx_type if isinstance(item, Flt) else f"u{8 * size}"), source(b, item, ptx_type))
            for reg, item in zip(registers.items, items, strict=True)
        ],
    )


@instruction("*ld.param_registers")
def load_param_registers(b: Builder, ins: Instruction) -> Step:
    ptx_type, size = typed(b, ins)
    registers = ins.operands[1]
    assert isinstance(registers, Vec)
    items = elements(b, ins.operands[0], len(registers.items))
    number = f"{'s' if ptx_type in SIGNED else 'u'}{8 * size}"
    return copies(
        b, [(b.dst_wide(item, number), b.src(reg, number)) for reg, item in zip(registers.items, items, strict=True)]
    )


@instruction("*outside_parameter")
def outside_parameter(b: Builder, ins: Instruction) -> Step:
    """An access outside a parameter, or at an offset that is no multiple of the access size; it is a fault when it
    executes."""
    _, size = typed(b, ins)
    address = next(op for op in ins.operands if isinstance(op, Mem))
    sym = address.base
    assert isinstance(sym, Sym)
    offset = sym.offset + address.offset
    text = f"{size * vector(ins)} bytes at offset {offset} of {sym.var.name}, which has {sym.var.size} bytes"

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = c.live() if m is None else m
        raise fault(OutOfBoundsFault, text, c, ins, int(np.argmax(lanes)), offset)

    return step


def local_column(c: WarpBatch, size: int, offset: int) -> Array:
    """The element of ``size`` bytes at one offset of the local memory of every lane."""
    views: dict[int, Array] | None = c.state.get("local")
    if views is None:
        views = c.state["local"] = typed_views(np.zeros(c.n * c.wave.program.local_size, np.uint8))
    return views[size].reshape(c.n, -1)[:, offset // size]


def bytes_of(c: WarpBatch, lanes: Array, offset: int) -> Array:
    """The positions in the local-memory arena of one offset, for some lanes."""
    return lanes * c.wave.program.local_size + offset


def local_address(op: Operand) -> int:
    """The constant address of an operand that names a variable."""
    assert isinstance(op, Mem)
    assert isinstance(op.base, Sym)
    return op.base.var.address + op.base.offset + op.offset


@instruction("*st.param_local")
def store_param_local(b: Builder, ins: Instruction) -> Step:
    ptx_type, size = typed(b, ins)
    at = local_address(ins.operands[0])
    items = elements(b, ins.operands[1], vector(ins))
    srcs = [source(b, item, ptx_type) for item in items]
    b.propagation = partial(remember, ins, {item.slot for item in items if isinstance(item, Reg)})

    def step(c: WarpBatch, m: Mask) -> None:
        for i, s in enumerate(srcs):
            value = c.v[s]
            np.copyto(local_column(c, size, at + i * size), value.view(f"<u{size}"), where=True if m is None else m)
        lanes = flatnonzero(active(c, m))
        for i, item in enumerate(items):
            bad, *_ = c.undefined_sources.get(item.slot if isinstance(item, Reg) else -1, (None,))
            mark_local(c, bytes_of(c, lanes, at + i * size), size, None if bad is None else bad[lanes])
        c.undefined_sources = {}

    return step


@instruction("*ld.param_local")
def load_param_local(b: Builder, ins: Instruction) -> Step:
    ptx_type, size = typed(b, ins)
    at = local_address(ins.operands[1])
    number = f"{'s' if ptx_type in SIGNED else 'u'}{8 * size}"
    dtype = DTYPES[number]
    items = elements(b, ins.operands[0], vector(ins))
    dsts = [b.dst_wide(item, number) for item in items]

    def step(c: WarpBatch, m: Mask) -> None:
        loaded: dict[int, tuple[Array, int, str]] = {}
        for i, (item, d) in enumerate(zip(items, dsts, strict=True)):
            np.copyto(c.v[d], local_column(c, size, at + i * size).view(dtype), where=True if m is None else m)
            bad = undefined_local(c, bytes_of(c, np.arange(c.n), at + i * size), size, ptx_type in SIGNED)
            if bad is not None and isinstance(item, Reg) and any_true(bad[active(c, m)]):
                bits = np.where(active(c, m), bad, np.uint64(0))
                loaded[item.slot] = bits, at + i * size, "a parameter that nothing has written"
        if loaded:
            c.wave.program.mark_undefined(c, loaded, ins)

    return step
