"""C++ names as programmers write them, from the mangled names in PTX."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any

#: C++ libraries with __cxa_demangle, on Linux and on macOS; NumPy has loaded the first one that exists
LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib")


#: the prefix of the namespace in which nvcc puts names that are local to a file
INTERNAL = re.compile(r"\b_INTERNAL_\w+::")
#: the anonymous namespace
ANONYMOUS = "(anonymous namespace)::"
Function = Callable[[bytes], bytes | None]


@cache
def _demangler() -> Function | None:
    """The function of the C++ library that demangles a name; None if there is no such library."""
    for name in LIBRARIES:
        try:
            return _bound(ctypes.CDLL(name).__cxa_demangle, ctypes.CDLL(None).free)
        except (OSError, AttributeError, TypeError):
            continue
    return None


def _bound(function: Any, free: Any) -> Function:
    """``__cxa_demangle`` as a function of a name. ``free``: the function that releases its results."""
    function.restype, free.restype = ctypes.c_void_p, None
    function.argtypes, free.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 3, [ctypes.c_void_p]

    def demangle(symbol: bytes) -> bytes | None:
        text = function(symbol, None, None, None)
        if not text:
            return None
        try:
            return ctypes.string_at(text)
        finally:
            free(text)

    return demangle


@lru_cache(1024)
def demangled(name: str) -> str:
    """The C++ name of a mangled symbol; the symbol itself if it is no mangled name, or if there is no C++ library."""
    demangle = _demangler() if name.startswith("_Z") else None
    text = demangle(name.encode()) if demangle is not None else None
    return name if text is None else INTERNAL.sub("", text.decode(errors="replace").removeprefix("void "))


def matches(name: str, wanted: str) -> bool:
    """True if ``wanted`` names the function ``name``: by its symbol, its C++ name, or that name without parameters or
    without template arguments."""
    known = demangled(name)
    if wanted in (name, known):
        return True
    known, wanted = (text.replace(ANONYMOUS, "") for text in (known, wanted))
    return wanted == known or known.startswith((f"{wanted}(", f"{wanted}<"))


def named(symbols: Iterable[str], wanted: str) -> list[str]:
    """The symbols that ``wanted`` names: the symbol equal to it, or else those whose C++ names match."""
    symbols = list(symbols)
    return [wanted] if wanted in symbols else [symbol for symbol in symbols if matches(symbol, wanted)]
