"""Operands of slices that take every eighth k.

TMA takes only boxes that begin at a multiple of 16 bytes, and eight rows apart is one whatever the leading dimension.
Where rows are contiguous across K, those of a slice so begin alike: one map of eight finds them, from the multiple of
16 bytes at or before their start, and all that a tile has before its first element are sums that belong to nobody. They
leave once, when the sums of the slice are finished. Where K is contiguous, a copy has the eighths one after the other.
"""

from __future__ import annotations

from ptxgen.families.wgmma.layout import Box, Operand
from ptxgen.families.wgmma.repack import RESIDUES
from ptxgen.problem import Gemm
from ptxgen.source import TensorMap


class Early(Operand):
    """Rows of one residue, as far before their start as TMA asks for."""

    early = True

    def maps(self, p: Gemm, kind: str, place: tuple[int, int, int, int]) -> list[TensorMap]:
        """Of every eighth row, from each of the first eight on."""
        columns, rows, ld, _ = place
        size = p.element.bytes
        return [
            TensorMap(self.name.upper(), kind, (columns, -(-(rows - r) // RESIDUES)), (RESIDUES * ld * size,), self.box,
                      self.span, offset=r * ld * size, lies=size)
            for r in range(RESIDUES)
        ]  # fmt: skip


class Eighth(Operand):
    """A copy whose rows have one eighth of K after the other."""

    def inner(self, b: Box, first: str) -> str:
        return "%k_copy"
