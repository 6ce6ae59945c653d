"""Memory operands: addresses of the lanes of a warp batch become checked positions in an arena of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE, OFFSET, RANK, SHARED_BASE, SHARED_WINDOW, WINDOW
from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ptx.syntax import Instruction, Mem, Operand, Sym
from ptxgen.emulator.stats import Stats
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.touch import Touch, page_bits
from ptxgen.emulator.warp_batch import AddressInfo, WarpBatch, active, fault
from ptxgen.errors import MisalignedFault, OutOfBoundsFault, RaceFault

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None


class Site:
    """One memory operand of one instruction."""

    __slots__ = (
        "bytes",
        "count",
        "distinct",
        "ideal",
        "ins",
        "key",
        "kind",
        "next_sample",
        "offset",
        "own",
        "sectors",
        "seen",
        "size",
        "slots",
        "space",
        "view",
        "wavefronts",
    )

    def __init__(self, b: Builder, ins: Instruction, op: Operand, space: str, size: int, kind: str) -> None:
        if not isinstance(op, Mem):
            raise b.malformed("an address in brackets is needed")
        if space == "generic" and isinstance(op.base, Sym) and op.base.var.space == "local":
            space = "local"  # the name of a local variable names the thread's own
        self.ins, self.space, self.size, self.kind = ins, space, size, kind
        self.key, self.view, constant = b.address_key(op.base, space)
        #: a constant address in the shared memory of the block itself
        self.own = space == "shared" or (isinstance(op.base, Sym) and op.base.var.space == "shared")
        self.offset = op.offset + constant
        self.slots: list[int] | None = None  # registers that a load fills, one an element
        self.clear()

    def clear(self) -> None:
        self.count = 0  # executions, by warps
        self.seen = 0  # warps sampled
        self.wavefronts = self.ideal = self.sectors = self.bytes = self.distinct = 0.0
        self.next_sample = 1

    def addresses(self, c: WarpBatch, lanes: Array | None) -> Array:
        """Addresses of some lanes as signed 64-bit integers."""
        base = c.v[self.view]
        if base.ndim == 0:
            at = np.full(c.n if lanes is None else len(lanes), int(base) + self.offset, np.int64)
            if self.own and c.chunk.windows is not None:
                at += c.chunk.windows[c.row if lanes is None else lanes >> 5]
            return at
        picked = base if lanes is None else base[lanes]
        return picked.astype(np.int64) + self.offset


class Place:
    """Positions of an access: element numbers `index` + `shift`, of all lanes or of `lanes`."""

    __slots__ = ("index", "lanes", "mask", "shift")

    def __init__(self, index: Array, shift: int, lanes: Array | None, mask: Mask) -> None:
        self.index, self.shift, self.lanes, self.mask = index, shift, lanes, mask


def info_of(c: WarpBatch, site: Site, base: Array | int) -> AddressInfo:
    """The address cache of a warp batch for one register; `base` turns addresses into arena positions."""
    values = c.v[site.view]
    if values.ndim == 0:
        value = int(values)
        index = np.zeros(c.n, np.int64) + base + value
        found = AddressInfo(value, value, value, index)
    else:
        lo = int(np.minimum.reduce(values))
        hi = int(np.maximum.reduce(values))
        ored = int(np.bitwise_or.reduce(values))
        found = AddressInfo(lo, hi, ored, values.astype(np.int64) + base)
    c.addresses[site.key] = found
    return found


def misaligned(c: WarpBatch, site: Site, at: Array, lanes: Array) -> None:
    bad = at & (site.size - 1) != 0
    if bad.any():
        i = int(np.argmax(bad))
        raise fault(
            MisalignedFault, f"the address is no multiple of {site.size} bytes", c, site.ins, int(lanes[i]), int(at[i])
        )


def shared(c: WarpBatch, site: Site, m: Mask, unit: int, atomic: bool = False) -> Place:
    """Positions in the chunk's shared memory, in elements of `unit` bytes; every check done."""
    if c.chunk.windows is not None:
        return cluster_shared(c, site, m, unit, atomic)
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = info_of(c, site, c.shared_base)
    chunk = c.chunk
    offset, size = site.offset, site.size
    lo, hi = info.lo + offset, info.hi + offset + size
    if lo >= SHARED_BASE and hi <= chunk.end and not (info.ored | offset) & (size - 1):
        place = Place(info.unit(unit), offset // unit, None, m)
        touch = Touch(page_bits(lo, hi), info.index, offset, size, m, site.ins)
    else:
        lanes = np.arange(c.n) if m is None else np.flatnonzero(m)
        at = site.addresses(c, lanes)
        return shared_at(c, site, at, lanes, unit, atomic)
    watch(c, touch, "atomic" if atomic else site.kind, site.slots)
    if chunk.engine.sampling:
        sample_shared(c, site, place, unit)
    return place


def shared_at(c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int, atomic: bool = False) -> Place:
    """As `shared`, for explicit addresses of some lanes."""
    if c.chunk.windows is not None:
        return cluster_shared_at(c, site, at, lanes, unit, atomic, True)
    chunk, size = c.chunk, site.size
    bad = (at < SHARED_BASE) | (at + size > chunk.end)
    if bad.any():
        i = int(np.argmax(bad))
        raise fault(
            OutOfBoundsFault,
            f"{size} bytes of shared memory outside [{SHARED_BASE:#x}, {chunk.end:#x})",
            c,
            site.ins,
            int(lanes[i]),
            int(at[i]),
        )
    misaligned(c, site, at, lanes)
    index = at + c.shared_base[lanes]
    if len(at):
        touch = Touch(page_bits(int(at.min()), int(at.max()) + size), index, 0, size, None, site.ins)
        touch.lanes = lanes
        watch(c, touch, "atomic" if atomic else site.kind, site.slots)
    place = Place(index >> (unit.bit_length() - 1), 0, lanes, None)
    if chunk.engine.sampling:
        sample_shared(c, site, place, unit)
    return place


def watch(c: WarpBatch, touch: Touch, kind: str, slots: list[int] | None = None) -> None:
    """Shadow state of an access to shared memory."""
    checks = c.chunk.checks
    pages = touch.pages
    if checks.hook is not None:
        checks.hook(c, touch, kind)
    if checks.copy_pages & pages:
        checks.check_copies(c, touch, "read" if kind == "read" else "written")
    if checks.races:
        checks.record(c, touch, kind)
    if pages & ~checks.valid_pages:
        if kind != "write":
            checks.check_read(c, touch, slots)
        else:
            checks.mark_written(pages, touch.positions()[0], touch.size)


def global_access(c: WarpBatch, site: Site, m: Mask, unit: int) -> Place:
    """Positions in global memory, in elements of `unit` bytes, checked."""
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = info_of(c, site, -GLOBAL_BASE)
    offset, size = site.offset, site.size
    lo, hi = info.lo + offset, info.hi + offset + size
    engine = c.chunk.engine
    if not (info.start <= lo and hi <= info.end):
        found = engine.memory.extent(lo)
        if found is not None and hi <= found[1]:
            info.start, info.end = found
        else:
            return global_access_at(c, site, m, unit)
    if (info.ored | offset) & (size - 1):
        return global_access_at(c, site, m, unit)
    if site.kind != "read" and info.start in engine.memory.readonly:
        return global_access_at(c, site, m, unit)
    place = Place(info.unit(unit), offset // unit, None, m)
    if engine.shadow is not None and site.ins.op != "st" and info.start not in engine.memory.readonly:
        lanes = np.arange(c.n) if m is None else np.flatnonzero(m)
        engine.shadow.access(c, site.ins, site.kind, site.size, info.index[lanes] + offset, lanes)
    if engine.sampling:
        sample_global(c, site, place, unit)
    return place


def global_access_at(
    c: WarpBatch, site: Site, m: Mask, unit: int, at: Array | None = None, lanes: Array | None = None
) -> Place:
    """As `global_access`, lane by lane."""
    engine = c.chunk.engine
    memory = engine.memory
    if lanes is None:
        lanes = np.arange(c.n) if m is None else np.flatnonzero(m)
    if at is None:
        at = site.addresses(c, lanes)
    good = memory.inside(at, site.size)
    if not good.all():
        i = int(np.argmin(good))
        text = memory.outside(int(at[i]), site.size, nearest(at, good, i))
        raise fault(OutOfBoundsFault, text, c, site.ins, int(lanes[i]), int(at[i]))
    misaligned(c, site, at, lanes)
    if site.kind != "read" and memory.readonly:
        for start in memory.readonly:
            extent = memory.extent(start)
            if extent is None:
                continue
            bad = (at >= extent[0]) & (at < extent[1])
            if bad.any():
                i = int(np.argmax(bad))
                text = f"a read-only buffer is written: {memory.name(start)}"
                raise fault(OutOfBoundsFault, text, c, site.ins, int(lanes[i]), int(at[i]))
    if engine.shadow is not None and site.ins.op != "st":
        engine.shadow.access(c, site.ins, site.kind, site.size, at - GLOBAL_BASE, lanes)
    place = Place((at - GLOBAL_BASE) >> (unit.bit_length() - 1), 0, lanes, None)
    if engine.sampling:
        sample_global(c, site, place, unit)
    return place


def nearest(at: Array, good: Array, i: int) -> int | None:
    """Of the addresses that are inside an allocation, the one next to address number i."""
    inside = at[good]
    return int(inside[np.argmin(np.abs(inside - at[i]))]) if len(inside) else None


def is_generic_shared(at: Array) -> Array:
    return (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + (1 << 32))


# ---- samples for the statistics


def sampled_lanes(c: WarpBatch, site: Site, place: Place) -> tuple[Array, Array] | None:
    """Positions and warp numbers of the lanes to look at, or None when this execution is not sampled."""
    lanes = place.lanes
    if lanes is None:
        lanes = np.arange(c.n) if place.mask is None else np.flatnonzero(place.mask)
        index = place.index[lanes]
    else:
        index = place.index
    if not len(lanes):
        return None
    warps = lanes >> 5
    if c.chunk.engine.sampling == 1:
        few = warps < warps[0] + 8
        index, warps = index[few], warps[few]
    return index + place.shift, warps


def is_sampled(c: WarpBatch, site: Site) -> bool:
    site.count += c.blocks
    if c.chunk.engine.sampling == 2:
        return True
    if site.count < site.next_sample:
        return False
    site.next_sample = max(4 * site.count, 64 * c.blocks)
    return True


def sample_shared(c: WarpBatch, site: Site, place: Place, unit: int) -> None:
    if not is_sampled(c, site):
        return
    got = sampled_lanes(c, site, place)
    if got is None:
        site.seen += c.blocks
        return
    index, warps = got
    size = site.size
    start = index * unit % c.chunk.stride
    n_warps = len(np.unique(warps))
    # 4-byte words, a phase at a time: 8-byte accesses go by half warps, 16-byte ones by quarters
    group = warps * 8 + ((np.arange(len(warps)) % 32 * size) >> 7 if size > 4 else 0)
    wavefronts = ideal = 0
    all_words = np.concatenate([start // 4 + i for i in range(max(size // 4, 1))])
    groups = np.tile(group, max(size // 4, 1))
    unique = np.unique(groups * (1 << 20) + all_words)
    bank = (unique >> 20) * 32 + (unique & ((1 << 20) - 1)) % 32
    used, counts = np.unique(bank, return_counts=True)
    owner = used // 32
    best: dict[int, int] = {}
    for g, k in zip(owner.tolist(), counts.tolist(), strict=True):
        if k > best.get(g, 0):
            best[g] = k
    wavefronts = sum(best.values())
    ideal = len(best)
    site.seen += n_warps
    site.wavefronts += wavefronts
    site.ideal += ideal
    site.bytes += len(index) * size


def sample_global(c: WarpBatch, site: Site, place: Place, unit: int) -> None:
    if not is_sampled(c, site):
        return
    got = sampled_lanes(c, site, place)
    if got is None:
        site.seen += c.blocks
        return
    index, warps = got
    start = index * unit
    first, last = start >> 5, (start + site.size - 1) >> 5
    keys = np.concatenate([warps * (1 << 40) + first, warps * (1 << 40) + last])
    site.seen += len(np.unique(warps))
    site.sectors += len(np.unique(keys))
    site.distinct += len(np.unique(warps * (1 << 40) + index)) * site.size
    site.bytes += len(index) * site.size


def add_access_stats(stats: Stats, sites: list[Site]) -> None:
    """Adds what the sites saw to the launch's statistics, scaled to all executions."""
    for site in sites:
        if not site.seen:
            continue
        scale = site.count / site.seen
        into = (
            stats.shared
            if site.space == "shared"
            else (stats.global_load if site.kind == "read" else stats.global_store)
        )
        into.requests += site.count
        into.wavefronts += scale * site.wavefronts
        into.ideal += scale * site.ideal
        into.sectors += scale * site.sectors
        into.bytes += scale * site.bytes
        into.distinct += scale * site.distinct


# ---- addresses


def from_generic(c: WarpBatch, at: Array, lanes: Array, ins: Instruction) -> Array:
    """Shared addresses of generic ones."""
    bad = (at < SHARED_WINDOW) | (at >= SHARED_WINDOW + WINDOW)
    if bad.any():
        i = int(np.argmax(bad))
        raise fault(OutOfBoundsFault, "a generic address outside shared memory", c, ins, int(lanes[i]), int(at[i]))
    return at - SHARED_WINDOW


def locate(c: WarpBatch, at: Array, lanes: Array, size: int, ins: Instruction, everywhere: bool) -> tuple[Array, Array]:
    """Positions in the chunk's arena, and blocks, of shared addresses; ``everywhere``: of any block of the cluster."""
    chunk = c.chunk
    rank, offset = at >> RANK, at & OFFSET
    row = lanes >> 5
    own = chunk.ranks[row]
    count = chunk.engine.cluster_blocks
    bad = (at < 0) | (offset < SHARED_BASE) | (offset + size > chunk.end) | (rank >= count)
    if not everywhere:
        bad |= rank != own
    if bad.any():
        i = int(np.argmax(bad))
        if 0 <= rank[i] < count and rank[i] != own[i] and SHARED_BASE <= offset[i] < chunk.end:
            message = f"shared memory of rank {int(rank[i])}, which only .shared::cluster reaches"
        else:
            message = f"{size} bytes of shared memory outside [{SHARED_BASE:#x}, {chunk.end:#x})"
            if at[i] >= 0 and rank[i]:
                message += f", or of rank {int(rank[i])} in a cluster of {count}"
        raise fault(OutOfBoundsFault, message, c, ins, int(lanes[i]), int(at[i]))
    target = row - own + rank
    if chunk.async_state is not None and async_state(chunk).exited[target].any():
        i = int(np.argmax(async_state(chunk).exited[target]))
        text = f"the shared memory of a block that has exited (rank {int(rank[i])}) is accessed"
        raise fault(RaceFault, text, c, ins, int(lanes[i]), int(at[i]))
    return target * chunk.stride + offset, target


def cluster_shared_at(
    c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int, atomic: bool, everywhere: bool
) -> Place:
    """As `shared_at`, in a cluster."""
    index, _ = locate(c, at, lanes, site.size, site.ins, everywhere)
    misaligned(c, site, at, lanes)
    if len(at):
        offset = at & OFFSET
        touch = Touch(page_bits(int(offset.min()), int(offset.max()) + site.size), index, 0, site.size, None, site.ins)
        touch.lanes = lanes
        watch(c, touch, "atomic" if atomic else site.kind, site.slots)
    place = Place(index >> (unit.bit_length() - 1), 0, lanes, None)
    if c.chunk.engine.sampling:
        sample_shared(c, site, place, unit)
    return place


def cluster_info(c: WarpBatch, site: Site) -> AddressInfo:
    """The address cache of a register: addresses less the window of the own block."""
    values, windows = c.v[site.view], c.chunk.windows
    assert windows is not None
    at = np.full(c.n, int(values), np.int64) if values.ndim == 0 else values.astype(np.int64) - windows[c.row]
    ored = int(np.bitwise_or.reduce(at))
    found = AddressInfo(int(at.min()), int(at.max()), ored, at + c.row * c.chunk.stride)
    c.addresses[site.key] = found
    return found


def cluster_shared(
    c: WarpBatch, site: Site, m: Mask, unit: int, atomic: bool = False, everywhere: bool = False
) -> Place:
    """As `shared`, in a cluster."""
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = cluster_info(c, site)
    chunk, offset, size = c.chunk, site.offset, site.size
    lo, hi = info.lo + offset, info.hi + offset + size
    if lo >= SHARED_BASE and hi <= chunk.end and not (info.ored | offset) & (size - 1):
        place = Place(info.unit(unit), offset // unit, None, m)
        touch = Touch(page_bits(lo, hi), info.index, offset, size, m, site.ins)
        watch(c, touch, "atomic" if atomic else site.kind, site.slots)
        if chunk.engine.sampling:
            sample_shared(c, site, place, unit)
        return place
    lanes = np.flatnonzero(active(c, m))
    return cluster_shared_at(c, site, site.addresses(c, lanes), lanes, unit, atomic, everywhere)


def anywhere(c: WarpBatch, site: Site, m: Mask, unit: int) -> list[tuple[dict[int, Array], Place]]:
    """Where an instruction with .shared::cluster goes."""
    return [(c.chunk.views, cluster_shared(c, site, m, unit, everywhere=True))]
