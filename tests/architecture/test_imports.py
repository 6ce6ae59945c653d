"""Imports go strictly downward, and each outside package has one owner."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from .source import PACKAGE, REFERENCE, fenced, imports, modules, own_imports, table

#: the public face and the command's entry stand above every layer
FACES = ("", "__main__")
FREE = {"numpy", "ptxgen", "__future__"} | set(sys.stdlib_module_names) - {"sqlite3"}


def layers() -> dict[str, int]:
    """Package or module at the top of ``ptxgen`` -> its layer, the lowest 0, as the reference lists them."""
    [block] = fenced(REFERENCE.read_text(), "layers")
    return {name: n for n, line in enumerate(reversed(block.splitlines())) for name in line.split()}


def layer(module: str) -> int:
    return layers()[module.split(".")[0]]


def owners() -> dict[str, list[str]]:
    rows = table(REFERENCE.read_text(), "Outside packages")
    return {package.strip("`"): re.findall(r"`([\w.]+)`", owner) for package, owner in rows}


def test_the_layers_are_the_packages() -> None:
    found = {module.split(".")[0] for module in modules() if module not in FACES}
    assert set(layers()) == found


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


@pytest.mark.parametrize("name", [m for m in modules() if m and modules()[m].name == "__init__.py"])
def test_a_package_says_what_belongs_in_it(name: str) -> None:
    assert (ast.get_docstring(ast.parse(modules()[name].read_text())) or "").endswith(".")


def test_imports_form_no_cycle() -> None:
    """Imports inside functions count too, except in the emulated device, whose types name each other."""
    graph = {
        m: {o for line, o in own_imports(m) if o != m and (_at_top(m, line) or not m.startswith("emulator"))}
        for m in modules()
    }
    done: set[str] = set()

    def visit(m: str, way: tuple[str, ...]) -> None:
        if m in way:
            pytest.fail(f"a cycle: {' -> '.join((*way[way.index(m) :], m))}")
        if m not in done:
            for other in sorted(graph[m]):
                visit(other, (*way, m))
            done.add(m)

    for m in graph:
        visit(m, ())


def _at_top(module: str, line: int) -> bool:
    text = modules()[module].read_text().splitlines()[line - 1]
    return not text.startswith((" ", "\t"))


@pytest.mark.parametrize("module", [m for m in modules() if m])
def test_an_outside_package_is_imported_by_its_owner_alone(module: str) -> None:
    known = owners()
    for line, name in imports(module):
        outside = name.split(".")[0]
        if outside in FREE:
            continue
        where = f"{modules()[module].relative_to(PACKAGE)}:{line}"
        assert outside in known, f"{where} imports {outside}, which nobody owns ({REFERENCE.name}, Outside packages)"
        mine = [o for o in known[outside] if module == o or module.startswith(f"{o}.")]
        assert mine, f"{where} imports {outside}; only {', '.join(known[outside])} may"


def test_owners_use_what_they_own() -> None:
    for package, names in owners().items():
        for owner in names:
            used = [m for m in modules() if m == owner or m.startswith(f"{owner}.")]
            assert any(name.split(".")[0] == package for m in used for _, name in imports(m)), (
                f"{owner} has no {package}"
            )


def test_the_command_line_answers_without_its_layers() -> None:
    """``--help`` must not cost the import of arrays, templates or models."""
    import subprocess

    heavy = ("numpy", "mako", "xgboost", "rich", "sqlite3")
    code = f"import sys, ptxgen.cli; print(*(m for m in {heavy} if m in sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert told.stdout.split() == []
