"""Docstrings are sentences: none begins with a preposition of possession, a conjunction, a parenthesis or a participle,
and that of a class says what it is before it says what its fields are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .source import ROOT, parsed

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FOLDERS = ("ptxgen", "tests", "examples")
#: prepositions of possession, conjunctions, parentheses, and participles without a noun
WRONG = re.compile(
    r"Of |Whether |\(|(Made|Given|Built|Kept|Held|Drawn|Taken|[A-Z][a-z]+ed)(,|:| (by|to|in|on|at|from|with)\b)"
)
#: a field and its meaning
FIELD = re.compile(r"``\w+``(, ``\w+``)*: ")


def definitions(module: ast.Module) -> Iterator[ast.AST]:
    """A module, and the statements in it at any depth."""
    waiting: list[ast.AST] = [module]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, field, ())


def docstrings() -> Iterator[tuple[Path, int, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in definitions(parsed(path)):
                if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                    yield path, getattr(node, "lineno", 1), text


def test_docstrings_begin_with_a_subject_or_a_verb() -> None:
    wrong = [f"{path.relative_to(ROOT)}:{line}" for path, line, text in docstrings() if WRONG.match(text)]
    assert not wrong, "a docstring has its subject first: True if …, The times of …, The pair (row, column) of …"


def test_docstrings_of_classes_begin_with_their_purpose() -> None:
    wrong = []
    for path in sorted((ROOT / "ptxgen").rglob("*.py")):
        for node in definitions(parsed(path)):
            if isinstance(node, ast.ClassDef) and FIELD.match(ast.get_docstring(node) or ""):
                wrong.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not wrong, "the docstring of a class says first what the class is, then ``field``: its meaning"
