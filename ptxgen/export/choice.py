"""Prunes the model's trees to the exported configurations, and adapts their thresholds to features computed in C.

A feature that is a logarithm is compared before the logarithm: ``log2(x) < t`` in float32 is ``x < y``, where y is the
least number whose ``log2`` is not less than t. So C needs no logarithm that rounds as NumPy's does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxgen.export.general import General
from ptxgen.export.symbol import Branch, Leaf, number
from ptxgen.expr.node import Node
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.model.model_trees import forest_of

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Trees:
    """The pruned trees. ``names``: the names of the compared features; ``nodes``: one tuple a node (feature index,
    threshold or leaf value, left child, right child), where left child 0 marks a leaf; ``roots``: the index of each
    tree's root; ``base``: the first term of the sum of the trees."""

    names: tuple[str, ...]
    nodes: list[tuple[int, float, int, int]]
    roots: list[int]
    base: float


@dataclass(frozen=True)
class Score:
    """The score of one configuration. ``fixed``: the value of each feature that is the same for all shapes; ``tree``:
    the expressions of the other features and of the baseline; ``learnt``: True if the model has trees of its family."""

    fixed: list[float]
    tree: Leaf | Branch
    learnt: bool


def leaves(tree: Leaf | Branch) -> Iterator[Leaf]:
    """The leaves of a tree whose computation did not fail."""
    if isinstance(tree, Leaf):
        if tree.form is not None:
            yield tree
    else:
        yield from leaves(tree.yes)
        yield from leaves(tree.no)


def least_of_log2(thresholds: Floats) -> Floats:
    """For each threshold t, the least float32 y with ``np.log2(y) >= t``."""
    low, high = np.ones(len(thresholds), np.uint32), np.full(len(thresholds), 0x7F7FFFFF, np.uint32)
    while (low < high).any():
        middle = low + (high - low) // 2
        reached = np.log2(middle.view(np.float32)) >= thresholds
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return low.view(np.float32)


def compiled(model: Model, configurations: Sequence[General]) -> tuple[Trees, list[Score]]:
    """The trees that ``configurations`` need, and the score of each."""
    known = [g for g in configurations if g.learnt]
    names = model.names
    if not known:
        return Trees((), [], [], 0.0), [Score([], g.score, False) for g in configurations]
    logarithm = np.zeros(len(names), bool)
    for leaf in (leaf for g in known for leaf in leaves(g.score)):
        logarithm |= np.array(leaf.form)
    values = [_values(g.score, logarithm) for g in known]
    fixed = [[_constant([row[i] for row in rows]) for i in range(len(names))] for rows in values]
    forest = forest_of(model.booster)
    thresholds = [_thresholds(tree, logarithm) for tree in forest["trees"]]
    nodes: list[tuple[int, float, int, int]] = []
    roots = [_pruned(tree, t, fixed, nodes) for tree, t in zip(forest["trees"], thresholds, strict=True)]
    used = sorted({feature for feature, _, left, _ in nodes if left})
    place = {feature: i for i, feature in enumerate(used)}
    nodes = [(place[f] if left else 0, value, left, right) for f, value, left, right in nodes]
    trees = Trees(tuple(names[i] for i in used), nodes, roots, float(np.float32(forest["base"])))
    scores = []
    of_known = iter(fixed)
    for g in configurations:
        if not g.learnt:
            scores.append(Score([0.0] * len(used), g.score, False))
            continue
        own = next(of_known)
        varying = [i for i in used if own[i] is None]
        tree = _picked(g.score, logarithm, [*varying, len(names)], tuple(place[i] for i in varying))
        scores.append(Score([own[i] or 0.0 for i in used], tree, True))
    return trees, scores


def _values(tree: Leaf | Branch, logarithm: NDArray[np.bool_]) -> list[list[Node]]:
    """The features of each leaf, as trees compare them."""
    return [_compared(leaf, logarithm) for leaf in leaves(tree)]


def _compared(leaf: Leaf, logarithm: NDArray[np.bool_]) -> list[Node]:
    """The features of a leaf. If a feature is a constant here and a logarithm in other leaves, its constant is replaced
    by the number with that logarithm."""
    out = list(leaf.numbers[:-1])
    for i in np.flatnonzero(logarithm & ~np.array(leaf.form)):
        out[i] = number(np.float32(least_of_log2(np.array([out[i].value], np.float32))[0]))
    return out


def _constant(nodes: list[Node]) -> float | None:
    """The value of a feature, given its expression in each leaf; None: the value depends on the shape."""
    values = {x.value if x.op == "constant" else None for x in nodes}
    return float(next(iter(values))) if len(values) == 1 and None not in values else None  # type: ignore[arg-type]


def _thresholds(tree: dict[str, list[float]], logarithm: NDArray[np.bool_]) -> Floats:
    value, feature = np.array(tree["value"], np.float32), np.array(tree["feature"])
    chosen = logarithm[feature] & (np.array(tree["left"]) != -1)
    value[chosen] = least_of_log2(value[chosen])
    return value


def _pruned(
    tree: dict[str, list[int]], value: Floats, fixed: list[list[float | None]], out: list[tuple[int, float, int, int]]
) -> int:
    """Appends the nodes of a tree that a configuration can reach, and returns the index of the root."""

    def visit(i: int, rows: list[list[float | None]]) -> int:
        left, right, feature = tree["left"][i], tree["right"][i], tree["feature"][i]
        if left == -1:
            out.append((0, float(value[i]), 0, 0))
            return len(out) - 1
        to_left = [row for row in rows if row[feature] is None or row[feature] < value[i]]
        to_right = [row for row in rows if row[feature] is None or row[feature] >= value[i]]
        if not to_left or not to_right:
            return visit(left if to_left else right, rows)
        at = len(out)
        out.append((0, 0.0, 0, 0))
        children = visit(left, to_left), visit(right, to_right)
        out[at] = (feature, float(value[i]), *children)
        return at

    return visit(0, fixed)


def _picked(
    tree: Leaf | Branch, logarithm: NDArray[np.bool_], features: list[int], form: tuple[int, ...]
) -> Leaf | Branch:
    """``tree`` with only ``features`` and the baseline in its leaves. ``form``: the indices of these features in C."""
    if isinstance(tree, Branch):
        return Branch(
            tree.condition,
            _picked(tree.yes, logarithm, features, form),
            _picked(tree.no, logarithm, features, form),
        )
    if tree.form is None:
        return tree
    numbers = [*_compared(tree, logarithm), tree.numbers[-1]]
    return Leaf(form, tuple(numbers[i] for i in features))
