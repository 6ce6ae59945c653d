"""Parses PTX text to a :class:`Unit`, with names resolved and the instructions of each function in one list."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from ptxgen.cuda_abi import PARAMETERS_AT
from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.ptx.dtypes import FLOATS
from ptxgen.emulator.ptx.lexer import Token
from ptxgen.emulator.ptx.operand_checks import CHECKED, refusal
from ptxgen.emulator.ptx.reader import Reader
from ptxgen.emulator.ptx.syntax import (
    NOWHERE,
    SIZES,
    Address,
    Element,
    Flt,
    Function,
    Imm,
    Instruction,
    Location,
    Mem,
    Name,
    Not,
    Operand,
    Parameter,
    Reg,
    Sum,
    Sym,
    Unit,
    Variable,
    Vec,
    canonical,
)
from ptxgen.errors import ParseError, UnsupportedError

_LINKAGE = {".visible", ".extern", ".weak", ".common"}


_SPACES = {".global", ".const", ".shared", ".local", ".param"}


#: performance directive -> the smallest and the largest number of integers after it
_PERFORMANCE = {
    ".maxntid": (1, 3),
    ".reqntid": (1, 3),
    ".minnctapersm": (1, 1),
    ".maxnctapersm": (1, 1),
    ".maxnreg": (1, 1),
    ".reqnctapercluster": (1, 3),
    ".maxclusterrank": (1, 1),
    ".explicitcluster": (0, 0),
    ".blocksareclusters": (0, 0),
    ".noreturn": (0, 0),
    ".abi_preserve": (1, 1),
    ".abi_preserve_control": (1, 1),
}


#: PTX ISA versions: major number -> largest minor number; later major numbers are not checked
_VERSIONS = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 9, 8: 9}


#: architecture -> the first version of the PTX ISA that has it
_TARGETS = {
    **dict.fromkeys(("sm_10", "sm_11"), (1, 0)),
    **dict.fromkeys(("sm_12", "sm_13"), (1, 2)),
    **{"sm_20": (2, 0), "sm_21": (2, 0), "sm_30": (3, 0), "sm_32": (4, 0), "sm_35": (3, 1), "sm_37": (4, 1)},
    **{"sm_50": (4, 0), "sm_52": (4, 1), "sm_53": (4, 2), "sm_60": (5, 0), "sm_61": (5, 0), "sm_62": (5, 0)},
    **{"sm_70": (6, 0), "sm_72": (6, 1), "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4)},
    **{"sm_88": (9, 0), "sm_89": (7, 8), "sm_90": (7, 8), "sm_90a": (8, 0)},
    **{f"sm_100{x}": (8, 6) for x in ("", "a", "f")},
    **{f"sm_101{x}": (8, 6) for x in ("", "a", "f")},
    **{f"sm_103{x}": (8, 8) for x in ("", "a", "f")},
    **{f"sm_110{x}": (9, 0) for x in ("", "a", "f")},
    **{f"sm_120{x}": (8, 7) for x in ("", "a", "f")},
    **{f"sm_121{x}": (8, 8) for x in ("", "a", "f")},
}


#: words that .target may have besides an architecture
_TARGET_OPTIONS = {"texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"}


_TABLES = {".branchtargets", ".calltargets", ".callprototype"}


class Scope:
    """The names that one pair of braces declares."""

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
        self.weak: set[str] = set()
        self.aliases: dict[str, str] = {}
        self.function: Function | None = None
        self.scope = Scope(None, 0)
        self.scopes = 1
        self.files: dict[int, str] = {}
        self.location = NOWHERE
        self.locations: dict[tuple[int, int, int], Location] = {}  # by file, line and column

    # ---- module

    def unit(self) -> Unit:
        self.header()
        while self.token.terminal != "end":
            self.top()
        if self.aliases:
            self.replace_aliases()
        variables = list(self.globals.values())
        return Unit(self.version, self.target, variables, self.functions, self.files, self.strings)

    def header(self) -> None:
        """Parses ``.version``, ``.target`` and ``.address_size``, which begin a module."""
        for word in (".version", ".target"):
            if self.token.text != word:
                raise self.fail(f"it must be {word}: a module begins with .version, .target and .address_size")
            self.at += 1
            if word == ".version":
                self.parse_version()
            else:
                self.parse_target()
        if self.token.text == ".address_size":
            self.at += 1
            token = self.token
            if self.number() != 64:
                raise UnsupportedError(f"line {token.line}: only .address_size 64 is emulated")

    def parse_version(self) -> None:
        token = self.next()
        major, _, minor = token.text.partition(".")
        if token.terminal != "flt" or not (major.isdigit() and minor.isdigit() and len(token.text) < 8):
            raise self.fail("it must be a version such as 8.0", token)
        self.version = (int(major), int(minor))
        known = self.version[0] in (9, 10) or self.version[1] <= _VERSIONS.get(self.version[0], -1)
        if not known or len(minor) > 1:
            raise self.fail("there is no such version of the PTX ISA", token)

    def parse_target(self) -> None:
        token = self.expect("word")
        self.target = token.text
        since = _TARGETS.get(token.text.replace("compute_", "sm_"))
        if since is None:
            raise self.fail("it must be an architecture such as sm_90a", token)
        if self.version < since:
            raise self.fail(f".version {self.version[0]}.{self.version[1]} has no such architecture", token)
        while self.accept(","):
            option = self.expect("word")
            if option.text not in _TARGET_OPTIONS and option.text not in _TARGETS:
                raise self.fail("it must be an option of .target", option)

    def top(self) -> None:
        token = self.token
        if token.terminal != "directive":
            raise self.fail("it must be a directive")
        linkage = ""
        if token.text in _LINKAGE:
            linkage = self.next().text
        managed = self.attributes()
        word = self.token.text
        if word in (".entry", ".func"):
            f = self.parse_function(word == ".entry")
            if linkage == ".weak":
                self.weak.add(f.name)
        elif word in _SPACES:
            if managed and word != ".global":
                raise self.fail("a .managed variable is .global")
            if word in (".local", ".param"):
                raise self.fail("a variable of a module is .global, .const or .shared")
            for var in self.variables(extern=linkage == ".extern"):
                if var.name in self.globals and not self.globals[var.name].extern:
                    raise ParseError(f"line {var.line}: {var.name} is defined twice")
                self.globals[var.name] = var
        elif linkage:
            raise self.fail("it must be .entry, .func or a variable")
        elif word == ".target":
            self.at += 1
            self.parse_target()
        elif word in (".file", ".loc"):
            self.source_directive()
        elif word == ".section":
            self.section()
        elif word == ".pragma":
            self.pragma()
        elif word == ".alias":
            self.alias()
        elif word in (".version", ".address_size"):
            raise self.fail("a module has one, at its beginning")
        else:
            raise UnsupportedError(f"line {token.line}: directive {word}")

    def alias(self) -> None:
        """Parses ``.alias name, function;``, by which a declared function stands for another one."""
        self.at += 1
        tokens = [self.expect("word")]
        self.expect(",")
        tokens.append(self.expect("word"))
        self.expect(";")
        name, target = (token.text for token in tokens)
        for token in tokens:
            f = self.functions.get(token.text)
            if f is None or f.entry:
                raise self.fail("it must be a function that is declared before", token)
        f, g = self.functions[name], self.functions[target]
        if f.defined or name in self.aliases:
            raise self.fail("an alias has no body and no other alias", tokens[0])
        if (not g.defined and target not in self.aliases) or target in self.weak:
            raise self.fail("the function of an alias is defined in this module and not .weak", tokens[1])
        if any(
            [(p.type, p.size, p.align, p.register) for p in a] != [(p.type, p.size, p.align, p.register) for p in b]
            for a, b in ((f.params, g.params), (f.returns, g.returns))
        ):
            raise self.fail(f"an alias has the parameters and results of its function {target}", tokens[0])
        self.aliases[name] = self.aliases.get(target, target)

    def replace_aliases(self) -> None:
        """Replaces aliases in instructions by the functions that they stand for."""
        for name in self.aliases:
            del self.functions[name]

        def renamed(op: Operand) -> Operand:
            return Name(self.aliases.get(op.name, op.name)) if isinstance(op, Name) else op

        for f in self.functions.values():
            for ins in f.code:
                if ins.op in ("call", "mov"):
                    ins.operands = tuple(map(renamed, ins.operands))
                if ins.op == "call" and ins.scope:
                    ins.scope = [self.aliases.get(name, name) for name in ins.scope]
        variables = [*self.globals.values(), *(v for f in self.functions.values() for v in f.variables)]
        for v in variables:
            v.init = v.init and [
                replace(x, name=self.aliases.get(x.name, x.name)) if isinstance(x, Address) else x for x in v.init
            ]

    def source_directive(self) -> None:
        """Parses ``.file n "name" [, timestamp, size]`` or ``.loc file line column [, function_name l, inlined_at f l
        c]``."""
        word, number = self.next().text, self.number()
        if word == ".file":
            self.files[number] = self.expect("str").text[1:-1]
            if self.accept(","):
                self.constant()
                self.expect(",")
                self.constant()
            return
        line, column = self.number(), self.number()
        function: tuple[str, int] | None = None
        caller: Location | None = None
        self.locations.setdefault((number, line, column), NOWHERE)
        while self.accept(","):
            keyword = self.expect("word")
            if keyword.text == "function_name":
                if not self.is_label(self.token) or self.token.text in ("function_name", "inlined_at"):
                    raise self.fail("it must be a label")
                label = self.next().text
                function = label, self.number() if self.accept("+") else 0
            elif keyword.text == "inlined_at":
                caller = self.locations.get((self.number(), self.number(), self.number()))
                if caller is None:
                    raise ParseError(
                        f"line {keyword.line}: the location of inlined_at is new; it must be that of a .loc before"
                    )
            else:
                raise self.fail("it must be function_name or inlined_at", keyword)
        at = caller
        while at is not None:  # a location that is repeated is not inlined into itself
            if (at.line, at.function, at.file) == (line, function, number):
                caller = at.caller
                break
            at = at.caller
        self.location = Location(number, line, function, caller)
        self.locations[number, line, column] = self.location

    def attributes(self) -> bool:
        """Parses ``.attribute(.managed, .unified(n, m))``, which may be absent or repeated. True if an attribute is
        .managed."""
        managed = False
        while self.token.text == ".attribute":
            self.at += 1
            self.expect("(")
            while True:
                token = self.expect("directive")
                if token.text == ".managed":
                    managed = True
                elif token.text == ".unified":
                    self.expect("(")
                    self.number()
                    self.expect(",")
                    self.number()
                    self.expect(")")
                else:
                    raise self.fail("it must be .managed or .unified", token)
                if not self.accept(","):
                    break
            self.expect(")")
        return managed

    def declared_type(self, of: str) -> tuple[int, int, str]:
        """Parses ``[.attribute(...)] [.align n] [.vN] .type``, up to the type, which stays the next token. Returns the
        tuple (alignment, 0 for that of the type; number of elements of a vector; type).
        """
        align, vector = 0, 1
        while self.token.text in (".align", ".attribute"):
            if self.token.text == ".attribute":
                if self.attributes() and of != ".global variable":
                    raise self.fail(f"a .managed variable is .global, not a {of}")
                continue
            self.at += 1
            align = self.alignment()
        if self.token.text in (".v2", ".v4"):
            vector = int(self.next().text[2])
        if self.token.terminal != "directive":
            raise self.fail(f"it must be a type of a {of}")
        ptx_type = self.token.text[1:]
        if ptx_type in ("texref", "surfref") and of == ".global variable":
            ptx_type = "u64"  # its address is the handle
        if ptx_type not in SIZES:
            raise UnsupportedError(f"line {self.token.line}: {self.token.text} in a {of}'s declaration")
        return align, vector, ptx_type

    def variables(self, extern: bool = False) -> list[Variable]:
        """Parses ``.space [.align n] [.vN] .type name[n] [= init], ...;``."""
        line = self.token.line
        space = self.next().text[1:]
        align, vector, ptx_type = self.declared_type(f".{space} variable")
        if not SIZES[ptx_type] or SIZES[ptx_type] * vector > 16:
            raise self.fail("it must be a type of a variable of at most 128 bits")
        reference = self.next().text in (".texref", ".surfref")
        out = []
        while True:
            token = self.expect("word")
            name = token.text
            if reference and self.token.terminal == "=":
                raise UnsupportedError(f"line {line}: initial values of {name}, a texture or surface, are not emulated")
            if self.token.terminal == "<":
                raise UnsupportedError(f"line {line}: ranged variable {name}")
            count = self.dimensions()
            unit = SIZES[ptx_type] * vector
            init = None
            if self.accept("="):
                init = self.initialiser()
                if space not in ("global", "const"):
                    raise self.fail("only .global and .const variables have initial values", token)
                numbers = {isinstance(x, Flt) for x in init}
                addresses = [x for x in init if isinstance(x, Address)]
                if (ptx_type in FLOATS and False in numbers) or (ptx_type[0] in "us" and True in numbers):
                    raise self.fail(f"an initial value is not .{ptx_type}", token)
                if ptx_type in ("f16", "bf16", "f16x2", "bf16x2"):
                    raise self.fail(f"a variable of type .{ptx_type} has no initial value", token)
                if addresses and ptx_type not in ("u8", "u32", "u64"):
                    raise self.fail("an address is an initial value of type .u64, .u32 or, with a mask, .u8", token)
                for x in addresses:
                    if x.name not in self.functions and self.lookup(token._replace(text=x.name)) is None:
                        raise ParseError(
                            f"line {token.line}: the initial value of {name} names {x.name}, which is not declared"
                        )
                if any(not x.mask and ptx_type == "u8" for x in addresses):
                    raise self.fail("an address of 8 bits has a mask, such as 0xFF(x)", token)
            size = unit * (1 if count is None else count)
            if count == 0 and init is not None:
                size = unit * len(init)
            elif count == 0 and not extern:
                raise self.fail(f"{name} needs a size")
            element = 0 if count is None else SIZES[ptx_type]
            out.append(
                Variable(
                    name, space, ptx_type, align or unit, size, init, extern or count == 0, line=line, element=element
                )
            )
            if not self.accept(","):
                break
        self.expect(";")
        return out

    def parameters(self, entry: bool = False) -> list[Parameter]:
        out: list[Parameter] = []
        if not self.accept("("):
            return out
        while not self.accept(")"):
            if out and not self.accept(","):
                raise self.fail("it must be ',' or ')'")
            self.parameter(out, entry)
        offset = 0
        for p in out:
            if p.register:
                continue
            # as on sm_90, where the parameter buffer begins at an address that is only 16-byte aligned
            p.offset = offset = -(-(offset + PARAMETERS_AT) // p.align) * p.align - PARAMETERS_AT
            offset += p.size
        return out

    def parameter(self, out: list[Parameter], entry: bool) -> None:
        """Parses ``.param [.align n] .type [.ptr [.space] [.align n]] name[n]`` or ``.reg .type name``."""
        first = self.token
        if first.text not in (".param", ".reg") or (entry and first.text == ".reg"):
            raise self.fail("it must be .param")
        register = self.next().text == ".reg"
        align, vector, ptx_type = self.declared_type("parameter")
        if ptx_type == "pred" and not register:
            raise self.fail("it must be a type of a parameter")
        self.at += 1
        if self.token.text == ".ptr":
            self.at += 1
            if self.token.text in _SPACES:
                self.at += 1
        if self.token.text == ".align":
            self.at += 1
            alignment = self.alignment()
            if self.tokens[self.at - 3].text[1:] == ptx_type:
                align = alignment
        token = self.expect("word")
        name = token.text
        count = self.dimensions()
        if (count == 0 and entry) or (count or 0) >> 32:
            raise self.fail("it must be a parameter of 1 to 4294967295 elements", token)
        if any(p.name == name for p in out):
            raise ParseError(f"line {token.line}: {name} is defined twice")
        unit = SIZES[ptx_type] * (1 if register else vector)
        size = unit * (1 if count is None else count)
        array = count is not None or (vector > 1 and not register)
        if register and vector > 1:
            out += [Parameter(f"{name}.{letter}", ptx_type, unit, unit, register=True) for letter in "xyzw"[:vector]]
        else:
            out.append(Parameter(name, ptx_type, align or unit, size, array=array, register=register))

    def parse_function(self, entry: bool) -> Function:
        line = self.next().line
        self.attributes()
        returns = [] if entry else self.parameters()
        name = self.expect("word").text
        f = Function(name, entry, returns=returns, line=line)
        f.params = self.parameters(entry)
        outer, self.scope = self.scope, Scope(None, 0)
        self.scopes = 1
        self.location = NOWHERE
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
                element = SIZES[p.type] if p.array else 0
                var = Variable(p.name, "param", p.type, p.align, p.size, address=p.offset, line=line, element=element)
                self.scope.names[p.name] = var
                store.append(var)
        while self.token.terminal == "directive":
            word = self.token.text
            if word == ".pragma":
                self.pragma()
                continue
            if word not in _PERFORMANCE:
                raise UnsupportedError(f"line {self.token.line}: directive {word}")
            self.at += 1
            least, most = _PERFORMANCE[word]
            values: list[int] = []
            while len(values) < least or (len(values) < most and self.accept(",")):
                if values and len(values) < least:
                    self.expect(",")
                values.append(self.number())
            if 0 in values and word != ".abi_preserve":
                raise ParseError(f"line {self.token.line}: {word} is 0; it must be greater")
            f.directives[word[1:]] = tuple(values)
        known = self.functions.get(name)
        if (known is not None and known.entry != entry) or name in self.globals:
            raise ParseError(f"line {line}: {name} is defined twice")
        if self.accept(";"):
            self.functions.setdefault(name, f)
        else:
            self.expect("{")
            if known is not None and (known.defined or name in self.aliases):
                raise ParseError(f"line {line}: {name} is defined twice")
            f.defined = True
            self.body(f)
            self.functions[name] = f
        self.function, self.scope = None, outer
        return f

    # ---- statements

    def body(self, f: Function) -> None:
        """Parses up to the brace that closes the function."""
        depth = 1
        pending: list[tuple[Scope, Instruction]] = []
        parents: dict[int, Scope] = {0: self.scope}
        while depth:
            token = self.token
            terminal = token.terminal
            if terminal == "word":
                if self.tokens[self.at + 1].terminal == ":":
                    self.at += 2
                    if token.text in self.scope.labels or isinstance(self.scope.names.get(token.text), Variable):
                        raise ParseError(f"line {token.line}: {token.text} is defined twice")
                    self.scope.labels.add(token.text)
                    if self.token.text in _TABLES:
                        f.tables[self.scope.number, token.text] = self.label_list()
                    else:
                        f.targets[self.scope.number, token.text] = len(f.code)
                else:
                    pending.append((self.scope, self.instruction(f, None, False, token)))
            elif terminal == "@":
                self.at += 1
                negated = self.accept("!")
                word = self.expect("word")
                reg = self.lookup(word)
                if not isinstance(reg, Reg) or reg.type != "pred":
                    raise self.fail("a guard is a .pred register", word)
                pending.append((self.scope, self.instruction(f, reg, negated, token)))
            elif terminal == "{":
                self.at += 1
                self.scope = parents[self.scopes] = Scope(self.scope, self.scopes)
                self.scopes += 1
                depth += 1
            elif terminal == "}":
                self.at += 1
                depth -= 1
                if depth:
                    assert self.scope.parent is not None
                    self.scope = self.scope.parent
            elif terminal == "directive":
                self.local_directive(f)
            else:
                raise self.fail("it must be a statement")
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
        """The entry of ``table`` for a label that is declared in ``scope`` or in a scope around it; ``default`` if
        there is none."""
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
                if var.name in self.scope.names:
                    raise ParseError(f"line {var.line}: {var.name} is defined twice")
                f.variables.append(var)
                self.scope.names[var.name] = var
        elif word == ".pragma":
            self.pragma()
        elif word in (".loc", ".file"):
            self.source_directive()
        else:
            raise UnsupportedError(f"line {self.token.line}: directive {word}")

    def registers(self) -> None:
        line = self.next().line
        ptx_type = self.expect("directive").text[1:]
        vector = int(ptx_type[1]) if ptx_type in ("v2", "v4") else 1
        if vector > 1:
            ptx_type = self.expect("directive").text[1:]
        if ptx_type not in SIZES:
            raise UnsupportedError(f"line {line}: .reg .{ptx_type}")
        while True:
            token = self.expect("word")
            name, count = token.text, None
            if "." in name:
                raise self.fail("it must be a name without a dot", token)
            if self.accept("<"):
                count = self.number()
                if count >> 32:
                    raise self.fail("it must be at most 4294967295 registers")
                self.expect(">")
                if any(prefix == name for prefix, _, _ in self.scope.ranges):
                    raise ParseError(f"line {line}: {name}<...> is defined twice")
            if vector > 1:
                for one in [name] if count is None else [f"{name}{i}" for i in range(count)]:
                    self.declare_vector(one, ptx_type, vector)
            elif count is not None:
                self.scope.ranges.append((name, count, ptx_type))
            else:
                self.declare(name, ptx_type, self.scope)
            if not self.accept(","):
                break
        self.expect(";")

    def declare(self, name: str, ptx_type: str, scope: Scope) -> Reg:
        assert self.function is not None
        if name in scope.names:
            raise ParseError(f"line {self.token.line}: {name} is defined twice")
        reg = Reg(name, ptx_type, len(self.function.registers))
        self.function.registers.append(reg)
        scope.names[name] = reg
        return reg

    def declare_vector(self, name: str, ptx_type: str, count: int) -> None:
        """Declares a vector register: the elements are registers ``name.x``, ``name.y`` and so on."""
        self.scope.names[name] = Vec(tuple(self.declare(f"{name}.{x}", ptx_type, self.scope) for x in "xyzw"[:count]))

    def lookup(self, token: Token) -> Reg | Variable | Vec | None:
        """The register, variable or vector that a name denotes. Registers of a ranged declaration are created at their
        first use."""
        name = token.text
        scope: Scope | None = self.scope
        while scope is not None:
            symbol = scope.names.get(name)
            if symbol is not None:
                return symbol
            for prefix, count, ptx_type in scope.ranges:
                rest = name[len(prefix) :]
                number = int(rest) if name.startswith(prefix) and rest.isdigit() else count
                if number < count and str(number) == rest:
                    return self.declare(name, ptx_type, scope)
            scope = scope.parent
        return self.globals.get(name)

    def instruction(self, f: Function, pred: Reg | None, negated: bool, first: Token) -> Instruction:
        op, mods = name_of(self.expect("word").text)
        tokens = self.tokens
        operands: list[Operand] = []
        if op == "call" and self.token.terminal == "(":
            operands.append(self.parenthesised())
            self.expect(",")
        if tokens[self.at].terminal != ";":
            while True:
                operands.append(self.parenthesised() if op == "call" and self.token.terminal == "(" else self.operand())
                if tokens[self.at].terminal != ",":
                    break
                self.at += 1
        end = self.expect(";")
        text = self.text[first.start : end.end]
        if len(text) > 400:
            text = text[:400] + "..."
        if not operands and op in ("bra", "brx", "call"):
            raise ParseError(f"line {first.line}: {op} needs a target: {text}")
        ins = Instruction(op, mods, tuple(operands), pred, negated, first.line, text, location=self.location)
        source = operands[-1] if op == "mov" and operands else None
        if isinstance(source, Name) and source.name != f.name and source.name not in self.functions:
            raise ParseError(f"line {first.line}: {source.name} is not declared: {text} (in {demangled(f.name)})")
        computed, self.computed = self.computed, False
        if computed:
            ins.operands = tuple(self.named_address(ins, op) for op in operands)
        ins.refusal = refusal(ins, f.name)
        if computed:
            self.compute_operands(f, ins, operands)
        f.code.append(ins)
        return ins

    # ---- operands that are computed by an instruction inserted before their own

    @staticmethod
    def named_address(ins: Instruction, op: Operand) -> Operand:
        """The operand for an element of an array: the memory at the element in ld and st, the address of the element
        elsewhere."""
        if isinstance(op, Element) and ins.op in ("ld", "ldu", "st", "mov", "cvta"):
            address = Sym(op.var, op.number * op.var.element)
            return address if ins.op in ("mov", "cvta") else Mem(Sym(op.var), address.offset)
        return op

    def compute_operands(self, f: Function, ins: Instruction, operands: list[Operand]) -> None:
        """Replaces sums, array elements with an index in a register, and negated predicates by registers, which
        instructions inserted before ``ins`` compute."""

        def register(name: str, ptx_type: str, op: str, mods: tuple[str, ...], *sources: Operand) -> Reg:
            """A new register, and the instruction that computes it."""
            reg = Reg(name, ptx_type, len(f.registers))
            f.registers.append(reg)
            f.code.append(replace(ins, op=op, mods=mods, operands=(reg, *sources), hidden=True, refusal=""))
            return reg

        def total(reg: Reg, offset: int) -> Reg:
            if not offset:
                return reg
            ptx_type = f"s{8 * SIZES[reg.type]}"
            return register(f"{reg.name}+{offset}", ptx_type, "add", (ptx_type,), reg, Imm(offset))

        out = list(ins.operands)
        for i, op in enumerate(operands):
            if isinstance(op, Sum) and ins.op in CHECKED:
                out[i] = total(op.reg, op.offset)
            elif isinstance(op, Element) and op.index is not None:
                index = total(op.index, op.number)
                if SIZES[index.type] < 8:
                    index = register(index.name, "b64", "cvt", ("u64", f"u{8 * SIZES[index.type]}"), index)
                name = f"address of {op.var.name}[{op.index.name}]"
                address = register(name, "b64", "mad", ("lo", "u64"), index, Imm(op.var.element), Sym(op.var))
                out[i] = Mem(address) if isinstance(out[i], Mem) else address
            elif isinstance(op, Not) and ins.mods == ("pred",) and ins.op in ("mov", "and", "or", "xor", "not"):
                if ins.op in ("mov", "not"):
                    ins.op = "not" if ins.op == "mov" else "mov"
                    out[i] = op.reg
                else:
                    out[i] = (
                        register(f"!{op.reg.name}", "pred", "not", ("pred",), op.reg) if isinstance(op.reg, Reg) else op
                    )
        ins.operands = tuple(out)

    def parenthesised(self) -> Vec:
        self.expect("(")
        items: list[Operand] = []
        while not self.accept(")"):
            if items and not self.accept(","):
                raise self.fail("it must be ',' or ')'")
            op = self.operand()
            items += op.items if isinstance(op, Vec) else [op]
        return Vec(tuple(items))


@lru_cache(4096)
def name_of(word: str) -> tuple[str, tuple[str, ...]]:
    """The pair (operation, modifiers) of an instruction's name."""
    op, *mods = word.split(".")
    return op, canonical(op, mods)


def parse(text: str) -> Unit:
    """The module that ``text`` describes.

    Raises ParseError for text that is not PTX, UnsupportedError for directives that are not emulated.
    """
    if ".version" not in text and ".target" not in text:
        raise ParseError(
            "line 1: a module begins with .version; it must be PTX, as nvcc -ptx or cuobjdump -ptx writes it"
        )
    return Parser(text).unit()
