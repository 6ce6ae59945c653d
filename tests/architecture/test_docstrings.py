"""Docstrings are sentences: none begins with a preposition of possession, a conjunction or a parenthesis."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .source import ROOT

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FOLDERS = ("ptxgen", "tests", "examples")


def docstrings() -> Iterator[tuple[Path, int, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                    yield path, getattr(node, "lineno", 1), text


def test_docstrings_begin_with_a_subject_or_a_verb() -> None:
    wrong = ("Of ", "Whether ", "(")
    found = [f"{path.relative_to(ROOT)}:{line}" for path, line, text in docstrings() if text.startswith(wrong)]
    assert not found, "a docstring has its subject first: True if …, The times of …, The pair (row, column) of …"
