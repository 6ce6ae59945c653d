"""Arithmetic that takes integers or NumPy columns alike."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: a number of one configuration, or a column of the numbers of many configurations
IntOrColumn = int | NDArray[np.int64]
BoolOrColumn = bool | NDArray[np.bool_]

WARP = 32  #: threads of a warp
SECTOR = 32  #: bytes of one global memory transaction


def where(condition: Any, x: Any, y: Any) -> Any:
    """``np.where(condition, x, y)`` for a column of conditions; ``x if condition else y`` for a single condition, or
    for an array of several dimensions with one element."""
    if isinstance(condition, np.ndarray) and (condition.size != 1 or condition.ndim < 2):
        return np.where(condition, x, y)
    return x if condition else y


def float32(x: Any) -> Any:
    """``x`` as float32: a number, a column, or another object with ``astype``."""
    return x.astype(np.float32, copy=False) if hasattr(x, "astype") else np.float32(x)


def float64(x: Any) -> Any:
    """``x`` as float64: a number, a column, or another object with ``astype``."""
    return x.astype(np.float64, copy=False) if hasattr(x, "astype") else np.float64(x)


def integer(x: Any) -> Any:
    """``x``, converted to a Python integer if it is a NumPy integer."""
    return int(x) if isinstance(x, np.integer) else x


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def power_of_two_in(n: Any) -> Any:
    """The greatest power of two that divides ``n``; 0 for 0."""
    return n & -n


def register_cap(d: Any, threads: Any, resident: Any) -> Any:
    """The most registers per thread with which ``resident`` blocks of ``threads`` threads fit on a multiprocessor."""
    return np.minimum(d.registers_thread, d.registers_sm // np.maximum(threads * resident, 1) & -8)


def log2(n: int) -> int:
    """The exponent of a power of two. ValueError: ``n`` is not a power of two."""
    if n <= 0 or n & (n - 1):
        raise ValueError(f"{n} is not a power of two")
    return n.bit_length() - 1


class _Derived:
    """The base of properties that are computed from another attribute. ``name``: its name, as ``lanes`` or
    ``config.u``."""

    def __init__(self, name: str) -> None:
        self._read = attrgetter(name)


class Log2(_Derived):
    """A property with the exponent of a power of two: ``log2_lanes = Log2("lanes")``."""

    def __get__(self, part: Any, owner: type) -> int:
        return log2(self._read(part))


class Last(_Derived):
    """A property with the last of ``lanes`` indices from 0, which is ``lanes`` - 1: ``last_lane = Last("lanes")``."""

    def __get__(self, part: Any, owner: type) -> int:
        return int(self._read(part)) - 1


#: a property with the bit mask of numbers below a power of two: ``lane_mask = Mask("lanes")``
Mask = Last
