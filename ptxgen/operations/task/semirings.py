"""Semirings by name: matrix products with other operators than + and ×."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.arguments import word
from ptxgen.errors import DtypeError
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.language.texts import parse
from ptxgen.operations.task.program import Program

#: name -> (reduction, combination of a and b)
SEMIRINGS = {
    "plus_times": ("+", "{a} * {b}"),
    "min_plus": ("min", "{a} + {b}"),
    "max_plus": ("max", "{a} + {b}"),
    "min_times": ("min", "{a} * {b}"),
    "max_times": ("max", "{a} * {b}"),
    "min_max": ("min", "max({a}, {b})"),
    "max_min": ("max", "min({a}, {b})"),
    "or_and": ("|", "{a} & {b}"),
}


TRUTH = "bool"  #: the type of truth values, one a byte; or_and combines them logically, and integers bitwise


@lru_cache(maxsize=256)
def semiring_program(name: str, element_type: str, out: str = "", accum: str = "") -> Program:
    """The program C = A·B over the semiring ``name``. ``element_type``: the type of A and B; for or_and it may be
    ``TRUTH``; ``out``: the type of C, empty: that of A and B, but s32 for products and sums of narrow integers;
    ``accum``: the declared type of the reduction. Raises InputError or DtypeError if there is no such semiring, or none
    with this type."""
    word("semiring", name, SEMIRINGS)
    if element_type == TRUTH:
        text = "where (i, j) { reduce (k) { accum |= A[i,k] != 0 and B[k,j] != 0; } C[i,j] = accum != 0; }"
        return parse(text, {"A": "u8", "B": "u8"})
    reduction, combined = SEMIRINGS[name]
    t = type_of(element_type)
    if name == "or_and" and not t.integer:
        raise DtypeError(f"a and b are {element_type}; with the semiring or_and they must be integers")
    grows = "+" in combined or "*" in combined or reduction == "+"
    result = out or (element_type if t.floating or t.bits >= 32 or not grows else "s32")
    step = combined.format(a="A[i, k]", b="B[k, j]")
    join = f"accum {reduction}= {step};" if reduction in ("+", "|") else f"accum = {reduction}(accum, {step});"
    body = f"{{ reduce (k in [0, K]) {{ {join} }} C[i, j] = {result}(accum); }}"
    declared = f"accum: {accum}; " if accum else ""
    return parse(f"{declared}where (i in [0, M], j in [0, N]) {body}", {"A": element_type, "B": element_type})
