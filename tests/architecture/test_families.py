"""Code outside a kernel family does not ask which family it has, names none, and reads common axes only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from ptxgen.codegen.config.axes import COMMON
from ptxgen.codegen.config.config import AXIS, family_names

from .source import ROOT, modules, nodes, own_imports

FAMILIES = tuple(family_names())
#: the name of a family as a word
NAME = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(FAMILIES, key=len, reverse=True))})(?!\w)")
#: PTX instructions, which tables of instructions and of rates name
INSTRUCTION = re.compile(r"\b(?:mma\.sync|wmma\.mma|wgmma\.(?:mma_async|fence|commit_group|wait_group))\b")
#: (modules, words in their strings, what they mean in place of a family)
OTHER_MEANINGS = (
    (r"emulator\..*|cli\.emulate", r"\b(?:wg)?mma\b", "instructions: the emulator executes them"),
    (
        r"operations\.conv\.(problem|suites)",
        r"\bdepthwise\b",
        "convolutions of one channel per group, whoever computes them",
    ),
    (r"operations\.gemm\.suites", r"\bskinny\b", "the paper's products with a short side"),
)
#: FMA kernels, which several families share, read the axes that these share
SHARED = "families.common.fma."


def owner(module: str) -> str:
    """The folder of the family that a module belongs to; empty: none."""
    package, _, rest = module.partition(".")
    folder = rest.partition(".")[0]
    return folder if package == "families" and folder in FAMILIES else ""


def named(text: str, own: str = "") -> set[str]:
    """The families that a text names, without those of the folder ``own``."""
    names = set(NAME.findall(INSTRUCTION.sub("", text)))
    return {name for name in names if not (own and (name == own or name.startswith(f"{own}_")))}


def strings(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """The pair (line, text) of each string of a module but docstrings."""
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def attributes(nodes: Iterable[ast.AST]) -> set[str]:
    """The attributes that a module reads of variables named ``c``, ``config`` or ``columns``."""
    read = [node for node in nodes if isinstance(node, ast.Attribute)]
    return {n.attr for n in read if isinstance(n.value, ast.Name) and n.value.id in ("c", "config", "columns")}


def family_queries(text: str) -> list[str]:
    """Comparisons of a family with one that is named, and look-ups of one by name."""
    return re.findall(
        r"family\w*(?:\.code|\.name)?\s*(?:==|!=|in)\s*[\[(]?[\"'\d].*|FAMILIES(?:\.index\(|\[)[\"'].*", text
    )


OUTSIDE = sorted(m for m in modules() if not m.startswith("emulator") and not owner(m))


def test_modules_outside_the_families_read_common_axes() -> None:
    own = set(AXIS) - set(COMMON)
    used = {m: attributes(nodes(m)) & own for m in OUTSIDE if not m.startswith(SHARED)}
    assert {m: axes for m, axes in used.items() if axes} == {}


def test_modules_outside_the_families_ask_for_no_family() -> None:
    queries = {m: family_queries(modules()[m].read_text()) for m in OUTSIDE}
    assert {m: lines for m, lines in queries.items() if lines} == {}


def family_names_in(module: str) -> list[str]:
    """The strings of a module that name families, without its own and words with other meanings."""
    own, names = owner(module), []
    for line, text in strings(nodes(module)):
        for where, words, _ in OTHER_MEANINGS:
            text = re.sub(words, "", text) if re.fullmatch(where, module) else text
        if named(text, own):
            names.append(f"{module}, line {line}: {text!r}")
    return names


def test_modules_name_no_family_but_their_own() -> None:
    assert [name for module in modules() for name in family_names_in(module)] == []


@pytest.mark.parametrize(("where", "words", "meaning"), OTHER_MEANINGS)
def test_words_with_another_meaning_occur(where: str, words: str, meaning: str) -> None:
    texts = [text for m in modules() if re.fullmatch(where, m) for _, text in strings(nodes(m))]
    assert any(re.search(words, text) for text in texts), meaning


def test_families_are_imported_by_the_registry_alone() -> None:
    """``families/__init__.py`` registers them; a family imports no other one."""
    importers = [
        f"{modules()[m].relative_to(ROOT)}:{line} imports {other}"
        for m in modules()
        for line, other in own_imports(m)
        if m != "families" and owner(other) not in ("", owner(m))
    ]
    assert not importers


def template_owner(path: Path) -> str:
    """The family whose name a template's begins with; empty: none."""
    return next((name for name in FAMILIES if path.stem == name or path.stem.startswith(f"{name}_")), "")


def test_templates_name_no_family_but_their_own() -> None:
    """Neither in text nor by templates that belong to a family. Comments of Mako may name some."""
    wrong = {}
    for path in sorted((ROOT / "templates").rglob("*.mako")):
        code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("##"))
        own = template_owner(path)
        used = {template_owner(Path(name)) for name in re.findall(r"[\w/]+\.mako", code)}
        if others := named(code, own) | used - {"", own}:
            wrong[path.name] = others
    assert not wrong


def test_checks_find_violations() -> None:
    assert attributes(ast.walk(ast.parse("x = c.long_n + config.ml"))) == {"long_n", "ml"}
    for wrong in ('if c.family == "mma":', "rows = c.family == 1", 'code = FAMILIES.index("simt")', 'FAMILIES["mma"]'):
        assert family_queries(wrong), wrong
    assert family_queries("rows = c.family == code") == []
    for wrong in ("family=wgmma", "simt and mma read tables", "ptxgen.families.mma.plan:MmaPlan", "winograd_4x4"):
        assert named(wrong), wrong
    for right in ("mma.sync", "wgmma.mma_async", "mma_order", "a simtified word"):
        assert not named(right), right
    assert named("winograd and winograd_4x4", "winograd") == set()
    assert named("winograd and mma", "winograd") == {"mma"}
    assert [text for _, text in strings([*ast.walk(ast.parse('"""simt"""\nx = f"mma {x}"'))])] == ["mma "]
