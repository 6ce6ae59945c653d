"""Checks of single arguments. Each error names the argument and the rule."""

from __future__ import annotations

import operator
from collections.abc import Collection
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from ptxgen.errors import InputError, ShapeError

SHOWN_BITS = 128  #: errors print integers up to this number of bits, and describe larger ones
SHOWN_CHARACTERS = 120
#: least similarity of a misspelt word to a known one, unless it has the same letters in another order
SIMILAR = 0.75


def shown(value: Any) -> str:
    """``value`` as text for error messages, with at most 120 characters before "...". Integers of more than 128 bits,
    some of which Python refuses to print, are described by their number of bits."""
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:  # a container of such integers
        return f"a {type(value).__name__} with an integer of too many digits"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def plain(value: Any) -> Any:
    """``value`` in a form that can be hashed: lists and arrays become tuples, NumPy scalars become Python numbers."""
    if type(value) is int:  # nearly all are
        return value
    if hasattr(value, "tolist"):
        with suppress(RuntimeError):  # a tensor without values: the caller rejects it
            value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def is_integer(value: Any, low: int, high: int) -> bool:
    """True if ``value`` is an integer (of Python or NumPy, not a Boolean) from ``low`` to ``high``."""
    value = plain(value)
    try:
        return not isinstance(value, bool) and low <= operator.index(value) <= high
    except (TypeError, RuntimeError):  # RuntimeError: a tensor without a value
        return False


def integer(name: str, value: Any, low: int, high: int) -> int:
    """``value`` as a Python integer. ShapeError: it is not an integer from ``low`` to ``high``."""
    if not is_integer(value, low, high):
        raise ShapeError(f"{name} is {shown(value)}; it must be an integer from {low} to {high}")
    return operator.index(plain(value))


def flag(name: str, value: Any) -> bool:
    """``value`` as a Boolean. InputError: it is not a Boolean."""
    boolean = plain(value)
    if not isinstance(boolean, bool):
        raise InputError(f"{name} is {shown(value)}; it must be True or False")
    return boolean


def word(name: str, value: Any, known: Collection[str] = (), error: type[InputError] = InputError) -> str:
    """``value`` as a string. Raises ``error`` if it is not a string, or not one of ``known`` where that is not
    empty."""
    if not isinstance(value, str) or (known and value not in known):
        rule = f"one of {', '.join(x or repr(x) for x in known)}" if known else "a string"
        raise error(f"{name} is {shown(value)}; it must be {rule}")
    return value


def closest(word: str, known: Collection[str]) -> str:
    """The known word that ``word`` was probably meant to be; empty if none is similar."""
    same_letters = [k for k in sorted(known) if sorted(k) == sorted(word)]
    return next(iter(same_letters or get_close_matches(word, sorted(known), 1, SIMILAR)), "")
