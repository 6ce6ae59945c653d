"""Arithmetic that takes integers or NumPy columns alike."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: a number of one configuration, or a column of those of many
IntOrColumn = int | NDArray[np.int64]
BoolOrColumn = bool | NDArray[np.bool_]

WARP = 32  #: threads of a warp
SECTOR = 32  #: bytes of one global memory transaction


def where(condition: Any, x: Any, y: Any) -> Any:
    """``np.where`` for a column of conditions; ``x if condition else y`` for one, or if all rows of a grid have it."""
    if isinstance(condition, np.ndarray) and (condition.size != 1 or condition.ndim < 2):
        return np.where(condition, x, y)
    return x if condition else y


def float32(x: Any) -> Any:
    """``x`` as float32: a number, a column, or another object with ``astype``."""
    return x.astype(np.float32, copy=False) if hasattr(x, "astype") else np.float32(x)


def float64(x: Any) -> Any:
    """``x`` as float64, likewise."""
    return x.astype(np.float64, copy=False) if hasattr(x, "astype") else np.float64(x)


def integer(x: Any) -> Any:
    """``x``, as an integer of Python if it is one of NumPy."""
    return int(x) if isinstance(x, np.integer) else x


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def power_of_two_in(n: Any) -> Any:
    """The greatest power of two that divides ``n``; 0 for 0."""
    return n & -n


def register_cap(d: Any, threads: Any, resident: Any) -> Any:
    """Registers that a thread may have when ``resident`` blocks must fit on a multiprocessor."""
    return np.minimum(d.registers_thread, d.registers_sm // np.maximum(threads * resident, 1) & -8)


def log2(n: int) -> int:
    """The exponent of a power of two. ValueError: it is none."""
    if n <= 0 or n & (n - 1):
        raise ValueError(f"{n} is not a power of two")
    return n.bit_length() - 1


class _Derived:
    """A property of a part that another attribute gives, ``name``, as ``lanes`` or ``config.u``."""

    def __init__(self, name: str) -> None:
        self._read = attrgetter(name)


class Log2(_Derived):
    """``log2_lanes = Log2("lanes")``: the exponent of a power of two."""

    def __get__(self, part: Any, owner: type) -> int:
        return log2(self._read(part))


class Last(_Derived):
    """``last_lane = Last("lanes")``: the last of so many numbers that begin at 0."""

    def __get__(self, part: Any, owner: type) -> int:
        return int(self._read(part)) - 1


#: ``lane_mask = Mask("lanes")``: the bits of numbers below a power of two
Mask = Last
