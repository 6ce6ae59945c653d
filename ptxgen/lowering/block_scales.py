"""Matrices whose blocks have scales: how kernels address them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import Strided
from ptxgen.problem.block_scales import Scaling


@dataclass(frozen=True)
class BlockScaled(Strided):
    """A matrix with a leading dimension and scales. ``scales``: the array of the scales; ``rows_per_scale``: rows of a
    block; ``along_rows``, ``along_k``, ``along_items``: scales from one block of rows, of K, and from one batch item to
    the next."""

    scales: str = field(kw_only=True)
    rows_per_scale: int = field(kw_only=True)
    along_rows: Any = field(kw_only=True)
    along_k: Any = field(kw_only=True)
    along_items: Any = field(kw_only=True)

    capability: ClassVar[str] = "block_scaled"

    @property
    def arrays(self) -> tuple[str, ...]:
        return (self.scales,)

    def representative(self) -> BlockScaled:
        return replace(self, along_rows=0, along_k=0, along_items=0)


def block_scaled(p: KernelProblem) -> bool:
    """True if blocks of the operands have scales."""
    return isinstance(p.operands[0].access, BlockScaled)


def with_scales(p: KernelProblem, scalings: dict[str, Scaling]) -> KernelProblem:
    """The product with scales of the blocks of A and of B. ``scalings``: by name of the operand."""

    def scaled(name: str) -> BlockScaled:
        x, s = p.operand(name).access, scalings[name]
        rows, depth = s.shape(extents[name], p.k)
        return BlockScaled(
            *x.numbers,
            scales=f"scale_{name.lower()}",
            rows_per_scale=s.rows,
            along_rows=1 if s.by_k else depth,
            along_k=rows if s.by_k else 1,
            along_items=rows * depth if x.stride else 0,
        )

    extents = {"A": p.m, "B": p.n}
    operands = tuple(replace(x, access=scaled(x.name)) for x in p.operands)
    counts = sum(math.prod(s.shape(extents[name], p.k)) for name, s in scalings.items())
    return replace(p, operands=operands, moved=p.moved + 4 * p.batch * counts)
