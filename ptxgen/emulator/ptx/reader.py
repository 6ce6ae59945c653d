"""Parses tokens to operands and constants. Statements are parsed by ``parser``."""

from __future__ import annotations

import re

from ptxgen.emulator.ptx.constants import NAMED, ConstantReader
from ptxgen.emulator.ptx.dtypes import FLOATS
from ptxgen.emulator.ptx.lexer import Token, integer
from ptxgen.emulator.ptx.syntax import (
    Address,
    Element,
    Imm,
    Mem,
    Name,
    Neg,
    Not,
    Operand,
    Pair,
    Reg,
    Selected,
    Sink,
    Special,
    Sum,
    Sym,
    Variable,
    Vec,
)
from ptxgen.errors import ParseError, UnsupportedError

_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]$"
    r"|%(laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|cluster_nctarank"
    r"|clock|clock_hi|clock64|globaltimer|globaltimer_lo|globaltimer_hi|total_smem_size|dynamic_smem_size"
    r"|aggr_smem_size|reserved_smem_offset_\w+|lanemask_(?:eq|le|lt|ge|gt)|current_graph_exec|envreg\d+)$"
)


def is_special(name: str) -> bool:
    """True if a name is that of a special register."""
    return _SPECIAL.match(name) is not None


#: .r, .g, .b and .a name the elements of a vector, like .x, .y, .z and .w
_COLOURS = dict(zip("rgba", "xyzw", strict=True))


#: selectors of bytes and half words, in video instructions
_SELECTOR = re.compile(r"(b[0-7]{1,4}|h[0-3]{1,2})$")


#: tokens that may begin a constant expression
_CONSTANT_BEGINS = {"int", "flt", "word", "(", "+", "-", "~", "!"}


#: masks in initial values -> the byte of the address that each selects
_MASKS = {0xFF << 8 * byte: byte for byte in range(8)}


