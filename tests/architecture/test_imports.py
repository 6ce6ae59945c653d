"""Imports go strictly downward, and each outside package has one owner."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache

import pytest

import ptxgen

from .source import ARCHITECTURE, PACKAGE, REFERENCE, imports, modules, own_imports, table

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
    found = {(module, name) for module in modules() for _, name in imports(module) if module not in FACES}
    assert {(module, name) for module, name in found if name in names} == {("plugins", "ptxgen.register_own")}


@pytest.mark.parametrize("module", [m for m in modules() if m])
def test_no_string_names_an_object_of_a_module(module: str) -> None:
    """What a module uses, it imports."""
    tree = ast.parse(modules()[module].read_text())
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {text for text in texts if re.fullmatch(r"ptxgen(\.\w+)+:\w+", text)} == set()


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
