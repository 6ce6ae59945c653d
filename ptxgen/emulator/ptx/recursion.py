"""Recursive functions: every call of one enters the same copy, and each thread has a stack of saved registers.

A call in a recursive function saves the registers of its caller. A call writes the parameters, and branches to the
first instruction of the function. The function returns through a table of all calls. Variables in local memory are
addressed from a register, the frame pointer.
"""

from __future__ import annotations

from typing import Any, Protocol

from ptxgen.emulator.ptx.inlining import Context, Label, Subroutine
from ptxgen.emulator.ptx.parameters import ParameterCopy, Parameters
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

#: largest size in bytes of the frames of one thread, in local memory
MAX_FRAMES = 32 * 1024


class CodeWriter(Protocol):
    """The writer of the flattened code: ``ptx.flatten.Flattener``."""

    unit: Unit
    entry: Function
    out: Function
    copies: list[ParameterCopy]

    def callees(self, f: Function) -> set[str]: ...

    def variable(self, v: Variable) -> Variable: ...

    def register(self, name: str, ptx_type: str) -> Reg: ...

    def copy_variables(self, f: Function, known: dict[int, Variable]) -> dict[int, Variable]: ...

    def label(self) -> Label: ...

    def place(self, label: Label) -> None: ...

    def body(self, c: Context) -> None: ...

    def emit(self, ins: Instruction, op: str, operands: tuple[Operand, ...] = (), **changes: Any) -> None: ...

    def move(self, ins: Instruction, p: Parameter, to: Operand, source: Operand) -> None: ...

    def case(self, ins: Instruction, value: Operand, number: int) -> Reg: ...


