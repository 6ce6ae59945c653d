"""Arrays of integers as text with one character per number, which xz compresses almost to the entropy of the numbers.

JSON text of decimal digits takes twice the space.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FIRST = 0x80  #: the code point of 0; JSON escapes none from here on, and each number below 1,920 takes two bytes
MOST = 0xD7FF - FIRST  #: the largest number; the next code points are surrogates, which are no characters


def text_of(values: ArrayLike) -> str:
    """The text of ``values``, integers from 0 to MOST."""
    return (np.asarray(values, np.int64).ravel() + FIRST).astype("<u4").tobytes().decode("utf-32-le")


def numbers(text: str) -> NDArray[np.int64]:
    """The integers of a text that ``text_of`` made. ValueError, TypeError: it is no such text."""
    if not isinstance(text, str):
        raise TypeError(f"a column is of type {type(text).__name__}; it must be text")
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int64)
    if len(codes) and codes.min() < FIRST:
        raise ValueError(f"a column has the code point {codes.min()}; it must have code points from {FIRST} on")
    return codes - FIRST


def signed_text(values: ArrayLike) -> str:
    """The text of integers of magnitude up to MOST // 2: 0, −1, 1, −2, … are the numbers 0, 1, 2, 3, …"""
    whole = np.asarray(values, np.int64)
    return text_of(np.where(whole < 0, -2 * whole - 1, 2 * whole))


def signed_numbers(text: str) -> NDArray[np.int64]:
    """The integers of a text that ``signed_text`` made. ValueError, TypeError: it is no such text."""
    each = numbers(text)
    return np.where(each % 2 == 1, -(each + 1) // 2, each // 2)
