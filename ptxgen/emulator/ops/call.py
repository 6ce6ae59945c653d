"""Instructions that remain of calls and indexed branches after inlining: checks, and the passing of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.global_memory import typed_views
from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ops.load_store import elements, vector
from ptxgen.emulator.ops.move import copy, sequence
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import DTYPES, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Flt, Imm, Instruction, Mem, Operand, Sym, Vec
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import DivergenceFault, Fault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


def check_uniform(c: WarpBatch, lanes: Array, value: Array, ins: Instruction) -> None:
    """Faults where lanes of one warp have different values of a .uni operand."""
    if value.ndim == 0:
        return
    rows, mine = value.reshape(-1, 32), lanes.reshape(-1, 32)
    first = rows[np.arange(len(rows)), mine.argmax(axis=1)]
    wrong = (rows != first[:, None]) & mine
    if wrong.any():
        lane = int(np.argmax(wrong.reshape(-1)))
        raise fault(DivergenceFault, f"lanes of one warp disagree at a .uni {ins.op}", c, ins, lane)


def raw(b: Builder, op: Operand) -> int:
    """A register as unsigned integers, or a predicate."""
    kind = b.register_type(op)
    return b.src(op, "pred" if kind == "pred" else f"u{8 * SIZES[kind]}")


@instruction("call")
def call(b: Builder, ins: Instruction) -> Step:
    """The moment of the call; operands are the guard and a pointer, where there are any."""
    for m in ins.mods:
        if m != "uni":
            raise b.unsupported(f".{m}")
    uniform = [raw(b, op) for op in ins.operands if "uni" in ins.mods]

    def step(c: WarpBatch, m: Mask) -> None:
        for view in uniform:
            check_uniform(c, c.live() if m is None else m, c.v[view], ins)

    return step


@instruction("*nowhere")
def nowhere(b: Builder, ins: Instruction) -> Step:
    target = raw(b, ins.operands[0])

    def step(c: WarpBatch, m: Mask) -> None:
        lane = int(np.argmax(c.live() if m is None else m))
        address = int(np.broadcast_to(c.v[target], (c.n,))[lane])
        raise fault(Fault, "the pointer is to no function that this call may reach", c, ins, lane, address)

    return step


@instruction("brx.idx")
def brx(b: Builder, ins: Instruction) -> Step:
    """The check of an index: (index, how many targets[, guard])."""
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
        value = np.broadcast_to(c.v[index], (c.n,))
        bad = lanes & (value >= np.uint32(limit.value))
        if bad.any():
            lane = int(np.argmax(bad))
            raise fault(Fault, f"the index is {value[lane]}, there are {limit.value} targets", c, ins, lane)
        if "uni" in ins.mods and lanes.any():
            check_uniform(c, lanes, value, ins)

    return step


@instruction("*case")
def case(b: Builder, ins: Instruction) -> Step:
    hit, value, number = ins.operands
    assert isinstance(number, Imm)
    src = raw(b, value)
    dst = b.dst(hit, "pred")
    want = np.array(number.value, f"<u{SIZES[b.register_type(value)]}")
    return lambda c, m: np.copyto(c.v[dst], c.v[src] == want, where=True if m is None else m)


# ---- parameters


def typed(b: Builder, ins: Instruction) -> tuple[str, int]:
    """Type and size of an ld.param or st.param."""
    allowed = {"param", "param::func", "v2", "v4", *SIZES}
    for m in ins.mods:
        if m not in allowed:
            raise b.unsupported(f".{m}")
    kind = ins.types[-1]
    return kind, SIZES[kind]


def source(b: Builder, op: Operand, kind: str) -> int:
    return b.src(op, kind if isinstance(op, Flt) else f"u{8 * SIZES[kind]}")


@instruction("*st.part")
def store_part(b: Builder, ins: Instruction) -> Step:
    kind, size = typed(b, ins)
    parts = ins.operands[0]
    assert isinstance(parts, Vec)
    items = elements(b, ins.operands[1], len(parts.items))
    return sequence(
        [
            copy(b.dst(part, kind if isinstance(item, Flt) else f"u{8 * size}"), source(b, item, kind))
            for part, item in zip(parts.items, items, strict=True)
        ]
    )


@instruction("*ld.part")
def load_part(b: Builder, ins: Instruction) -> Step:
    kind, size = typed(b, ins)
    parts = ins.operands[1]
    assert isinstance(parts, Vec)
    items = elements(b, ins.operands[0], len(parts.items))
    number = f"{'s' if kind in SIGNED else 'u'}{8 * size}"
    return sequence(
        [copy(b.dst_wide(item, number), b.src(part, number)) for part, item in zip(parts.items, items, strict=True)]
    )


def frame(c: WarpBatch, size: int, offset: int) -> Array:
    """Elements of a variable in every lane's local memory: a column."""
    views: dict[int, Array] | None = c.state.get("local")
    if views is None:
        views = c.state["local"] = typed_views(np.zeros(c.n * c.chunk.program.local_size, np.uint8))
    return views[size].reshape(c.n, -1)[:, offset // size]


def static(op: Operand) -> int:
    assert isinstance(op, Mem)
    assert isinstance(op.base, Sym)
    return op.base.var.address + op.base.offset + op.offset


@instruction("*st.frame")
def store_frame(b: Builder, ins: Instruction) -> Step:
    kind, size = typed(b, ins)
    at = static(ins.operands[0])
    srcs = [source(b, item, kind) for item in elements(b, ins.operands[1], vector(ins))]

    def step(c: WarpBatch, m: Mask) -> None:
        for i, s in enumerate(srcs):
            value = c.v[s]
            np.copyto(frame(c, size, at + i * size), value.view(f"<u{size}"), where=True if m is None else m)

    return step


@instruction("*ld.frame")
def load_frame(b: Builder, ins: Instruction) -> Step:
    kind, size = typed(b, ins)
    at = static(ins.operands[1])
    number = f"{'s' if kind in SIGNED else 'u'}{8 * size}"
    dtype = DTYPES[number]
    dsts = [b.dst_wide(item, number) for item in elements(b, ins.operands[0], vector(ins))]

    def step(c: WarpBatch, m: Mask) -> None:
        for i, d in enumerate(dsts):
            np.copyto(c.v[d], frame(c, size, at + i * size).view(dtype), where=True if m is None else m)

    return step
