"""The part of a wgmma kernel's plan that is about sums: where they are, and how those of slices of K come together."""

from __future__ import annotations

from types import SimpleNamespace

from ptxgen.config import SPLIT_POLL, SPLIT_SHARE
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, WARPGROUP, batch, owners
from ptxgen.families.wgmma.layout import Operand, Slot, batches
from ptxgen.families.wgmma.leaving import LeavingPlan
from ptxgen.registers import Tile

GROUP_BYTES = 16 * WARPGROUP  #: of a warpgroup's sums of 8 columns


class SumsPlan(LeavingPlan):
    """``early``: operands whose tiles begin before their first element."""

    wg: int
    kc: int
    y_tile: int
    line: int
    x: Operand
    y: Operand
    early: list[Operand]

    def _sums(self) -> None:
        c, g = self.config, self.geometry
        groups = self.y_tile // COLUMNS
        #: type of the registers of sums, which integers share with the f32 that they become; how parts are added
        self.held, self.join = ("b32", "add.s32") if self.converts else (self.sum, self.add)
        self.acc = Tile("acc", self.held, (self.mi, 4 * groups))
        #: what wgmma adds to
        self.packed = self.problem.accumulator.bytes == 2
        self.into = Tile("pair", "b32", (self.mi, 2 * groups)) if self.packed else self.acc
        #: what finished sums are in
        self.final = self.acc
        self.alone = bool(g.alone)
        self.cluster_owners = owners(groups, c.kc)
        self.added_base, self.added_bytes = int(g.ring), int(g.added_used)
        if c.kc > 1:
            groups //= self.cluster_owners
            self.part_wg = self.mi * groups * GROUP_BYTES
            self.sent = [self._share(owner, groups) for owner in range(self.cluster_owners)]
            if not self.alone:
                self.final = Tile("sum", self.held, (self.mi, 4 * groups))
            self.received = [
                Slot(sender * self.wg * self.part_wg + s.offset, s.into, sender == 0 and not self.alone)
                for sender in range(c.kc - self.alone)
                for s in self._parts(self.final, groups)
            ]
        self.meets = c.kg > 1 and c.split in (SPLIT_POLL, SPLIT_SHARE)
        self.shares = self.meets and c.split == SPLIT_SHARE
        if self.meets:
            self._meeting(groups)
        self.finish = int(g.finish)

    @property
    def early_places(self) -> list[SimpleNamespace]:
        """Pairs of sums, how far in shared memory they lie from a thread's first, and whether they are those of the
        last eight rows, of some threads, or columns, which are the next tile's."""
        rows, columns = self.x in self.early, self.y in self.early
        groups = self.y_tile // COLUMNS
        return [
            SimpleNamespace(offset=(m * ROWS + 8 * h) * self.line + 4 * COLUMNS * j, first=self.acc[m, 4 * j + 2 * h],
                            second=self.acc[m, 4 * j + 2 * h + 1], last_row=rows and m == self.mi - 1 and h == 1,
                            last_column=columns and j == groups - 1)
            for m in range(self.mi) for j in range(groups) for h in range(2)
        ]  # fmt: skip

    def _parts(self, sums: Tile, groups: int) -> list[Slot]:
        """The groups of a tile of finished sums, as they lie in a workspace."""
        return [
            Slot((m * groups + j) * GROUP_BYTES, [sums[m, 4 * j + i] for i in range(4)], False)
            for m in range(self.mi)
            for j in range(groups)
        ]

    def _share(self, owner: int, groups: int) -> list[Slot]:
        """The accumulators that ``owner`` finishes, at their places in its part."""
        return [
            Slot(s.offset, [self.acc[m, 4 * (owner * groups + j) + i] for i in range(4)], False)
            for s, (m, j) in zip(
                self._parts(Tile("none", self.held, (self.mi, 4 * groups)), groups),
                [(m, j) for m in range(self.mi) for j in range(groups)], strict=True)
        ]  # fmt: skip

    def _meeting(self, groups: int) -> None:
        c = self.config
        self.owners = int(self.geometry.own) if self.shares else 1
        groups //= self.owners
        self.part_wg = self.mi * groups * GROUP_BYTES
        self.part = self.wg * self.part_wg
        #: bits of a sum that are inverted in the workspace
        self.inverted = 0x80000000 if self.problem.accumulator.integer else 0xFFFFFFFF
        self.meet_bytes = self.owners * c.kg * self.part
        if self.shares:
            self.left = [
                Slot(owner * c.kg * self.part + s.offset, s.into, False)
                for owner in range(self.owners) for s in self._share(owner, groups)
            ]  # fmt: skip
            self.final = Tile("sum", self.held, (self.mi, 4 * groups))
        else:
            self.left = self._parts(self.final, groups)
        slots = [
            Slot(z * self.part + s.offset, s.into, self.shares and z == 0)
            for z in range(c.kg if self.shares else c.kg - 1)
            for s in self._parts(self.final, groups)
        ]
        self.batch = batch(self.acc.size)
        self.batches = batches(slots, self.batch)
