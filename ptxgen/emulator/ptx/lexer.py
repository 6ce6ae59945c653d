"""PTX text to tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from ptxgen.errors import ParseError


class Token(NamedTuple):
    terminal: str  # word, directive, int, flt, str, or the punctuation itself
    text: str
    line: int
    start: int
    end: int


# the most frequent terminals come first
_TOKEN = re.compile(
    r"""[ \t\r\f]*+(?:
    (?P<word>(?:%[\w$]|[$A-Za-z_])[\w$]*(?:(?:\.|::)\w+)*)
    |(?P<nl>\\?\n)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<flt>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<punct>[\[\]{}(),;:@+\-*/~^%?]|<<|>>|[<>=!]=|&&|\|\||[<>|!=&])
    |(?P<str>"[^"\n]*")
    |(?P<bad>.))""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text``, without comments, ending with an "end" token."""
    out: list[Token] = []
    line = 1
    append, new = out.append, tuple.__new__
    for match in _TOKEN.finditer(text):
        terminal = match.lastgroup
        assert terminal is not None
        if terminal == "nl":
            line += 1
            continue
        word = match[terminal]
        if terminal == "comment":
            line += word.count("\n")
        elif terminal == "bad":
            raise ParseError(f"line {line}: the character {word!r} is unexpected; it must be part of PTX")
        else:
            end = match.end()
            # Token(...), without the call of a Python function
            append(new(Token, (word if terminal == "punct" else terminal, word, line, end - len(word), end)))
    out.append(Token("end", "", line, len(text), len(text)))
    return out


#: number of bits of the largest integer constant that ptxas takes; PTX defines 64
CONSTANT_BITS = 66


def integer(token: Token) -> int:
    """The value of an integer token."""
    text = token.text.rstrip("U")
    if text[:2] in ("0x", "0X", "0b", "0B"):
        value = int(text, 0)
    elif text[0] == "0" and not text.strip("01234567"):
        value = int(text, 8)
    elif text[0] == "0":
        raise ParseError(
            f"line {token.line}: {text} has a digit that is not octal; a decimal number begins with 1 to 9"
        )
    else:
        # a longer number is too large, and int() refuses one of more than 4300 digits
        value = int(text) if len(text) < 40 else 1 << CONSTANT_BITS
    if value >> CONSTANT_BITS:
        raise ParseError(f"line {token.line}: {text} is too large; an integer constant has 64 bits")
    return value
