"""The order in which the multiply-adds of one k step are issued."""

from __future__ import annotations


def products(ms: int, ns: int, order: int) -> list[tuple[int, int]]:
    """The pairs (i, j) of one k step in the order of issue. Consecutive pairs have a common operand, which the register
    reuse cache supplies. ``order``: 0: serpentine by rows, 1: serpentine by columns, 2: plain rows."""
    outer, inner = (range(ns), range(ms)) if order == 1 else (range(ms), range(ns))
    out = []
    for n, x in enumerate(outer):
        run = inner if order == 2 or n % 2 == 0 else reversed(inner)
        out += [(y, x) if order == 1 else (x, y) for y in run]
    return out