class Recursion:
    """The recursive functions that one kernel may call."""

    def __init__(self, writer: CodeWriter) -> None:
        self.writer = writer
        self.subroutines: dict[str, Subroutine] = {}
        self.calls: list[tuple[Subroutine, Label]] = []  # each with the label behind the call
        self.saves: list[tuple[Instruction, Subroutine]] = []
        self.frame_pointer: Reg | None = None
        functions = writer.unit.functions
        reached: dict[str, set[str]] = {}

        def reach(name: str) -> set[str]:
            """The functions that a call of ``name`` may call, directly or through other functions."""
            if name not in reached:
                callees: set[str] = set()
                work = [name]
                while work:
                    f = functions.get(work.pop())
                    new = writer.callees(f) - callees if f is not None and f.defined else set()
                    callees |= new
                    work += new
                reached[name] = callees
            return reached[name]

        self.names = {name for name in reach(writer.entry.name) if name in reach(name)}

    # ---- the stages of flattening

    def begin(self) -> None:
        """Emits the initialisation of the frame pointer, before the kernel's code."""
        functions = [self.writer.unit.functions[name] for name in self.names]
        if any(v.space == "local" for f in functions for v in f.variables):
            stack = self.writer.variable(Variable("the stack", "local", "b8", 16, MAX_FRAMES))
            self.frame_pointer = self.writer.register("the frame pointer", "b64")
            self.writer.emit(self.writer.entry.code[0], "mov", (self.frame_pointer, Sym(stack)), mods=("u64",))

    def bodies(self) -> None:
        """Emits the recursive functions and the branches by which they return, after the kernel's code."""
        writer = self.writer
        done: list[Subroutine] = []
        if self.subroutines:
            writer.emit(writer.entry.code[-1], "ret")
        while len(done) < len(self.subroutines):
            s = list(self.subroutines.values())[len(done)]
            done.append(s)
            writer.place(s.entry)
            writer.body(s.context)
            writer.emit(s.function.code[-1], "bra", scope=s.context.return_label, row="bra")
        for s in done:
            assert s.context.return_label is not None
            writer.place(s.context.return_label)
            last = s.function.code[-1]
            numbers = [n for n, (to, _) in enumerate(self.calls) if to is s]
            for n in numbers[:-1]:
                writer.emit(last, "bra", pred=writer.case(last, s.return_number, n), scope=self.calls[n][1], row="bra")
            writer.emit(last, "bra", scope=self.calls[numbers[-1]][1], row="bra")

    def complete_saves(self, parameters: Parameters) -> None:
        """Adds the saved registers to the calls, once all registers are known."""
        for ins, s in self.saves:
            formals = (*s.function.param_vars, *s.function.return_vars)
            passed = [r for v in formals for r in parameters.ranges[id(s.context.variables[id(v)])].values()]
            registers = [s.return_number, *s.context.registers.values(), *passed]
            if any(r.type == "b128" for r in registers):
                raise UnsupportedError(
                    f"line {ins.line}: a recursive function with 128-bit registers is not emulated: {ins.text}"
                )
            ins.operands = (Vec(tuple(registers)),)

    # ---- calls

    def subroutine(self, f: Function) -> Subroutine:
        """The copy of a recursive function, made at its first call."""
        subroutine = self.subroutines.get(f.name)
        if subroutine is not None:
            return subroutine

        writer = self.writer
        offsets: dict[int, int] = {}
        frame = 0
        known: dict[int, Variable] = {}
        for v in f.variables:
            if v.space == "local":
                frame = -(-frame // v.align) * v.align
                known[id(v)] = v
                offsets[id(v)] = frame
                frame += v.size
        known.update({id(v): writer.variable(v) for v in (*f.param_vars, *f.return_vars)})
        registers = {r.slot: writer.register(f"{r.name} of {f.name}", r.type) for r in f.registers}
        context = Context(f, registers, writer.copy_variables(f, known), writer.label())
        return_number = writer.register(f"the return of {f.name}", "b32")
        subroutine = Subroutine(f, context, writer.label(), return_number, -(-frame // 16) * 16, offsets)
        context.subroutine = self.subroutines[f.name] = subroutine
        return subroutine

    def address_in_frame(self, ins: Instruction, op: Operand, s: Subroutine) -> Operand:
        """An operand whose variable in local memory, if it names one, is replaced by an address relative to the frame
        pointer."""
        address = isinstance(op, Mem)
        sym = op.base if isinstance(op, Mem) else op
        if not isinstance(sym, Sym) or id(sym.var) not in s.offsets:
            return op
        assert self.frame_pointer is not None
        offset = s.offsets[id(sym.var)] + sym.offset
        if address and "local" in ins.mods:
            assert isinstance(op, Mem)
            return Mem(self.frame_pointer, op.offset + offset)
        at = self.writer.register(f"the address of {sym.var.name}", "b64")
        self.writer.emit(ins, "add", (at, self.frame_pointer, Imm(offset)), mods=("u64",))
        if isinstance(op, Mem):
            self.writer.emit(ins, "cvta", (at, at), mods=("local", "u64"))
            return Mem(at, op.offset)
        return at

    def call(self, ins: Instruction, f: Function, returns: Any, arguments: Any, c: Context) -> None:
        """Emits a call of a recursive function."""
        writer, s, behind = self.writer, self.subroutine(f), self.writer.label()
        caller = c.subroutine if c.subroutine is not None and c.subroutine.context is c else None
        values = [self.argument(ins, p, actual) for p, actual in zip(f.params, arguments, strict=True)]
        if caller is not None:
            self.use_stack(ins, caller, "save")
        for formal, (p, source) in zip(self.formals(f.params, f.param_vars, s), values, strict=True):
            self.pass_value(ins, p, formal, source)
        self.move_frame(ins, c, 1)
        writer.emit(ins, "mov", (s.return_number, Imm(len(self.calls))), mods=("b32",))
        self.calls.append((s, behind))
        writer.emit(ins, "bra", scope=s.entry, row="bra")
        writer.place(behind)
        self.move_frame(ins, c, -1)
        results: list[tuple[Parameter, Operand, Operand]] = []
        for p, formal, actual in zip(f.returns, self.formals(f.returns, f.return_vars, s), returns, strict=True):
            if isinstance(actual, Sym) and actual.var.space == "param":
                self.pass_value(ins, p, actual, formal)
            elif not isinstance(actual, Sink):
                results.append((p, actual, self.argument(ins, p, formal, copied=True)[1]))
        if caller is not None:
            self.use_stack(ins, caller, "restore")
        for p, actual, value in results:
            writer.move(ins, p, actual, value)

    def formals(self, parameters: list[Parameter], variables: list[Variable], s: Subroutine) -> list[Operand]:
        """The operands of the parameters, or of the results, in the copy of a function."""
        others = iter(variables)
        return [
            s.context.registers[p.reg.slot] if p.reg is not None else Sym(s.context.variables[id(next(others))])
            for p in parameters
        ]

    def argument(
        self, ins: Instruction, p: Parameter, actual: Operand, copied: bool = False
    ) -> tuple[Parameter, Operand]:
        """The pair (parameter, its value): the value is a .param variable, which no call overwrites, or a copy in a new
        register."""
        if isinstance(actual, Sym) and actual.var.space == "param" and not copied:
            return p, actual
        value = self.writer.register(f"the value of {p.name}", "pred" if p.type == "pred" else f"b{8 * p.size}")
        self.writer.move(ins, p, value, actual)
        return p, value

    def pass_value(self, ins: Instruction, p: Parameter, to: Operand, source: Operand) -> None:
        """Emits the copy of a value from ``argument`` to a parameter or a result."""
        if isinstance(to, Sym) and isinstance(source, Sym):
            self.writer.emit(ins, "call", row="*copy_param")
            self.writer.copies.append(ParameterCopy(self.writer.out.code[-1], to.var, source.var))
        else:
            self.writer.move(ins, p, to, source)

    def use_stack(self, ins: Instruction, s: Subroutine, operation: str) -> None:
        """Emits "save" or "restore" of the registers of a recursive function."""
        self.writer.emit(ins, "call", row=f"*{operation}")
        self.saves.append((self.writer.out.code[-1], s))

    def move_frame(self, ins: Instruction, c: Context, sign: int) -> None:
        """Emits the addition of the frame size of the caller, times ``sign``, to the frame pointer."""
        if c.subroutine is not None and c.subroutine.frame_size:
            assert self.frame_pointer is not None
            operands = (self.frame_pointer, self.frame_pointer, Imm(sign * c.subroutine.frame_size))
            self.writer.emit(ins, "add", operands, mods=("s64",))
