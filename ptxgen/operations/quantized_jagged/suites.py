"""Suites of jagged products with quantized weights: the experts of public models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ptxgen.operations.grouped.suites import moe
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged
from ptxgen.problem.operation import Case, Suite, by_name

GROUP = 128  #: weights of 4 bits that share a scale, as most quantized models have them; fewer if K is no multiple
#: rows of each expert, N, K, fields; small enough for the emulated device
_SMALL: tuple[tuple[tuple[int, ...], int, int, dict[str, Any]], ...] = (
    ((3, 0, 5, 1), 48, 256, {"weights": "s8"}),
    ((1, 2, 0, 19), 40, 256, {"weights": "s4", "group": 128}),
    ((17, 4), 33, 128, {"weights": "u4", "group": 32, "zeros": True}),
)


def _experts(weights: str, group: int, **fields: Any) -> Iterator[Case]:
    """The groups of the suite ``moe``."""
    for g in moe():
        p = QuantizedJagged(
            g.items, **{"weights": weights, "group": group and math.gcd(group, g.items[0][2]), **fields}
        )
        yield Case(f"{p.weights} {g.name}", p)


def _int4(**fields: Any) -> Iterator[Case]:
    return _experts("s4", GROUP, **fields)


def _int8(**fields: Any) -> Iterator[Case]:
    return _experts("s8", 0, **fields)


def _small(**fields: Any) -> Iterator[Case]:
    for rows, n, k, own in _SMALL:
        p = QuantizedJagged(tuple((m, n, k) for m in rows), **{**own, **fields})
        yield Case(f"{p.weights} {'+'.join(map(str, rows))} x {n}x{k}", p)


SUITES = by_name(
    Suite("int4", "experts of public language models, 4-bit weights in groups of 128 or 64", _int4, layouts=True),
    Suite("int8", "experts of public language models, 8-bit weights with a scale for each row", _int8, layouts=True),
    Suite("small", "small groups of several formats of weights", _small, layouts=True),
)
TITLES = ("experts", "rows", "N,K", "dtype", "weights", "group", "out", "epilogue")


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    rows = [m for m, _, _ in p["items"]]
    n, k = p["items"][0][1:] if rows else (0, 0)
    weights = p["weights"] + (", zeros" if p["zeros"] else "")
    out = p["out"] if p["out"] != p["dtype"] else ""
    return [len(rows), sum(rows), f"{n},{k}", p["dtype"], weights, p["group"] or "K", out, p["epilogue"]]
