"""Imports go strictly downward, and each outside package has one owner."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache

import pytest

from .source import ARCHITECTURE, PACKAGE, REFERENCE, fenced, imports, modules, own_imports, table

#: the public face and the command's entry stand above every layer
FACES = ("", "__main__")
FREE = {"numpy", "ptxgen", "__future__"} | set(sys.stdlib_module_names) - {"sqlite3"}


@cache
def layers(kind: str = "layers") -> dict[str, int]:
    """Package or module at the top of ``ptxgen`` -> its layer, the lowest 0, as docs/architecture.md draws them.

    ``kind``: of the fenced block; ``emulator-layers`` lists the packages and modules of ``ptxgen.emulator``.
    """
    [block] = fenced(ARCHITECTURE.read_text(), kind)
    floors = [line.partition("│")[0].split() for line in block.splitlines()]
    return {name: n for n, names in enumerate(reversed(floors)) for name in names}


def layer(module: str) -> int:
    return layers()[module.split(".")[0]]


@cache
def owners() -> dict[str, list[str]]:
    rows = table(REFERENCE.read_text(), "Outside packages")
    return {package.strip("`"): re.findall(r"`([\w.]+)`", owner) for package, owner in rows}


def test_layers_are_the_packages() -> None:
    found = {module.split(".")[0] for module in modules() if module not in FACES}
    assert set(layers()) == found


def test_the_page_describes_every_package() -> None:
    headings = re.findall(r"^### (\w+)$", ARCHITECTURE.read_text(), re.MULTILINE)
    packages = {module for module, path in modules().items() if module and path.name == "__init__.py"}
    assert sorted(headings) == sorted(name for name in packages if "." not in name)


def test_imports_go_strictly_downward() -> None:
    wrong = []
    for module in modules():
        if module in FACES:
            continue
        for line, other in own_imports(module):
            same = module.split(".")[0] == other.split(".")[0]
            if not same and not (layer(other) < layer(module) or layer(other) == layer(module) == 0):
                wrong.append(f"{modules()[module].relative_to(PACKAGE)}:{line} imports {other}")
    assert not wrong, "upward:\n" + "\n".join(wrong)


def test_imports_within_the_emulator_go_strictly_downward() -> None:
    order = layers("emulator-layers")
    inside = {m: m.split(".")[1] for m in modules() if m.startswith("emulator.")}
    assert set(order) == set(inside.values())
    wrong = [
        f"{modules()[module].relative_to(PACKAGE)}:{line} imports {other}"
        for module, package in inside.items()
        for line, other in own_imports(module)
        if inside.get(other, package) != package and order[inside[other]] >= order[package]
    ]
    assert not wrong, "upward:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", [m for m in modules() if m and modules()[m].name == "__init__.py"])
def test_every_package_has_a_docstring(name: str) -> None:
    assert (ast.get_docstring(ast.parse(modules()[name].read_text())) or "").endswith(".")


def test_imports_form_no_cycle() -> None:
    """Imports inside functions and imports for type checking count too."""
    graph = {m: {o for _, o in own_imports(m) if o != m} for m in modules()}
    done: set[str] = set()

    def visit(m: str, path: tuple[str, ...]) -> None:
        if m in path:
            pytest.fail(f"a cycle: {' -> '.join((*path[path.index(m) :], m))}")
        if m not in done:
            for other in sorted(graph[m]):
                visit(other, (*path, m))
            done.add(m)

    for m in graph:
        visit(m, ())


@pytest.mark.parametrize("module", [m for m in modules() if m])
def test_only_the_owner_imports_an_outside_package(module: str) -> None:
    known = owners()
    for line, name in imports(module):
        outside = name.split(".")[0]
        if outside in FREE:
            continue
        where = f"{modules()[module].relative_to(PACKAGE)}:{line}"
        assert outside in known, f"{where} imports {outside}, which nobody owns ({REFERENCE.name}, Outside packages)"
        mine = [o for o in known[outside] if module == o or module.startswith(f"{o}.")]
        assert mine, f"{where} imports {outside}; only {', '.join(known[outside])} may"


def test_owners_import_their_packages() -> None:
    for package, names in owners().items():
        for owner in names:
            used = [m for m in modules() if m == owner or m.startswith(f"{owner}.")]
            assert any(name.split(".")[0] == package for m in used for _, name in imports(m)), (
                f"{owner} has no {package}"
            )


def test_help_imports_no_arrays_templates_or_models() -> None:
    """``--help`` must not cost the import of arrays, templates or models."""
    import subprocess

    heavy = ("numpy", "mako", "xgboost", "rich", "sqlite3")
    # earlier versions of Typer import rich themselves
    code = (
        f"import sys, typer; own = {{*sys.modules}}; import ptxgen.cli; print(*({{*{heavy}}} & {{*sys.modules}} - own))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert output.stdout.split() == []
