"""Reductions of masks and marks.

A step of the emulator reduces a few short arrays. ``ndarray.any``, ``ndarray.all`` and ``numpy.flatnonzero`` run Python
code of NumPy, which takes up to ten times as long as the C functions that count and list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy._core import multiarray
from numpy.typing import NDArray

#: the number of elements that are not zero, as ``numpy.count_nonzero`` without its Python code
count_nonzero: Callable[[Any], int] = multiarray.count_nonzero


def any_true(values: Any) -> bool:
    """True if an element is not zero."""
    return count_nonzero(values) != 0


def all_true(values: Any) -> bool:
    """True if no element is zero."""
    return count_nonzero(values) == int(values.size)


def flatnonzero(values: Any) -> NDArray[Any]:
    """The positions of the elements of an array with one axis that are not zero."""
    out: NDArray[Any] = values.nonzero()[0]
    return out
