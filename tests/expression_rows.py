"""The rows of the table of instructions, executed and compared with NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.expr.instructions import Row, rows
from ptxgen.expr.node import Node, node, variable
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import type_of
from tests.expression_kernels import ARRAYS

finfo: Any = ml_dtypes.finfo


def edges(type: str) -> list[Any]:
    """Values of a type at which instructions err."""
    t = type_of(type)
    if t.group == "predicate":
        return [False, True]
    if t.integer:
        low, high = int(t.least), int(t.greatest)
        return sorted(
            {low, low + 1, 0, 1, 2, 3, 7, 31, 33, 63, 65, high // 2, high - 1, high, *([-1, -5] if low else [])}
            - {*range(high + 1, 100)}
        )
    f = finfo(ARRAYS[type])
    big, tiny, small = float(f.max), float(f.tiny), float(f.smallest_subnormal)
    values = [0.0, 1.0, 1.5, 3.0, 0.3, 7.7, 100.0, 3e9, 1e19, big, tiny, small, 2.5 * tiny, np.inf]
    return [*values, *(-x for x in values), np.nan]


def operands(type: str, n: int) -> list[Any]:
    """Every combination of edges, then random values, as ``n`` arrays."""
    rng = np.random.default_rng(3)
    e = edges(type) if n < 3 else edges(type)[::3] + edges(type)[-1:]
    with np.errstate(over="ignore"):
        columns = [np.array(x, ARRAYS[type]) for x in zip(*itertools.product(e, repeat=n), strict=True)]
        t = type_of(type)
        for i, x in enumerate(columns):
            if t.floating:
                more = np.asarray(rng.normal(size=60) * 2.0 ** rng.integers(-8, 9, 60)).astype(ARRAYS[type])
            else:
                more = (
                    rng.integers(int(t.least), int(t.greatest), 60, dtype=ARRAYS[type], endpoint=True)
                    if t.integer
                    else rng.integers(0, 2, 60).astype(bool)
                )
            columns[i] = np.concatenate([x, more])
    return columns


def expression(r: Row) -> Node:
    names = ["a", "b", "c"]
    if r.operator == "cast":
        return node("cast", r.result, variable("a", r.operand))
    if r.operator == "select":
        return node("select", r.result, variable("p", "pred"), variable("a", r.operand), variable("b", r.operand))
    if r.operator == "mad":
        a, b, c = (variable(x, r.operand) for x in names)
        return node("mad", r.result, a, b, c)
    return node(r.operator, r.result, *(variable(x, r.operand) for x in names[: OPERATORS[r.operator].operands]))


def exact(r: Row, a: Any, b: Any, c: Any, p: Any) -> Any:
    """The value by NumPy, of floats in float64 with one rounding where that is exact."""
    to = ARRAYS[r.result]
    t = type_of(r.operand)
    if r.operator == "select":
        return np.where(p, a, b)
    if r.operator == "mad":
        return a * b + c
    if r.operator == "cast":
        return converted(a, r.operand, r.result)
    arguments = (a, b, c)[: OPERATORS[r.operator].operands]
    if r.operator == "fma":
        return rounded_once(*(x.astype(np.float64) for x in arguments)).astype(to)
    if t.floating and t.bits < 64:
        value = OPERATORS[r.operator].compute(*(x.astype(np.float64) for x in arguments))
        return value.astype(to) if value.dtype != bool else value
    return OPERATORS[r.operator].compute(*arguments)


def converted(a: Any, source: str, to: str) -> Any:
    s, t = type_of(source), type_of(to)
    if to == "pred":
        return a != 0
    if s.floating and t.integer:
        bit = 1 << (t.bits - 1) if source == "f64" or t.bits == 64 else 0
        nan = -bit if t.least else bit
        ends = [min(max(x, float(t.least)), float(t.greatest)) for x in a.astype(np.float64).tolist()]
        whole = [nan if x != x else min(max(int(x), int(t.least)), int(t.greatest)) for x in ends]
        return np.array(whole, ARRAYS[to])
    if s.integer and t.floating and t.bits == 16:
        return (
            a.astype(np.float32).astype(ARRAYS[to])
            if to == "bf16" or s.bits == 64
            else a.astype(np.float64).astype(ARRAYS[to])
        )
    return a.astype(ARRAYS[to])


def rounded_once(a: Any, b: Any, c: Any) -> Any:
    """a b + c of float64 arrays, with one rounding."""
    plain = a * b + c
    out = []
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), plain.tolist(), strict=True):
        if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
            out.append(z if math.isfinite(x) and math.isfinite(y) else value)
            continue
        whole = Fraction(x) * Fraction(y) + Fraction(z)
        try:
            out.append(float(whole) if whole else value)
        except OverflowError:
            out.append(math.inf if whole > 0 else -math.inf)
    return np.array(out)


def agree(r: Row, got: Any, want: Any) -> None:
    """Asserts that values are equal, those of approximate rows within their bounds."""
    assert got.dtype == want.dtype
    if not type_of(r.result).floating:
        np.testing.assert_array_equal(got, want, err_msg=str(r))
        return
    limits = finfo(ARRAYS[r.result])
    g, w = got.astype(np.float64), want.astype(np.float64)
    relative, narrow = r.relative, type_of(r.result).bits == 16
    if relative or r.absolute or r.operator == "rsqrt" or (r.operator == "fma" and r.result != "f64"):
        # of f32 results the rounding is a part of the bound
        unit = float(limits.eps) if narrow or r.operator in ("rsqrt", "fma") else 0.0
        allowed = r.absolute + (relative + unit) * np.abs(w) + 2 * float(limits.smallest_subnormal)
        finite = np.isfinite(w) & np.isfinite(g)
        assert (np.abs(g - w) <= allowed)[finite].all(), r
        edge = float(limits.max) * (1 - 64 * float(limits.eps))
        ends = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.minimum(np.abs(g), np.abs(w)) > edge)
        assert (finite | ends).all(), r
        return
    np.testing.assert_array_equal(g, w, err_msg=str(r))
    if r.operator not in ("min", "max", "fmin", "fmax"):
        number = ~np.isnan(w)
        np.testing.assert_array_equal(np.signbit(g)[number], np.signbit(w)[number], err_msg=f"signs of {r}")


def count(r: Row) -> int:
    if r.operator == "cast":
        return 1
    return 2 if r.operator == "select" else 3 if r.operator == "mad" else OPERATORS[r.operator].operands


def compare_rows(type: str, sm: int, run: Callable[[list[Node], dict[str, Any]], list[Any]]) -> None:
    """Asserts that every row of this type of operands gives the values of NumPy. ``run``: computes expressions of
    variables, whose types and arrays it gets by name."""
    chosen = []
    for (_, operand, _), of_operand in rows().items():
        if operand == type:
            chosen += [r for r in of_operand if r.first <= sm][:1]
    for n in (1, 2, 3):
        group = [r for r in chosen if count(r) == n]
        if not group:
            continue
        columns = operands(type, n)
        a, b, c = (columns * 3)[:3]
        p = np.arange(len(a)) % 3 == 0
        values = {"a": (type, a), "b": (type, b), "c": (type, c), "p": ("pred", p)}
        with np.errstate(all="ignore"):
            results = run([expression(r) for r in group], values)
            for r, got in zip(group, results, strict=True):
                agree(r, got, exact(r, a, b, c, p))
