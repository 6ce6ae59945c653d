"""Block scales of A and B in kernels of mma.sync: each step of 32 of K lies in one block, and its sums are multiplied
by the scales of their row and column while they are added to the totals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.grouped.descriptor_table import DescriptorTable
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import Last, log2
from ptxgen.families.mma.layout import MmaOperand
from ptxgen.families.mma.mainloop import MmaMainloop
from ptxgen.lowering.block_scales import BYTES, scales_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.block_scales import DEPTH


class ScaledSum(NamedTuple):
    """A total, the register of the result that is added to it, and the registers of the two scales."""

    total: str
    partial: str
    a: str
    b: str


@dataclass(frozen=True)
class SideScales:
    """The scales that a lane loads for A or B. ``x``: the operand; ``rows``: rows of a block (columns, for B);
    ``extent``: the register with the number of rows of the operand; ``origin``, ``first``: the registers with the first
    row of the block's tile, and the distance from there to the lane's first row; ``entry``: the offset in a descriptor
    of the place of an item's scales, or empty; ``by_k``: as in ``Scales``."""

    x: MmaOperand
    rows: int
    extent: str
    origin: str
    first: str
    entry: str
    by_k: bool | None

    BYTES, log2_bytes = BYTES, log2(BYTES)
    last_row = Last("rows")

    @property
    def name(self) -> str:
        return self.x.name

    @property
    def offsets(self) -> list[int]:
        """The distance from the lane's first row to the row of each scale. The tile of a warp lies in one block of 128
        rows."""
        return [self.x.offset(i) for i in range(len(self.x.c_positions) if self.rows == 1 else 1)]

    @property
    def shift(self) -> int:
        """log2 of the rows of a block."""
        return log2(self.rows)

    @property
    def scales(self) -> Tile:
        """The registers of the scales for the present step."""
        return Tile(f"scale_{self.name}", "f32", (len(self.offsets),))

    @property
    def places(self) -> Tile:
        """The registers with the number of the block of each row."""
        return Tile(f"scale_row_{self.name}", "b32", (len(self.offsets),))

    def scale(self, tile: int, half: int) -> str:
        """The register of the scale for row (column) ``half`` of the lane's two in a tile."""
        if self.rows > 1:
            return self.scales[0]
        return self.scales[[position[1:] for position in self.x.c_positions].index((tile, half))]


@dataclass(frozen=True)
class StepScales(Part):
    """The scales of a step. ``batched``: True if the product is an item of a batch; ``table``: the descriptor table of
    a group, which has the places of the items' scales, or None."""

    problem: KernelProblem
    mainloop: MmaMainloop
    batched: bool
    table: DescriptorTable | None = None

    template = "math/step_scales.mako"
    depth_shift = log2(DEPTH)
    last_k = DEPTH - 1

    @property
    def sides(self) -> tuple[SideScales, SideScales]:
        a, b = self.mainloop.operands
        return self._side(a, "%M", "%m0", "%row"), self._side(b, "%N", "%n0", "%col")

    def _side(self, x: MmaOperand, extent: str, origin: str, first: str) -> SideScales:
        scales = scales_of(self.problem, x.name.upper())
        entry = str(self.table.at(scales.array)) if self.table is not None else ""
        return SideScales(x, scales.rows, extent, origin, first, entry, scales.by_k)

    @property
    def positions(self) -> list[int]:
        """The distance along K from the first element of a warp in a stage to each step."""
        return [k * self.mainloop.instruction.depth for k in range(self.mainloop.steps)]

    @cached_property
    def scaled(self) -> dict[str, list[ScaledSum]]:
        """For each instruction, named by its first total: the scaling of its sums, at rows g, g, g + 8, g + 8 and
        columns 2t, 2t + 1, 2t, 2t + 1 of lane 4g + t."""
        m, (a, b) = self.mainloop, self.sides
        return {
            m.acc[i, j, 0]: [
                ScaledSum(m.acc[i, j, n], partial, a.scale(i, n // 2), b.scale(j, n % 2))
                for n, partial in enumerate(m.instruction.partial)
            ]
            for i in range(m.a.tiles)
            for j in range(m.b.tiles)
        }

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        out = []
        for x in self.sides:
            name = x.name.upper()
            out.append((x.scales, f"scales of {name} for this step"))
            out.append((x.places, f"blocks of rows of {name}"))
        return out


@dataclass(frozen=True)
class NoScales(Part):
    """The part of kernels without block scales."""

    template = "math/no_step_scales.mako"
