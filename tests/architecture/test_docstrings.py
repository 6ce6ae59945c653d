"""Docstrings are sentences: none begins with a preposition of possession or with a conjunction."""

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


def test_docstrings_do_not_begin_with_of_or_whether() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path, line, text in docstrings() if text.startswith(("Of ", "Whether "))
    ]
    assert not found, "a docstring has its subject first: True if …, The times of …"
