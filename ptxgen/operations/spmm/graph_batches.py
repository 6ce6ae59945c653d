"""Batches of graphs: the rows of all graphs follow each other in one matrix, and columns count from the first row of
their graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.random_numbers import Ints, uniform
from ptxgen.problem.reference import Array

SPREAD = 3.0  #: the largest graph has about 1 + SPREAD times the rows of the smallest


def graph_ends(m: int, groups: int) -> Ints:
    """The end of the rows of each graph. The graphs have random sizes, which are the same in every process, and
    together all rows."""
    shares = np.cumsum(1 + SPREAD * uniform(0, 0, np.arange(groups)))
    ends: Ints = np.floor(shares / shares[-1] * m + 0.5).astype(np.int64)
    ends[-1] = m
    return ends


def first_rows(indptr: Array, ends: Array) -> tuple[Ints, Ints]:
    """For each nonzero, the first row of its graph, and the number of rows of the graph."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    wide = np.concatenate([[0], ends]).astype(np.int64)
    graph = np.searchsorted(wide[1:], rows, "right")
    return wide[graph], wide[graph + 1] - wide[graph]


def grouped_arrays(p: Spmm, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a batch of graphs: the columns of the pattern are taken modulo the number of rows of the graph."""
    ends = graph_ends(p.m, p.groups)
    rows = first_rows(arrays["indptr"], ends)[1]
    indices = (arrays["indices"] % np.maximum(rows, 1)).astype(arrays["indices"].dtype)
    return {**arrays, "indices": indices, "offsets": ends.astype(np.int32)}


def global_columns(p: Spmm, arrays: Mapping[str, Array]) -> Array:
    """The row of B of each nonzero."""
    if not p.groups:
        return arrays["indices"]
    columns: Array = arrays["indices"] + first_rows(arrays["indptr"], arrays["offsets"])[0].astype(np.int32)
    return columns
