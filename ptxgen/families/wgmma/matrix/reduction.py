"""The reduction of partial sums of K slices: between the blocks of a cluster, and through the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import SPLIT_DISTRIBUTED, SPLIT_LAST_CTA, Config
from ptxgen.codegen.parts.part import Allocator, Part
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import Last
from ptxgen.families.wgmma.geometry import WARPGROUP, WgmmaGeometry, batch, owners
from ptxgen.families.wgmma.layout import SumSlot, in_batches
from ptxgen.families.wgmma.matrix.mainloop import Mainloop
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem

GROUP_BYTES = 16 * WARPGROUP  #: bytes of a warpgroup's sums of 8 columns


def sum_slots(sums: Tile, groups: int) -> list[SumSlot]:
    """The slots of all sums of a tile with ``groups`` groups of columns. A buffer is ordered
    [instruction][group][thread]."""
    return [
        SumSlot((m * groups + j) * GROUP_BYTES, [sums[m, 4 * j + i] for i in range(4)], False)
        for m in range(sums.shape[0])
        for j in range(groups)
    ]


def owner_slots(acc: Tile, owner: int, groups: int) -> list[SumSlot]:
    """The slots of the accumulators that block ``owner`` finishes, in the order of ``sum_slots``."""
    return [
        SumSlot((m * groups + j) * GROUP_BYTES, [acc[m, 4 * (owner * groups + j) + i] for i in range(4)], False)
        for m in range(acc.shape[0])
        for j in range(groups)
    ]


@dataclass(frozen=True)
class ClusterReduction(Part):
    """The reduction in a cluster whose blocks split K: each block sends its sums through distributed shared memory to
    the block that finishes them."""

    config: Config
    geometry: WgmmaGeometry
    mainloop: Mainloop

    @property
    def active(self) -> bool:
        return self.config.cluster_k > 1

    @property
    def single_reducer(self) -> bool:
        """True if block 0 finishes the whole tile."""
        return bool(self.geometry.reduction.single_reducer)

    @cached_property
    def owners(self) -> int:
        """The number of blocks that each finish a part of the tile."""
        return int(owners(self.mainloop.groups, self.config.cluster_k))

    @property
    def groups(self) -> int:
        """The number of groups of columns that one block finishes."""
        return self.mainloop.groups // self.owners if self.active else self.mainloop.groups

    @property
    def base(self) -> int:
        """The offset in shared memory of the received sums."""
        return int(self.geometry.pipeline.bytes)

    @property
    def bytes(self) -> int:
        return int(self.geometry.reduction.dsmem_used)

    @property
    def shared_map(self) -> list[str]:
        return [f"{self.base}: sums of the cluster's other blocks, {self.bytes} bytes"] if self.active else []

    @property
    def wg_bytes(self) -> int:
        """The number of bytes of the sums that one warpgroup sends to one owner."""
        return self.mainloop.mi * self.groups * GROUP_BYTES

    @cached_property
    def sums(self) -> Tile:
        """The registers of the sums that this block finishes."""
        m = self.mainloop
        if not self.active or self.single_reducer:
            return m.acc
        return Tile("sum", m.acc_type, (m.mi, 4 * self.groups))

    @cached_property
    def sent(self) -> list[list[SumSlot]]:
        """For each owner, the sums that a block sends."""
        return [owner_slots(self.mainloop.acc, owner, self.groups) for owner in range(self.owners)]

    @cached_property
    def received(self) -> list[SumSlot]:
        """The sums that an owner adds, ordered by sender."""
        single, sender_bytes = self.single_reducer, self.config.math_warpgroups * self.wg_bytes
        return [
            SumSlot(sender * sender_bytes + s.offset, s.registers, sender == 0 and not single)
            for sender in range(self.config.cluster_k - single)
            for s in sum_slots(self.sums, self.groups)
        ]

    @property
    def sender_bytes(self) -> int:
        """The number of bytes of the sums that one block sends to one owner."""
        return self.config.math_warpgroups * self.wg_bytes

    @property
    def send(self) -> str:
        """The opcode of the store to an owner's shared memory."""
        return (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
            if self.counted
            else "st.shared::cluster.v4.b32"
        )

    @property
    def completion(self) -> str:
        """The operand with the owner's mbarrier that counts the bytes; empty if none does."""
        return ", [%peer_bar]" if self.counted else ""

    @property
    def counted(self) -> bool:
        """True if an mbarrier counts the bytes of sums from other blocks."""
        return self.active and not self.config.dsmem_completion


