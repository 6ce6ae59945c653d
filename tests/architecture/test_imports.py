"""Imports go strictly downward, and each outside package has one owner."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache

import pytest

import ptxgen

from .source import ARCHITECTURE, PACKAGE, REFERENCE, imports, modules, own_imports, table, tree

#: the public face and the command's entry stand above every layer
FACES = ("", "__main__")
FREE = {"numpy", "ptxgen", "__future__"} | set(sys.stdlib_module_names) - {"sqlite3"}


@cache
def layers() -> dict[str, dict[str, int]]:
    """Package (``""``: ``ptxgen``) -> each package or module in it -> its layer, the lowest 0, as docs/architecture.md
    draws them: a fenced block ``<package>-layers`` for each package whose layers are tested."""
    out = {}
    for name, block in re.findall(r"^```(?:([\w.]+)-)?layers\n(.*?)^```$", ARCHITECTURE.read_text(), re.M | re.S):
        floors = [line.partition("│")[0].split() for line in block.splitlines()]
        out[name] = {part: n for n, parts in enumerate(reversed(floors)) for part in parts}
    return out


def part_of(package: str, module: str) -> str:
    """The package or module directly in ``package`` that is or contains ``module``; empty: neither."""
    prefix = f"{package}." if package else ""
    return module.removeprefix(prefix).split(".")[0] if module.startswith(prefix) and module not in FACES else ""


@cache
def owners() -> dict[str, list[str]]:
    rows = table(REFERENCE.read_text(), "Outside packages")
    return {package.strip("`"): re.findall(r"`([\w.]+)`", owner) for package, owner in rows}


def test_the_page_draws_layers() -> None:
    assert {"", "codegen", "emulator", "emulator.ops", "families.wgmma", "operations", "tuning"} <= set(layers())


@pytest.mark.parametrize("package", layers())
def test_layers_are_the_parts_of_a_package(package: str) -> None:
    assert set(layers()[package]) == {part_of(package, module) for module in modules()} - {""}


def test_the_page_describes_every_package() -> None:
    headings = re.findall(r"^### (\w+)$", ARCHITECTURE.read_text(), re.MULTILINE)
    packages = {module for module, path in modules().items() if module and path.name == "__init__.py"}
    assert sorted(headings) == sorted(name for name in packages if "." not in name)


@pytest.mark.parametrize("package", layers())
def test_imports_go_strictly_downward(package: str) -> None:
    order, wrong = layers()[package], []
    for module in modules():
        mine = part_of(package, module)
        for line, imported in own_imports(module) if mine else ():
            other = part_of(package, imported)
            lowest = not package and order.get(other) == order[mine] == 0  # modules without an order among them
            if other and other != mine and order[other] >= order[mine] and not lowest:
                wrong.append(f"{modules()[module].relative_to(PACKAGE)}:{line} imports {imported}")
    assert not wrong, "upward:\n" + "\n".join(wrong)


def test_one_module_calls_the_face() -> None:
    """``register_own`` imports what fills the registries; any other name of the face would hide an import upward."""
    names = {f"ptxgen.{name}" for name in {*vars(ptxgen), *ptxgen.__all__} - {*modules(), "__version__"}}
    callers = {(module, name) for module in modules() for _, name in imports(module) if module not in FACES}
    assert {(module, name) for module, name in callers if name in names} == {("plugins", "ptxgen.register_own")}


def test_no_string_names_an_object_of_a_module() -> None:
    """What a module uses, it imports."""
    constants = [(m, node) for m in modules() if m for node in ast.walk(tree(m)) if isinstance(node, ast.Constant)]
    texts = [(m, node.value) for m, node in constants if isinstance(node.value, str)]
    assert [f"{m}: {text}" for m, text in texts if re.fullmatch(r"ptxgen(\.\w+)+:\w+", text)] == []


def test_every_package_has_a_docstring() -> None:
    packages = [m for m, path in modules().items() if m and path.name == "__init__.py"]
    assert [m for m in packages if not (ast.get_docstring(tree(m)) or "").endswith(".")] == []


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


def test_only_the_owner_imports_an_outside_package() -> None:
    """The owners are listed in the table "Outside packages" of the reference."""
    known, wrong = owners(), []
    for module in filter(None, modules()):
        for line, name in imports(module):
            outside = name.split(".")[0]
            mine = [o for o in known.get(outside, ()) if module == o or module.startswith(f"{o}.")]
            if outside not in FREE and not mine:
                may = ", ".join(known.get(outside, ["no module"]))
                wrong.append(f"{modules()[module].relative_to(PACKAGE)}:{line} imports {outside}; {may} may")
    assert not wrong


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
