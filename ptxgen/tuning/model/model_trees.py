"""Boosted trees as plain lists. ``tree_columns`` checks them before XGBoost loads them, because XGBoost trusts its
input: an invalid index would crash the process.

Predictions are XGBoost's: on two cores it is 12 times as fast as NumPy (32,768 rows by 150 trees). XGBoost never reads
a model file; its input is made from the checked lists, and ``model_files`` stores this input in the disk cache.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.tuning.model.tree_predictor import TreePredictor

#: the lists of a tree, indexed by node, with XGBoost's names for them: the left and right child (-1: a leaf), the
#: feature of a split (a leaf: 0), the threshold of a split (a leaf: its value), and 1 if NaN goes to the left child
LISTS = {
    "left": "left_children",
    "right": "right_children",
    "feature": "split_indices",
    "value": "split_conditions",
    "default_left": "default_left",
}
TREES_MOST, NODES_MOST = 4096, 1 << 13
FLOAT_MOST = 3.4e38
#: leaves of weighted sums are multiples of LEAF_STEP, so that files are small: the sum of 660 rounding errors has a
#: standard deviation of 0.0036 in log2 of the time
LEAF_STEP, LEAF_MOST = 2.0**-11, 6.0
Forest = dict[str, Any]  #: ``base``: the first term of the sum; ``trees``: each tree by its ``LISTS``


def weighted_sum(boosters: Mapping[Any, float], features: int, constant: Collection[int] = ()) -> TreePredictor:
    """A booster that predicts the weighted sum of the predictions of ``boosters``, which have their weights as values.
    The trees of the boosters alternate, so that the first trees approximate the sum; then ``ranking_first`` orders
    them."""
    forests = [forest_of(booster) for booster in boosters]
    for forest, weight in zip(forests, boosters.values(), strict=True):
        forest["base"] *= weight
        for tree in forest["trees"]:
            leaf = np.asarray(tree["left"]) == -1
            value = np.asarray(tree["value"])
            tree["value"] = np.where(leaf, rounded_leaves(value * weight), value).tolist()
    trees = [tree for row in zip_longest(*(f["trees"] for f in forests)) for tree in row if tree is not None]
    forest = {"base": sum(f["base"] for f in forests), "trees": trees}
    return booster_of(ranking_first(forest, constant), features)


def rounded_leaves(values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The multiples of LEAF_STEP nearest to ``values``, of magnitude up to LEAF_MOST."""
    out: NDArray[np.floating[Any]] = np.rint(np.clip(values, -LEAF_MOST, LEAF_MOST) / LEAF_STEP) * LEAF_STEP
    return out


def ranking_first(forest: Forest, constant: Collection[int]) -> Forest:
    """The same trees in another order: those that split only by the features ``constant``, which are equal for all
    configurations of a problem, come last, so that the first trees rank configurations."""

    fixed = set(constant)

    def ranks(tree: dict[str, Any]) -> bool:
        split = np.asarray(tree["left"]) != -1
        return not fixed.issuperset(np.asarray(tree["feature"])[split].tolist())

    return {**forest, "trees": sorted(forest["trees"], key=lambda tree: not ranks(tree))}


def forest_of(booster: Any) -> Forest:
    """The trees of a trained booster."""
    learner = json.loads(bytes(booster.save_raw(raw_format="json")))["learner"]
    base = learner["learner_model_param"]["base_score"].strip("[]")  # since 3.1: a list of one
    trees = learner["gradient_booster"]["model"]["trees"]
    return {"base": float(base), "trees": [{ours: tree[theirs] for ours, theirs in LISTS.items()} for tree in trees]}


def booster_of(forest: Forest, features: int) -> TreePredictor:
    """A booster that predicts by these trees, whose indices must be valid."""
    return loaded(content_of(forest, features))


def loaded(content: bytes) -> TreePredictor:
    """The predictor of trees that ``content_of`` wrote. The content must be trusted: XGBoost does not check it."""
    return TreePredictor(content)


def content_of(forest: Forest, features: int) -> bytes:
    """The trees, whose indices must be valid, as the content of an XGBoost file."""
    trees = [_xgboost(number, tree, features) for number, tree in enumerate(forest["trees"])]
    model = {
        "version": [3, 0, 0],
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(len(trees) + 1)),
                    "tree_info": [0] * len(trees),
                    "trees": trees,
                },
            },
            "learner_model_param": {
                "base_score": repr(forest["base"]),
                "boost_from_average": "0",
                "num_class": "0",
                "num_feature": str(features),
                "num_target": "1",
            },
            "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
        },
    }
    return _ubjson(model)


def _xgboost(number: int, tree: dict[str, Any], features: int) -> dict[str, Any]:
    left, right, feature, default_left = (
        np.asarray(tree[name], np.int64) for name in ("left", "right", "feature", "default_left")
    )
    count, split = len(left), left != -1
    parents = np.full(count, 2**31 - 1)
    for children in (left, right):
        parents[children[split]] = np.flatnonzero(split)
    integers = {"left_children": left, "right_children": right, "parents": parents, "split_indices": feature * split}
    none, zeros = np.zeros(0), np.zeros(count)
    return {
        **{name: column.astype(">i4") for name, column in integers.items()},
        "split_conditions": np.asarray(tree["value"], ">f4"),
        "default_left": default_left.astype("u1"),
        "split_type": zeros.astype("u1"),
        "id": number,
        **{name: zeros.astype(">f4") for name in ("base_weights", "loss_changes", "sum_hessian")},
        **{name: none.astype(">i4") for name in ("categories", "categories_nodes")},
        **{name: none.astype(">i8") for name in ("categories_segments", "categories_sizes")},
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(features),
            "num_nodes": str(count),
            "size_leaf_vector": "1",
        },
    }


#: the type markers of UBJSON
MARKERS = {">i4": b"l", ">i8": b"L", ">f4": b"d", "|u1": b"U"}


def _ubjson(value: Any) -> bytes:
    """``value`` as UBJSON, which XGBoost reads faster than JSON, because arrays of numbers are big-endian bytes."""
    if isinstance(value, dict):
        return b"{" + b"".join(_counted(name.encode()) + _ubjson(item) for name, item in value.items()) + b"}"
    if isinstance(value, str):
        return b"S" + _counted(value.encode())
    if isinstance(value, int):
        return b"L" + struct.pack(">q", value)
    if isinstance(value, list):
        return b"[#L" + struct.pack(">q", len(value)) + b"".join(map(_ubjson, value))
    numbers: bytes = value.tobytes()
    return b"[$" + MARKERS[value.dtype.str] + b"#L" + struct.pack(">q", len(value)) + numbers


def _counted(text: bytes) -> bytes:
    return b"L" + struct.pack(">q", len(text)) + text
