"""Writes trees of conditions, and the expressions of their symbols, as C statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ptxgen.export.symbol import Branch, Leaf
from ptxgen.expr.c_text import Expressions
from ptxgen.expr.node import Node

#: a mark in the text of a leaf's form, which stands for the leaf's number with that index
MARK = re.compile("\x00([0-9]+)\x00")


def mark(index: int) -> str:
    """The mark that stands for the leaf's number ``index`` in the text of a form."""
    return f"\x00{index}\x00"


def comment(text: str) -> str:
    """``text`` within a C comment: it neither ends the comment nor begins another."""
    return text.replace("*/", "* /").replace("/*", "/ *")


def nodes_of(tree: Leaf | Branch) -> list[Node]:
    """The conditions and numbers of a tree."""
    if isinstance(tree, Leaf):
        return list(tree.numbers)
    return [tree.condition, *nodes_of(tree.yes), *nodes_of(tree.no)]


def block(tree: Leaf | Branch, lines: Callable[[Leaf, Sequence[str]], list[str]], shape: str) -> list[str]:
    """The C statements of a tree: definitions, then nested ``if`` statements with the statements of the leaves.
    ``lines(leaf, numbers)``: the statements of a leaf, given its numbers in C; ``shape``: the C prefix of variables."""
    text = Expressions(nodes_of(tree), shape)
    return [*text.definitions, *_block(tree, lines, text)]


def _block(tree: Leaf | Branch, lines: Callable[[Leaf, Sequence[str]], list[str]], text: Expressions) -> list[str]:
    if isinstance(tree, Leaf):
        return lines(tree, [text(x) for x in tree.numbers])
    inner = [_block(side, lines, text) for side in (tree.yes, tree.no)]
    yes, no = ([f"    {line}" for line in side] for side in inner)
    return [f"if ({text(tree.condition)}) {{", *yes, "} else {", *no, "}"]
