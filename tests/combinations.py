"""Markers of tests of which only some cases run, unless pytest has the option --exhaustive."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

#: marker of tests with several axes -> how many axes a choice covers: each tuple of values of so many axes is in a test
STRENGTHS = {"each_value": 1, "each_pair": 2}


def covering(lengths: Sequence[int], strength: int) -> set[tuple[int, ...]]:
    """Positions of values, one for each axis, so that each tuple of values of ``strength`` axes appears.

    ``lengths``: the number of values of each axis. Equal arguments give equal choices.
    """
    if strength == 1:
        return {tuple(i % n for n in lengths) for i in range(max(lengths))}
    groups = list(combinations(range(len(lengths)), strength))
    chosen: set[tuple[int, ...]] = set()
    covered: set[tuple[tuple[int, ...], ...]] = set()

    def news(row: tuple[int, ...]) -> set[tuple[tuple[int, ...], ...]]:
        return {(axes, tuple(row[a] for a in axes)) for axes in groups} - covered

    rows = list(product(*map(range, lengths)))
    while new := news(row := max(rows, key=lambda each: len(news(each)))):
        chosen.add(row)
        covered |= new
    return chosen


def left_out(items: Iterable[Any]) -> list[Any]:
    """The tests that their markers leave out: ``first(n)`` all but n cases, ``every(n)`` all but every n-th case, those of
    ``STRENGTHS`` all but a choice of combinations.

    If not all combinations of a function are collected, since some are asked for by name, none is left out.
    """
    functions, cases, out = defaultdict(list), Counter[tuple[str, str]](), []
    for item in items:
        number = cases[item.parent.nodeid, item.originalname]  # of the case
        cases[item.parent.nodeid, item.originalname] += 1
        first, every = (item.get_closest_marker(name) for name in ("first", "every"))
        if (first and number >= first.args[0]) or (every and number % every.args[0]):
            out.append(item)
        for name, strength in STRENGTHS.items():
            if item.get_closest_marker(name):
                functions[item.parent.nodeid, item.originalname, strength].append(item)
    for (*_, strength), tests in functions.items():
        # the product of the axes is collected in this order, the last one fastest
        lengths = [len(mark.args[1]) for mark in tests[0].iter_markers("parametrize")]
        rows = list(product(*map(range, lengths)))
        if len(rows) == len(tests):
            chosen = covering(lengths, strength)
            out += [test for test, row in zip(tests, rows, strict=True) if row not in chosen]
    return out
