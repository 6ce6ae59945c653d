"""Flattens a kernel into one list of instructions: calls are inlined, and indexed branches become branches.

Every call has a separate copy of the registers and variables of the function, so that divergence, barriers and the
checks of undefined registers need no special case. Recursive functions have one copy and a stack (``recursion``).
Parameters that are passed through .param variables become registers if every access to a variable uses the same byte
ranges; otherwise they are in the local memory of the thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxgen.emulator.ptx.b128 import has_b128, split_b128
from ptxgen.emulator.ptx.inlining import Context, Label
from ptxgen.emulator.ptx.parameters import ParameterCopy, Parameters
from ptxgen.emulator.ptx.recursion import Recursion
from ptxgen.emulator.ptx.syntax import (
    SIZES,
    Address,
    Flt,
    Function,
    Imm,
    Instruction,
    Mem,
    Name,
    Neg,
    Not,
    Operand,
    Pair,
    Parameter,
    Reg,
    Selected,
    Sink,
    Sym,
    Unit,
    Variable,
    Vec,
)
from ptxgen.errors import ParseError, UnsupportedError

#: functions that the CUDA runtime defines -> the rows of the instruction table that execute them
SYSTEM_CALLS = {"vprintf": "*vprintf", "__assertfail": "*assertfail", "malloc": "*malloc", "free": "*free"}
#: instructions that use the stack of a thread; number of bytes of that stack
STACK_OPERATIONS, STACK_BYTES = ("alloca", "stacksave", "stackrestore"), 32 * 1024
#: largest number of instructions of a kernel, including the functions that it calls
LIMIT = 200_000
#: for function pointers: address of the first function, and distance between functions
FUNCTION_BASE, FUNCTION_STRIDE = 0x7F000000, 64


def function_address(unit: Unit, name: str) -> int:
    return FUNCTION_BASE + FUNCTION_STRIDE * list(unit.functions).index(name)


def flatten(unit: Unit, entry: Function) -> Function:
    """The kernel without call and brx, and without 128-bit registers.

    Raises UnsupportedError for a call of a function without a body.
    """
    if not has_b128(entry) and not any(
        ins.op in ("call", "brx", *STACK_OPERATIONS) or takes_function_address(unit, ins) for ins in entry.code
    ):
        return entry
    return Flattener(unit, entry).run()


def takes_function_address(unit: Unit, ins: Instruction) -> bool:
    """True if an instruction takes a function's address."""
    return ins.op == "mov" and any(isinstance(op, Name) and op.name in unit.functions for op in ins.operands)


def uses_stack(f: Function) -> bool:
    """True if a function allocates memory on the stack of a thread."""
    return any(ins.op in STACK_OPERATIONS for ins in f.code)


class Flattener:
    def __init__(self, unit: Unit, entry: Function) -> None:
        self.unit, self.entry = unit, entry
        self.out = replace(
            entry,
            code=[],
            registers=list(entry.registers),
            variables=[],
            targets={},
            tables={},
        )
        self.labels: list[Label] = []
        self.passed: dict[int, Variable] = {}  # .param variables of calls
        self.copies: list[ParameterCopy] = []
        self.recursion = Recursion(self)
        self.context: Context | None = None  # the copy that is being emitted
        self.stack: Variable | None = None
        self.stack_pointer: Reg | None = None

    def run(self) -> Function:
        self.recursion.begin()
        if any(map(uses_stack, (self.entry, *self.unit.functions.values()))):
            self.stack = self.variable(Variable("the stack of alloca", "local", "b8", 16, STACK_BYTES))
            self.stack_pointer = self.register("the stack pointer", "b64")
            self.emit(self.entry.code[0], "mov", (self.stack_pointer, Sym(self.stack)), mods=("u64",))
        self.body(Context(self.entry, {}, self.copy_variables(self.entry, {}), None))
        self.recursion.bodies()
        for i, label in enumerate(self.labels):
            self.out.targets[0, str(i)] = label.position
        for ins in self.out.code:
            if isinstance(ins.scope, Label):
                ins.scope = ins.scope.position
        if has_b128(self.out):
            split_b128(self.out)
        parameters = Parameters(self.out, self.passed, self.copies)
        parameters.resolve()
        self.recursion.complete_saves(parameters)
        return self.out

    # ---- code generation

    def emit(self, ins: Instruction, op: str, operands: tuple[Operand, ...] = (), **changes: Any) -> None:
        """Appends an instruction in place of ``ins``; by default it is hidden, and has no guard and no modifiers."""
        fields = {"mods": (), "pred": None, "negated": False, "scope": None, "hidden": True, **changes}
        fields |= self.origin()
        self.out.code.append(replace(ins, op=op, operands=operands, **fields))
        if len(self.out.code) > LIMIT:
            raise UnsupportedError(f"line {ins.line}: {self.entry.name} has over {LIMIT} instructions, calls included")

    def origin(self) -> dict[str, Any]:
        """The fields ``function`` and ``caller`` of instructions that are copied into a call; empty in the kernel
        itself."""
        c = self.context
        inner = c is not None and c.function is not self.entry
        return {"function": c.function.name, "caller": c.caller} if c is not None and inner else {}

    def label(self) -> Label:
        self.labels.append(Label())
        return self.labels[-1]

    def place(self, label: Label) -> None:
        label.position = len(self.out.code)

    def register(self, name: str, ptx_type: str) -> Reg:
        reg = Reg(name, ptx_type, len(self.out.registers))
        self.out.registers.append(reg)
        return reg

    def copy_variables(self, f: Function, known: dict[int, Variable]) -> dict[int, Variable]:
        """Adds copies of the variables of a function to ``known``, which maps the ``id`` of a variable to its copy."""
        for v in f.variables:
            if v.space in ("local", "param"):
                known.setdefault(id(v), self.variable(v))
            elif not any(v is other for other in self.out.variables):
                self.out.variables.append(v)
        return known

    def variable(self, v: Variable) -> Variable:
        """A copy of a .local or .param variable."""
        copy = replace(v)
        if v.space == "param":
            self.passed[id(copy)] = copy
        self.out.variables.append(copy)
        return copy

    def rename(self, op: Operand, c: Context) -> Operand:
        if isinstance(op, Reg):
            return c.registers.get(op.slot, op)
        if isinstance(op, Sym):
            return Sym(c.variables.get(id(op.var), op.var), op.offset)
        if isinstance(op, Vec):
            return Vec(tuple(self.rename(o, c) for o in op.items))
        if isinstance(op, Mem):
            coords = self.rename(op.coords, c) if op.coords is not None else None
            return Mem(self.rename(op.base, c), op.offset, coords if isinstance(coords, Vec) else None)
        if isinstance(op, Pair):
            return Pair(self.rename(op.first, c), self.rename(op.second, c))
        if isinstance(op, Not):
            return Not(self.rename(op.reg, c))
        if isinstance(op, Neg):
            return Neg(self.rename(op.reg, c))
        if isinstance(op, Selected):
            return Selected(self.rename(op.reg, c), op.select)
        return op

    def body(self, c: Context) -> None:
        """Appends a copy of a function's instructions."""
        outer, self.context = self.context, c
        labels = {at: self.label() for at in sorted(set(c.function.targets.values()))}
        for i, ins in enumerate(c.function.code):
            if i in labels:
                self.place(labels[i])
            pred = None if ins.pred is None else c.registers.get(ins.pred.slot, ins.pred)
            operands = tuple(self.rename(op, c) for op in ins.operands)
            if c.subroutine is not None:
                operands = tuple(self.recursion.address_in_frame(ins, op, c.subroutine) for op in operands)
            if takes_function_address(self.unit, ins):
                operands = tuple(
                    Imm(function_address(self.unit, op.name)) if isinstance(op, Name) else op for op in operands
                )
            renamed = replace(ins, pred=pred, operands=operands, **self.origin())
            unchanged: dict[str, Any] = {"mods": ins.mods, "pred": pred, "negated": ins.negated, "hidden": ins.hidden}
            if ins.op == "call":
                self.call(renamed, c)
            elif ins.op in STACK_OPERATIONS:
                self.stack_operation(renamed, c, unchanged)
            elif ins.op == "brx":
                self.brx(renamed, [labels[at] for at in ins.scope])
            elif ins.op == "bra":
                self.emit(ins, "bra", operands, **{**unchanged, "scope": labels[ins.scope]})
            elif ins.op == "ret" and c.return_label is not None:
                self.emit(ins, "ret", **{**unchanged, "scope": c.return_label, "row": "bra"})
            else:
                if (
                    c.return_label is not None
                    and ins.op == "ld"
                    and "param" in ins.mods
                    and isinstance(operands[1], Mem)
                    and (isinstance(operands[1].base, Reg))
                ):
                    unchanged["mods"] = tuple("local" if m == "param" else m for m in ins.mods)
                self.emit(ins, ins.op, operands, **unchanged)
        for at, label in labels.items():
            if at == len(c.function.code):
                self.place(label)
        self.context = outer

    def stack_operation(self, ins: Instruction, c: Context, unchanged: dict[str, Any]) -> None:
        """Emits alloca, stacksave or stackrestore with the stack pointer as an operand."""
        assert self.stack_pointer is not None
        assert self.stack is not None
        if c.subroutine is not None:
            raise UnsupportedError(f"line {ins.line}: {ins.op} in a recursive function is not emulated: {ins.text}")
        operands: tuple[Operand, ...] = (ins.operands[0], self.stack_pointer, *ins.operands[1:])
        if ins.op == "alloca":
            operands = (*operands, *([Imm(8)] if len(operands) == 3 else []), Sym(self.stack))
        self.emit(ins, ins.op, operands, **unchanged)

    def case(self, ins: Instruction, value: Operand, number: int) -> Reg:
        """Emits the comparison of a register with a number; returns its predicate."""
        equal = self.register(f"{ins.op} to {number:#x}", "pred")
        self.emit(ins, "case", (equal, value, Imm(number)), row="*case")
        return equal

    def brx(self, ins: Instruction, labels: list[Label]) -> None:
        """Emits an indexed branch: the check of the index, then a branch for each target."""
        index, after = ins.operands[0], self.label()
        guard: tuple[Operand, ...] = () if ins.pred is None else (ins.pred,)
        self.emit(ins, "brx", (index, Imm(len(labels)), *guard), mods=ins.mods, negated=ins.negated, hidden=False)
        self.skip(ins, after)
        for i, label in enumerate(labels[:-1]):
            self.emit(ins, "bra", pred=self.case(ins, index, i), scope=label, row="bra")
        self.emit(ins, "bra", scope=labels[-1], row="bra")
        self.place(after)

    def skip(self, ins: Instruction, after: Label) -> None:
        """Emits a branch to ``after`` for the lanes in which the guard of an instruction is false."""
        if ins.pred is not None:
            self.emit(ins, "bra", pred=ins.pred, negated=not ins.negated, scope=after, row="bra")

    # ---- calls

    def call(self, ins: Instruction, c: Context) -> None:
        items = list(ins.operands)
        returns = take_list(items)
        target = items.pop(0) if items else Sink()
        arguments = take_list(items)
        after = self.label()
        reads: list[Operand] = [op for op in (ins.pred, target) if isinstance(op, Reg)]
        self.emit(ins, "call", tuple(reads), mods=ins.mods, hidden=False)
        self.skip(ins, after)
        if isinstance(target, Name):
            if target.name not in self.unit.functions:
                raise ParseError(f"line {ins.line}: there is no function {target.name}: {ins.text}")
            self.inline(ins, self.unit.functions[target.name], returns, arguments, c)
        elif isinstance(target, Reg):
            for f in self.candidates(ins, items, returns, arguments):
                skip = self.label()
                equal = self.case(ins, target, function_address(self.unit, f.name))
                self.emit(ins, "bra", pred=equal, negated=True, scope=skip, row="bra")
                self.inline(ins, f, returns, arguments, c)
                self.emit(ins, "bra", scope=after, row="bra")
                self.place(skip)
            self.emit(ins, "call", (target,), row="*bad_function_pointer")
        else:
            raise ParseError(f"line {ins.line}: a call needs a function name or a register: {ins.text}")
        self.place(after)

    def callees(self, f: Function) -> set[str]:
        """The names of all functions that a function may call."""
        names = set()
        for ins in f.code:
            if ins.op != "call":
                continue
            items = list(ins.operands)
            returns = take_list(items)
            target = items.pop(0) if items else Sink()
            arguments = take_list(items)
            if isinstance(target, Name):
                names.add(target.name)
            else:
                names |= {g.name for g in self.candidates(ins, items, returns, arguments)}
        return names

    def candidates(self, ins: Instruction, rest: list[Operand], returns: Any, arguments: Any) -> list[Function]:
        """The functions that an indirect call may reach.

        They are the functions of its .calltargets or table; without these, all functions whose address is taken. Their
        signature must match.
        """
        names: list[str] = list(ins.scope or ())
        if rest and isinstance(rest[-1], Sym):
            names = [value.name for value in rest[-1].var.init or [] if isinstance(value, Address)]
        if not names:
            taken = {
                op.name
                for f in self.unit.functions.values()
                for i in f.code
                if takes_function_address(self.unit, i)
                for op in i.operands
                if isinstance(op, Name)
            }
            for v in [*self.unit.variables, *(v for f in self.unit.functions.values() for v in f.variables)]:
                taken |= {value.name for value in v.init or [] if isinstance(value, Address)}
            names = [n for n, f in self.unit.functions.items() if n in taken and f.defined and not f.entry]
        for name in names:
            if name not in self.unit.functions:
                raise ParseError(f"line {ins.line}: there is no function {name}: {ins.text}")
        functions = [self.unit.functions[name] for name in dict.fromkeys(names)]
        return [f for f in functions if matches(f.params, arguments) and matches(f.returns, returns)]

    def inline(self, ins: Instruction, f: Function, returns: Any, arguments: Any, c: Context) -> None:
        """Emits a call of a known function: a copy of its body, or a call of its subroutine if it is recursive."""
        if not f.defined and f.name not in SYSTEM_CALLS:
            raise UnsupportedError(f"line {ins.line}: the function {f.name} has no body in this module: {ins.text}")
        if (len(f.params), len(f.returns)) != (len(arguments), len(returns)):
            raise ParseError(
                f"line {ins.line}: {f.name} has {len(f.params)} parameters and {len(f.returns)} results, "
                f"not {len(arguments)} and {len(returns)}: {ins.text}"
            )
        if not f.defined:
            self.system_call(ins, f, returns, arguments)
            return
        if f.name in self.recursion.names:
            self.recursion.call(ins, f, returns, arguments, c)
            return
        registers = {r.slot: self.register(f"{r.name} of {f.name}", r.type) for r in f.registers}
        inner = Context(f, registers, self.copy_variables(f, {}), self.label(), c.subroutine, ins)
        after: list[tuple[Parameter, Operand, Operand]] = []
        formals = iter(f.param_vars)
        for p, actual in zip(f.params, arguments, strict=True):
            formal = self.formal(ins, p, formals, actual, inner)
            if formal is not None:
                self.move(ins, p, formal, actual)
        formals = iter(f.return_vars)
        for p, actual in zip(f.returns, returns, strict=True):
            formal = self.formal(ins, p, formals, actual, inner)
            if formal is not None and not isinstance(actual, Sink):
                after.append((p, actual, formal))
        assert inner.return_label is not None
        saved = self.register(f"the stack pointer before {f.name}", "b64") if uses_stack(f) else None
        if saved is not None and self.stack_pointer is not None:
            self.emit(ins, "mov", (saved, self.stack_pointer), mods=("u64",))
        self.body(inner)
        self.place(inner.return_label)
        if saved is not None and self.stack_pointer is not None:
            self.emit(ins, "mov", (self.stack_pointer, saved), mods=("u64",))
        for p, to, source in after:
            self.move(ins, p, to, source)

    def system_call(self, ins: Instruction, f: Function, returns: Any, arguments: Any) -> None:
        """Emits a call of a function of the CUDA runtime: one instruction on registers."""
        results, values = (
            [self.register(f"{p.name} of {f.name}", f"b{8 * p.size}") for p in group] for group in (f.returns, f.params)
        )
        for p, value, actual in zip(f.params, values, arguments, strict=True):
            self.move(ins, p, value, actual)
        self.emit(ins, "call", (*results, *values), row=SYSTEM_CALLS[f.name])
        for p, result, actual in zip(f.returns, results, returns, strict=True):
            if not isinstance(actual, Sink):
                self.move(ins, p, actual, result)

    def formal(self, ins: Instruction, p: Parameter, formals: Any, actual: Operand, c: Context) -> Operand | None:
        """The operand that stands for a parameter in a copy of a function; None if the copy uses the variable of the
        caller."""
        if p.reg is not None:
            return c.registers[p.reg.slot]
        variable: Variable = next(formals)
        if isinstance(actual, Sym) and actual.var.space == "param":
            if actual.var.size != variable.size:
                raise ParseError(
                    f"line {ins.line}: {actual.var.name} has {actual.var.size} bytes, {p.name} of "
                    f"{c.function.name} {variable.size}: {ins.text}"
                )
            c.variables[id(variable)] = actual.var
            return None
        copy = c.variables[id(variable)] = self.variable(variable)
        return Sym(copy)

    def move(self, ins: Instruction, p: Parameter, to: Operand, source: Operand) -> None:
        """Copies an argument or a result from its source to its destination."""
        bits = 8 * SIZES[p.type]
        ptx_type = p.type if isinstance(source, Flt) or p.type == "pred" else f"b{bits}"
        if isinstance(to, Sym):
            self.emit(ins, "st", (Mem(to), source), mods=("param", ptx_type))
        elif isinstance(source, Sym) and source.var.space == "param":
            self.emit(ins, "ld", (to, Mem(source)), mods=("param", ptx_type))
        else:
            self.emit(ins, "mov", (to, source), mods=(ptx_type,))


def matches(parameters: list[Parameter], actuals: tuple[Operand, ...]) -> bool:
    """True if the operands ``actuals`` fit the parameters of a call, or its results."""
    return len(parameters) == len(actuals) and all(
        not isinstance(op, Sym) or op.var.space != "param" or op.var.size == p.size
        for p, op in zip(parameters, actuals, strict=True)
    )


def take_list(items: list[Operand]) -> tuple[Operand, ...]:
    """Removes a parenthesised list at the front of the operands of a call, and returns its elements."""
    if items and isinstance(items[0], Vec):
        first = items[0]
        del items[0]
        return first.items
    return ()
