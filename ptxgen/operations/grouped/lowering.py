"""Lowers groups of products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.lowering.block_scales import with_item_scales
from ptxgen.lowering.descriptor_table import DescriptorTable, GroupExtents
from ptxgen.lowering.kernel_problem import KernelProblem, Operand
from ptxgen.lowering.sink import StoreGated, StoreTile
from ptxgen.lowering.strided import types_text
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.base import EXTENT_LIMIT, arithmetic_dtype
from ptxgen.problem.dtypes import HALVES

#: two leading dimensions, of which the first stands for all that are not larger, and the second for all others: kernels
#: for the first have 32-bit offsets
SMALL_LD, LARGE_LD = 1 << 18, EXTENT_LIMIT - 1


def lower_grouped(problem: GroupedGemm) -> KernelProblem:
    """A group as a kernel problem."""
    extents = problem.extents.astype(np.float64)
    m, n, k = (_mean(extents[:, axis], extents.prod(axis=1)) for axis in range(3))
    lds = [int(x) for x in problem.kernel_lds.max(axis=0, initial=1)]
    if not problem.jagged:
        lds = [LARGE_LD if x > SMALL_LD else SMALL_LD for x in lds]
    kmajor = {"A": problem.layout[0] == "N", "B": problem.layout[1] == "T", "C": True}
    axes = {"A": (m, k), "B": (n, k), "C": (m, n)}
    aligned = (problem.aligned_a, problem.aligned_b, problem.aligned_c)
    made = []
    types, vectors = list(problem.types), list(problem.vectors)
    if problem.gated:  # C has twice as many columns, of halves of elements
        types[2], vectors[2] = HALVES[problem.out], 2 * vectors[2]
    for name, element, ld, start, vec in zip("ABC", types, lds, aligned, vectors, strict=True):
        rows, columns = axes[name] if kmajor[name] else axes[name][::-1]
        access = DescriptorTable(
            kmajor[name], rows, columns, ld, 0, start, vec, name=name, jagged=problem.jagged, group=problem
        )
        made.append(Operand(name, element.name, access, name))
    sink = StoreGated if problem.gated else StoreTile
    group = KernelProblem(
        f"grouped_{types_text(problem.dtype, problem.dtype_b)}_{problem.layout.lower()}",
        GroupExtents(m, n, k, 1, problem, problem.jagged),
        tuple(made[:2]),
        tuple(made[2:]),
        problem.compute,
        sink(types[2].name, arithmetic_dtype(problem.compute, problem.out).name, problem.epilogue),
        deterministic=problem.deterministic,
        moved=problem.bytes,
    )
    # without products, there is nothing to scale
    return with_item_scales(group, problem.scalings, problem.scale_shapes) if problem.scalings and k else group


def _mean(extents: NDArray[np.float64], work: NDArray[np.float64]) -> int:
    """The mean of the extents of an axis, weighted by ``work``; the largest extent if there is no work."""
    total = work.sum()
    return round(float((extents * work).sum() / total)) if total else int(extents.max(initial=0))
