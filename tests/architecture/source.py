"""Helpers of the architecture tests: the package's modules and imports, the tables of the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "ptxgen"
REFERENCE = ROOT / "docs" / "reference.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"


@cache
def modules() -> dict[str, Path]:
    """Module name within the package (``""``: the package itself) -> file."""
    out = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        out[".".join(parts).removesuffix("__init__").removesuffix(".")] = path
    return out


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file, which several tests walk."""
    return ast.parse(path.read_text())


def tree(module: str) -> ast.Module:
    return parsed(modules()[module])


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a module."""
    return tuple(ast.walk(tree(module)))


@cache
def imports(module: str) -> tuple[tuple[int, str], ...]:
    """The pair (line, absolute name) of every import of a module, at any depth; of the package's own also by ``import_module``."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[int, str]]:
    package = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(p for p in ("ptxgen", *above, base) if p)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in (
            getattr(node.func, "attr", ""),
            getattr(node.func, "id", ""),
        ):
            [name, *_] = node.args
            if isinstance(name, ast.Constant) and str(name.value).startswith("ptxgen"):
                yield node.lineno, str(name.value)


def own_imports(module: str) -> Iterator[tuple[int, str]]:
    """Pairs (line, module within the package) of the package's own modules that a module imports."""
    for line, name in imports(module):
        parts = name.split(".")
        if parts[0] == "ptxgen":
            inside = parts[1:]
            while inside and ".".join(inside) not in modules():
                inside = inside[:-1]  # the rest is a name within a module
            if inside:
                yield line, ".".join(inside)


def fenced(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks of a kind."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def table(text: str, heading: str) -> list[list[str]]:
    """The rows, without titles, of the first table below a heading."""
    section = text.split(f"# {heading}\n", 1)[1]
    lines = section[section.index("\n|") + 1 :].splitlines()
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows[2:]
