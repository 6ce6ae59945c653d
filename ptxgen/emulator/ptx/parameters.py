"""Parameters that are passed through .param variables: registers where all accesses name the same parts."""

from __future__ import annotations

from typing import NamedTuple

from ptxgen.emulator.ptx.syntax import SIZES, Function, Instruction, Mem, Operand, Reg, Sym, Variable, Vec
from ptxgen.errors import ParseError, UnsupportedError


class Passing(NamedTuple):
    """A parameter that goes from one variable to another; `ins` is to become the instruction that does it."""

    ins: Instruction
    to: Variable
    source: Variable


class Parameters:
    """The .param variables of calls: parts of each become registers, or all of it local memory."""

    def __init__(self, f: Function, passed: dict[int, Variable], passings: list[Passing]) -> None:
        self.f, self.passed, self.passings = f, passed, passings
        self.parts: dict[int, dict[tuple[int, int], Reg]] = {key: {} for key in passed}
        self.framed: set[int] = set()

    def access(self, ins: Instruction) -> tuple[Variable, int, int, int] | None:
        """(variable, offset, size, elements) where an instruction loads or stores one by its name."""
        if ins.op not in ("ld", "st") or len(ins.operands) != 2 or not ins.types:
            return None
        address = ins.operands[1 if ins.op == "ld" else 0]
        if not isinstance(address, Mem) or not isinstance(address.base, Sym) or id(address.base.var) not in self.passed:
            return None
        other = ins.operands[0 if ins.op == "ld" else 1]
        count = len(other.items) if isinstance(other, Vec) else 1
        variable, size = address.base.var, SIZES[ins.types[-1]]
        offset = address.base.offset + address.offset
        if offset < 0 or offset + count * size > variable.size or offset % size:
            raise ParseError(
                f"line {ins.line}: {count * size} bytes at {offset} of the {variable.size} bytes of "
                f"{variable.name}: {ins.text}"
            )
        return variable, offset, size, count

    def resolve(self) -> None:
        for ins in self.f.code:
            found = self.access(ins)
            if found is None:
                self.framed |= {id(v) for op in ins.operands for v in variables(op)} & self.parts.keys()
                continue
            variable, offset, size, count = found
            if size == 1:
                self.framed.add(id(variable))
            for i in range(count):
                self.part(variable, offset + i * size, size)
        self.unify()
        for key in self.framed:
            self.passed[key].space = "local"
        for ins in self.f.code:
            found = self.access(ins)
            if found is None:
                continue
            variable, offset, size, count = found
            if id(variable) in self.framed:
                ins.row = f"*{ins.op}.frame"
                continue
            parts = Vec(tuple(self.parts[id(variable)][offset + i * size, size] for i in range(count)))
            ins.row = f"*{ins.op}.part"
            ins.operands = (ins.operands[0], parts) if ins.op == "ld" else (parts, ins.operands[1])
        for ins, to, source in self.passings:
            into, of = self.parts[id(to)], self.parts[id(source)]
            ins.operands = (Vec(tuple(into.values())), Vec(tuple(of[part] for part in into)))
        self.f.variables[:] = [v for v in self.f.variables if v.space != "param"]

    def part(self, variable: Variable, offset: int, size: int) -> None:
        """Records one accessed byte range of a variable."""
        known = self.parts[id(variable)]
        if (offset, size) not in known:
            if any(at < offset + size and offset < at + n for at, n in known):
                self.framed.add(id(variable))
            name = f"{variable.name}+{offset}" if offset else variable.name
            known[offset, size] = Reg(name, f"b{8 * size}", len(self.f.registers))
            self.f.registers.append(known[offset, size])

    def unify(self) -> None:
        """Gives two variables the same registers."""
        changed = True
        while changed:
            changed = False
            for _, to, source in self.passings:
                for offset, size in self.parts[id(to)].keys() - self.parts[id(source)].keys():
                    self.part(source, offset, size)
                    changed = True
        for ins, to, source in self.passings:
            if {id(to), id(source)} & self.framed:
                raise UnsupportedError(
                    f"line {ins.line}: a recursive call whose parameter {to.name} is not accessed in the same parts, "
                    f"of at least 2 bytes, everywhere: {ins.text}"
                )


def variables(op: Operand) -> list[Variable]:
    """The variables that an operand names."""
    if isinstance(op, Sym):
        return [op.var]
    if isinstance(op, Mem):
        return variables(op.base)
    if isinstance(op, Vec):
        return [v for item in op.items for v in variables(item)]
    return []
