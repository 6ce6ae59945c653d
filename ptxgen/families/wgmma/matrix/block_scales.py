"""Block scales of A and B: which scales a thread loads, where they are, and which sums they multiply.

A thread has sums of a few rows of X and loads their scales itself. It has sums of many columns of Y. If these columns
have different scales, a warp loads the scales of its tile, one per lane, and lanes exchange them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ptxgen.codegen.grouped.descriptor_table import DescriptorTable
from ptxgen.codegen.parts.parameters import Parameters, scale_strides
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import WARP, Last, Log2, log2
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS
from ptxgen.families.wgmma.matrix.mainloop import Mainloop
from ptxgen.lowering.block_scales import BYTES, scales_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.block_scales import DEPTH


class ScaledSums(NamedTuple):
    """Sums that are multiplied by the same product of scales. ``x``, ``y``: the registers of the scales; ``pairs``:
    registers (total, sum of products)."""

    x: str
    y: str
    pairs: list[tuple[str, str]]


class Exchange(NamedTuple):
    """A shuffle: the register that it sets; the register that holds the scale in the source lane; the source lane,
    counted from %scale_lane."""

    to: str
    register: str
    lane: int


@dataclass(frozen=True)
class SideScales:
    """The scales that a thread loads for X or Y. ``role``: x or y; ``name``: a or b; ``rows``: rows of a block;
    ``extent``: the register with the operand's number of rows; ``first``: the register with the warpgroup's first row;
    ``thread``: the register that is added to ``first``, or empty; ``offsets``: rows from the sum of ``first`` and
    ``thread`` to the row of each scale; ``entry``: the offset in a descriptor of the place of an item's scales, or
    empty; ``by_k``: as in ``Scales``."""

    role: str
    name: str
    rows: int
    extent: str
    first: str
    thread: str
    offsets: tuple[int, ...]
    entry: str
    by_k: bool | None

    BYTES, log2_bytes = BYTES, log2(BYTES)
    last_row = Last("rows")

    #: log2 of the rows of a block
    shift = Log2("rows")

    @property
    def scales(self) -> Tile:
        """The registers of the scales for the current block of K."""
        return Tile(f"scale_{self.role}", "f32", (len(self.offsets),))

    @property
    def loaded(self) -> Tile:
        """The registers of the scales for the next block of K, as loaded."""
        return Tile(f"next_scale_{self.role}", "f32", (len(self.offsets),))

    @property
    def addresses(self) -> Tile:
        """The registers with the addresses of the scales for the first block of K."""
        return Tile(f"scale_at_{self.role}", "b64", (len(self.offsets),))


@dataclass(frozen=True)
class BlockScales(Part):
    """The scales by which the sums of a math warpgroup are multiplied. ``item``: the register with the number of a
    batch item that has scales of its own, or empty; ``table``: the descriptor table of a group, which has the places of
    the items' scales, or None."""

    problem: KernelProblem
    mainloop: Mainloop
    x_extent: str
    y_extent: str
    item: str
    table: DescriptorTable | None = None

    template = "math/block_scales.mako"

    @property
    def x(self) -> SideScales:
        m, rows = self.mainloop, self._rows(self.mainloop.x.name)
        thread, offsets = "%scale_row", [ROWS * n + h * m.next_row for n in range(m.mi) for h in (0, 1)]
        if rows > 1:
            span = math.gcd(ROWS * m.mi, rows)
            thread, offsets = "", list(range(0, ROWS * m.mi, span))
        return self._side("x", m.x.name, rows, self.x_extent, "%scale_first", thread, tuple(offsets))

    @property
    def y(self) -> SideScales:
        m, rows = self.mainloop, self._rows(self.mainloop.y.name)
        thread, step = ("%lane", WARP) if rows == 1 else ("", math.gcd(m.y_tile, rows))
        offsets = range(0, m.y_tile, step)
        return self._side("y", m.y.name, rows, self.y_extent, "%y0", thread, tuple(offsets))

    def _side(
        self, role: str, name: str, rows: int, extent: str, first: str, thread: str, offsets: tuple[int, ...]
    ) -> SideScales:
        scales = scales_of(self.problem, name.upper())
        entry = str(self.table.at(scales.array)) if self.table is not None else ""
        return SideScales(role, name, rows, extent, first, thread, offsets, entry, scales.by_k)

    @property
    def sides(self) -> tuple[SideScales, SideScales]:
        return self.x, self.y

    @property
    def depth(self) -> int:
        """The elements of K whose sum is multiplied by one product of scales."""
        return min(DEPTH, self.mainloop.config.u)

    @property
    def block_shift(self) -> int:
        return log2(DEPTH)

    @property
    def last_template(self) -> str:
        """The template that limits blocks to those of K."""
        return "math/last_block.mako" if self.table is None else "math/last_item_block.mako"

    @property
    def parameters(self) -> list[Parameters]:
        return [row for side in self.sides for row in scale_strides(self.problem, side.name)]

    @property
    def exchanged(self) -> bool:
        """True if lanes exchange scales of Y."""
        return self.y.rows == 1

    def _rows(self, name: str) -> int:
        return scales_of(self.problem, name.upper()).rows

    def _x_scale(self, mi: int, half: int) -> str:
        """The register of the scale for row ``half`` of the thread's two rows in instruction ``mi``."""
        x = self.x
        return x.scales[2 * mi + half if x.rows == 1 else ROWS * mi // (ROWS * self.mainloop.mi // x.scales.size)]

    @property
    def columns(self) -> dict[Tile, list[tuple[list[Exchange], list[ScaledSums]]]]:
        """For each register tile with sums of a block of K: the scaling of these sums, in groups of columns that have
        the same scales of Y. A group has the shuffles that bring its scales, and its sums."""
        return {partial: list(self._columns(partial)) for partial in self.mainloop.partial_sums}

    def _columns(self, partial: Tile) -> Iterator[tuple[list[Exchange], list[ScaledSums]]]:
        m, y = self.mainloop, self.y
        if not self.exchanged:
            span = m.y_tile // y.scales.size // COLUMNS
            for n in range(y.scales.size):
                yield [], self._sums(partial, y.scales[n], range(n * span, (n + 1) * span), (0, 1))
            return
        for group in range(m.groups):
            word, lane = divmod(COLUMNS * group, WARP)
            pair = [Exchange(f"%scale_column{e}", y.scales[word], lane + e) for e in (0, 1)]
            yield pair, [s for e in (0, 1) for s in self._sums(partial, pair[e].to, range(group, group + 1), (e,))]

    def _sums(self, partial: Tile, y: str, groups: range, columns: tuple[int, ...]) -> list[ScaledSums]:
        """The sums of ``columns`` in groups of 8 columns."""
        m, sums = self.mainloop, []
        registers: dict[str, list[tuple[str, str]]] = {}
        for mi in range(m.mi):
            for half in (0, 1):
                at = [4 * j + 2 * half + e for j in groups for e in columns]
                pairs = registers.setdefault(self._x_scale(mi, half), [])
                pairs += [(m.acc[mi, n], partial[mi, n]) for n in at]
        sums += [ScaledSums(x, y, pairs) for x, pairs in registers.items()]
        return sums

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        out = []
        for x in self.sides:
            name = x.name.upper()
            out.append((x.scales, f"scales of {name}"))
            out.append((x.loaded, f"scales of {name}, of the next block of K"))
            out.append((x.addresses, f"addresses of scales of {name}"))
        return out


@dataclass(frozen=True)
class NoScales(Part):
    """The part of kernels without block scales."""

    template = "math/no_block_scales.mako"

    @property
    def parameters(self) -> list[Parameters]:
        return []