@dataclass(frozen=True)
class SplitKFixup(Part):
    """The reduction of K slices in the workspace within the main kernel. The last slice finishes the tile, or several
    slices each finish a part (``distributed``)."""

    config: Config
    geometry: WgmmaGeometry
    mainloop: Mainloop
    cluster: ClusterReduction
    scheduler: TileScheduler

    template = "epilogue/splitk_fixup.mako"

    @property
    def active(self) -> bool:
        return self.config.kg > 1 and self.config.splitk in (SPLIT_LAST_CTA, SPLIT_DISTRIBUTED)

    @property
    def distributed(self) -> bool:
        """True if several slices each finish a part of the tile."""
        return self.active and self.config.splitk == SPLIT_DISTRIBUTED

    @property
    def owners(self) -> int:
        """The number of slices that finish a part of the tile."""
        return int(self.geometry.reduction.owners) if self.distributed else 1

    @property
    def groups(self) -> int:
        """The number of groups of columns that one slice finishes."""
        return self.cluster.groups // self.owners

    @property
    def wg_bytes(self) -> int:
        """The number of bytes of the sums that one warpgroup has for one owner."""
        return self.mainloop.mi * self.groups * GROUP_BYTES

    @property
    def slice_bytes(self) -> int:
        return self.config.math_warpgroups * self.wg_bytes

    @property
    def tile_bytes(self) -> int:
        """The number of bytes of workspace for a tile."""
        return self.owners * self.config.kg * self.slice_bytes

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        if self.active:
            tiles = self.scheduler.tiles(p)[2] * items * self.config.cluster_k
            workspace.claim(tiles * self.tile_bytes, "partial sums [tile][owner][slice]", zeroed=True)

    @property
    def loaded_words(self) -> list[list[str]]:
        """For each slot in flight, the registers of its words."""
        return [[f"%loaded{4 * n + i}" for i in range(4)] for n in range(self.batch)]

    @property
    def later_words(self) -> list[list[str]]:
        """For each batch, the registers of all words but the first."""
        return [[word for words in self.loaded_words[: len(slots)] for word in words][1:] for slots in self.loaded]

    @property
    def loaded_registers(self) -> int:
        return 4 * self.batch

    last_slice = Last("config.kg")

    @property
    def owner_bytes(self) -> int:
        """The number of bytes of the sums that all slices have for one owner."""
        return self.config.kg * self.slice_bytes

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        mine = self.sums is not self.mainloop.acc
        return [(self.sums, "sums that this block finishes")] if mine else []

    @property
    def inverted_bits(self) -> int:
        """The bits of a sum that are inverted in the workspace, where zero means "not written"."""
        return 0x80000000 if self.mainloop.problem.accumulator.integer else 0xFFFFFFFF

    @cached_property
    def sums(self) -> Tile:
        """The registers of the sums that this block finishes."""
        if not self.distributed:
            return self.cluster.sums
        return Tile("sum", self.mainloop.acc_type, (self.mainloop.mi, 4 * self.groups))

    @cached_property
    def stored(self) -> list[SumSlot]:
        """The sums that a slice stores."""
        if not self.distributed:
            return sum_slots(self.sums, self.groups)
        return [
            SumSlot(owner * self.config.kg * self.slice_bytes + s.offset, s.registers, False)
            for owner in range(self.owners)
            for s in owner_slots(self.mainloop.acc, owner, self.groups)
        ]

    @property
    def batch(self) -> int:
        """The number of slots that a thread has in flight."""
        return int(batch(self.mainloop.acc.size))

    @cached_property
    def loaded(self) -> list[list[SumSlot]]:
        """The sums that an owner adds, slice by slice, in batches."""
        slices = self.config.kg if self.distributed else self.config.kg - 1
        slots = [
            SumSlot(z * self.slice_bytes + s.offset, s.registers, self.distributed and z == 0)
            for z in range(slices)
            for s in sum_slots(self.sums, self.groups)
        ]
        return in_batches(slots, self.batch)
