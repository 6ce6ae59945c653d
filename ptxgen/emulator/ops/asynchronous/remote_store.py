"""st.async and red.async: stores and reductions in another block's shared memory, reported to an mbarrier there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import OFFSET
from ptxgen.emulator.ops.operands.access import Site, check_aligned, from_generic, locate
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ops.synchronisation.atomic import in_random_order
from ptxgen.emulator.ops.synchronisation.mbarrier import MbarrierOperand
from ptxgen.emulator.ptx.dtypes import DTYPES
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Vec
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.events import CHUNK, Access
from ptxgen.emulator.sync.touch import page_bits
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import Fault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


_WORDS = {"async", "weak", "relaxed", "cluster", "shared::cluster", "mbarrier::complete_tx::bytes"}


#: operation of red.async -> its types
REDUCTIONS = {
    "inc": {"u32"},
    "dec": {"u32"},
    "min": {"u32", "s32"},
    "max": {"u32", "s32"},
    "and": {"b32"},
    "or": {"b32"},
    "xor": {"b32"},
    "add": {"u32", "s32", "u64"},
}


class RemoteStore:
    """Values that st.async or red.async has sent and not yet stored. ``at``: their positions, by lane; ``barrier_at``:
    positions of the mbarriers that they signal."""

    def __init__(
        self,
        batch: WarpBatch,
        ins: Instruction,
        lanes: Array,
        at: Array,
        barrier_at: Array,
        values: list[Array],
        op: str,
    ) -> None:
        self.batch, self.ins, self.lanes, self.at, self.barrier_at, self.values, self.op = (
            batch,
            ins,
            lanes,
            at,
            barrier_at,
            values,
            op,
        )
        self.signals = async_state(batch.wave).signals(batch, ins, lanes, barrier_at, self.operation, partial=True)

    @property
    def operation(self) -> str:
        return "red.async" if self.op else "st.async"

    @property
    def size(self) -> int:
        return sum(v.itemsize for v in self.values)

    def complete(self) -> None:
        c = self.batch
        wave = c.wave
        unit = self.values[0].itemsize
        for i, value in enumerate(self.values):
            arena = wave.views[unit].view(value.dtype)
            where = self.at // unit + i
            if self.op:
                in_random_order(wave.engine, self.op, "", arena, where, value, None, False)
            else:
                arena[where] = value
        offset = self.at % wave.stride
        pages = page_bits(int(offset.min()), int(offset.max()) + self.size)
        wave.checks.mark_written(pages, self.at, self.size)
        async_state(wave).signal(self.signals, np.full(len(self.lanes), self.size))


def remote(b: Builder, ins: Instruction, vector: int, ptx_type: str, op: str) -> Step:
    """The step of a store of ``vector`` elements, or of a reduction by ``op``."""
    size = SIZES[ptx_type]
    generic = "shared::cluster" not in ins.mods
    site = Site(b, ins, ins.operands[0], "generic" if generic else "shared", size * vector, "write")
    items = ins.operands[1].items if isinstance(ins.operands[1], Vec) else (ins.operands[1],)
    if len(items) != vector or len(ins.operands) != 3:
        raise b.malformed("[destination], the values and [mbarrier] are needed")
    srcs = [b.src(item, ptx_type) for item in items]
    place = MbarrierOperand(b, ins, ins.operands[2], "generic" if generic else "shared::cluster", any_block=True)
    dtype: Any = DTYPES[ptx_type if op else f"u{8 * size}"]

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        wave = c.wave
        if wave.engine.cluster_blocks == 1:
            raise fault(Fault, f"{ins.op}.async in a cluster of one block", c, ins, int(lanes[0]))
        address = site.addresses(c, lanes)
        if generic:
            address = from_generic(c, address, lanes, ins)
        check_aligned(c, site, address, lanes)
        at, target = locate(c, address, lanes, site.size, ins, True)
        barrier_at = place.positions(c, lanes)
        bad = barrier_at // wave.stride != target
        if op:
            bad |= target == lanes >> 5
        if any_true(bad):
            i = int(np.argmax(bad))
            local = target[i] == lanes[i] >> 5
            text = "the address is in the executing block" if local else "address and mbarrier are in different blocks"
            raise fault(Fault, f"{ins.op}.async: {text}", c, ins, int(lanes[i]), int(address[i]))
        offset = address & OFFSET
        pages = page_bits(int(offset.min()), int(offset.max()) + site.size)
        access = Access(ins, lanes, (at >> CHUNK)[:, None], pages, at[:, None], site.size)
        events = async_state(wave).events
        events.check(c, access, f"{ins.op}.async", True, proxy=False)
        values = [spread(c.v[s], c.n)[lanes].view(dtype) for s in srcs]
        store = RemoteStore(c, ins, lanes, at, barrier_at, values, op)
        for event, which in store.signals.groups:
            events.start(event, access.subset(which))
        async_state(wave).begin(store)

    return step


@instruction("st.async")
def st_async(b: Builder, ins: Instruction) -> Step:
    vector = next((int(m[1:]) for m in ins.mods if m in ("v2", "v4")), 1)
    ptx_type = ins.mods[-1]
    if set(ins.mods[:-1]) - _WORDS - {"v2", "v4"} or ptx_type not in DTYPES or SIZES[ptx_type] not in (4, 8):
        raise b.unsupported()
    if SIZES[ptx_type] * vector > 16:
        raise b.malformed("at most 16 bytes")
    return remote(b, ins, vector, ptx_type, "")


@instruction("red.async")
def red_async(b: Builder, ins: Instruction) -> Step:
    op, ptx_type = ins.mods[-2], ins.mods[-1]
    if set(ins.mods[:-2]) - _WORDS or ptx_type not in REDUCTIONS.get(op, set()):
        raise b.unsupported()
    return remote(b, ins, 1, "u32" if ptx_type == "b32" else ptx_type, op)
