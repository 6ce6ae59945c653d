"""PTX text to tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from ptxgen.errors import ParseError


class Token(NamedTuple):
    kind: str  # word, directive, int, flt, str, or the punctuation itself
    text: str
    line: int
    start: int
    end: int


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|\\\n)
    |(?P<nl>\n)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<str>"[^"\n]*")
    |(?P<flt>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<word>(?:%[\w$]|[$A-Za-z_])[\w$]*(?:(?:\.|::)\w+)*)
    |(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<punct><<|>>|[\[\]{}()<>,;:|!@+\-*/=&~^%?])
    |(?P<bad>.)""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, without comments, ending with an "end" token."""
    out: list[Token] = []
    line = 1
    append = out.append
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            line += match.group().count("\n")
        elif kind == "nl":
            line += 1
        elif kind == "comment":
            line += match.group().count("\n")
        elif kind == "bad":
            raise ParseError(f"line {line}: unexpected character {match.group()!r}")
        else:
            word = match.group()
            assert kind is not None
            append(Token(word if kind == "punct" else kind, word, line, match.start(), match.end()))
    out.append(Token("end", "", line, len(text), len(text)))
    return out


def integer(text: str) -> int:
    """The value of an integer token."""
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X", "0b", "0B"):
        return int(text, 0)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)
