"""The grammar of the language, and the syntax trees of texts."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import lark
import numpy as np
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.grammar import Rule
from lark.lexer import TerminalDef

from ptxgen.errors import TaskError
from ptxgen.families.common import array_cache

__all__ = ["Token", "Tree", "placed", "tree"]

#: the grammar. Its names are those of the nodes of the syntax tree, whose meaning ``parser`` checks
_GRAMMAR = r"""
start: declaration* where
activation: expr
declaration: NAME ":" NAME ["[" axes "]"] ";"
axes: NAME ("," NAME)*
where: "where" "(" ranges ")" ["when" "(" expr ")"] "{" statement* "}"
ranges: range ("," range)*
range: NAME ["in" "[" expr "," expr ("]" | ")")]
?statement: reduce | assign | listed
reduce: "reduce" "(" ranges ")" "{" statement* "}"
assign: (name | index) (AUGMENTED | [NAME] EQUAL) expr ";"
listed: [or "?"] (name | index) "." NAME "(" arguments ")" ";"
arguments: [expr ("," expr)*]

?expr: or
     | or "?" expr ":" expr -> choice
?or: and
   | or "or" and -> or_
?and: not
    | and "and" not -> and_
?not: comparison
    | "not" not -> not_
?comparison: bit_or
           | comparison COMPARE bit_or -> compare
?bit_or: bit_xor
       | bit_or "|" bit_xor -> bit_or_
?bit_xor: bit_and
        | bit_xor "^" bit_and -> bit_xor_
?bit_and: shift
        | bit_and "&" shift -> bit_and_
?shift: sum
      | shift SHIFT sum -> shifted
?sum: product
    | sum "+" product -> add
    | sum "-" product -> subtract
?product: unary
        | product "*" unary -> multiply
        | product "/" unary -> divide
?unary: atom
      | "-" unary -> negative
      | "~" unary -> complement
?atom: NUMBER -> number
     | "inf" -> infinity
     | "nan" -> nan
     | "true" -> true
     | "false" -> false
     | name
     | index
     | NAME "(" arguments ")" -> call
     | "where" "(" arguments ")" -> chosen
     | "(" expr ")" -> group
     | "(" expr "," expr ")" -> pair
name: NAME
index: NAME "[" arguments "]"

