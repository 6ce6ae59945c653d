"""Parameters that are passed through .param variables: in registers if all accesses use the same byte ranges."""

from __future__ import annotations

from typing import NamedTuple

from ptxgen.emulator.ptx.syntax import SIZES, Function, Instruction, Mem, Operand, Reg, Sym, Variable, Vec
from ptxgen.errors import UnsupportedError


class ParameterCopy(NamedTuple):
    """A copy of one .param variable to another. ``ins``: the placeholder that becomes the copying instruction."""

    ins: Instruction
    destination: Variable
    source: Variable


class Parameters:
    """The .param variables of calls. The accessed byte ranges of a variable become registers, or the variable moves to
    local memory."""

    def __init__(self, f: Function, passed: dict[int, Variable], copies: list[ParameterCopy]) -> None:
        self.f, self.passed, self.copies = f, passed, copies
        self.ranges: dict[int, dict[tuple[int, int], Reg]] = {key: {} for key in passed}
        self.in_local: set[int] = set()

    def access(self, ins: Instruction) -> tuple[Variable, int, int, int] | None:
        """The tuple (variable, offset, bytes of an element, elements) of a load or store that names a .param
        variable."""
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
            ins.row = "*outside_parameter"  # a fault, if it executes
            return None
        return variable, offset, size, count

    def resolve(self) -> None:
        """Replaces loads, stores and copies of .param variables by moves of registers or accesses to local memory."""
        for ins in self.f.code:
            access = self.access(ins)
            if access is None and ins.row != "*outside_parameter":
                self.in_local |= {id(v) for op in ins.operands for v in variables(op)} & self.ranges.keys()
            if access is None:
                continue
            variable, offset, size, count = access
            for i in range(count):
                self.add_range(variable, offset + i * size, size)
        self.unify()
        for key in self.in_local:
            self.passed[key].space = "local"
        for ins in self.f.code:
            access = self.access(ins)
            if access is None:
                continue
            variable, offset, size, count = access
            if id(variable) in self.in_local:
                ins.row = f"*{ins.op}.param_local"
                continue
            registers = Vec(tuple(self.ranges[id(variable)][offset + i * size, size] for i in range(count)))
            ins.row = f"*{ins.op}.param_registers"
            ins.operands = (ins.operands[0], registers) if ins.op == "ld" else (registers, ins.operands[1])
        for ins, destination, source in self.copies:
            to, of = self.ranges[id(destination)], self.ranges[id(source)]
            ins.operands = (Vec(tuple(to.values())), Vec(tuple(of[key] for key in to)))
        self.f.variables[:] = [v for v in self.f.variables if v.space != "param"]

    def add_range(self, variable: Variable, offset: int, size: int) -> None:
        """Records one accessed byte range of a variable."""
        known = self.ranges[id(variable)]
        if (offset, size) not in known:
            if any(at < offset + size and offset < at + n for at, n in known):
                self.in_local.add(id(variable))
            name = f"{variable.name}+{offset}" if offset else variable.name
            known[offset, size] = Reg(name, f"b{8 * size}", len(self.f.registers))
            self.f.registers.append(known[offset, size])

    def unify(self) -> None:
        """Gives the source and the destination of each copy the same byte ranges."""
        changed = True
        while changed:
            changed = False
            for _, destination, source in self.copies:
                for offset, size in self.ranges[id(destination)].keys() - self.ranges[id(source)].keys():
                    self.add_range(source, offset, size)
                    changed = True
        for ins, destination, source in self.copies:
            if {id(destination), id(source)} & self.in_local:
                raise UnsupportedError(
                    f"line {ins.line}: a recursive call whose parameter {destination.name} is not accessed in the "
                    f"same byte ranges everywhere: {ins.text}"
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
