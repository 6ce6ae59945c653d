"""The kernel that packs the truth values of one matrix into words of bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.launches.bit_packing import PackedBits
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.lowering.bit_products import BITS
from ptxgen.lowering.strided import Strided

NAMES = ("rows", "depth", "ld", "pitch", "chunks")


@dataclass(frozen=True)
class PackBits(Preparation):
    """The preparation that packs a matrix of bytes into words: ceil(columns / 32) words per row, rows contiguous.
    ``way``: how a block packs."""

    way: PackedBits

    kernel: ClassVar[str] = "prepare/pack_bits.mako"
    entry: ClassVar[str] = "pack_bits"

    @classmethod
    def of(cls, source: Strided) -> PackBits:
        return cls(PackedBits.of(source, BITS))

    @property
    def description(self) -> list[str]:
        order = "rows" if self.way.kmajor else "columns"
        return [f"bits of bytes that are not 0, stored by {order}, in loads of {self.way.vec} bytes"]

    @property
    def parameters(self) -> ParameterList:
        return ParameterList([given("u64", "X", "W"), Parameters("u32", NAMES, lambda x: x)])

    def step(self, rows: int, columns: int, ld: int) -> Step:
        """The launch for a matrix, with the arrays X (bytes) and W (words). ``ld``: bytes from one row of X to the
        next, or from one column to the next."""
        words = int(ceil_div(columns, BITS))
        chunks = self.way.across(words) if self.way.kmajor else int(ceil_div(rows, self.way.columns))
        numbers = (rows, columns, ld, words, chunks)
        grid = (max(self.way.blocks(rows, words), 1), 1, 1)
        return Step(self.entry, grid, (self.way.THREADS, 1, 1), 0, tuple(self.parameters.arguments(numbers)))
