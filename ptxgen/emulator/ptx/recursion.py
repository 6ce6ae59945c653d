"""Recursive functions: one copy of each, which every call enters, with a stack of registers for every thread.

A call saves the registers of its caller if that is recursive, writes the parameters, and branches to the first
instruction of the function. The function returns through a table of all calls. Variables in local memory are addressed
from a register, the frame pointer.
"""

from __future__ import annotations

from typing import Any, Protocol

from ptxgen.emulator.ptx.inlining import Context, Label, Subroutine
from ptxgen.emulator.ptx.parameters import Parameters, Passing
from ptxgen.emulator.ptx.syntax import (
    Function,
    Imm,
    Instruction,
    Mem,
    Operand,
    Parameter,
    Reg,
    Sink,
    Sym,
    Unit,
    Variable,
    Vec,
)
from ptxgen.errors import UnsupportedError

#: bytes of local memory that the frames of one thread may take
FRAMES = 32 * 1024


class CodeWriter(Protocol):
    """Where the flattened code goes: `ptx.flatten.Flattener`."""

    unit: Unit
    entry: Function
    out: Function
    passings: list[Passing]

    def callees(self, f: Function) -> set[str]: ...

    def variable(self, v: Variable) -> Variable: ...

    def register(self, name: str, kind: str) -> Reg: ...

    def fresh(self, f: Function, known: dict[int, Variable]) -> dict[int, Variable]: ...

    def label(self) -> Label: ...

    def place(self, label: Label) -> None: ...

    def body(self, c: Context) -> None: ...

    def emit(self, ins: Instruction, op: str, operands: tuple[Operand, ...] = (), **changes: Any) -> None: ...

    def move(self, ins: Instruction, p: Parameter, to: Operand, source: Operand) -> None: ...

    def case(self, ins: Instruction, value: Operand, number: int) -> Reg: ...


class Recursion:
    """The recursive functions that one kernel may call."""

    def __init__(self, owner: CodeWriter) -> None:
        self.owner = owner
        self.subroutines: dict[str, Subroutine] = {}
        self.calls: list[tuple[Subroutine, Label]] = []  # with the label after each call
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

    def complete_saves(self, parameters: Parameters) -> None:
        """Adds the saved registers to the calls, once all registers are known."""
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
        """The operands of the parameters in the copy of a function."""
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
