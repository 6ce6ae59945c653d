"""Parts of plans do not change after they are made."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Iterator

from ptxgen.codegen.parts.part import Part
from tests.architecture.source import modules

#: functions that set attributes after the constructor, of objects that are no parts: an allocator of the workspace,
#: columns that are computed when they are read, settings of NumPy arrays and of timers
OTHERS = {
    ("part.py", "claim"),
    ("geometry.py", "__getattr__"),
    ("space.py", "groups"),
    ("candidates.py", "_one_number"),
    ("array_cache.py", "write_later"),
}
#: what a plan is composed by: these set the attributes of the plan
COMPOSERS = {
    *("compose_scheduler", "compose_epilogue", "compose_sink", "compose_launch"),
    *("plan_for", "mixed_plan_for", "with_registers", "with_schedule"),
}


def subclasses(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def test_parts_are_frozen_records() -> None:
    for name in modules():
        if name.startswith(("codegen.", "families.")):
            importlib.import_module(f"ptxgen.{name}")
    parts = [part_class for part_class in subclasses(Part) if part_class.__module__.startswith("ptxgen.")]
    assert len(parts) > 40
    for part_class in parts:
        assert dataclasses.is_dataclass(part_class), part_class
        assert part_class.__dataclass_params__.frozen, part_class  # type: ignore[attr-defined]


def changed(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The pair (function, attribute) of each assignment to an attribute outside constructors and the methods that they call."""
    for node_class in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = {node.name: node for node in node_class.body if isinstance(node, ast.FunctionDef)}
        makers = {"__init__", "_compose"} & set(methods)
        called = {n.attr for name in makers for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)}
        for name, method in methods.items():
            if name not in makers | called:
                yield from ((name, text) for text in assigned(method))
            else:
                yield from ((name, text) for text in assigned(method) if not text.startswith("self."))
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        yield from ((function.name, text) for text in assigned(function))


def assigned(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                places = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (ast.unparse(place) for place in places if isinstance(place, ast.Attribute))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("__setattr__"):
            yield ast.unparse(node)


def test_no_attribute_of_a_part_is_set_after_its_constructor() -> None:
    assignments = [
        f"{name}, {function}: {text}"
        for name, path in modules().items()
        if name.startswith(("codegen.", "families."))
        for function, text in changed(ast.parse(path.read_text()))
        if (path.name, function) not in OTHERS and not (function in COMPOSERS and text.startswith("plan."))
    ]
    assert not assignments


def test_the_check_finds_changes() -> None:
    tree = ast.parse(
        "class X:\n"
        "    def __init__(self):\n        self.a = 1\n        self._more()\n"
        "    def _more(self):\n        self.b = 2\n"
        "    def adapt(self):\n        self.a, y = 2, 3\n"
        "def make():\n    x = X()\n    x.a += 1\n"
    )
    assert list(changed(tree)) == [("adapt", "self.a"), ("make", "x.a")]
