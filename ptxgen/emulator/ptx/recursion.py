"""Recursive functions: one copy of each, which every call enters, with a stack of registers for every thread.

A call saves the registers of the caller, if the caller is a recursive function itself, writes the parameters, and goes
to the function's first instruction. The function returns through a table of all calls. Variables in local memory are
addressed from a register, the frame pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.builder import Builder, fault
from ptxgen.emulator.ops.move import copy, together
from ptxgen.emulator.ops.registry import Step, instruction
from ptxgen.emulator.ptx.syntax import SIZES, Imm, Instruction, Mem, Operand, Reg, Sink, Sym, Variable, Vec
from ptxgen.errors import Fault, UnsupportedError

if TYPE_CHECKING:
    from ptxgen.emulator.ptx.flatten import Context, Flattener, Label
    from ptxgen.emulator.ptx.parameters import Parameters
    from ptxgen.emulator.ptx.syntax import Function, Parameter
    from ptxgen.emulator.warp_batch import Team

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None
#: bytes of local memory that the frames of one thread may take
FRAMES = 32 * 1024
#: words of 64 bits that the saved registers of one thread may take
SAVED = 32 * 1024


@dataclass(eq=False)
class Subroutine:
    """The copy of a recursive function.

    `back`: the number of the call to return to; `frame`: bytes of its variables in local memory, and `offsets` of each.
    """

    function: Function
    context: Context
    begin: Label
    back: Reg
    frame: int
    offsets: dict[int, int]


class Recursion:
    """The recursive functions that one kernel may call."""

    def __init__(self, owner: Flattener) -> None:
        self.owner = owner
        self.subroutines: dict[str, Subroutine] = {}
        self.calls: list[tuple[Subroutine, Label]] = []  # with where each goes on
        self.saves: list[tuple[Instruction, Subroutine]] = []
        self.frame_pointer: Reg | None = None
        functions = owner.unit.functions
        reached: dict[str, set[str]] = {}

        def reach(name: str) -> set[str]:
            """The functions that a call of this one may call, however deep."""
            if name not in reached:
                found: set[str] = set()
                work = [name]
                while work:
                    f = functions.get(work.pop())
                    new = owner.callees(f) - found if f is not None and f.defined else set()
                    found |= new
                    work += new
                reached[name] = found
            return reached[name]

        self.names = {name for name in reach(owner.entry.name) if name in reach(name)}

    # ---- the stages of flattening

    def begin(self) -> None:
        """The kernel's first instructions."""
        functions = [self.owner.unit.functions[name] for name in self.names]
        if any(v.space == "local" for f in functions for v in f.variables):
            stack = self.owner.variable(Variable("the stack", "local", "b8", 16, FRAMES))
            self.frame_pointer = self.owner.register("the frame pointer", "b64")
            self.owner.emit(self.owner.entry.code[0], "mov", (self.frame_pointer, Sym(stack)), mods=("u64",))

    def bodies(self) -> None:
        """After the kernel's own code: the functions, and the tables by which they return."""
        owner = self.owner
        done: list[Subroutine] = []
        if self.subroutines:
            owner.emit(owner.entry.code[-1], "ret")
        while len(done) < len(self.subroutines):
            s = list(self.subroutines.values())[len(done)]
            done.append(s)
            owner.place(s.begin)
            owner.body(s.context)
            owner.emit(s.function.code[-1], "bra", scope=s.context.leave, row="bra")
        for s in done:
            assert s.context.leave is not None
            owner.place(s.context.leave)
            last = s.function.code[-1]
            numbers = [n for n, (to, _) in enumerate(self.calls) if to is s]
            for n in numbers[:-1]:
                owner.emit(last, "bra", pred=owner.case(last, s.back, n), scope=self.calls[n][1], row="bra")
            owner.emit(last, "bra", scope=self.calls[numbers[-1]][1], row="bra")

    def settle(self, parameters: Parameters) -> None:
        """Once all registers are known: those that calls save."""
        for ins, s in self.saves:
            formals = (*s.function.param_vars, *s.function.return_vars)
            parts = [r for v in formals for r in parameters.parts[id(s.context.variables[id(v)])].values()]
            registers = [s.back, *s.context.registers.values(), *parts]
            if any(r.type == "b128" for r in registers):
                raise UnsupportedError(f"line {ins.line}: a recursive function with registers of 128 bits: {ins.text}")
            ins.operands = (Vec(tuple(registers)),)

    # ---- calls

    def subroutine(self, f: Function) -> Subroutine:
        """The copy of a function."""
        found = self.subroutines.get(f.name)
        if found is not None:
            return found
        from ptxgen.emulator.ptx.flatten import Context

        owner = self.owner
        offsets: dict[int, int] = {}
        frame = 0
        known: dict[int, Variable] = {}
        for v in f.variables:
            if v.space == "local":
                frame = -(-frame // v.align) * v.align
                known[id(v)] = v
                offsets[id(v)] = frame
                frame += v.size
        known.update({id(v): owner.variable(v) for v in (*f.param_vars, *f.return_vars)})
        registers = {r.slot: owner.register(f"{r.name} of {f.name}", r.type) for r in f.registers}
        context = Context(f, registers, owner.fresh(f, known), owner.label())
        back = owner.register(f"the return of {f.name}", "b32")
        found = Subroutine(f, context, owner.label(), back, -(-frame // 16) * 16, offsets)
        context.inside = self.subroutines[f.name] = found
        return found

    def framed(self, ins: Instruction, op: Operand, s: Subroutine) -> Operand:
        """An operand with the frame pointer in the place of a variable in local memory."""
        address = isinstance(op, Mem)
        sym = op.base if isinstance(op, Mem) else op
        if not isinstance(sym, Sym) or id(sym.var) not in s.offsets:
            return op
        assert self.frame_pointer is not None
        offset = s.offsets[id(sym.var)] + sym.offset
        if address and "local" in ins.mods:
            assert isinstance(op, Mem)
            return Mem(self.frame_pointer, op.offset + offset)
        at = self.owner.register(f"the address of {sym.var.name}", "b64")
        self.owner.emit(ins, "add", (at, self.frame_pointer, Imm(offset)), mods=("u64",))
        if isinstance(op, Mem):
            self.owner.emit(ins, "cvta", (at, at), mods=("local", "u64"))
            return Mem(at, op.offset)
        return at

    def call(self, ins: Instruction, f: Function, returns: Any, arguments: Any, c: Context) -> None:
        """A call, from code of the kernel or of a function."""
        owner, s, after = self.owner, self.subroutine(f), self.owner.label()
        caller = c.inside if c.inside is not None and c.inside.context is c else None
        before = [self.gather(ins, p, actual) for p, actual in zip(f.params, arguments, strict=True)]
        if caller is not None:
            self.stack(ins, caller, "save")
        for formal, (p, source) in zip(self.formals(f.params, f.param_vars, s), before, strict=True):
            self.hand(ins, p, formal, source)
        self.move_frame(ins, c, 1)
        owner.emit(ins, "mov", (s.back, Imm(len(self.calls))), mods=("b32",))
        self.calls.append((s, after))
        owner.emit(ins, "bra", scope=s.begin, row="bra")
        owner.place(after)
        self.move_frame(ins, c, -1)
        late: list[tuple[Parameter, Operand, Operand]] = []
        for p, formal, actual in zip(f.returns, self.formals(f.returns, f.return_vars, s), returns, strict=True):
            if isinstance(actual, Sym) and actual.var.space == "param":
                self.hand(ins, p, actual, formal)
            elif not isinstance(actual, Sink):
                late.append((p, actual, self.gather(ins, p, formal, copied=True)[1]))
        if caller is not None:
            self.stack(ins, caller, "restore")
        for p, actual, value in late:
            owner.move(ins, p, actual, value)

    def formals(self, parameters: list[Parameter], variables: list[Variable], s: Subroutine) -> list[Operand]:
        """What parameters are in a function's copy."""
        others = iter(variables)
        return [
            s.context.registers[p.held.slot] if p.held is not None else Sym(s.context.variables[id(next(others))])
            for p in parameters
        ]

    def gather(
        self, ins: Instruction, p: Parameter, actual: Operand, copied: bool = False
    ) -> tuple[Parameter, Operand]:
        """A parameter in a register of its own, unless it is a variable, which nothing overwrites."""
        if isinstance(actual, Sym) and actual.var.space == "param" and not copied:
            return p, actual
        value = self.owner.register(f"{p.name} on its way", "pred" if p.type == "pred" else f"b{8 * p.size}")
        self.owner.move(ins, p, value, actual)
        return p, value

    def hand(self, ins: Instruction, p: Parameter, to: Operand, source: Operand) -> None:
        """A parameter from where `gather` left it."""
        if isinstance(to, Sym) and isinstance(source, Sym):
            from ptxgen.emulator.ptx.parameters import Passing

            self.owner.emit(ins, "call", row="*pass")
            self.owner.passings.append(Passing(self.owner.out.code[-1], to.var, source.var))
        else:
            self.owner.move(ins, p, to, source)

    def stack(self, ins: Instruction, s: Subroutine, what: str) -> None:
        self.owner.emit(ins, "call", row=f"*{what}")
        self.saves.append((self.owner.out.code[-1], s))

    def move_frame(self, ins: Instruction, c: Context, sign: int) -> None:
        if c.inside is not None and c.inside.frame:
            assert self.frame_pointer is not None
            operands = (self.frame_pointer, self.frame_pointer, Imm(sign * c.inside.frame))
            self.owner.emit(ins, "add", operands, mods=("s64",))


# ---- instructions


class Stack:
    """Saved registers: words of each lane, and how many there are."""

    def __init__(self, lanes: int) -> None:
        self.words = np.zeros((lanes, 256), np.uint64)
        self.top = np.zeros(lanes, np.int64)

    def grow(self, to: int) -> None:
        lanes, have = self.words.shape
        if to > have:
            words = np.zeros((lanes, max(to, 2 * have)), np.uint64)
            words[:, :have] = self.words
            self.words = words


def stack_of(c: Team) -> Stack:
    found: Stack | None = c.state.get("calls")
    if found is None:
        found = c.state["calls"] = Stack(c.n)
    return found


def kinds(ins: Instruction) -> list[tuple[Reg, str]]:
    """The registers to save or restore, and their types."""
    (vec,) = ins.operands
    assert isinstance(vec, Vec)
    return [(r, "pred" if r.type == "pred" else f"u{8 * SIZES[r.type]}") for r in vec.items if isinstance(r, Reg)]


@instruction("*save")
def save(b: Builder, ins: Instruction) -> Step:
    views = [b.src(r, kind) for r, kind in kinds(ins)]
    b.reads.clear()  # what was never written is saved, too

    def step(c: Team, m: Mask) -> None:
        lanes = np.flatnonzero(c.live() if m is None else m)
        stack = stack_of(c)
        at = stack.top[lanes]
        if not len(lanes):
            return
        deepest = int(at.max()) + len(views)
        if deepest > SAVED:
            lane = int(lanes[int(np.argmax(at))])
            raise fault(Fault, f"recursive calls save more than {8 * SAVED} bytes of registers", c, ins, lane)
        stack.grow(deepest)
        for i, view in enumerate(views):
            stack.words[lanes, at + i] = c.v[view][lanes]
        stack.top[lanes] += len(views)

    return step


@instruction("*restore")
def restore(b: Builder, ins: Instruction) -> Step:
    views = [b.dst(r, kind) for r, kind in kinds(ins)]

    def step(c: Team, m: Mask) -> None:
        lanes = np.flatnonzero(c.live() if m is None else m)
        stack = stack_of(c)
        stack.top[lanes] -= len(views)
        for i, view in enumerate(views):
            row = c.v[view]
            row[lanes] = stack.words[lanes, stack.top[lanes] + i].astype(row.dtype)

    return step


@instruction("*pass")
def hand_over(b: Builder, ins: Instruction) -> Step:
    """The parts of one variable to those of another."""
    to, source = ins.operands
    assert isinstance(to, Vec)
    assert isinstance(source, Vec)
    steps = []
    for d, a in zip(to.items, source.items, strict=True):
        assert isinstance(d, Reg)
        kind = f"u{8 * SIZES[d.type]}"
        view = b.src(a, kind)
        b.reads.pop()  # a part that was never written is passed, too
        steps.append(copy(b.dst(d, kind), view))
    return together(steps) if steps else lambda c, m: None
