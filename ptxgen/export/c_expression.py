"""Expressions in C: the text of symbols' nodes, common parts once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ptxgen.export.symbol import BOOL, DOUBLE, FLOAT, INTEGER, Branch, Leaf, Node

#: in the texts of a leaf's form, marks the number with an index
MARK = re.compile("\x00([0-9]+)\x00")
_INFIX = {"+", "-", "*", "/", "<", "<=", "==", "<<", ">>"}
_INTEGER_FUNCTIONS = {"//": "floor_div", "%": "floor_mod", "max": "max_integer", "min": "min_integer"}
_FLOAT_FUNCTIONS = {"max": "max_double", "min": "min_double", "ceil": "ceil", "floor": "floor", "sqrt": "sqrt"}
#: rounded once to the type of the expression
_ROUNDED = {"log2": "log2", "pow": "pow", "hypot": "root_of_squares"}


def mark(index: int) -> str:
    """The mark of number ``index`` in the text of a form."""
    return f"\x00{index}\x00"


class Expressions:
    """The C text of nodes. Nodes with several uses are local variables, which ``definitions`` defines in order."""

    def __init__(self, roots: Iterable[Node], shape: str) -> None:
        """``shape``: the text before the name of a variable."""
        self.definitions: list[str] = []
        self._names: dict[Node, str] = {}
        uses: Counter[Node] = Counter()
        order: dict[Node, None] = {}
        for root in roots:
            _count(root, uses, order)
        for x in order:
            if x.op == "variable":
                self._define(x, x.value, f"{shape}{x.value}")
            elif x.op != "constant" and uses[x] > 1:
                self._define(x, f"t{len(self._names)}", self._text(x))

    def _define(self, x: Node, name: str, text: str) -> None:
        self.definitions.append(f"const {x.kind} {name} = {text};")
        self._names[x] = name

    def __call__(self, x: Node) -> str:
        """The expression of a node."""
        return self._names.get(x) or self._text(x)

    def _text(self, x: Node) -> str:
        if x.op == "constant":
            return literal(x)
        a = [self(y) for y in x.arguments]
        if x.op == "select":
            return f"({a[0]} ? {a[1]} : {a[2]})"
        if x.op == "cast":
            return f"({x.kind}){a[0]}"
        if x.op == "not":
            return f"!{a[0]}"
        if x.op == "neg":
            return f"-({a[0]})"
        if x.op in _INFIX:
            return f"({a[0]} {x.op} {a[1]})"
        if x.op in ("&", "|"):
            return f"({a[0]} {2 * x.op if x.kind == BOOL else x.op} {a[1]})"
        if x.op in _ROUNDED:
            text = f"{_ROUNDED[x.op]}({', '.join(a)})"
            return f"(float){text}" if x.kind == FLOAT else text
        if x.kind == INTEGER:
            return f"{_INTEGER_FUNCTIONS.get(x.op, x.op)}({', '.join(a)})"
        name = _FLOAT_FUNCTIONS[x.op]
        return f"{name}({', '.join(a)})" if x.kind == DOUBLE else f"(float){name}({', '.join(a)})"


def _count(x: Node, uses: Counter[Node], order: dict[Node, None]) -> None:
    uses[x] += 1
    if uses[x] > 1:
        return
    for y in x.arguments:
        _count(y, uses, order)
    order[x] = None


def literal(x: Node) -> str:
    """The C constant of a node."""
    if x.kind in (INTEGER, BOOL):
        n = int(x.value)
        return str(n) if abs(n) < 1 << 31 else f"INT64_C({n})"
    return float(x.value).hex() + ("f" if x.kind == FLOAT else "")


def comment(text: str) -> str:
    """``text`` within a C comment: it neither ends the comment nor begins another."""
    return text.replace("*/", "* /").replace("/*", "/ *")


def nodes_of(tree: Leaf | Branch) -> list[Node]:
    """The conditions and numbers of a tree."""
    if isinstance(tree, Leaf):
        return list(tree.numbers)
    return [tree.condition, *nodes_of(tree.yes), *nodes_of(tree.no)]


def block(tree: Leaf | Branch, lines: Callable[[Leaf, Sequence[str]], list[str]], shape: str) -> list[str]:
    """The statements of a tree: definitions, then those of its leaves, within their conditions. ``lines(leaf,
    numbers)``: the statements of a leaf with the texts of its numbers; ``shape``: as ``Expressions``."""
    text = Expressions(nodes_of(tree), shape)
    return [*text.definitions, *_block(tree, lines, text)]


def _block(tree: Leaf | Branch, lines: Callable[[Leaf, Sequence[str]], list[str]], text: Expressions) -> list[str]:
    if isinstance(tree, Leaf):
        return lines(tree, [text(x) for x in tree.numbers])
    inner = [_block(side, lines, text) for side in (tree.yes, tree.no)]
    yes, no = ([f"    {line}" for line in side] for side in inner)
    return [f"if ({text(tree.condition)}) {{", *yes, "} else {", *no, "}"]
