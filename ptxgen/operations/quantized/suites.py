"""Suites of products with quantized weights: the layers of decoders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.problem.operation import Case, Suite, by_name

#: N and K of the layers
_LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (28672, 8192))
_TOKENS = (1, 2, 4, 8, 16, 64, 256)
#: bits -> fields of the products of a suite: 4 bits in groups of 128, as most quantized models have them
_COMMON: dict[int, dict[str, Any]] = {4: {"weights": "s4", "group": 128}, 8: {"weights": "s8"}}
#: M, N, K, fields; small enough for the emulated device
_SMALL: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (1, 48, 256, {"weights": "s8"}),
    (3, 40, 256, {"weights": "s4", "group": 128}),
    (17, 33, 128, {"weights": "u4", "group": 32, "zeros": True}),
)


def _decoder(bits: int, **fields: Any) -> Iterator[Case]:
    """The layers of decoders, each with all numbers of tokens."""
    for n, k in _LAYERS:
        for m in _TOKENS:
            p = QuantizedGemm(m, n, k, **{**_COMMON[bits], **fields})
            yield Case(f"{p.weights} {m} x {n}x{k}", p)


def _int4(**fields: Any) -> Iterator[Case]:
    return _decoder(4, **fields)


def _int8(**fields: Any) -> Iterator[Case]:
    return _decoder(8, **fields)


def _small(**fields: Any) -> Iterator[Case]:
    for m, n, k, own in _SMALL:
        p = QuantizedGemm(m, n, k, **{**own, **fields})
        yield Case(f"{p.weights} {m} x {n}x{k}", p)


SUITES = by_name(
    Suite("int4", "layers of decoders, weights of 4 bits in groups of 128, 1 to 256 tokens", _int4, layouts=True),
    Suite(
        "int8", "layers of decoders, weights of 8 bits with a scale for each row, 1 to 256 tokens", _int8, layouts=True
    ),
    Suite("small", "small products of several formats of weights", _small, layouts=True),
)
TITLES = ("M,N,K", "dtype", "weights", "group", "out", "epilogue")


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    weights = p["weights"] + (", zeros" if p["zeros"] else "")
    out = p["out"] if p["out"] != p["dtype"] else ""
    return [f"{p['m']},{p['n']},{p['k']}", p["dtype"], weights, p["group"] or "K", out, p["epilogue"]]
