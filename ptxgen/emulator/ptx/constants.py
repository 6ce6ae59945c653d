"""Constant expressions: the operators of C on .s64, .u64 and .f64 numbers, with the types of PTX."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

from ptxgen.emulator.ptx.lexer import Token, integer, tokenize
from ptxgen.emulator.ptx.syntax import Flt, Imm
from ptxgen.errors import ParseError

#: the constants that have names
NAMED = {"WARP_SZ": 32}

#: tokens that end a constant expression
ENDS = {",", ";", "]", "}", ")"}

#: binary operators, the weakest first
LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}

_BITWISE: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
}

_WRAP = 1 << 64


class Constant(NamedTuple):
    """The value of an expression, and its type: s64, u64 or f64."""

    value: int | float
    type: str

    @property
    def integer(self) -> int:
        """The value of an integer; a u64 value from 2**63 on becomes the negative number with the same bits."""
        return int(self.value) - (_WRAP if self.value >= _WRAP >> 1 else 0)


def typed(value: int, unsigned: bool) -> Constant:
    """An integer, wrapped to 64 bits."""
    value %= _WRAP
    if unsigned:
        return Constant(value, "u64")
    return Constant(value - (_WRAP if value >= _WRAP >> 1 else 0), "s64")


def number_bits(value: float) -> Flt:
    return Flt(struct.unpack("<Q", struct.pack("<d", value))[0], 8)


def float_constant(token: Token) -> Flt:
    """A floating-point token as a constant, which holds its bits."""
    text = token.text
    if text[:2] in ("0f", "0F"):
        return Flt(int(text[2:], 16), 4)
    if text[:2] in ("0d", "0D"):
        return Flt(int(text[2:], 16), 8)
    value = float(text)
    if math.isinf(value):
        raise ParseError(f"line {token.line}: {text} is beyond the range of .f64")
    return number_bits(value)


#: descriptions, for messages, of tokens whose kind is not the text itself
TERMINALS = {"int": "an integer", "flt": "a number", "word": "a name", "directive": "a directive", "end": "the end"}


class ConstantReader:
    """A reader of constant expressions, with a position in the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0

    # ---- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def fail(self, message: str, token: Token | None = None) -> ParseError:
        """The error at a token. ``message``: what must be in its place."""
        token = token or self.token
        shown = repr(token.text) if token.text else "the end of the text"
        return ParseError(f"line {token.line}: {shown} is unexpected; {message}")

    def expect(self, terminal: str) -> Token:
        if self.token.terminal != terminal:
            raise self.fail(f"it must be {TERMINALS.get(terminal, repr(terminal))}")
        return self.next()

    def accept(self, terminal: str) -> bool:
        if self.token.terminal == terminal:
            self.at += 1
            return True
        return False

    # ---- expressions

    def literal(self) -> Imm | Flt:
        """The value of an expression, as an operand or an initial value."""
        token = self.tokens[self.at]
        if self.tokens[self.at + 1].terminal in ENDS:
            if token.terminal == "int":
                self.at += 1
                return Imm(integer(token))
            if token.terminal == "flt":
                self.at += 1
                return float_constant(token)
        value = self.expression()
        return number_bits(float(value.value)) if value.type == "f64" else Imm(value.integer)

    def integer_expression(self) -> int:
        """The value of an expression that must be an integer."""
        token = self.token
        value = self.expression()
        return self.integral(value, token).integer

    def constant(self) -> int:
        """The value of an integer without binary operators, or of an expression in parentheses."""
        token = self.token
        return self.integral(self.unary(), token).integer

    def integral(self, value: Constant, token: Token) -> Constant:
        if value.type == "f64":
            raise self.fail("it must be an integer constant expression", token)
        return value

    def expression(self) -> Constant:
        token = self.token
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        self.integral(condition, token)
        yes = self.expression()
        self.expect(":")
        no = self.expression()
        if "f64" in (yes.type, no.type):
            self.alike(yes, no, "?:", token)
            return yes if condition.value else no
        return typed(int(yes.value if condition.value else no.value), "u64" in (yes.type, no.type))

    def alike(self, left: Constant, right: Constant, operator: str, token: Token) -> None:
        """Raises an error if one operand is an integer and the other a floating-point number."""
        if (left.type == "f64") != (right.type == "f64"):
            raise ParseError(
                f"line {token.line}: the operands of {operator} are an integer and a floating-point number; they must"
                " be of one type"
            )

    def binary(self, level: int) -> Constant:
        if level == len(LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        while self.token.terminal in LEVELS[level]:
            token = self.next()
            value = self.combine(value, token, self.binary(level + 1))
        return value

    def combine(self, left: Constant, token: Token, right: Constant) -> Constant:
        """The value of a binary operator."""
        op = token.terminal
        self.alike(left, right, op, token)
        floats, unsigned = left.type == "f64", "u64" in (left.type, right.type)
        a, b = left.value, right.value
        if not floats and unsigned:
            a, b = int(a) % _WRAP, int(b) % _WRAP
        if op in _COMPARISONS:
            return Constant(int(_COMPARISONS[op](a, b)), "s64")
        if op in ("/", "%") and not b:
            raise ParseError(f"line {token.line}: the divisor of a constant is 0; it must be another number")
        if floats:
            if op == "/":
                return Constant(a / b, "f64")
            if op not in _ARITHMETIC:
                raise ParseError(
                    f"line {token.line}: the operands of {op} are floating-point numbers; they must be integers"
                )
            return Constant(_ARITHMETIC[op](a, b), "f64")
        a, b = int(a), int(b)
        if op in ("||", "&&"):
            return Constant(int(bool(a or b) if op == "||" else bool(a and b)), "s64")
        if op in ("<<", ">>"):  # a shift by 64 or more: its lower six bits, as ptxas has it
            return typed(int(left.value) << b % 64 if op == "<<" else int(left.value) >> b % 64, left.type == "u64")
        if op == "%":
            return typed(a % _WRAP % (b % _WRAP), False)
        if op == "/":  # as in C, the quotient is rounded towards zero
            return typed(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), unsigned)
        return typed(int((_ARITHMETIC.get(op) or _BITWISE[op])(a, b)), unsigned)

    def unary(self) -> Constant:
        token = self.token
        if token.terminal == "int":
            self.at += 1
            number = integer(token)
            return typed(number, token.text[-1] == "U" or number >= _WRAP >> 1)
        if token.terminal == "word" and token.text in NAMED:
            self.at += 1
            return Constant(NAMED[token.text], "s64")
        if token.terminal == "flt":
            if token.text[:2] in ("0f", "0F"):
                raise self.fail("a number of 32 bits is no part of an expression", token)
            self.at += 1
            bits = float_constant(token).bits
            return Constant(struct.unpack("<d", struct.pack("<Q", bits))[0], "f64")
        if self.accept("("):
            if self.token.terminal == "directive":
                return self.cast()
            value = self.expression()
            self.expect(")")
            return value
        if token.terminal not in ("+", "-", "~", "!"):
            raise self.fail("it must be a constant")
        self.at += 1
        value = self.unary()
        if token.terminal == "+":
            return value
        if token.terminal == "-":
            return (
                Constant(-value.value, "f64") if value.type == "f64" else typed(-int(value.value), value.type == "u64")
            )
        self.integral(value, token)
        return Constant(int(not value.value), "s64") if token.terminal == "!" else typed(~int(value.value), True)

    def cast(self) -> Constant:
        """The value of a cast: ``.s64)`` or ``.u64)``, and the integer after it."""
        target = self.next()
        if target.text not in (".s64", ".u64"):
            raise self.fail("a cast is (.s64) or (.u64)", target)
        self.expect(")")
        token = self.token
        return typed(int(self.integral(self.unary(), token).value), target.text == ".u64")
