"""The nodes of expressions. Equal expressions are one object, which is freed with its last use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from ptxgen.expr.value_types import PRED, type_of


@dataclass(frozen=True, eq=False)
class Node:
    """An expression. ``op``: the name of an operator of ``expr.operators``, or constant, variable, cast or select;
    ``type``: the name of the type of its value; ``value``: the number of a constant, the name of a variable, else
    None."""

    op: str
    type: str
    arguments: tuple[Node, ...] = ()
    value: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.op, self.type, self.arguments, self.value)

    def __repr__(self) -> str:
        inside = [repr(self.value)] if self.value is not None else []
        return f"{self.op}.{self.type}({', '.join([*inside, *map(repr, self.arguments)])})"


_nodes: WeakValueDictionary[tuple[Any, ...], Node] = WeakValueDictionary()


def node(op: str, type: str, *arguments: Node, value: Any = None) -> Node:
    """The one node with these fields, created at its first use."""
    key = (op, type, arguments, value.__class__, repr(value))
    existing = _nodes.get(key)
    if existing is None:
        existing = _nodes[key] = Node(op, type, arguments, value)
    return existing


def _rebuilt(op: str, type: str, arguments: tuple[Node, ...], value: Any) -> Node:
    return node(op, type, *arguments, value=value)


def constant(value: Any, type: str) -> Node:
    """The node of a number. Every NaN becomes the positive quiet NaN, because nodes are equal if their values print
    alike."""
    if not type_of(type).floating:
        return node("constant", type, value=bool(value) if type == PRED else int(value))
    return node("constant", type, value=math.nan if math.isnan(value) else float(value))


def variable(name: str, type: str) -> Node:
    """The node of a value that is known when the expression is computed: an element of an array, a scalar."""
    return node("variable", type, value=name)


def select(condition: Node, yes: Node, no: Node) -> Node:
    """``yes`` where ``condition`` holds, else ``no``."""
    return yes if yes is no else node("select", yes.type, condition, yes, no)


def walk(*roots: Node) -> Iterator[Node]:
    """Every node of the expressions once, arguments before the nodes that use them."""
    done: dict[Node, None] = {}
    stack = [(x, False) for x in reversed(roots)]
    while stack:
        x, ready = stack.pop()
        if x in done:
            continue
        if ready or not x.arguments:
            done[x] = None
            yield x
        else:
            stack.append((x, True))
            stack.extend((y, False) for y in reversed(x.arguments))


def variables(*roots: Node) -> tuple[str, ...]:
    """The names of the variables of the expressions, in order of first use."""
    return tuple(dict.fromkeys(x.value for x in walk(*roots) if x.op == "variable"))


def rewritten(root: Node, change: Callable[[Node], Node]) -> Node:
    """The expression with every node replaced by what ``change`` returns for it, arguments first."""
    made: dict[Node, Node] = {}
    for x in walk(root):
        made[x] = change(node(x.op, x.type, *(made[y] for y in x.arguments), value=x.value))
    return made[root]


def substituted(root: Node, values: Mapping[str, Node]) -> Node:
    """The expression with the variables named in ``values`` replaced by the expressions given there."""
    return rewritten(root, lambda x: values.get(x.value, x) if x.op == "variable" else x)
