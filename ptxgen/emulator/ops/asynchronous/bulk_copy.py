"""cp.async.bulk and cp.reduce.async.bulk without tensor maps, and bulk groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE
from ptxgen.emulator.ops.asynchronous.bulk_transfers import (
    CopyBarrier,
    CopyFromShared,
    CopyToShared,
    Issued,
    check_global,
    check_multiple,
    chunks,
    deliveries,
    reduce_into,
)
from ptxgen.emulator.ops.control.branch import nothing
from ptxgen.emulator.ops.operands.access import Site, locate
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ops.synchronisation.mbarrier import value
from ptxgen.emulator.ptx.dtypes import DTYPES
from ptxgen.emulator.ptx.syntax import Imm, Instruction, Operand
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.events import CHUNK, Access
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault
from ptxgen.errors import MisalignedFault, OutOfBoundsFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


SIGNAL = "mbarrier::complete_tx::bytes"


#: reduction -> its types, by the state space of the destination
REDUCTIONS = {
    "shared::cluster": {
        "add": {"u32", "s32", "u64"},
        "min": {"u32", "s32"},
        "max": {"u32", "s32"},
        "inc": {"u32"},
        "dec": {"u32"},
        "and": {"b32"},
        "or": {"b32"},
        "xor": {"b32"},
    },
    "global": {
        "add": {"u32", "s32", "u64", "f32", "f64", "f16", "bf16"},
        "inc": {"u32"},
        "dec": {"u32"},
        "min": {"u32", "s32", "u64", "s64", "f16", "bf16"},
        "max": {"u32", "s32", "u64", "s64", "f16", "bf16"},
        "and": {"b32", "b64"},
        "or": {"b32", "b64"},
        "xor": {"b32", "b64"},
    },
}


def hint(b: Builder, ins: Instruction, operands: list[Operand]) -> None:
    """Removes the cache-hint operand, which has no effect, from ``operands``."""
    if "L2::cache_hint" in ins.mods:
        b.src(operands.pop(), "u64")


def reduction(b: Builder, ins: Instruction, mods: list[str], to: str) -> tuple[str, str]:
    """The pair (operation, type) of a reduction; ("", "") for a copy."""
    if ins.mods[0] != "reduce":
        return "", ""
    op = mods.pop(0) if mods else ""
    noftz = "noftz" in mods
    if noftz:
        mods.remove("noftz")
    ptx_type = mods.pop(0) if mods else ""
    if ptx_type not in REDUCTIONS[to].get(op, set()) or noftz != (op == "add" and ptx_type in ("f16", "bf16")):
        raise b.unsupported()
    return op, "u" + ptx_type[1:] if ptx_type[0] == "b" and ptx_type != "bf16" else ptx_type


def sizes(c: WarpBatch, ins: Instruction, lanes: Array, given: Array) -> list[tuple[int, Array]]:
    """For each size in bytes, the pair (size, lanes that copy so many bytes). Faults on a size that is not a multiple
    of 16."""
    bad = given % 16 != 0
    if any_true(bad):
        i = int(np.argmax(bad))
        raise fault(
            MisalignedFault,
            f"the size of a bulk copy is {int(given[i])} bytes, not a multiple of 16",
            c,
            ins,
            int(lanes[i]),
        )
    return [(int(n), flatnonzero(given == n)) for n in np.unique(given) if n]


@instruction("cp.async.bulk", "cp.reduce.async.bulk")
def bulk(b: Builder, ins: Instruction) -> Step:
    mods = list(ins.mods)
    if mods[0] == "reduce":
        mods.pop(0)
    mods = [m for m in mods[2:] if m != "L2::cache_hint"]
    if len(mods) < 3:
        raise b.unsupported()
    to, source, how = mods[:3]
    del mods[:3]
    multicast = mods[:1] == ["multicast::cluster"]
    if multicast:
        mods.pop(0)
    if to in ("shared::cluster", "shared::cta") and source == "global" and how == SIGNAL and ins.mods[0] == "async":
        make: Any = from_global
    elif (to, source, how) == ("shared::cluster", "shared::cta", SIGNAL) and not multicast:
        make = between_blocks
    elif (to, source, how) == ("global", "shared::cta", "bulk_group") and not multicast:
        make = to_global
    else:
        raise b.unsupported()
    op, ptx_type = reduction(b, ins, mods, to if to == "global" else "shared::cluster")
    if mods:
        raise b.unsupported(f".{mods[0]}")
    operands = list(ins.operands)
    hint(b, ins, operands)
    mask = value(b, operands.pop(), "u16") if multicast else None
    if len(operands) != (3 if how == "bulk_group" else 4):
        raise b.malformed(
            "[destination], [source], size" + ("" if how == "bulk_group" else ", [mbarrier]") + " are needed"
        )
    step: Step = make(b, ins, operands, to, op, ptx_type, mask)
    return step


def global_addresses(
    c: WarpBatch, ins: Instruction, site: Site, lanes: Array, count: int, writes: bool, sources: Array | None = None
) -> Array:
    """The global addresses of copies of ``count`` bytes each, which are checked and recorded here.

    ``sources``: for copies that write, the addresses in shared memory. A copy that several lanes issue is recorded
    once.
    """
    start = site.addresses(c, lanes)
    check_multiple(c, ins, lanes, start, 16, "the address in global memory")
    issued = Issued(c, ins)
    for i, (lane, low) in enumerate(zip(lanes.tolist(), start.tolist(), strict=True)):
        check_global(c, ins, lane, low, low + count, writes)
        if c.wave.engine.shadow is not None and (sources is None or issued.first(lane, low, int(sources[i]))):
            c.wave.engine.shadow.bulk(c, ins, lane, low, low + count, writes)
    return start


def from_global(
    b: Builder, ins: Instruction, operands: list[Operand], to: str, op: str, ptx_type: str, mask: Any
) -> Step:
    place = Site(b, ins, operands[0], "shared", 16, "write")
    source = Site(b, ins, operands[1], "global", 16, "read")
    size = value(b, operands[2])
    barrier_at = CopyBarrier(b, ins, operands[3], to, any_block=to == "shared::cluster")

    def step(c: WarpBatch, m: Mask) -> None:
        every = flatnonzero(active(c, m))
        for count, which in sizes(c, ins, every, size(c, every)):
            lanes = every[which]
            start = global_addresses(c, ins, source, lanes, count, False)
            address = place.addresses(c, lanes)
            check_multiple(c, ins, lanes, address, 16, "the address in shared memory")
            at, _ = locate(c, address, lanes, count, ins, to == "shared::cluster")
            issuer, targets = deliveries(c, ins, lanes, mask(c, lanes) if mask is not None else None)
            stride = c.wave.stride
            at = np.where(targets < 0, at[issuer], targets * stride + at[issuer] % stride)

            def fetch(i: int, start: Array = start[issuer], count: int = count) -> Array:
                low = int(start[i]) - GLOBAL_BASE
                return c.wave.engine.memory.buffer[low : low + count].copy()

            count_sectors(c, len(lanes), count, True)
            work = CopyToShared(
                c,
                ins,
                lanes[issuer],
                at,
                barrier_at.of_deliveries(c, lanes, issuer, targets),
                count >> CHUNK,
                0,
                fetch,
                "the bulk copy",
            )
            async_state(c.wave).begin(work)

    return step


def count_sectors(c: WarpBatch, requests: int, bytes_: int, load: bool) -> None:
    """Counts the global memory sectors of a copy for the statistics."""
    stats = c.wave.engine.stats
    access = stats.global_load if load else stats.global_store
    access.requests += requests
    access.bytes += requests * bytes_
    access.sectors += requests * -(-bytes_ // 32)


def between_blocks(
    b: Builder, ins: Instruction, operands: list[Operand], to: str, op: str, ptx_type: str, mask: Any
) -> Step:
    place = Site(b, ins, operands[0], "shared", 16, "write")
    source = Site(b, ins, operands[1], "shared", 16, "read")
    size = value(b, operands[2])
    barrier_at = CopyBarrier(b, ins, operands[3], to, any_block=True)
    dtype: Any = DTYPES[ptx_type] if op else np.dtype(np.uint8)
    operation = "the bulk reduction" if op else "the bulk copy"

    def step(c: WarpBatch, m: Mask) -> None:
        every = flatnonzero(active(c, m))
        wave = c.wave
        for count, which in sizes(c, ins, every, size(c, every)):
            lanes = every[which]
            address = place.addresses(c, lanes)
            check_multiple(c, ins, lanes, address, 16, "the destination")
            at, target = locate(c, address, lanes, count, ins, True)
            if any_true(target == lanes >> 5):
                i = int(np.argmax(target == lanes >> 5))
                text = "the destination is in the block itself; it must be in another block of the cluster"
                raise fault(OutOfBoundsFault, text, c, ins, int(lanes[i]), int(address[i]))
            address = source.addresses(c, lanes)
            check_multiple(c, ins, lanes, address, 16, "the source")
            origin, _ = locate(c, address, lanes, count, ins, False)
            number = count >> CHUNK
            events = async_state(wave).events
            read = CopySource(c, ins, lanes, origin, number, operation)

            def fetch(i: int, read: CopySource = read) -> Array:
                arena = wave.shared.view(np.uint64).reshape(-1, 2)
                out: Array = arena[read.access.chunks[i]].view(dtype).reshape(-1)
                return out

            work = CopyToShared(
                c, ins, lanes, at, barrier_at.positions(c, lanes), number, 0, fetch, operation, op, ptx_type
            )
            ranks = wave.ranks[target]
            for event, some in list(work.signals.groups):
                for rank in np.unique(ranks[some]).tolist():  # the receiving block learns that the source has been read
                    these = some[ranks[some] == rank]
                    reads = events.event(("source", rank, event.key), ins, operation, False)
                    events.start(reads, read.access.subset(these))
                    work.signals.groups.append((reads, these))
            async_state(wave).begin(work)

    return step


class CopySource:
    """The source of a copy between blocks."""

    def __init__(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, count: int, operation: str) -> None:
        rows, pages = chunks(c, at, count)
        self.access = Access(ins, lanes, rows, pages)
        async_state(c.wave).events.check(c, self.access, operation, False)


def to_global(
    b: Builder, ins: Instruction, operands: list[Operand], to: str, op: str, ptx_type: str, mask: Any
) -> Step:
    place = Site(b, ins, operands[0], "global", 16, "write")
    source = Site(b, ins, operands[1], "shared", 16, "read")
    size = value(b, operands[2])
    dtype: Any = DTYPES[ptx_type] if op else np.dtype(np.uint8)

    def step(c: WarpBatch, m: Mask) -> None:
        every = flatnonzero(active(c, m))
        for count, which in sizes(c, ins, every, size(c, every)):
            lanes = every[which]
            address = source.addresses(c, lanes)
            start = global_addresses(c, ins, place, lanes, count, True, None if op else address)
            check_multiple(c, ins, lanes, address, 16, "the address in shared memory")
            at, _ = locate(c, address, lanes, count, ins, False)

            def store(i: int, data: Array, start: Array = start) -> None:
                low, memory = int(start[i]), c.wave.engine.memory
                if op:
                    reduce_into(memory.buffer, low, data.view(dtype), op, ptx_type)
                else:
                    memory.buffer[low - GLOBAL_BASE : low - GLOBAL_BASE + len(data)] = data

            count_sectors(c, len(lanes), count, False)
            work = CopyFromShared(
                c,
                ins,
                lanes,
                at,
                count >> CHUNK,
                0,
                store,
                lambda i: None,
                "the bulk reduction" if op else "the bulk copy",
            )
            work.async_state.begin(work)

    return step


@instruction("cp.async.bulk.prefetch")
def prefetch(b: Builder, ins: Instruction) -> Step:
    operands = list(ins.operands)
    hint(b, ins, operands)
    Site(b, ins, operands[0], "global", 16, "read")
    value(b, operands[1])
    return nothing


# ---- groups


@instruction("cp.async.bulk.commit_group")
def commit_group(b: Builder, ins: Instruction) -> Step:
    def step(c: WarpBatch, m: Mask) -> None:
        number = c.state.get("bulk group", 0)
        if m is None and not isinstance(number, np.ndarray):
            c.state["bulk group"] = number + 1
            return
        numbers = number.copy() if isinstance(number, np.ndarray) else np.full(c.n, number)
        numbers[active(c, m)] += 1
        c.state["bulk group"] = numbers

    return step


@instruction("cp.async.bulk.wait_group")
def wait_group(b: Builder, ins: Instruction) -> Step:
    if len(ins.operands) != 1 or not isinstance(ins.operands[0], Imm) or set(ins.mods[3:]) - {"read"}:
        raise b.malformed("a constant is needed")
    keep, read = ins.operands[0].value, "read" in ins.mods

    def step(c: WarpBatch, m: Mask) -> None:
        number = c.state.get("bulk group", 0)
        mask = active(c, m)
        for work in list(async_state(c.wave).stores.get(c.warp, ())):
            limit = number[work.lanes] if isinstance(number, np.ndarray) else number
            which = flatnonzero(mask[work.lanes] & (work.group < limit - keep))
            if len(which):
                work.wait(which, read, mask)

    return step
