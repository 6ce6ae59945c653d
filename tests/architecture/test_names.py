"""Names of variables say what they hold."""

from __future__ import annotations

import ast

from .source import modules, tree

#: names that have stood for selections, kernels, rows and matches; for dtypes, layouts and faults
EMPTY = {"found", "kind"}


def test_variables_have_names_of_what_they_hold() -> None:
    used = []
    for module in modules():
        for node in ast.walk(tree(module)):
            name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            if name in EMPTY:
                used.append(f"{module}:{getattr(node, 'lineno', 0)}: {name}")
    assert not used
