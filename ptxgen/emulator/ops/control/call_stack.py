"""Instructions of recursive calls: registers are saved on a stack of each thread and restored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.data_movement.move import copies
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import SIZES, Imm, Instruction, Reg, Sym, Vec
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import Fault

Mask = NDArray[np.bool_] | None


#: largest number of 64-bit words of saved registers of one thread
MAX_SAVED = 32 * 1024


class Stack:
    """The saved registers of each lane: ``words``, and the number of words in use, ``top``."""

    def __init__(self, lanes: int) -> None:
        self.words = np.zeros((lanes, 256), np.uint64)
        self.top = np.zeros(lanes, np.int64)

    def grow(self, depth: int) -> None:
        lanes, size = self.words.shape
        if depth > size:
            words = np.zeros((lanes, max(depth, 2 * size)), np.uint64)
            words[:, :size] = self.words
            self.words = words


def stack_of(c: WarpBatch) -> Stack:
    stack: Stack | None = c.state.get("calls")
    if stack is None:
        stack = c.state["calls"] = Stack(c.n)
    return stack


def saved_registers(ins: Instruction) -> list[tuple[Reg, str]]:
    """The registers to save or restore, and their types."""
    (vec,) = ins.operands
    assert isinstance(vec, Vec)
    return [(r, "pred" if r.type == "pred" else f"u{8 * SIZES[r.type]}") for r in vec.items if isinstance(r, Reg)]


@instruction("*save")
def save(b: Builder, ins: Instruction) -> Step:
    views = [b.src(r, ptx_type) for r, ptx_type in saved_registers(ins)]
    b.reads.clear()  # registers that were never written are saved too

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(c.live() if m is None else m)
        stack = stack_of(c)
        at = stack.top[lanes]
        if not len(lanes):
            return
        deepest = int(at.max()) + len(views)
        if deepest > MAX_SAVED:
            lane = int(lanes[int(np.argmax(at))])
            raise fault(Fault, f"recursive calls save more than {8 * MAX_SAVED} bytes of registers", c, ins, lane)
        stack.grow(deepest)
        for i, view in enumerate(views):
            stack.words[lanes, at + i] = c.v[view][lanes]
        stack.top[lanes] += len(views)

    return step


@instruction("*restore")
def restore(b: Builder, ins: Instruction) -> Step:
    views = [b.dst(r, ptx_type) for r, ptx_type in saved_registers(ins)]

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(c.live() if m is None else m)
        stack = stack_of(c)
        stack.top[lanes] -= len(views)
        for i, view in enumerate(views):
            row = c.v[view]
            row[lanes] = stack.words[lanes, stack.top[lanes] + i].astype(row.dtype)

    return step


@instruction("alloca")
def alloca(b: Builder, ins: Instruction) -> Step:
    """alloca: d = the stack pointer, aligned; then the size is added to the stack pointer. Operands: d, stack pointer,
    size, alignment, the stack."""
    d, pointer, size, alignment, stack = ins.operands
    if not isinstance(alignment, Imm) or not isinstance(stack, Sym):
        raise b.malformed("the alignment is no constant; it must be one")
    ptx_type, least = ins.types[0], max(alignment.value, 8)
    end = stack.var.address + stack.var.size
    old, count = b.src(pointer, "u64"), b.src(size, ptx_type)
    dst, new = b.dst(d, ptx_type), b.dst(pointer, "u64")

    def step(c: WarpBatch, m: Mask) -> None:
        where = c.live() if m is None else m
        at = (c.v[old].astype(np.int64) + (least - 1)) & np.int64(-least)
        sizes = np.broadcast_to(c.v[count], at.shape)
        left = np.maximum(end - at, 0)
        bad = where & (sizes > left.astype(np.uint64))
        if any_true(bad):
            lane = int(np.argmax(bad))
            text = f"alloca of {sizes[lane]} bytes: {left[lane]} of the {stack.var.size} bytes of a thread are left"
            raise fault(Fault, text, c, ins, lane)
        top = at + sizes.astype(np.int64)
        np.copyto(c.v[new], top, where=where, casting="unsafe")
        np.copyto(c.v[dst], at, where=where, casting="unsafe")

    return step


@instruction("stacksave")
def stacksave(b: Builder, ins: Instruction) -> Step:
    d, pointer = ins.operands
    ptx_type = ins.types[0]
    source = b.src(pointer, ptx_type)
    return copies(b, [(b.dst(d, ptx_type), source)])


@instruction("stackrestore")
def stackrestore(b: Builder, ins: Instruction) -> Step:
    saved, pointer = ins.operands
    source, dst = b.src(saved, ins.types[0]), b.dst(pointer, "u64")

    def step(c: WarpBatch, m: Mask) -> None:
        np.copyto(c.v[dst], c.v[source], where=True if m is None else m)

    return step


@instruction("*copy_param")
def copy_param(b: Builder, ins: Instruction) -> Step:
    """Copies the registers of one .param variable to those of another."""
    to, source = ins.operands
    assert isinstance(to, Vec)
    assert isinstance(source, Vec)
    pairs = []
    for d, a in zip(to.items, source.items, strict=True):
        assert isinstance(d, Reg)
        ptx_type = f"u{8 * SIZES[d.type]}"
        view = b.src(a, ptx_type)
        b.reads.pop()  # registers that were never written are copied too
        pairs.append((b.dst(d, ptx_type), view))
    return copies(b, pairs)
