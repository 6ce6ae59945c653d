"""What kernels compute is one record, and what belongs to one access mode is read there alone."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Iterator

from ptxgen.lowering.kernel_problem import Access, KernelProblem
from tests.architecture.source import modules

FIELDS = "name extents operands outputs compute sink algebra deterministic moved calls parts forms features"
#: names of variables and attributes that hold a kernel problem
PROBLEMS = {"p", "q", "problem", "product", "lowered"}
READERS = ("codegen.", "families.", "lowering.", "runtime.", "tuning.", "export.")


def accesses(base: type = Access) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from accesses(each)


def access_fields() -> dict[str, set[str]]:
    """Field of an access -> the modules that define accesses with it."""
    for name in modules():
        if name.startswith("lowering."):
            importlib.import_module(f"ptxgen.{name}")
    out: dict[str, set[str]] = {}
    for access in accesses():
        for field in dataclasses.fields(access):
            out.setdefault(field.name, set()).add(access.__module__.removeprefix("ptxgen."))
    return out


def wrong_reads(tree: ast.AST, fields: set[str], alone: set[str]) -> list[str]:
    """Reads of ``fields`` of problems, and of ``alone``, the fields that nothing else has, but through an access."""
    out = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in fields | alone:
            base = node.value
            name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
            if name in PROBLEMS or (node.attr in alone and name not in ("access", "self")):
                out.append(f"line {node.lineno}: {ast.unparse(node)}")
    return out


def test_the_record_has_these_fields() -> None:
    assert [f.name for f in dataclasses.fields(KernelProblem)] == FIELDS.split()
    assert not hasattr(KernelProblem, "__post_init__")  # the problem that it is lowered from has checked them


def test_fields_of_an_access_are_read_through_it() -> None:
    fields = access_fields()
    assert {"ld", "descriptor", "strip", "maps", "algorithm", "jagged"} <= set(fields)
    own = {f.name for f in dataclasses.fields(KernelProblem)} | {"rows", "columns"}  # tables have them, too
    alone = {name for name, where in fields.items() if len(where) == 1} & {"descriptor", "strip_constants"}
    assert len(alone) == 2
    for name, path in modules().items():
        if name.startswith(READERS) and not any(name in where for where in fields.values()):
            assert wrong_reads(ast.parse(path.read_text()), set(fields) - own, alone) == [], path


def test_a_read_past_the_access_is_found() -> None:
    fields, alone = {"ld", "strip"}, {"strip"}
    for text in ("p.ld", "plan.problem.ld", "x.strip", "p.strip"):
        assert wrong_reads(ast.parse(text), fields, alone), text
    for text in ("p.operand('A').access.ld", "g.ld", "access.strip"):
        assert wrong_reads(ast.parse(text), fields, alone) == [], text


def test_no_attribute_is_read_by_a_constant_name_and_no_object_made_by_its_dict() -> None:
    for name, path in modules().items():
        if not name.startswith(("codegen.", "families.", "lowering.", "export.")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                assert not isinstance(node.args[1], ast.Constant), f"{path}:{node.lineno}"
            assert not (isinstance(node, ast.Attribute) and node.attr == "__dict__"), f"{path}:{node.lineno}"
