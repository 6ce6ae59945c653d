"""Sets of problems by name: the paper's, squares, awkward ones, and small ones for the emulated device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import InputError
from ptxgen.problem import Gemm, Problem, from_dict


@dataclass(frozen=True)
class ColumnMajor:
    """A row of the paper's Table 4. M, N, K and the transpositions are those of column-major BLAS."""

    m: int
    n: int
    k: int
    a_t: bool
    b_t: bool

    def row_major(self, **fields: Any) -> Gemm:
        """The same product on the same memory. Column-major C is row-major Cᵀ = op(B)ᵀ·op(A)ᵀ: the operands change
        places, M and N likewise, and what is stored transposed stays so."""
        layout = "NT"[self.b_t] + "NT"[self.a_t]
        return Gemm(self.n, self.m, self.k, layout, **fields)

    def __str__(self) -> str:
        return f"{self.m},{self.n},{self.k} {'NT'[self.a_t]}{'NT'[self.b_t]}"


@dataclass(frozen=True)
class Case:
    """A problem with a name. ``column_major``: how the paper writes it."""

    name: str
    problem: Problem
    column_major: ColumnMajor | None = None


@dataclass(frozen=True)
class Suite:
    """``build(**fields)``: its cases, ``fields`` being of ``Gemm`` (dtype, compute, layout, …); ``layouts``: whether it
    sets the layout of each case itself."""

    name: str
    meaning: str
    build: Callable[..., Iterator[Case]]
    layouts: bool = False


def _isaac(**fields: Any) -> Iterator[Case]:
    """Table 4."""
    rows = [(f"LINPACK {n}", ColumnMajor(n, n, n, False, True)) for n in (512, 1024, 2048)]
    for a_t, way in ((False, "F"), (True, "B")):
        rows += [(f"DeepBench-{way} {n}", ColumnMajor(2560, n, 2560, a_t, False)) for n in (16, 32, 64, 128)]
    rows += [(f"ICA {n}", ColumnMajor(n, n, 60000, False, True)) for n in (32, 64, 256)]
    rows += [(f"LAPACK {n}", ColumnMajor(n, n, 32, False, True)) for n in (4096, 3456, 896)]
    return (Case(name, row.row_major(**fields), row) for name, row in rows)


def _square(**fields: Any) -> Iterator[Case]:
    return (Case(f"square {n}", Gemm(n, n, n, **fields)) for n in (256 << i for i in range(7)))


#: M, N, K, layout: each a shape that a kernel could get wrong, or waste
_ODD = (
    (1, 1, 1, "NN"), (1, 1023, 257, "NT"), (1023, 1, 257, "TN"), (2, 3, 4099, "TT"), (31, 33, 127, "NN"),
    (65, 63, 8, "NT"), (127, 129, 131, "TN"), (257, 255, 511, "TT"), (777, 1000, 1333, "NT"), (1021, 1019, 1, "NN"),
)  # fmt: skip


def _odd(**fields: Any) -> Iterator[Case]:
    return (Case(f"odd {m}x{n}x{k}", Gemm(m, n, k, layout, **fields)) for m, n, k, layout in _ODD)


#: weights of public language models, out x in features: attention's query, key and value at once, its output, the two
#: inner halves of the feed-forward part at once, its output
_MODELS = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
}
_TOKENS = (1, 16, 128, 4096)  #: decoding one sequence, a few, many; a prompt


def _llm(**fields: Any) -> Iterator[Case]:
    """Tokens times transposed weights, as a linear layer stores them."""
    for model, weights in _MODELS.items():
        for (n, k), part in zip(weights, ("qkv", "out", "gate+up", "down"), strict=True):
            for m in _TOKENS:
                yield Case(f"{model} {part} {m}", Gemm(m, n, k, "NT", **fields))


#: one of each kind that the paper tells apart, cut down until an interpreter runs it in a blink
_SMALL = (
    ("square", 64, 64, 64, "TN"), ("skinny", 16, 64, 64, "NN"), ("skinny, transposed", 16, 64, 64, "NT"),
    ("deep", 16, 16, 256, "TN"), ("outer product", 96, 96, 16, "TN"),
)  # fmt: skip


def _small(**fields: Any) -> Iterator[Case]:
    return (Case(name, Gemm(m, n, k, layout, **fields)) for name, m, n, k, layout in _SMALL)


SUITES = {
    s.name: s
    for s in (
        Suite("isaac", "Table 4 of the paper: LINPACK, DeepBench, ICA, LAPACK", _isaac, layouts=True),
        Suite("square", "squares from 256 to 16384", _square),
        Suite("llm", "linear layers of public language models, decoding and prompts", _llm, layouts=True),
        Suite("odd", "ones, primes, and tile sizes plus and minus one", _odd, layouts=True),
        Suite("small", "one shape of each kind, small enough for the emulated device", _small, layouts=True),
    )
}


def cases(name: str, **fields: Any) -> list[Case]:
    """The cases of the suite called ``name``; ``fields`` of ``Gemm`` hold for all of them.

    InputError: no such suite, or a layout for one that sets its own; ShapeError, DtypeError: as ``Gemm``.
    """
    if name not in SUITES:
        raise InputError(f"suite is {name!r}; it must be one of {', '.join(SUITES)}")
    suite = SUITES[name]
    if suite.layouts and "layout" in fields:
        raise InputError(f"layout is {fields['layout']!r}; suite {name} sets the layout of each case itself")
    return list(suite.build(**fields))


def read(lines: Iterable[str], name: str, **fields: Any) -> Iterator[Case]:
    """The cases of a shapes file: a JSON object a line, with m, n, k and any other field of the problem, and ``name``
    if it is to have one. ``fields`` hold where a line does not say otherwise; ``name``: of the file, for errors.

    InputError: names the line and the rule that it breaks.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise InputError(f"is {line.strip()[:60]!r}; it must be a JSON object")
            title = values.pop("name", "")
            problem = from_dict({**fields, **values})
        except (ValueError, TypeError) as error:  # InputError is a ValueError
            raise InputError(f"{name}, line {number}: {error}") from error
        yield Case(str(title) or problem.key(), problem)
