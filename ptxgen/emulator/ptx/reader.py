"""Parses tokens into operands and constants. The module `parser` parses statements."""

from __future__ import annotations

import math
import re
import struct

from ptxgen.emulator.ptx.lexer import Token, integer, tokenize
from ptxgen.emulator.ptx.syntax import (
    Flt,
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
    Sym,
    Variable,
    Vec,
)
from ptxgen.errors import ParseError

_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]$"
    r"|%(laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|cluster_nctarank"
    r"|clock|clock_hi|clock64|globaltimer|globaltimer_lo|globaltimer_hi|total_smem_size|dynamic_smem_size"
    r"|aggr_smem_size|reserved_smem_offset_\w+|lanemask_(?:eq|le|lt|ge|gt)|current_graph_exec|envreg\d+)$"
)


#: .r, .g, .b and .a are other names of the elements of a vector
_COLOURS = dict(zip("rgba", "xyzw", strict=True))


#: selectors of bytes and half words, in video instructions
_SELECTOR = re.compile(r"(b[0-7]{1,4}|h[0-3]{1,2})$")


_CONSTANTS = {"WARP_SZ": 32}


#: tokens that end a constant expression
_CONSTANT_ENDS = {",", ";", "]", "}", ")", ">"}


class Reader:
    """A position in the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0
        self.strings: dict[str, memoryview] = {}  # by label: section .debug_str from there on

    def lookup(self, token: Token) -> Reg | Variable | Vec | None:
        """The register or variable that a name denotes in the current scope; None if it is not declared."""
        raise NotImplementedError

    # ---- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def fail(self, message: str, token: Token | None = None) -> ParseError:
        token = token or self.token
        return ParseError(f"line {token.line}: {message}, got {token.text or 'the end of the text'!r}")

    def expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            raise self.fail(f"expected {kind!r}")
        return self.next()

    def accept(self, kind: str) -> bool:
        if self.token.kind == kind:
            self.at += 1
            return True
        return False

    # ---- operands

    def operand(self) -> Operand:
        first = self.single()
        if self.tokens[self.at].kind == "|":
            self.at += 1
            return Pair(first, self.single())
        return first

    def single(self) -> Operand:
        token = self.tokens[self.at]
        kind = token.kind
        if kind == "word":
            self.at += 1
            base = self.resolve_name(token)
            if isinstance(base, Sym) and self.token.kind in ("+", "-"):
                return Sym(base.var, self.offset())
            return base
        if kind == "int" or kind == "(" or kind == "~":
            return Imm(self.constant_sum())
        if kind == "flt":
            self.at += 1
            return self.float_constant(token, 1)
        if kind == "-":
            following = self.tokens[self.at + 1]
            if following.kind == "flt":
                self.at += 2
                return self.float_constant(following, -1)
            if following.kind == "word" and following.text not in _CONSTANTS:
                self.at += 1
                return Neg(self.single())
            return Imm(self.constant_sum())
        if kind == "!":
            self.at += 1
            return Not(self.single())
        if kind == "{":
            self.at += 1
            items = [self.operand()]
            while not self.accept("}"):
                if not self.accept(","):
                    raise self.fail("expected ',' or '}'")
                items.append(self.operand())
            return Vec(tuple(items))
        if kind == "[":
            self.at += 1
            return self.address()
        raise self.fail("expected an operand")

    def address(self) -> Operand:
        base: Operand
        if self.token.kind == "word" and self.token.text not in _CONSTANTS:
            base = self.resolve_name(self.next())
        else:
            base = Imm(self.constant_sum())
        offset = self.offset() if self.token.kind in ("+", "-") else 0
        if isinstance(base, Sym):
            base, offset = Sym(base.var), offset + base.offset
        coords = None
        if self.accept(","):
            vec = self.operand()
            coords = vec if isinstance(vec, Vec) else Vec((vec,))
        self.expect("]")
        return Mem(base, offset, coords)

    def offset(self) -> int:
        total = 0
        while self.token.kind in ("+", "-"):
            sign = -1 if self.next().kind == "-" else 1
            total += sign * self.constant()
        return total

    def resolve_name(self, token: Token) -> Operand:
        name = token.text
        if name == "_":
            return Sink()
        if name in _CONSTANTS:
            return Imm(_CONSTANTS[name])
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
            if _SPECIAL.match(name):
                return Special(name)
            raise ParseError(f"line {token.line}: {name} is not declared")
        return Name(name)

    def float_constant(self, token: Token, sign: int) -> Flt:
        text = token.text
        if text[:2] in ("0f", "0F"):
            return Flt(int(text[2:], 16) ^ (0x80000000 if sign < 0 else 0), 4)
        if text[:2] in ("0d", "0D"):
            return Flt(int(text[2:], 16) ^ (1 << 63 if sign < 0 else 0), 8)
        value = sign * float(text)
        if math.isinf(value):
            raise self.fail("a number beyond the range of .f64", token)
        return Flt(struct.unpack("<Q", struct.pack("<d", value))[0], 8)

    # ---- constant expressions: the operators of C on integers, without ?:

    def constant(self) -> int:
        token = self.token
        if token.kind == "int":
            self.at += 1
            return integer(token)
        if token.kind == "word" and token.text in _CONSTANTS:
            self.at += 1
            return _CONSTANTS[token.text]
        if self.accept("-"):
            return -self.constant()
        if self.accept("+"):
            return self.constant()
        if self.accept("~"):
            return ~self.constant()
        if self.accept("("):
            if self.token.kind == "directive":  # a cast: (.s64)
                self.at += 1
                self.expect(")")
                return self.constant()
            value = self.constant_sum()
            self.expect(")")
            return value
        raise self.fail("expected a constant")

    def number(self) -> int:
        """An integer token of at most 32 bits, as in directives; a negative one as 64 bits is such a number, too."""
        token = self.expect("int")
        value = integer(token)
        if 1 << 32 <= value < (1 << 64) - (1 << 31) or value >> 64:
            raise self.fail("expected a number of at most 32 bits", token)
        return value

    def constant_sum(self, level: int = 0) -> int:
        levels = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
        if level == len(levels):
            return self.constant()
        if level == 0:
            token = self.tokens[self.at]
            if token.kind == "int" and self.tokens[self.at + 1].kind in _CONSTANT_ENDS:
                self.at += 1
                return integer(token)
        value = self.constant_sum(level + 1)
        while self.token.kind in levels[level]:
            op = self.next().kind
            right = self.constant_sum(level + 1)
            if op == "|":
                value |= right
            elif op == "^":
                value ^= right
            elif op == "&":
                value &= right
            elif op in ("<<", ">>"):
                if not 0 <= right < 64:
                    raise self.fail("expected a shift by 0 to 63")
                value = value << right if op == "<<" else value >> right
            elif op == "+":
                value += right
            elif op == "-":
                value -= right
            elif op == "*":
                value *= right
            elif not right:
                raise self.fail("division by zero in a constant")
            else:  # as in C, the quotient is rounded towards zero
                quotient = abs(value) // abs(right) * (1 if (value < 0) == (right < 0) else -1)
                value = quotient if op == "/" else value - quotient * right
        return value

    # ---- declarations

    def dimensions(self) -> int | None:
        """The number of elements of ``[a][b]``; None without brackets, 0 for ``[]``."""
        count: int | None = None
        while self.accept("["):
            if count is not None and self.token.kind == "]":
                raise self.fail("expected the extent of an array")
            n = 0 if self.token.kind == "]" else self.constant()
            self.expect("]")
            if n < 0:
                raise self.fail("expected an extent of at least 0")
            count = n if count is None else count * n
        return count

    def alignment(self) -> int:
        """The number after .align."""
        token = self.token
        value = self.number()
        if value < 1 or value & (value - 1):
            raise self.fail("an alignment must be a power of two", token)
        return value

    def initialiser(self) -> list[object]:
        if self.accept("{"):
            out: list[object] = []
            while not self.accept("}"):
                if out and not self.accept(","):
                    raise self.fail("expected ',' or '}'")
                out += self.initialiser()
            return out
        if self.token.kind == "word":
            name = self.next().text
            if name == "generic" and self.accept("("):
                name = self.expect("word").text
                self.expect(")")
            offset = 0
            while self.token.kind in ("+", "-"):
                sign = -1 if self.next().kind == "-" else 1
                offset += sign * self.constant()
            return [(name, offset)]
        sign = 1
        mark = self.at
        while self.token.kind in ("-", "+"):
            sign = -sign if self.next().kind == "-" else sign
        if self.token.kind == "flt":
            return [self.float_constant(self.next(), sign)]
        self.at = mark
        return [self.constant()]

    def label_list(self) -> list[str]:
        """The names after .branchtargets or .calltargets; none after .callprototype."""
        prototype = self.next().text == ".callprototype"
        if prototype:
            while not self.accept(";"):
                if self.token.kind == "end":
                    raise self.fail("expected ';'")
                self.at += 1
            return []
        names = [self.expect("word").text]
        while not self.accept(";"):
            if not self.accept(","):
                raise self.fail("expected ',' or ';'")
            names.append(self.expect("word").text)
        return names

    def pragma(self) -> None:
        """``.pragma "text", ...;``"""
        self.at += 1
        self.expect("str")
        while self.accept(","):
            self.expect("str")
        self.expect(";")

    def section(self) -> None:
        """``.section .name { label: .b8 1, 2 ... }``: debugging information, of which the strings are kept."""
        self.at += 1
        keeps = self.expect("directive").text == ".debug_str"
        self.expect("{")
        data, labels = bytearray(), dict[str, int]()
        while not self.accept("}"):
            if self.token.kind == "word":
                labels[self.next().text] = len(data)
                self.expect(":")
                continue
            if keeps and self.token.text == ".b8":
                self.section_bytes(data)
                continue
            token = self.expect("directive")
            if token.text not in (".b8", ".b16", ".b32", ".b64"):
                raise self.fail("expected .b8, .b16, .b32 or .b64", token)
            self.section_value(int(token.text[2:]))
            while self.accept(","):
                self.section_value(int(token.text[2:]))

        if keeps:
            view = memoryview(bytes(data))
            self.strings.update((label, view[at:]) for label, at in labels.items())

    def section_bytes(self, data: bytearray) -> None:
        """``.b8 1, 2 ...``, appended to `data`."""
        self.at += 1
        while True:
            token = self.token
            self.section_value(8)
            data.append(integer(token) & 0xFF if token.kind == "int" else 0)
            if not self.accept(","):
                return

    @staticmethod
    def is_label(token: Token) -> bool:
        """True if a token may be a label of debugging information."""
        return token.kind == "word" and token.text[0] != "%" and "." not in token.text

    def section_value(self, bits: int) -> None:
        """A number, a label, the name of a section, or the sum or difference of two of them."""
        token = self.token
        negative = self.accept("-")
        if self.token.kind == "int":
            value = integer(self.next())
            # ptxas takes the lower 32 bits
            if value > 1 << (bits - 1) if negative else (value & 0xFFFFFFFF if bits < 64 else value) >> bits:
                raise self.fail(f"expected a number of {bits} bits", token)
        elif bits >= 32 and not negative and (self.token.kind == "directive" or self.is_label(self.token)):
            self.at += 1
        else:
            raise self.fail("expected a number or a label")
        if self.token.kind in ("+", "-"):
            self.at += 1
            if self.token.kind not in ("int", "word", "directive"):
                raise self.fail("expected a number or a label")
            self.at += 1
