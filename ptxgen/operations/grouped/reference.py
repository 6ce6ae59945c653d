"""The reference of groups: float64 products, and views of an item's operands in the arrays that hold those of all
items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxgen.operations.gemm.strided_arrays import A, B, C, strided
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.base import ELEMENTWISE_OPERANDS
from ptxgen.problem.operation import operation_of
from ptxgen.problem.reference import Array


def item_view(p: GroupedGemm, operand: int, memory: Array, i: int) -> Array:
    """Operand A, B or C of item ``i``, as a view of the array that holds this operand of all items."""
    shape = int(p.rows[i, operand]), int(p.columns[i, operand])
    return strided(memory[int(p.starts[i, operand]) :], shape, (int(p.lds[i, operand]), 1))


def epilogue_view(p: GroupedGemm, name: str, memory: Array, i: int) -> Array:
    """The epilogue operand ``name`` of item ``i``, as a view of the array that holds this operand of all items."""
    if name == "sums":
        return item_view(p.of_sums(), C, memory, i)
    if name in ELEMENTWISE_OPERANDS:
        return item_view(p, C, memory, i)
    starts, size = p.epilogue_sizes(name)
    return memory[int(starts[i]) : int(starts[i + 1]) if i + 1 < len(starts) else size]


def scale_views(p: GroupedGemm, arrays: Mapping[str, Array], i: int) -> dict[str, Array]:
    """The block scales of item ``i``, or the scales and zero points of its weights."""
    views = {name: arrays[name][i] for name in p.item_arrays}
    if p.scalings and p.jagged == "k":
        blocks = slice(*p.first_blocks[i : i + 2])
        for name, s in p.scalings.items():
            x = arrays[f"scale_{name.lower()}"]
            views[f"scale_{name.lower()}"] = x[blocks] if s.by_k else x[:, blocks]
    elif p.scalings and not p.jagged:
        for name in p.scalings:
            array, shape = f"scale_{name.lower()}", p.item_scale_shape(i, name)
            first = int(p.epilogue_sizes(array)[0][i])
            views[array] = arrays[array][first : first + math.prod(shape)].reshape(shape)
    elif p.scalings:
        first = int(p.extents[:i, 0].sum())
        rows, a = slice(first, first + p.items[i][0]), arrays["scale_a"]
        views["scale_a"] = a[:, rows] if p.scalings["A"].by_k else a[rows]
    return views


def product(p: GroupedGemm, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    """The float64 sums Σab and Σ|a||b| for each element of the array that holds C of all items, two for each element
    with a gated activation; zero between items."""
    each = 2 if p.gated else 1
    exact, scale = (np.zeros((each, p.sizes[C])) for _ in range(2))
    for i in range(len(p.items)):
        if p.items[i][0] and p.items[i][1]:
            views = {"A": item_view(p, A, arrays["A"], i), "B": item_view(p, B, arrays["B"], i)}
            item = p.item(i)
            sums = operation_of(item).product(item, views | scale_views(p, arrays, i))
            for n in range(each):
                for whole, part in zip((exact, scale), sums, strict=True):
                    item_view(p, C, whole[n], i)[...] = part[:, n::each]
    return exact.T.ravel(), scale.T.ravel()


def slices(p: GroupedGemm, region: Any = None) -> tuple[slice, ...]:
    """The whole result. Regions are not used: a part of a group is a smaller group."""
    return ()
