"""Names of variables say what they hold."""

from __future__ import annotations

import ast

from .source import ROOT

#: names that have stood for selections, kernels, rows and matches; for dtypes, layouts and faults
EMPTY = {"found", "kind"}


def test_variables_have_names_of_what_they_hold() -> None:
    used = []
    for folder in ("ptxgen", "tests", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if not any(name in text for name in EMPTY):
                continue
            for node in ast.walk(ast.parse(text)):
                name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
                if name in EMPTY:
                    used.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}")
    assert not used
