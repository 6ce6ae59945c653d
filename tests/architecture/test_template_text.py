"""Templates write instructions; Python decides numbers and names. The numbers that are recorded here may only fall."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from textwrap import indent

import pytest
from mako import parsetree
from mako.lexer import Lexer

from .source import ROOT

TEMPLATES = ROOT / "templates"
#: templates that write PTX
OF_PTX = sorted(p for p in TEMPLATES.rglob("*.mako") if "export" not in p.parts)

#: ``${…}`` and statements of ``<% %>`` that compute
COMPUTED = 22
#: ``% for`` and ``% if`` that compute
COMPUTED_IN_CONTROL = 108
#: conditions that a template has at least three times
REPEATED = 8

#: names that Mako has for templates, and parameters that are one: calls of their definitions write text
NAMESPACES = {"self", "local", "parent", "next", "caller", "addr", "copy", "math", "pipeline", "store_c", "store_op"}
CONTROL = re.compile(r"^( *)%(?!%)\s*(?:(end)?(for|if|while)|(elif|else))\b")
INDENT = "  "


def nodes(template: parsetree.TemplateNode) -> Iterator[parsetree.Node]:
    """Every node of a template once. The lexer lists what follows a control line beside it and within it."""
    waiting = [template]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, parsetree.ControlLine):
            waiting += getattr(node, "nodes", [])


def is_text(code: ast.expr) -> bool:
    return isinstance(code, ast.JoinedStr) or (isinstance(code, ast.Constant) and isinstance(code.value, str))


def computes(tree: ast.AST, namespaces: set[str]) -> bool:
    """True if Python code has an arithmetic operator between names or numbers, a conditional expression, a
    comprehension, or a method call with arguments. Definitions of a namespace are no methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return True
        if isinstance(node, ast.BinOp) and not (is_text(node.left) or is_text(node.right)):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (node.args or node.keywords):
            owner: ast.expr = node.func
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if not (isinstance(owner, ast.Name) and owner.id in namespaces):
                return True
    return False


def places(text: str) -> tuple[list[str], list[str]]:
    """The code that computes: of ``${…}`` and of statements in ``<% %>``; of control lines."""
    listed = list(nodes(Lexer(text).parse()))
    named = (n.attributes.get("name") for n in listed if isinstance(n, parsetree.NamespaceTag))
    namespaces = {*NAMESPACES, *(name for name in named if name)}
    written: list[str] = []
    control: list[str] = []
    for node in listed:
        if isinstance(node, parsetree.Expression):
            code, into = f"({node.text.strip()})", written
        elif isinstance(node, parsetree.Code):
            code, into = node.text, written
        elif isinstance(node, parsetree.ControlLine) and not node.isend and not node.text.startswith("else"):
            code, into = re.sub(r"^elif\b", "if", node.text.strip()) + "\n pass", control
        else:
            continue
        tree = ast.parse("def definition():\n" + indent(code.strip(), " "))
        body = tree.body[0]
        assert isinstance(body, ast.FunctionDef)
        into += [ast.unparse(statement) for statement in body.body if computes(statement, namespaces)]
    return written, control


def of_all() -> tuple[Counter[str], Counter[str]]:
    """Template -> its places, by kind."""
    written, control = Counter[str](), Counter[str]()
    for path in OF_PTX:
        name = str(path.relative_to(TEMPLATES))
        here, there = places(path.read_text())
        written[name], control[name] = len(here), len(there)
    return written, control


def lowered(what: str, recorded: int, counted: Counter[str]) -> str:
    now = counted.total()
    most = ", ".join(f"{name} {n}" for name, n in islice(counted.most_common(), 8))
    change = "a property of the plan's part gives the number" if now > recorded else f"record {now}"
    return f"{what} is {now}; it must be {recorded}, and may only fall: {change}. Most are in {most}"


def test_python_computes_what_templates_write() -> None:
    written, control = of_all()
    assert written.total() == COMPUTED, lowered("COMPUTED", COMPUTED, written)
    assert control.total() == COMPUTED_IN_CONTROL, lowered("COMPUTED_IN_CONTROL", COMPUTED_IN_CONTROL, control)


@pytest.mark.parametrize(
    ("text", "written", "control"),
    [
        ("${x.step}${x.rows[q, 0]}${braces(x.sums)}${x.all()}", 0, 0),
        ("${4 * h}${a if b else c}${[r for r in x]}${x.vector(0)}", 4, 0),
        ('<%namespace name="radix" file="a.mako"/>${radix.divide(a, b)}${self.math.begin(a)}', 0, 0),
        ("<% a = 1\nb = a - c\nd = b.of(1) %>${d}", 2, 0),
        ("% for i in range(n // 2):\n${i}\n% endfor\n% if i:\n% elif i % 2:\n${i - 1}\n% endif\n", 1, 2),
    ],
)
def test_definition_of_computing(text: str, written: int, control: int) -> None:
    here, there = places(text)
    assert (len(here), len(there)) == (written, control)


def conditions(text: str) -> list[str]:
    """The conditions that a template has at least three times: each is a slot that is missing."""
    matches = re.findall(r"^ *% *(?:el)?if (?:not )?(.+?) *:\s*$", text, re.MULTILINE)
    return [condition for condition, n in Counter(matches).items() if n >= 3]


def test_conditions_are_not_repeated() -> None:
    counted = Counter({str(path.relative_to(TEMPLATES)): len(conditions(path.read_text())) for path in OF_PTX})
    assert counted.total() == REPEATED, lowered("REPEATED", REPEATED, counted)


def misplaced(text: str) -> list[int]:
    """The lines of control that are not indented by their depth."""
    depth, wrong = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if match := CONTROL.match(line):
            blank, end, opens, _ = match.groups()
            depth -= bool(end)
            if blank != INDENT * (depth if opens else depth - 1):
                wrong.append(number)
            depth += bool(opens and not end)
    return wrong


def test_nested_control_lines_are_indented() -> None:
    wrong = [f"{path.relative_to(TEMPLATES)}:{line}" for path in OF_PTX for line in misplaced(path.read_text())]
    assert not wrong, f"a control line inside another is indented by two more spaces than that: {wrong}"


def test_indentation_follows_the_depth() -> None:
    assert misplaced("% for i in a:\n  % if i:\n  % else:\n  % endif\n% endfor\n") == []
    assert misplaced("% for i in a:\n% if i:\n% endif\n% endfor\n") == [2, 3]
