"""The pattern of a sparse matrix: the places of its nonzeros."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ptxgen.operations.spmm.random_numbers import Ints


@dataclass(frozen=True)
class Pattern:
    """The places of the nonzeros of a matrix of ``k`` columns in CSR: row ``i`` has the columns
    ``indices[indptr[i]:indptr[i + 1]]``."""

    k: int
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]

    @property
    def m(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)

    @property
    def lengths(self) -> Ints:
        wide: Ints = self.indptr.astype(np.int64)
        return wide[1:] - wide[:-1]


def empty(m: int, k: int) -> Pattern:
    return Pattern(k, np.zeros(m + 1, np.int32), np.zeros(0, np.int32))


def from_lengths(k: int, lengths: Ints, indices: Ints) -> Pattern:
    """The pattern whose rows have these lengths. ``indices``: the columns, one row after the other."""
    return Pattern(k, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), indices.astype(np.int32))


def from_places(m: int, k: int, places: Ints, repeated: bool = False) -> Pattern:
    """The pattern with the given places, row · k + column, in any order. ``places`` is sorted in place. Repeated places
    are dropped unless ``repeated``."""
    places.sort()
    if not repeated and len(places):
        places = places[np.concatenate([[True], places[1:] != places[:-1]])]
    starts = np.searchsorted(places, np.arange(m + 1, dtype=np.int64) * k)
    lengths = starts[1:] - starts[:-1]
    return from_lengths(k, lengths, places - np.repeat(np.arange(m, dtype=np.int64) * k, lengths))


def transposed(p: Pattern) -> Pattern:
    """The pattern of the transpose. The columns of its rows are in the order of the rows of ``p``."""
    order = np.argsort(p.indices, kind="stable")
    rows = np.repeat(np.arange(p.m, dtype=np.int64), p.lengths)
    return from_lengths(p.m, np.bincount(p.indices, minlength=p.k).astype(np.int64), rows[order])


def digest(p: Pattern) -> str:
    """16 hexadecimal digits that identify the shape, the row pointers and the columns of a pattern."""
    state = blake2b(np.array([p.m, p.k], "<i8").tobytes(), digest_size=8)
    state.update(p.indptr.astype("<i8").tobytes())
    state.update(p.indices.astype("<i4").tobytes())
    return state.hexdigest()