class Reader(ConstantReader):
    """Operands, constants and declarations of one text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.strings: dict[str, memoryview] = {}  # by label: section .debug_str from there on

    def lookup(self, token: Token) -> Reg | Variable | Vec | None:
        """The register or variable that a name denotes in the current scope; None if it is not declared."""
        raise NotImplementedError

    # ---- operands

    def operand(self) -> Operand:
        first = self.single()
        if self.tokens[self.at].terminal == "|":
            self.at += 1
            return Pair(first, self.single())
        return first

    #: set when an operand is read that an inserted instruction may have to compute
    computed = False

    def single(self) -> Operand:
        token = self.tokens[self.at]
        terminal = token.terminal
        if terminal == "word" and token.text not in NAMED:
            self.at += 1
            base = self.resolve_name(token)
            following = self.tokens[self.at].terminal
            if following == "+" and isinstance(base, (Sym, Reg)):
                offset = self.offset()
                if isinstance(base, Sym):
                    return Sym(base.var, offset)
                self.computed = True
                return Sum(base, offset)
            if following == "[":
                return self.element(base, token)
            return base
        if terminal == "-" or terminal == "!":
            after = self.tokens[self.at + 1]
            if after.terminal == "word" and after.text not in NAMED:
                self.at += 1
                self.computed = True
                return Neg(self.single()) if terminal == "-" else Not(self.single())
        if terminal == "{":
            self.at += 1
            items = [self.item()]
            while not self.accept("}"):
                if not self.accept(","):
                    raise self.fail("it must be ',' or '}'")
                items.append(self.item())
            return Vec(tuple(items))
        if terminal == "[":
            self.at += 1
            return self.address()
        if terminal in _CONSTANT_BEGINS:
            return self.literal()
        raise self.fail("it must be an operand")

    def item(self) -> Operand:
        """Parses an element of a vector."""
        token = self.token
        op = self.operand()
        if isinstance(op, (Sum, Element)):
            raise self.fail("an element of a vector is a register, a variable or a constant", token)
        return op

    def element(self, base: Operand, token: Token) -> Operand:
        """Parses the rest of ``name[i]``, ``name[register]`` or ``name[register + i]``: an element of an array."""
        self.expect("[")
        if not isinstance(base, Sym) or not base.var.element:
            raise self.fail("it must be a variable that is declared as an array", token)
        index = None
        if self.token.terminal == "word" and self.token.text not in NAMED:
            token = self.next()
            register = self.resolve_name(token)
            if not isinstance(register, Reg) or register.type in FLOATS or register.type in ("pred", "b128"):
                raise self.fail("an index is an integer constant or a register of an integer or bit type", token)
            index = register
            number = self.offset() if self.token.terminal == "+" else 0
        else:
            number = self.integer_expression()
        self.expect("]")
        self.computed = True
        return Element(base.var, index, number)

    def address(self) -> Operand:
        base: Operand
        if self.token.terminal == "word" and self.token.text not in NAMED:
            base = self.resolve_name(self.next())
        else:
            base = Imm(self.integer_expression())
        if self.token.terminal == "-":
            raise self.fail("an offset follows +, a negative one +-")
        offset = self.offset() if self.token.terminal == "+" else 0
        if isinstance(base, Sym):
            base, offset = Sym(base.var), offset + base.offset
        coords = None
        if self.accept(","):
            vec = self.operand()
            coords = vec if isinstance(vec, Vec) else Vec((vec,))
            if self.token.terminal == ",":
                raise UnsupportedError(f"line {self.token.line}: a sampler beside a texture is not emulated")
        self.expect("]")
        return Mem(base, offset, coords)

    def offset(self) -> int:
        """Parses ``+`` and an integer; returns the integer."""
        self.expect("+")
        return self.integer_expression()

    def resolve_name(self, token: Token) -> Operand:
        name = token.text
        if name == "_":
            return Sink()
        symbol = self.lookup(token)
        if isinstance(symbol, Reg):
            return symbol
        if isinstance(symbol, Variable):
            return Sym(symbol)
        if isinstance(symbol, Vec):
            return symbol
        base, _, select = name.rpartition(".")
        if base and select in _COLOURS:
            symbol = self.lookup(token._replace(text=f"{base}.{_COLOURS[select]}"))
            if isinstance(symbol, Reg):
                return symbol
        if base and _SELECTOR.match(select):
            register = self.lookup(token._replace(text=base))
            if isinstance(register, Reg):
                return Selected(register, select)
        if name[0] == "%":
            if is_special(name):
                return Special(name)
            raise ParseError(f"line {token.line}: {name} is not declared")
        return Name(name)

    def number(self) -> int:
        """Parses an integer of at most 32 bits in a directive. A negative one may also be written as its 64 bits."""
        token = self.expect("int")
        value = integer(token)
        if 1 << 32 <= value < (1 << 64) - (1 << 31) or value >> 64:
            raise self.fail("it must be a number of at most 32 bits", token)
        return value

    # ---- declarations

    def dimensions(self) -> int | None:
        """The number of elements of ``[a][b]``; None without brackets, 0 for ``[]``."""
        count: int | None = None
        while self.accept("["):
            if count is not None and self.token.terminal == "]":
                raise self.fail("it must be the extent of an array")
            n = 0 if self.token.terminal == "]" else self.constant()
            self.expect("]")
            if n < 0:
                raise self.fail("it must be an extent of at least 0")
            count = n if count is None else count * n
        return count

    def alignment(self) -> int:
        """Parses the number after .align."""
        token = self.token
        value = self.number()
        if value < 1 or value & (value - 1):
            raise ParseError(f"line {token.line}: the alignment is {value}; it must be a power of two")
        return value

    def initialiser(self) -> list[object]:
        """Parses initial values: integers, floating-point numbers, and addresses."""
        if self.accept("{"):
            out: list[object] = []
            while not self.accept("}"):
                if out and not self.accept(","):
                    raise self.fail("it must be ',' or '}'")
                out += self.initialiser()
            return out
        if self.token.terminal == "word" and self.token.text not in NAMED:
            return [self.initial_address(0)]
        if self.token.terminal == "int" and self.tokens[self.at + 1].terminal == "(":
            token = self.next()
            byte = _MASKS.get(integer(token))
            if byte is None:
                raise self.fail("a mask of an address is 0xFF, 0xFF00, ... 0xFF00000000000000", token)
            self.expect("(")
            address = self.initial_address(8 * byte, 0xFF)
            self.expect(")")
            return [address]
        value = self.literal()
        return [value.value if isinstance(value, Imm) else value]

    def initial_address(self, shift: int, mask: int = 0) -> Address:
        """Parses ``name`` or ``generic(name)``, either with ``+ offset``, as an initial value."""
        name = self.next().text
        generic = name == "generic" and self.accept("(")
        if generic:
            name = self.expect("word").text
            self.expect(")")
        return Address(name, self.offset() if self.token.terminal == "+" else 0, generic, shift, mask)

    def label_list(self) -> list[str]:
        """Parses the names after .branchtargets or .calltargets; .callprototype has none."""
        prototype = self.next().text == ".callprototype"
        if prototype:
            while not self.accept(";"):
                if self.token.terminal == "end":
                    raise self.fail("it must be ';'")
                self.at += 1
            return []
        names = [self.expect("word").text]
        while not self.accept(";"):
            if not self.accept(","):
                raise self.fail("it must be ',' or ';'")
            names.append(self.expect("word").text)
        return names

    def pragma(self) -> None:
        """Parses ``.pragma "text", ...;``."""
        self.at += 1
        self.expect("str")
        while self.accept(","):
            self.expect("str")
        self.expect(";")

    def section(self) -> None:
        """Parses ``.section .name { label: .b8 1, 2 ... }``, debugging information, and keeps the strings in it."""
        self.at += 1
        keeps = self.expect("directive").text == ".debug_str"
        self.expect("{")
        data, labels = bytearray(), dict[str, int]()
        while not self.accept("}"):
            if self.token.terminal == "word":
                labels[self.next().text] = len(data)
                self.expect(":")
                continue
            if keeps and self.token.text == ".b8":
                self.section_bytes(data)
                continue
            token = self.expect("directive")
            if token.text not in (".b8", ".b16", ".b32", ".b64"):
                raise self.fail("it must be .b8, .b16, .b32 or .b64", token)
            self.section_value(int(token.text[2:]))
            while self.accept(","):
                self.section_value(int(token.text[2:]))

        if keeps:
            view = memoryview(bytes(data))
            self.strings.update((label, view[at:]) for label, at in labels.items())

    def section_bytes(self, data: bytearray) -> None:
        """Parses ``.b8 1, 2 ...`` and appends the bytes to ``data``."""
        self.at += 1
        while True:
            token = self.token
            self.section_value(8)
            data.append(integer(token) & 0xFF if token.terminal == "int" else 0)
            if not self.accept(","):
                return

    @staticmethod
    def is_label(token: Token) -> bool:
        """True if a token may be a label of debugging information."""
        return token.terminal == "word" and token.text[0] != "%" and "." not in token.text

    def section_value(self, bits: int) -> None:
        """Parses a number, a label, the name of a section, or the sum or difference of two of these."""
        token = self.token
        negative = self.accept("-")
        if self.token.terminal == "int":
            value = integer(self.next())
            # ptxas takes the lower 32 bits
            if value > 1 << (bits - 1) if negative else (value & 0xFFFFFFFF if bits < 64 else value) >> bits:
                raise self.fail(f"it must be a number of {bits} bits", token)
        elif bits >= 32 and not negative and (self.token.terminal == "directive" or self.is_label(self.token)):
            self.at += 1
        else:
            raise self.fail("it must be a number or a label")
        if self.token.terminal in ("+", "-"):
            self.at += 1
            if self.token.terminal not in ("int", "word", "directive"):
                raise self.fail("it must be a number or a label")
            self.at += 1
