"""Imports go strictly downward, and each outside package has one owner."""

from __future__ import annotations

import re
import sys

import pytest

from .source import PACKAGE, REFERENCE, fenced, imports, modules, own_imports, table

#: the public face and the command's entry stand above every layer
FACES = ("", "__main__")
FREE = {"numpy", "ptxgen", "__future__"} | set(sys.stdlib_module_names) - {"sqlite3"}


def places() -> list[tuple[str, tuple[int, int]]]:
    """(pattern, place) of each name of the layer table; a smaller place is lower."""
    [block] = fenced(REFERENCE.read_text(), "layers")
    out = []
    for line in block.splitlines():
        number, *names = line.split()
        out += [(name, (int(number), column)) for column, name in enumerate(names)]
    return out


def place(module: str) -> tuple[str, tuple[int, int]] | None:
    for pattern, where in places():
        parts = pattern.split(".")
        own = module.split(".")[: len(parts)]
        if len(own) == len(parts) and all(p in ("*", o) for p, o in zip(parts, own, strict=True)):
            return ".".join(own), where
    return None


def owners() -> dict[str, list[str]]:
    rows = table(REFERENCE.read_text(), "Outside packages")
    return {package.strip("`"): re.findall(r"`([\w.]+)`", owner) for package, owner in rows}


def is_mere_package(module: str) -> bool:
    """A package of subpackages that has nothing but a docstring."""
    return modules()[module].name == "__init__.py" and not any(True for _ in own_imports(module))


def test_every_module_has_a_place() -> None:
    homeless = [m for m in modules() if m not in FACES and place(m) is None and not is_mere_package(m)]
    assert not homeless, f"not in the layer table of {REFERENCE.name}: {', '.join(homeless)}"


def test_every_place_has_a_module() -> None:
    taken = {place(m) for m in modules() if m not in FACES}
    wheres = {found[1] for found in taken if found}
    assert not [pattern for pattern, where in places() if where not in wheres]


def test_imports_go_strictly_downward() -> None:
    wrong = []
    for module in modules():
        here = place(module)
        if module in FACES or here is None:
            continue
        for line, other in own_imports(module):
            there = place(other)
            if there is None or there[0] == here[0]:
                continue  # a name's submodules are its own affair
            if not there[1] < here[1]:
                wrong.append(f"{modules()[module].relative_to(PACKAGE)}:{line} imports {other}")
    assert not wrong, "upward:\n" + "\n".join(wrong)


def test_modules_of_one_name_do_not_form_a_cycle_when_imported() -> None:
    """Within a package too: what is imported at the top of a file must not lead back to it."""
    graph = {m: {o for line, o in own_imports(m) if _at_top(m, line) and o != m} for m in modules()}
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
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []
