"""What plans of families of sparse products share: parameters, the launch of a work list, words of headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.common.work_list import sizes_of
from ptxgen.lowering.kernel_problem import KernelProblem

COUNTER = 4  #: bytes of the counter of a split segment in a slab
#: meanings of the parameters of a sparse matrix in CSR
CSR_MEANINGS: Mapping[str, str] = {
    "indptr": "address of the row pointers",
    "indices": "address of the column indices",
    "values": "address of the nonzeros",
}


@dataclass(frozen=True)
class Listed:
    """What a launch computes: ``problem``; ``count``: segments, or items of a work list; ``partials``: bytes of the
    workspace before the partial sums; ``workspace``: all its bytes."""

    problem: KernelProblem
    count: int
    partials: int = 0
    workspace: int = 0

    @classmethod
    def of(cls, p: KernelProblem, sizes: Mapping[str, int], slabs: int, rows: int, sum_bytes: int) -> Listed:
        """The launch of a work list. ``slabs``: of columns; ``rows``: of a segment; ``sum_bytes``: of a partial sum."""
        items, parts = sizes_of(sizes)
        partials = -(-COUNTER * parts * slabs // VECTOR) * VECTOR
        return cls(p, items, partials, partials + parts * rows * p.extents.n * sum_bytes)


def leading_dimensions(problem: Callable[[Any], KernelProblem] = lambda p: p) -> Parameters:
    """The parameters ``ldb`` and ``ldc``. ``problem``: of what a launch computes."""
    return Parameters("u32", ("ldb", "ldc"), lambda x: (problem(x).operand(name).access.ld for name in "BC"))


def partials(work_list: bool) -> list[Parameters]:
    """The parameter of the partial sums of a work list."""
    return [Parameters("u64", ("partials",), lambda x: (x.partials,))] if work_list else []


def accesses(c: Config) -> str:
    """The accesses of ``c``, for headers."""
    return f"accesses of {c.vec_b} elements of B and C"


def alignment(p: KernelProblem, c: Config) -> str:
    """What the vectors of ``c`` require of B and C, for headers."""
    size = c.vec_b * p.element.bytes
    return f"addresses, leading dimensions and lengths of rows of B and C in multiples of {size} bytes"
