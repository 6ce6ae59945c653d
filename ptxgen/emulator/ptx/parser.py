"""PTX text to a :class:`Unit`: scopes resolved, control flow flat."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ptxgen.cuda_abi import PARAMETERS_AT
from ptxgen.emulator.ptx.lexer import Token, integer
from ptxgen.emulator.ptx.reader import Reader
from ptxgen.emulator.ptx.syntax import (
    SIZES,
    Function,
    Instruction,
    Name,
    Operand,
    Parameter,
    Reg,
    Unit,
    Variable,
    Vec,
    canonical,
)
from ptxgen.errors import ParseError, UnsupportedError

_LINKAGE = {".visible", ".extern", ".weak", ".common"}


_SPACES = {".global", ".const", ".shared", ".local", ".param"}


_PERFORMANCE = {
    ".maxntid",
    ".reqntid",
    ".minnctapersm",
    ".maxnctapersm",
    ".maxnreg",
    ".reqnctapercluster",
    ".maxclusterrank",
    ".explicitcluster",
    ".blocksareclusters",
    ".noreturn",
    ".abi_preserve",
    ".abi_preserve_control",
}


_TABLES = {".branchtargets", ".calltargets", ".callprototype"}


class Scope:
    """Names of one pair of braces."""

    def __init__(self, parent: Scope | None, number: int) -> None:
        self.parent = parent
        self.number = number
        self.names: dict[str, Reg | Variable | Vec] = {}
        self.ranges: list[tuple[str, int, str]] = []
        self.labels: set[str] = set()


class Parser(Reader):
    """One pass over the tokens of one text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.version = (0, 0)
        self.target = ""
        self.globals: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.function: Function | None = None
        self.scope = Scope(None, 0)
        self.scopes = 1
        self.files: dict[int, str] = {}
        self.location = (0, 0)

    # ---- module

    def unit(self) -> Unit:
        while self.token.kind != "end":
            self.top()
        if not self.version[0]:
            raise ParseError("line 1: a module begins with .version, .target and .address_size")
        return Unit(self.version, self.target, list(self.globals.values()), self.functions, self.files)

    def top(self) -> None:
        token = self.token
        if token.kind == ";":
            self.at += 1
            return
        if token.kind != "directive":
            raise self.fail("expected a directive")
        linkage = set()
        while self.token.text in _LINKAGE:
            linkage.add(self.next().text)
        word = self.token.text
        if word == ".version":
            self.at += 1
            major, _, minor = self.next().text.partition(".")
            if not (major.isdigit() and minor.isdigit()):
                raise self.fail("expected a version such as 8.0", token)
            self.version = (int(major), int(minor))
        elif word == ".target":
            self.at += 1
            self.target = self.expect("word").text
            while self.accept(","):
                self.expect("word")
        elif word == ".address_size":
            self.at += 1
            if self.expect("int").text != "64":
                raise UnsupportedError(f"line {token.line}: only .address_size 64 is emulated")
        elif word in (".file", ".loc"):
            self.source_directive()
        elif word == ".section":
            while not self.accept("}"):
                self.next()
        elif word == ".pragma":
            while not self.accept(";"):
                self.next()
        elif word in (".entry", ".func"):
            self.parse_function(word == ".entry")
        elif word in _SPACES:
            for var in self.variables(extern=".extern" in linkage):
                self.globals[var.name] = var
        else:
            raise UnsupportedError(f"line {token.line}: directive {word}")

    def source_directive(self) -> None:
        """``.file n "name" [, timestamp, size]`` or ``.loc file line column [, function_name l, inlined_at f l c]``."""
        word, number = self.next().text, self.constant()
        if word == ".file":
            self.files[number] = self.expect("str").text[1:-1]
        else:
            self.location = number, self.constant()
            self.constant()
        while self.accept(","):
            if self.token.kind == "word":
                self.next()
            while self.token.kind in ("int", "word", "+") and self.tokens[self.at - 1].line == self.token.line:
                self.next()

    def variables(self, extern: bool = False) -> list[Variable]:
        """``.space [.align n] [.vN] .type name[n] [= init], ...;``"""
        line = self.token.line
        space = self.next().text[1:]
        align, vector, kind = 0, 1, ""
        while self.token.kind == "directive":
            word = self.next().text
            if word == ".align":
                align = self.constant()
            elif word in (".v2", ".v4"):
                vector = int(word[2])
            elif word[1:] in SIZES:
                kind = word[1:]
            else:
                raise UnsupportedError(f"line {line}: {word} in a variable's declaration")
        if not SIZES.get(kind):
            raise self.fail("expected a type of a variable")
        out = []
        while True:
            name = self.expect("word").text
            if self.token.kind == "<":
                raise UnsupportedError(f"line {line}: ranged variable {name}")
            count = self.dimensions()
            unit = SIZES[kind] * vector
            init = self.initialiser() if self.accept("=") else None
            size = unit * (1 if count is None else count)
            if count == 0 and init is not None:
                size = unit * len(init)
            elif count == 0 and not extern:
                raise self.fail(f"{name} needs a size")
            out.append(Variable(name, space, kind, align or unit, size, init, extern or count == 0, line=line))
            if not self.accept(","):
                break
        self.expect(";")
        return out

    def parameters(self) -> list[Parameter]:
        out: list[Parameter] = []
        if not self.accept("("):
            return out
        while not self.accept(")"):
            if self.token.text not in (".param", ".reg"):
                raise self.fail("expected .param")
            register = self.next().text == ".reg"
            align, kind, vector = 0, "", 1
            while self.token.kind == "directive":
                word = self.next().text
                if word in (".v2", ".v4"):
                    vector = int(word[2])
                elif word == ".align":
                    align = align or self.constant()
                elif word == ".ptr":
                    while self.token.text in _SPACES | {".align"}:
                        if self.next().text == ".align":
                            self.constant()
                elif word[1:] in SIZES:
                    kind = word[1:]
                else:
                    raise UnsupportedError(f"line {self.token.line}: {word} in a parameter's declaration")
            if kind not in SIZES or (kind == "pred" and not register):
                raise self.fail("expected a type of a parameter")
            name = self.expect("word").text
            count = self.dimensions()
            unit = SIZES[kind] * (1 if register else vector)
            size = unit * (1 if count is None else count)
            array = count is not None or (vector > 1 and not register)
            if register and vector > 1:
                out += [Parameter(f"{name}.{letter}", kind, unit, unit, register=True) for letter in "xyzw"[:vector]]
            else:
                out.append(Parameter(name, kind, align or unit, size, array=array, register=register))
            self.accept(",")
        offset = 0
        for p in out:
            if p.register:
                continue
            # as on sm_90, where the parameter buffer begins at an address that is only 16-byte aligned
            p.offset = offset = -(-(offset + PARAMETERS_AT) // p.align) * p.align - PARAMETERS_AT
            offset += p.size
        return out

    def parse_function(self, entry: bool) -> None:
        line = self.next().line
        returns = [] if entry else self.parameters()
        name = self.expect("word").text
        f = Function(name, entry, returns=returns, line=line)
        f.params = self.parameters()
        outer, self.scope = self.scope, Scope(None, 0)
        self.scopes = 1
        self.location = (0, 0)
        self.function = f
        for group, store in ((f.params, f.param_vars), (f.returns, f.return_vars)):
            for p in group:
                if p.register:
                    p.reg = self.declare(p.name, p.type, self.scope)
                    vector_name = p.name.rpartition(".")[0]  # of an element of a vector
                    if vector_name:
                        vector = self.scope.names.get(vector_name)
                        elements = vector.items if isinstance(vector, Vec) else ()
                        self.scope.names[vector_name] = Vec((*elements, p.reg))
                    continue
                var = Variable(p.name, "param", p.type, p.align, p.size, address=p.offset, line=line)
                self.scope.names[p.name] = var
                store.append(var)
        while self.token.kind == "directive":
            word = self.token.text
            if word == ".pragma":
                while not self.accept(";"):
                    self.next()
                continue
            if word not in _PERFORMANCE:
                raise UnsupportedError(f"line {self.token.line}: directive {word}")
            self.at += 1
            values = []
            while self.token.kind == "int":
                values.append(integer(self.next().text))
                self.accept(",")
            f.directives[word[1:]] = tuple(values)
        if self.accept(";"):
            self.functions.setdefault(name, f)
        else:
            self.expect("{")
            f.defined = True
            self.body(f)
            self.functions[name] = f
        self.function, self.scope = None, outer

    # ---- statements

    def body(self, f: Function) -> None:
        """Parses up to the brace that closes the function."""
        depth = 1
        pending: list[tuple[Scope, Instruction]] = []
        parents: dict[int, Scope] = {0: self.scope}
        while depth:
            token = self.token
            kind = token.kind
            if kind == "word":
                if self.tokens[self.at + 1].kind == ":":
                    self.at += 2
                    if token.text in self.scope.labels:
                        raise ParseError(f"line {token.line}: label {token.text} is defined twice")
                    self.scope.labels.add(token.text)
                    if self.token.text in _TABLES:
                        f.tables[self.scope.number, token.text] = self.label_list()
                    else:
                        f.targets[self.scope.number, token.text] = len(f.code)
                else:
                    pending.append((self.scope, self.instruction(f, None, False, token)))
            elif kind == "@":
                self.at += 1
                negated = self.accept("!")
                word = self.expect("word")
                reg = self.lookup(word)
                if not isinstance(reg, Reg) or reg.type != "pred":
                    raise self.fail("a guard is a .pred register", word)
                pending.append((self.scope, self.instruction(f, reg, negated, token)))
            elif kind == "{":
                self.at += 1
                self.scope = parents[self.scopes] = Scope(self.scope, self.scopes)
                self.scopes += 1
                depth += 1
            elif kind == "}":
                self.at += 1
                depth -= 1
                if depth:
                    assert self.scope.parent is not None
                    self.scope = self.scope.parent
            elif kind == "directive":
                self.local_directive(f)
            elif kind == ";":
                self.at += 1
            else:
                raise self.fail("expected a statement")
        self.resolve_labels(f, pending)

    def resolve_labels(self, f: Function, pending: list[tuple[Scope, Instruction]]) -> None:
        """Replaces the label operands of branches and indirect calls by their targets."""
        for scope, ins in pending:
            if ins.op == "bra":
                ins.scope = self.resolve_label(scope, ins.operands[-1], ins, f.targets)
            elif ins.op == "brx":
                labels = self.resolve_label(scope, ins.operands[-1], ins, f.tables)
                ins.scope = tuple(self.resolve_label(scope, Name(label), ins, f.targets) for label in labels)
            elif ins.op == "call" and isinstance(ins.operands[-1], Name):
                ins.scope = self.resolve_label(scope, ins.operands[-1], ins, f.tables, None)

    @staticmethod
    def resolve_label(
        scope: Scope,
        name: Operand,
        ins: Instruction,
        table: dict[tuple[int, str], Any],
        default: object = ...,
    ) -> Any:
        """The entry of `table` for a label of a scope or of a scope around it; `default` if there is none."""
        if not isinstance(name, Name):
            raise ParseError(f"line {ins.line}: {ins.text!r} needs a label")
        at: Scope | None = scope
        while at is not None:
            if (at.number, name.name) in table:
                return table[at.number, name.name]
            at = at.parent
        if default is ...:
            raise ParseError(f"line {ins.line}: no label {name.name}")
        return default

    def local_directive(self, f: Function) -> None:
        word = self.token.text
        if word == ".reg":
            self.registers()
        elif word in _SPACES:
            for var in self.variables():
                f.variables.append(var)
                self.scope.names[var.name] = var
        elif word == ".pragma":
            while not self.accept(";"):
                self.next()
        elif word in (".loc", ".file"):
            self.source_directive()
        else:
            raise UnsupportedError(f"line {self.token.line}: directive {word}")

    def registers(self) -> None:
        line = self.next().line
        kind = self.expect("directive").text[1:]
        vector = int(kind[1]) if kind in ("v2", "v4") else 1
        if vector > 1:
            kind = self.expect("directive").text[1:]
        if kind not in SIZES:
            raise UnsupportedError(f"line {line}: .reg .{kind}")
        while True:
            name = self.expect("word").text
            count = None
            if self.accept("<"):
                count = self.constant_sum()
                self.expect(">")
            if vector > 1:
                for one in [name] if count is None else [f"{name}{i}" for i in range(count)]:
                    self.declare_vector(one, kind, vector)
            elif count is not None:
                self.scope.ranges.append((name, count, kind))
            else:
                self.declare(name, kind, self.scope)
            if not self.accept(","):
                break
        self.expect(";")

    def declare(self, name: str, kind: str, scope: Scope) -> Reg:
        assert self.function is not None
        reg = Reg(name, kind, len(self.function.registers))
        self.function.registers.append(reg)
        scope.names[name] = reg
        return reg

    def declare_vector(self, name: str, kind: str, count: int) -> None:
        """Declares a vector register: the elements are registers ``name.x``, ``name.y`` and so on."""
        self.scope.names[name] = Vec(tuple(self.declare(f"{name}.{x}", kind, self.scope) for x in "xyzw"[:count]))

    def lookup(self, token: Token) -> Reg | Variable | Vec | None:
        """The register or variable of a name; registers of a ranged declaration are created at their first use."""
        name = token.text
        scope: Scope | None = self.scope
        while scope is not None:
            symbol = scope.names.get(name)
            if symbol is not None:
                return symbol
            for prefix, count, kind in scope.ranges:
                rest = name[len(prefix) :]
                number = int(rest) if name.startswith(prefix) and rest.isdigit() else count
                if number < count and str(number) == rest:
                    return self.declare(name, kind, scope)
            scope = scope.parent
        return self.globals.get(name)

    def instruction(self, f: Function, pred: Reg | None, negated: bool, first: Token) -> Instruction:
        op, mods = name_of(self.expect("word").text)
        tokens = self.tokens
        operands: list[Operand] = []
        if op == "call" and self.token.kind == "(":
            operands.append(self.parenthesised())
            self.accept(",")
        while tokens[self.at].kind != ";":
            operands.append(self.parenthesised() if op == "call" and self.token.kind == "(" else self.operand())
            if tokens[self.at].kind != ",":
                break
            self.at += 1
        end = self.expect(";")
        text = self.text[first.start : end.end]
        if len(text) > 400:
            text = text[:400] + "..."
        if not operands and op in ("bra", "brx", "call"):
            raise ParseError(f"line {first.line}: {op} needs a target: {text}")
        ins = Instruction(op, mods, tuple(operands), pred, negated, first.line, text, location=self.location)
        f.code.append(ins)
        return ins

    def parenthesised(self) -> Vec:
        self.expect("(")
        items: list[Operand] = []
        while not self.accept(")"):
            op = self.operand()
            items += op.items if isinstance(op, Vec) else [op]
            self.accept(",")
        return Vec(tuple(items))


@lru_cache(4096)
def name_of(word: str) -> tuple[str, tuple[str, ...]]:
    """The operation and the modifiers of an instruction's name."""
    op, *mods = word.split(".")
    return op, canonical(op, mods)


def parse(text: str) -> Unit:
    """The module in `text`.

    Raises ParseError for text that is not PTX, UnsupportedError for directives that are not emulated.
    """
    return Parser(text).unit()
