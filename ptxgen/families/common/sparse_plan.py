"""What the plans of sparse products share: parameters, launches of work lists, texts for headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.common.work_list import sizes_of
from ptxgen.lowering.kernel_problem import KernelProblem

COUNTER = 4  #: bytes of the counter that each slab has of a split segment
#: parameter of a sparse matrix in CSR -> its meaning
CSR_MEANINGS: Mapping[str, str] = {
    "indptr": "address of the row pointers",
    "indices": "address of the column indices",
    "values": "address of the nonzeros",
}


@dataclass(frozen=True)
class Listed:
    """The sizes of one launch for a sparse product. ``count``: the number of segments, or of items of a work list;
    ``partials``: the offset of the partial sums in the workspace, in bytes; ``workspace``: the size of the workspace in
    bytes."""

    problem: KernelProblem
    count: int
    partials: int = 0
    workspace: int = 0

    @classmethod
    def of(cls, p: KernelProblem, sizes: Mapping[str, int], slabs: int, rows: int, sum_bytes: int) -> Listed:
        """The launch of a work list. ``slabs``: the number of slabs of columns; ``rows``: rows of a segment;
        ``sum_bytes``: bytes of a partial sum."""
        items, parts = sizes_of(sizes)
        partials = -(-COUNTER * parts * slabs // VECTOR) * VECTOR
        return cls(p, items, partials, partials + parts * rows * p.extents.n * sum_bytes)


def leading_dimensions(problem: Callable[[Any], KernelProblem] = lambda p: p) -> Parameters:
    """The parameters ``ldb`` and ``ldc``. ``problem``: a function that returns the kernel problem of a launch."""
    return Parameters("u32", ("ldb", "ldc"), lambda x: (problem(x).operand(name).access.ld for name in "BC"))


def partials(work_list: bool) -> list[Parameters]:
    """The parameter with the address of the partial sums; none without a work list."""
    return [Parameters("u64", ("partials",), lambda x: (x.partials,))] if work_list else []


def accesses(c: Config) -> str:
    """A text for headers: the width of accesses of ``c``."""
    return f"accesses of {c.vec_b} elements of B and C"


def alignment(p: KernelProblem, c: Config) -> str:
    """A text for headers: what the accesses of ``c`` require of B and C."""
    size = c.vec_b * p.element.bytes
    return f"addresses, leading dimensions and lengths of rows of B and C in multiples of {size} bytes"
