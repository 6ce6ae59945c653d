"""Fragments: the matrix elements in the registers of each lane, for the matrix instructions of one warp.

The fragment layouts of mma in the PTX ISA follow one pattern. With g = lane / 4 and t = lane % 4:

A  register r holds E elements of row g + 8 * (r % 2) from column E * t + 4 * E * (r / 2) on;
   if M is 8, of row g from column E * t + 4 * E * r on;
B  register r holds E elements of column g from row E * t + 4 * E * r on;
C  element i is at row g + 8 * (i / 2), column 2 * t + i % 2; f16 packs two elements into a register.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


LANE = np.arange(32)[None, :, None]


GROUP, THREAD = LANE // 4, LANE % 4


@dataclass(frozen=True, eq=False)
class Fragment:
    """The layout of a fragment: ``row`` and ``column`` of each element, as arrays over register, lane and element
    within the register."""

    row: Array
    column: Array

    @property
    def registers(self) -> int:
        return len(self.row)

    @property
    def packed(self) -> int:
        """The number of elements of a register."""
        return int(self.row.shape[2])

    @property
    def index(self) -> Array:
        """For each element of the matrix, its index in the order register, lane, element of the register."""
        out = np.full((self.row.max() + 1, self.column.max() + 1), -1)
        out[self.row, self.column] = np.arange(self.row.size).reshape(self.row.shape)
        return out


def _axes(registers: int, packed: int) -> tuple[Array, Array]:
    return np.arange(registers)[:, None, None], np.arange(packed)[None, None, :]


@cache
def operand_a(m: int, k: int, packed: int) -> Fragment:
    """The layout of A, m by k, with ``packed`` elements per register; m is 8 or a multiple of 16, whose first 16 rows
    come first."""
    r, e = _axes(m * k // (32 * packed), packed)
    block, r = divmod(r, k * min(m, 16) // (32 * packed))
    high, right = (r % 2, r // 2) if m >= 16 else (0 * r, r)
    return _fragment(GROUP + 8 * high + 16 * block + 0 * e, packed * THREAD + e + 4 * packed * right)


@cache
def operand_b(k: int, n: int, packed: int) -> Fragment:
    """The layout of B, k by n; n is a multiple of 8, whose first 8 columns come first."""
    r, e = _axes(k * n // (32 * packed), packed)
    block, r = divmod(r, k * 8 // (32 * packed))
    return _fragment(packed * THREAD + e + 4 * packed * r, GROUP + 8 * block + 0 * e)


@cache
def accumulator(m: int, n: int, packed: int) -> Fragment:
    """The layout of C and D, m by n; n is a multiple of 8, whose first 8 columns come first."""
    r, e = _axes(m * n // (32 * packed), packed)
    i = packed * r + e
    return _fragment(GROUP + 8 * (i // 2 % (m // 8)), 2 * THREAD + i % 2 + 8 * (i // (m // 4)))


def _fragment(row: Array, column: Array) -> Fragment:
    row, column = np.broadcast_arrays(row, column)
    return Fragment(np.ascontiguousarray(row), np.ascontiguousarray(column))
