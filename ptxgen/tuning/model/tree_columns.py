"""Boosted trees as the columns of a model file: all structures, then all features, thresholds and leaves.

Nodes are in breadth-first order, so one bit per node, split or leaf, gives the tree: every sequence of bits that closes
its last tree is valid, and no index of a child can be wrong. A threshold is its index among the thresholds of its
feature; a leaf is a multiple of LEAF_STEP.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.tuning.model import number_text
from ptxgen.tuning.model.model_trees import FLOAT_MOST, LEAF_STEP, NODES_MOST, TREES_MOST, Forest, rounded_leaves

Columns = dict[str, Any]


def pack(forest: Forest, features: int) -> Columns:
    """The columns of trees that split by ``features`` features.

    ``base``: the first term of the sum; ``split``: by node 1 for a split, 0 for a leaf; ``feature``, ``default_left``:
    by split; ``thresholds``: by feature the number of its thresholds; ``values``: base64 of these thresholds, f32;
    ``threshold``: the index of each split's threshold, splits in the order of their features; ``leaf``: by leaf its
    multiple of LEAF_STEP.
    """
    trees = [_breadth_first(tree) for tree in forest["trees"]]
    split, feature, value, default_left = (np.concatenate(column) for column in zip(*trees, strict=True))
    inner, leaves = np.flatnonzero(split), np.flatnonzero(~split)
    tables, indices = [], []
    for number in range(features):
        table, index = np.unique(value[inner[feature[inner] == number]], return_inverse=True)
        tables.append(table)
        indices.append(index)
    return {
        "base": forest["base"],
        "split": number_text.text_of(split),
        "feature": number_text.text_of(feature[inner]),
        "default_left": number_text.text_of(default_left[inner]),
        "thresholds": [len(table) for table in tables],
        "values": base64.b64encode(np.concatenate(tables).astype("<f4").tobytes()).decode(),
        "threshold": number_text.text_of(np.concatenate(indices)),
        "leaf": number_text.signed_text(rounded_leaves(value[leaves]) / LEAF_STEP),
    }


def _breadth_first(tree: dict[str, Any]) -> tuple[NDArray[Any], ...]:
    """Splits, features, values and default directions of a tree by node, in breadth-first order."""
    left, right = np.asarray(tree["left"], np.int64), np.asarray(tree["right"], np.int64)
    order, level = [], np.zeros(1, np.int64)
    while len(level):
        order.append(level)
        inner = level[left[level] != -1]
        level = np.stack([left[inner], right[inner]], 1).ravel()
    nodes = np.concatenate(order)
    columns = np.asarray(tree["feature"]), np.asarray(tree["value"], np.float32), np.asarray(tree["default_left"])
    return left[nodes] != -1, *(column[nodes] for column in columns)


def unpack(columns: Columns, features: int) -> Forest:
    """The trees that ``pack`` made columns of, each tree by its ``LISTS`` as arrays. ValueError, TypeError, KeyError:
    a column breaks a rule, which the message names."""
    base = columns["base"]
    if not isinstance(base, float) or not abs(base) < FLOAT_MOST:
        raise ValueError(f"base is {base!r}; it must be a finite number of 32 bits")
    split = _numbers(columns, "split", 2) == 1
    ends = _ends(split)
    inner = np.flatnonzero(split)
    feature, default_left = _numbers(columns, "feature", features), _numbers(columns, "default_left", 2)
    leaf = number_text.signed_numbers(columns["leaf"])
    for name, column, count in (
        ("feature", feature, len(inner)),
        ("default_left", default_left, len(inner)),
        ("leaf", leaf, len(split) - len(inner)),
    ):
        if len(column) != count:
            raise ValueError(f"{name} has {len(column)} numbers; it must have {count}")
    value = np.empty(len(split), np.float32)
    value[split], value[~split] = _thresholds(columns, feature), leaf * LEAF_STEP
    before = np.cumsum(split) - split  # splits before each node, in all trees
    starts = np.concatenate([[0], ends[:-1]])
    by_node = np.zeros((2, len(split)), np.int64)
    by_node[:, inner] = feature, default_left
    trees = []
    for start, end in zip(starts, ends, strict=True):
        of_tree = slice(start, end)
        left = np.where(split[of_tree], 2 * (before[of_tree] - before[start]) + 1, -1)
        trees.append(
            {
                "left": left,
                "right": np.where(left == -1, -1, left + 1),
                "feature": by_node[0, of_tree],
                "value": value[of_tree],
                "default_left": by_node[1, of_tree],
            }
        )
    return {"base": base, "trees": trees}


def _ends(split: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The index after the last node of each tree. A tree ends where it has one leaf more than splits."""
    least = np.minimum.accumulate(np.concatenate([[0], np.cumsum(2 * split.astype(np.int64) - 1)]))
    ends = np.flatnonzero(np.diff(least)) + 1
    if not 1 <= len(ends) <= TREES_MOST or ends[-1] != len(split):
        raise ValueError(
            f"split has {len(ends)} whole trees in {len(split)} nodes; it must have 1 to {TREES_MOST}, and no part"
        )
    if (most := np.diff(ends, prepend=0).max()) > NODES_MOST:
        raise ValueError(f"split has a tree of {most} nodes; it must have at most {NODES_MOST}")
    return ends


def _thresholds(columns: Columns, feature: NDArray[np.int64]) -> NDArray[np.float32]:
    """The threshold of each split."""
    counts, indices = np.asarray(columns["thresholds"]), number_text.numbers(columns["threshold"])
    values = np.frombuffer(base64.b64decode(columns["values"], validate=True), "<f4")
    if counts.ndim != 1 or counts.dtype.kind != "i" or (counts < 0).any() or counts.sum() != len(values):
        raise ValueError(f"thresholds has sum {counts.sum()}; it must have counts with sum {len(values)}")
    if not (np.abs(values) < FLOAT_MOST).all():
        raise ValueError("values has a number that is infinite or NaN; it must have finite numbers of 32 bits")
    order = np.argsort(feature, kind="stable")
    if len(indices) != len(order) or (indices >= counts[feature[order]]).any():
        raise ValueError(
            f"threshold has {len(indices)} indices; it must have {len(order)}, each below the number of thresholds"
        )
    out = np.empty(len(order), np.float32)
    out[order] = values[(np.cumsum(counts) - counts)[feature[order]] + indices]
    return out


def _numbers(columns: Columns, name: str, bound: int) -> NDArray[np.int64]:
    column = number_text.numbers(columns[name])
    if len(column) and column.max() >= bound:
        raise ValueError(f"{name} has {column.max()}; it must be from 0 to {bound - 1}")
    return column
