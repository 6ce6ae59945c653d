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


# the most frequent kinds come first
_TOKEN = re.compile(
    r"""[ \t\r\f]*+(?:
    (?P<word>(?:%[\w$]|[$A-Za-z_])[\w$]*(?:(?:\.|::)\w+)*)
    |(?P<nl>\\?\n)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<flt>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<punct><<|>>|[\[\]{}()<>,;:|!@+\-*/=&~^%?])
    |(?P<str>"[^"\n]*")
    |(?P<bad>.))""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, without comments, ending with an "end" token."""
    out: list[Token] = []
    line = 1
    append, new = out.append, tuple.__new__
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        if kind == "nl":
            line += 1
            continue
        word = match[kind]
        if kind == "comment":
            line += word.count("\n")
        elif kind == "bad":
            raise ParseError(f"line {line}: unexpected character {word!r}")
        else:
            end = match.end()
            # Token(...), without the call of a Python function
            append(new(Token, (word if kind == "punct" else kind, word, line, end - len(word), end)))
    out.append(Token("end", "", line, len(text), len(text)))
    return out


def integer(text: str) -> int:
    """The value of an integer token."""
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X", "0b", "0B"):
        return int(text, 0)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)
