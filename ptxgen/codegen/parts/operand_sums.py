"""The sums of the rows of A along K, which blocks of the first column of tiles compute beside the products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile

#: type of elements -> the literal of a fragment register of ones
ONES = {"f16": "0x3c003c00", "bf16": "0x3f803f80", "f32": "0x3f800000", "f64": "0d3ff0000000000000"}
ONE = "%one"  #: the register of ones
GUARD = "@%sums_a "  #: the guard of the instructions, which is the same for all lanes of a warp


@dataclass(frozen=True)
class OperandSums(Part):
    """The base class of the sums of A, for kernels without any. ``template``: their slot."""

    template = "math/no_operand_sums.mako"


@dataclass(frozen=True)
class RowSums(OperandSums):
    """The sums of A of a thread or a lane in the multistage schedule. ``sums``: their registers; ``additions``: for
    each step of an iteration, the instructions that add to them; ``rows``: the distance of each row from the thread's
    first, and the register of its sum; ``columns``: the warp's columns, of which the first warp has the first;
    ``lane_mask``: the bits of the lane number that are 0 in the lanes that store; ``zero``: the literal of zero;
    ``one``: the type of the register of ones, and its literal; empty: there is none."""

    sums: Tile
    additions: Sequence[Sequence[str]]
    rows: Sequence[tuple[int, str]]
    columns: int
    lane_mask: int
    zero: str
    one: tuple[str, str] | tuple[()] = ()

    template = "math/operand_sums.mako"

    @property
    def bytes(self) -> int:
        """The number of bytes of a sum."""
        return 8 if self.sums.ptx_type == "f64" else 4

    @property
    def setup(self) -> list[str]:
        """The instructions that set the register of ones, if there is one."""
        return [f".reg .{self.one[0]} {ONE};", f"mov.{self.one[0]} {ONE}, {self.one[1]};"] if self.one else []

    @property
    def offsets(self) -> dict[int, int]:
        """Row -> the byte offset of its sum from that of the thread's first row."""
        return {row: row * self.bytes for row, _ in self.rows}

    @cached_property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.sums, "sums of rows of A")]
