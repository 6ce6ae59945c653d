"""What an operation brings for people: how shapes are written, options, suites, the columns that name a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ptxgen.problem.conv import Conv
from ptxgen.problem.gemm import Gemm
from ptxgen.problem.registry import Problem

Document = dict[str, Any]


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
    """``build(**fields)``: its cases, ``fields`` being of the problem (dtype, compute, layout, …); ``layouts``: whether
    it sets the layout of each case itself."""

    name: str
    meaning: str
    build: Callable[..., Iterator[Case]]
    layouts: bool = False


@dataclass(frozen=True)
class Entry:
    """What is known of an operation. ``problem``: its type; ``titles``, ``cells``: the columns that say which problem a
    printed row is of, made of the row's document."""

    problem: type[Gemm] | type[Conv]
    suites: Mapping[str, Suite]
    titles: tuple[str, ...]
    cells: Callable[[Document], list[Any]]

    @property
    def name(self) -> str:
        return self.problem.operation

    @property
    def options(self) -> tuple[str, ...]:
        """The fields that options of the command line set, ``--aligned-a`` that called ``aligned_a``; ``--shape`` gives
        the others."""
        return tuple(f.name for f in fields(self.problem) if f.name not in self.problem.SHAPE)


def named(*suites: Suite) -> dict[str, Suite]:
    return {s.name: s for s in suites}
