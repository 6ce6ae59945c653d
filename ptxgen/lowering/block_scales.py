"""The access to matrices with block scales."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ptxgen.lowering.descriptor_table import DescriptorTable
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import Strided
from ptxgen.problem.block_scales import Scaling


@dataclass(frozen=True)
class Scales:
    """The scales of a matrix in memory. ``array``: the array name; ``rows``: rows of a block; ``along_rows``,
    ``along_k``, ``along_items``: strides in scales from one block to the next along the rows and along K, and from one
    item to the next."""

    array: str
    rows: int
    along_rows: Any
    along_k: Any
    along_items: Any

    @property
    def representative(self) -> Scales:
        return replace(self, along_rows=0, along_k=0, along_items=0)


@dataclass(frozen=True)
class BlockScaled(Strided):
    """The access to a matrix with a leading dimension and block scales."""

    scales: Scales = field(kw_only=True)

    capability: ClassVar[str] = "block_scaled"

    @property
    def arrays(self) -> tuple[str, ...]:
        return (self.scales.array,)

    def representative(self) -> BlockScaled:
        return replace(self, scales=self.scales.representative)


@dataclass(frozen=True)
class ScaledItems(DescriptorTable):
    """The access to the matrices of a group that is jagged along M, with block scales. The scales of A are rows of one
    array, as A itself is."""

    scales: Scales = field(kw_only=True)

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {BlockScaled.capability}

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, self.scales.array)

    def representative(self) -> ScaledItems:
        return replace(self, group=None, scales=self.scales.representative)


def block_scaled(p: KernelProblem) -> bool:
    """True if the operands have block scales."""
    return isinstance(p.operands[0].access, BlockScaled | ScaledItems)


def scales_of(p: KernelProblem, name: str) -> Scales:
    """The scales of operand ``name``."""
    access = p.operand(name).access
    assert isinstance(access, BlockScaled | ScaledItems)
    return access.scales


def _scales(name: str, s: Scaling, extent: Any, k: Any, items: bool) -> Scales:
    """The scales of operand ``name`` with ``extent`` rows. ``items``: True if each item has scales of its own."""
    rows, depth = s.shape(extent, k)
    steps = (1, rows) if s.by_k else (depth, 1)
    return Scales(f"scale_{name.lower()}", s.rows, *steps, rows * depth if items else 0)


def with_scales(p: KernelProblem, scalings: dict[str, Scaling]) -> KernelProblem:
    """The product with block scales. ``scalings``: the blocks of A and of B by operand name."""
    extents = {"A": p.m, "B": p.n}
    operands = []
    for x in p.operands:
        scales = _scales(x.name, scalings[x.name], extents[x.name], p.k, bool(x.access.stride))
        operands.append(replace(x, access=BlockScaled(*x.access.numbers, scales=scales)))
    counts = sum(math.prod(s.shape(extents[name], p.k)) for name, s in scalings.items())
    return replace(p, operands=tuple(operands), moved=p.moved + 4 * p.batch * counts)


def with_item_scales(p: KernelProblem, scalings: dict[str, Scaling], rows: int) -> KernelProblem:
    """The grouped product, jagged along M, with block scales. ``rows``: rows of A in all items together."""
    extents, operands = {"A": rows, "B": p.n}, []
    for x in p.operands:
        scales = _scales(x.name, scalings[x.name], extents[x.name], p.k, x.name == "B")
        named = {"name": x.access.name, "jagged": x.access.jagged, "group": x.access.group}
        operands.append(replace(x, access=ScaledItems(*x.access.numbers, **named, scales=scales)))
    return replace(p, operands=tuple(operands))