EQUAL: "="
AUGMENTED.3: "+=" | "-=" | "*=" | "/=" | "&=" | "|=" | "^=" | "<<=" | ">>="
SHIFT.2: "<<" | ">>"
COMPARE.1: "<=" | ">=" | "==" | "!=" | "<" | ">"
NUMBER: /0[xX][0-9a-fA-F]+|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?/
NAME: /[A-Za-z_][A-Za-z0-9_]*/
COMMENT: /(#|\/\/)[^\n]*/
%ignore /[ \t\r\n\f]+/
%ignore COMMENT
"""

_LONGEST = 20_000
_DEEPEST = 200
#: (previous token, token) from other languages -> what to write instead
_ADVICE = {
    ("", "for"): "write where (i in [0, M], j in [0, N]) { … }",
    ("*", "*"): "write pow(x, y)",
    ("&", "&"): "write and",
    ("|", "|"): "write or",
    ("+", "+"): "write += 1",
    ("-", "-"): "write -= 1",
    ("", "!"): "write not",
    ("", "%"): "the language has no remainder",
    ("", "if"): "write condition ? a : b, or condition ? list.add(a);",
}
_OPERATORS = ("PLUS", "MINUS", "STAR", "SLASH", "COMPARE", "SHIFT", "AMPERSAND", "VBAR", "CIRCUMFLEX", "AND", "OR")
_SHOWN = {"NAME": "a name", "NUMBER": "a number", "EQUAL": "`=`", "AUGMENTED": "`+=`", "$END": "the end of the text"}


#: the file with the compressed result of ``tables``, which takes tens of milliseconds to compute
TABLES = Path(__file__).with_name("parser_tables.json.xz")


@cache
def _parser() -> Lark:
    """The parser. Its tables are shipped for one version of Lark, the parser generator; for other versions they are
    kept in the disk cache."""
    key = tables_key()
    for read in (_shipped_tables, _cached_tables):
        content = read(key)
        if content and (document := json.loads(content, object_pairs_hook=_with_numbers))["key"] == key:
            return Lark.load(document)
    content = tables()
    array_cache.write_later(key, {"tables": np.frombuffer(content, np.uint8)})
    return Lark.load(json.loads(content, object_pairs_hook=_with_numbers))


def tables_key() -> str:
    """The key of the parser's tables: a hash of the grammar and of Lark's version, on which they depend."""
    return hashlib.sha256(repr((_GRAMMAR, lark.__version__)).encode()).hexdigest()


def tables() -> bytes:
    """The parser's tables, as JSON."""
    made = Lark(
        _GRAMMAR,
        start=["start", "activation"],
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        maybe_placeholders=True,
    )
    data, memo = made.memo_serialize([TerminalDef, Rule])
    return json.dumps({"key": tables_key(), "data": data, "memo": memo}, separators=(",", ":")).encode()


def _shipped_tables(key: str) -> bytes:
    return lzma.decompress(TABLES.read_bytes())


def _cached_tables(key: str) -> bytes:
    content = array_cache.read(key)
    return b"" if content is None else content["tables"].tobytes()


def _with_numbers(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    """A JSON object in which keys that are decimal numbers are integers again."""
    return {int(name) if name.isdecimal() else name: value for name, value in pairs}


def placed(text: str, message: str, line: int, column: int, length: int = 1) -> TaskError:
    """The error at a place in a text; its message shows the line with carets below the place."""
    shown = (text.split("\n")[line - 1] if line <= text.count("\n") + 1 else "").rstrip("\r")
    # a long line is shown around the place
    first = max(0, column - 61) if len(shown) > 120 else 0
    cut = "".join(c if c.isprintable() else " " for c in shown[first : first + 120])
    at = column - 1 - first
    carets = "^" * max(1, min(length, len(cut) - at))
    return TaskError(f"line {line}, column {column}: {message}\n    {cut}\n    {' ' * at}{carets}", line, column)


def tree(text: str, start: str = "start") -> Tree[Token]:
    """The syntax tree of a text. ``start``: "start" for a task, or "activation". TaskError: the text breaks the
    grammar."""
    if not isinstance(text, str):
        raise TaskError(f"the text of the task is {type(text).__name__}; it must be a string")
    if len(text) > _LONGEST:
        raise TaskError(f"the text has {len(text)} characters; it must have at most {_LONGEST}")
    return _tree(text, start)


@lru_cache(maxsize=8)  # a text is read for its inputs, then for its program
def _tree(text: str, start: str) -> Tree[Token]:
    try:
        tree = _parser().parse(text, start)
    except UnexpectedCharacters as error:
        raise _unexpected_character(text, error) from None
    except UnexpectedToken as error:
        raise _unexpected_token(text, error) from None
    except UnexpectedInput as error:
        raise placed(text, "the text ends early", max(error.line, 1), max(error.column, 1)) from None
    _check_depth(text, tree)
    return tree


def _check_depth(text: str, root: Tree[Token]) -> None:
    stack = [(root, 1)]
    while stack:
        x, depth = stack.pop()
        if depth > _DEEPEST:
            message = f"more than {_DEEPEST} expressions are nested here; give a part a name before"
            raise placed(text, message, x.meta.line, x.meta.column)
        stack.extend((y, depth + 1) for y in x.children if isinstance(y, Tree) and not y.meta.empty)


def _unexpected_character(text: str, error: UnexpectedCharacters) -> TaskError:
    character = text[error.pos_in_stream or 0]
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    advice = _ADVICE.get(("", character), "remove it")
    return placed(text, f"`{shown}` is no character of the language; {advice}", error.line, error.column)


def _unexpected_token(text: str, error: UnexpectedToken) -> TaskError:
    token: Token = error.token
    before = _token_before(text, token)
    accepts: set[str] = set(error.accepts or error.expected)
    if token.type == "$END":
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        if before is not None:
            line, column = before.end_line or line, before.end_column or column
            if before.type == "NAME" and "SEMICOLON" in accepts:
                return placed(text, "`;` is missing; write ; here", line, column)
        return placed(text, f"the text ends early; {_wanted(accepts)}", line, column)
    if before is not None and before in ("for", "if"):
        token, before = before, None
    line, column = token.line or 1, token.column or 1
    joined = before is not None and before.end_pos == token.start_pos
    advice = _ADVICE.get(("", str(token))) or (_ADVICE.get((str(before), str(token))) if joined else None)
    if advice is None and "SEMICOLON" in accepts and before is not None and token.type in ("NAME", "RBRACE", "REDUCE"):
        return placed(text, "`;` is missing; write ; here", before.end_line or line, before.end_column or column)
    return placed(text, f"`{token}` is unexpected; {advice or _wanted(accepts)}", line, column, len(token))


def _token_before(text: str, token: Token) -> Token | None:
    before = None
    for each in _parser().lex(text):
        if token.type != "$END" and (each.start_pos or 0) >= (token.start_pos or 0):
            break
        before = each
    return before


def _wanted(accepts: Iterable[str]) -> str:
    """The rule for a place in an error, from the terminals that the parser accepts there."""
    names, accepted = set(accepts), []
    if "NUMBER" in names:
        accepted.append("an expression")
        names -= {"NUMBER", "NAME", "INF", "NAN", "TRUE", "FALSE", "WHERE", "LPAR", "MINUS", "TILDE", "NOT"}
    if {"PLUS", "STAR"} <= names:
        accepted.append("an operator")
        names -= {*_OPERATORS, "QMARK", "DOT", "LSQB"}
    accepted += sorted(_SHOWN.get(name) or _spelling(name) for name in names)
    return f"it must be {' or '.join(accepted)}" if accepted else "remove it"


def _spelling(terminal: str) -> str:
    return f"`{_parser().get_terminal(terminal).pattern.value}`"
