"""The access to matrices with block scales."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ptxgen.lowering.descriptor_table import DescriptorTable
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import Strided
from ptxgen.problem.block_scales import Scaling

BYTES = 4  #: bytes of a scale


@dataclass(frozen=True)
class Scales:
    """The scales of a matrix in memory. ``array``: the array name; ``rows``: rows of a block; ``along_rows``,
    ``along_k``, ``along_items``: strides in scales from one block to the next along the rows and along K, and from one
    item to the next. ``by_k``: if each item has strides of its own, True if the scales of one K block are contiguous,
    and False if those of one block of rows are; else None."""

    array: str
    rows: int
    along_rows: Any
    along_k: Any
    along_items: Any
    by_k: bool | None = None

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
    """The access to the matrices of a group with block scales. The descriptor of an item has the place of its scales.
    If items are rows of A, the scales of A are rows of one array; if they are columns of A and of B, so are their
    scales, one for each block of the item. ``blocks``: the number of scales along K in the array."""

    scales: Scales = field(kw_only=True)
    blocks: Any = field(kw_only=True)

    @property
    def scale_steps(self) -> tuple[Any, Any]:
        """The bytes from the scales of one item to those of the next, and the bytes per row of A (``jagged=m``) or per
        block of K (``jagged=k``)."""
        s = self.scales
        along = s.along_k if self.jagged == "k" else s.along_rows if self.name == "A" else 0
        return BYTES * s.along_items, BYTES * along

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {BlockScaled.capability}

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, self.scales.array)

    def representative(self) -> ScaledItems:
        return replace(self, group=None, scales=self.scales.representative, blocks=0)


def block_scaled(p: KernelProblem) -> bool:
    """True if the operands have block scales."""
    return isinstance(p.operands[0].access, BlockScaled | ScaledItems)


def item_scales(p: KernelProblem) -> dict[str, ScaledItems]:
    """The accesses of a group with block scales, by the array of the scales; empty: there are none."""
    return {x.access.scales.array: x.access for x in p.operands if isinstance(x.access, ScaledItems)}


def scales_of(p: KernelProblem, name: str) -> Scales:
    """The scales of operand ``name``."""
    access = p.operand(name).access
    assert isinstance(access, BlockScaled | ScaledItems)
    return access.scales


def _scales(name: str, s: Scaling, stored: tuple[Any, Any], items: bool) -> Scales:
    """The scales of operand ``name``. ``stored``: the stored shape; ``items``: True if each item has scales of its
    own."""
    along_rows, along_k = (1, stored[1]) if s.by_k else (stored[1], 1)
    return Scales(f"scale_{name.lower()}", s.rows, along_rows, along_k, stored[0] * stored[1] if items else 0)


def with_scales(p: KernelProblem, scalings: dict[str, Scaling]) -> KernelProblem:
    """The product with block scales. ``scalings``: the blocks of A and of B by operand name."""
    extents = {"A": p.m, "B": p.n}
    operands = []
    for x in p.operands:
        s = scalings[x.name]
        scales = _scales(x.name, s, s.stored(extents[x.name], p.k), bool(x.access.stride))
        operands.append(replace(x, access=BlockScaled(*x.access.numbers, scales=scales)))
    counts = sum(math.prod(s.shape(extents[name], p.k)) for name, s in scalings.items())
    return replace(p, operands=tuple(operands), moved=p.moved + 4 * p.batch * counts)


def with_item_scales(
    p: KernelProblem, scalings: dict[str, Scaling], shapes: dict[str, tuple[int, ...]]
) -> KernelProblem:
    """The grouped product with block scales. ``shapes``: the stored shapes of the scales of all items, one array if the
    group is jagged."""
    operands = []
    for x in p.operands:
        s, shape, blocks = scalings[x.name], shapes[f"scale_{x.name.lower()}"], 0
        if x.access.jagged:
            *items, rows, columns = shape
            scales, blocks = _scales(x.name, s, (rows, columns), bool(items)), rows if s.by_k else columns
        else:
            scales = Scales(f"scale_{x.name.lower()}", s.rows, 0, 0, 0, s.by_k)
        named = {"name": x.access.name, "jagged": x.access.jagged, "group": x.access.group}
        operands.append(replace(x, access=ScaledItems(*x.access.numbers, **named, scales=scales, blocks=blocks)))
    return replace(p, operands=tuple(operands))
