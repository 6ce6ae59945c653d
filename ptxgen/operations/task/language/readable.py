"""Prints programs as readable texts of several lines."""

from __future__ import annotations

import re

from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.program import Program

_TOKEN = re.compile(r"[A-Za-z_]\w*|[\d.]+(?:e[-+]?\d+)?|<<|>>|<=|>=|==|!=|[-+*/&|^]=|\S")
_BINARY = frozenset(("+", "-", "*", "/", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "?", ":"))


def readable(program: Program) -> str:
    """The canonical text of a program with line ends and spaces, which parses to an equal program."""
    lines: list[str] = []
    for part in re.findall(r"[^;{}]*[;{}]", canonical(program)):
        if part == "}":
            lines.append(f"{'    ' * (_depth(lines) - 1)}}}")
        else:
            lines.append("    " * _depth(lines) + _spaced(part))
    return "\n".join(lines)


def _depth(lines: list[str]) -> int:
    """The number of braces that are open after these lines."""
    return sum(line.endswith("{") - line.endswith("}") for line in lines)


def _spaced(part: str) -> str:
    """A statement with spaces around its operators."""
    out, before, earlier = "", "", ""
    for token in _TOKEN.findall(part):
        operand = re.match(r"[\w)\]]", before)
        space, more = "", ""
        if token == "{" or (token == "(" and before in ("where", "when", "reduce")):
            space = " "
        elif token == "," or (token == ":" and out == before):  # of a declaration
            more = " "
        elif operand and (token in _BINARY or token.endswith("=")):
            named = token == "=" and earlier == "]" and before.isidentifier()  # as in C[i] max= x
            space, more = "" if named else " ", " "
        elif operand and re.match(r"\w", token):
            space = " "
        out += f"{space}{token}{more}"
        earlier, before = before, token
    return out
