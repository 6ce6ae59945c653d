"""Memory operands: the conversion of lane addresses to checked positions in an arena of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE, OFFSET, RANK, SHARED_WINDOW, WINDOW
from ptxgen.emulator.memory.variables import past_shared
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ptx.syntax import Instruction, Mem, Operand, Sym
from ptxgen.emulator.reductions import all_true, any_true, count_nonzero, flatnonzero
from ptxgen.emulator.stats import Stats
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.touch import Touch, page_bits
from ptxgen.emulator.warp_batch import AddressInfo, WarpBatch, active, fault
from ptxgen.errors import Fault, MisalignedFault, OutOfBoundsFault, RaceFault

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None


class Site:
    """One memory operand of one instruction, called a site."""

    __slots__ = (
        "alignment",
        "bytes",
        "count",
        "distinct",
        "ideal",
        "ins",
        "key",
        "next_sample",
        "offset",
        "operation",
        "own_block",
        "sampled",
        "sectors",
        "size",
        "slots",
        "space",
        "view",
        "wavefronts",
    )

    def __init__(self, b: Builder, ins: Instruction, op: Operand, space: str, size: int, operation: str) -> None:
        if not isinstance(op, Mem):
            raise b.malformed("an address in brackets is needed")
        if space == "generic" and isinstance(op.base, Sym) and op.base.var.space == "local":
            space = "local"  # the name of a local variable is an address of the executing thread
        self.ins, self.space, self.size, self.operation = ins, space, size, operation
        self.alignment = size  # in bytes
        self.key, self.view, constant = b.address_key(op.base, space)
        #: True if a constant address is in the shared memory of the executing block
        self.own_block = space == "shared" or (isinstance(op.base, Sym) and op.base.var.space == "shared")
        self.offset = op.offset + constant
        self.slots: list[int] | None = None  # registers that a load writes, one for each element
        self.clear()

    def clear(self) -> None:
        self.count = 0  # executions by warps
        self.sampled = 0  # executions by warps that were sampled
        self.wavefronts = self.ideal = self.sectors = self.bytes = self.distinct = 0.0
        self.next_sample = 1

    def addresses(self, c: WarpBatch, lanes: Array | None) -> Array:
        """The addresses of some lanes (None: all) as signed 64-bit integers."""
        base = c.v[self.view]
        if base.ndim == 0:
            at = np.full(c.n if lanes is None else len(lanes), int(base) + self.offset, np.int64)
            if self.own_block and c.wave.windows is not None:
                at += c.wave.windows[c.row if lanes is None else lanes >> 5]
            return at
        values = base if lanes is None else base[lanes]
        return values.astype(np.int64) + self.offset

    def out_of_bounds(self, text: str, c: WarpBatch, bad: Array, lanes: Array, at: Array) -> Fault:
        """The fault of the first access that is out of bounds. ``bad``: True where an access is."""
        i = int(np.argmax(bad))
        return fault(OutOfBoundsFault, text, c, self.ins, int(lanes[i]), int(at[i]), lanes=lanes[bad])


class Positions:
    """The positions of an access: element ``index`` + ``shift`` of an arena, for each lane or for each of ``lanes``."""

    __slots__ = ("index", "lanes", "mask", "shift")

    def __init__(self, index: Array, shift: int, lanes: Array | None, mask: Mask) -> None:
        self.index, self.shift, self.lanes, self.mask = index, shift, lanes, mask


def info_of(c: WarpBatch, site: Site, base: Array | int) -> AddressInfo:
    """The cached facts about the addresses in one register of a warp batch. ``base`` is added to an address to give its
    position in the arena."""
    values = c.v[site.view]
    if values.ndim == 0:
        value = int(values)
        index = np.zeros(c.n, np.int64) + base + value
        info = AddressInfo(value, value, value, index)
    else:
        lo = int(np.minimum.reduce(values))
        hi = int(np.maximum.reduce(values))
        ored = int(np.bitwise_or.reduce(values))
        info = AddressInfo(lo, hi, ored, values.astype(np.int64) + base)
    c.addresses[site.key] = info
    return info


def check_aligned(c: WarpBatch, site: Site, at: Array, lanes: Array) -> None:
    """Faults if an address is not a multiple of the size of the access, or of the alignment of the site."""
    if int(np.bitwise_or.reduce(at)) & (site.alignment - 1):
        bad = at & (site.alignment - 1) != 0
        i = int(np.argmax(bad))
        text = f"the address is not a multiple of {site.alignment} bytes"
        raise fault(MisalignedFault, text, c, site.ins, int(lanes[i]), int(at[i]), lanes=lanes[bad])


def shared(c: WarpBatch, site: Site, m: Mask, unit: int, atomic: bool = False) -> Positions:
    """The checked positions of an access in the wave's shared memory, in elements of ``unit`` bytes."""
    if c.wave.windows is not None:
        return cluster_shared(c, site, m, unit, atomic)
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = info_of(c, site, c.shared_base)
    wave = c.wave
    offset, size = site.offset, site.size
    lo, hi = info.lo + offset, info.hi + offset + size
    if lo >= wave.base and hi <= wave.end and not (info.ored | offset) & (size - 1):
        place = Positions(info.unit(unit), offset // unit, None, m)
        touch = Touch(page_bits(lo, hi), info.index, offset, size, m, site.ins)
    else:
        lanes = np.arange(c.n) if m is None else flatnonzero(m)
        at = site.addresses(c, lanes)
        return shared_at(c, site, at, lanes, unit, atomic)
    record_access(c, touch, "atomic" if atomic else site.operation, site.slots)
    if wave.engine.sampling:
        sample_shared(c, site, place, unit)
    return place


def shared_at(c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int, atomic: bool = False) -> Positions:
    """The checked positions of explicit addresses of some lanes in the wave's shared memory."""
    if c.wave.windows is not None:
        return cluster_shared_at(c, site, at, lanes, unit, atomic, True)
    wave, size = c.wave, site.size
    lo, hi = (int(at.min()), int(at.max()) + size) if len(at) else (wave.base, wave.end)
    if lo < wave.base or hi > wave.end:
        bad = (at < wave.base) | (at + size > wave.end)
        text = f"{size} bytes of shared memory outside [{wave.base:#x}, {wave.end:#x})"
        text += past_shared(wave.program.shared_variables, wave.program.name, int(at[np.argmax(bad)]), wave.end)
        raise site.out_of_bounds(text, c, bad, lanes, at)
    check_aligned(c, site, at, lanes)
    index = at + c.shared_base[lanes]
    if len(at):
        touch = Touch(page_bits(lo, hi), index, 0, size, None, site.ins)
        touch.lanes = lanes
        record_access(c, touch, "atomic" if atomic else site.operation, site.slots)
    place = Positions(index >> (unit.bit_length() - 1), 0, lanes, None)
    if wave.engine.sampling:
        sample_shared(c, site, place, unit)
    return place


def record_access(c: WarpBatch, touch: Touch, operation: str, slots: list[int] | None = None) -> None:
    """Applies all checks of shared memory to an access: initialisation, copies in flight, races."""
    checks = c.wave.checks
    pages = touch.pages
    if checks.hook is not None:
        checks.hook(c, touch, operation)
    if checks.copy_pages & pages:
        checks.check_copies(c, touch, "read" if operation == "read" else "written")
    if checks.races:
        checks.record(c, touch, operation)
    if pages & ~checks.valid_pages:
        if operation != "write":
            checks.check_read(c, touch, slots)
        else:
            checks.mark_written(pages, touch.positions()[0], touch.size)


def global_access(c: WarpBatch, site: Site, m: Mask, unit: int) -> Positions:
    """The checked positions of an access in global memory, in elements of ``unit`` bytes."""
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = info_of(c, site, -GLOBAL_BASE)
    offset, size = site.offset, site.size
    lo, hi = info.lo + offset, info.hi + offset + size
    engine = c.wave.engine
    if not (info.start <= lo and hi <= info.end):
        extent = engine.memory.extent(lo)
        if extent is not None and hi <= extent[1]:
            info.start, info.end = extent
        else:
            return global_access_at(c, site, m, unit)
    if (info.ored | offset) & (size - 1):
        return global_access_at(c, site, m, unit)
    if site.operation != "read" and info.start in engine.memory.readonly:
        return global_access_at(c, site, m, unit)
    place = Positions(info.unit(unit), offset // unit, None, m)
    if engine.shadow is not None and site.ins.op != "st" and info.start not in engine.memory.readonly:
        lanes = c.every_lane if m is None else flatnonzero(m)
        at = info.index if m is None else info.index[lanes]
        engine.shadow.access(c, site.ins, site.operation, site.size, at + offset, lanes)
    if engine.sampling:
        sample_global(c, site, place, unit)
    return place


def global_access_at(
    c: WarpBatch, site: Site, m: Mask, unit: int, at: Array | None = None, lanes: Array | None = None
) -> Positions:
    """The checked positions of an access in global memory, where each lane's address is checked by itself."""
    engine = c.wave.engine
    memory = engine.memory
    if lanes is None:
        lanes = np.arange(c.n) if m is None else flatnonzero(m)
    if at is None:
        at = site.addresses(c, lanes)
    good = memory.inside(at, site.size)
    if not all_true(good):
        i = int(np.argmin(good))
        text = memory.outside(int(at[i]), site.size, nearest(at, good, i))
        raise fault(OutOfBoundsFault, text, c, site.ins, int(lanes[i]), int(at[i]), lanes=lanes[~good])
    check_aligned(c, site, at, lanes)
    if site.operation != "read" and memory.readonly:
        for start in memory.readonly:
            extent = memory.extent(start)
            if extent is None:
                continue
            bad = (at >= extent[0]) & (at < extent[1])
            if any_true(bad):
                text = f"a read-only buffer is written: {memory.name(start)}"
                raise site.out_of_bounds(text, c, bad, lanes, at)
    if engine.shadow is not None and site.ins.op != "st":
        engine.shadow.access(c, site.ins, site.operation, site.size, at - GLOBAL_BASE, lanes)
    place = Positions((at - GLOBAL_BASE) >> (unit.bit_length() - 1), 0, lanes, None)
    if engine.sampling:
        sample_global(c, site, place, unit)
    return place


def nearest(at: Array, good: Array, i: int) -> int | None:
    """The address inside an allocation (``good``) that is closest to address ``i``; None if no address is inside
    one."""
    inside = at[good]
    return int(inside[np.argmin(np.abs(inside - at[i]))]) if len(inside) else None


def is_generic_shared(at: Array) -> Array:
    return (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + (1 << 32))


# ---- samples for the statistics

#: warps of a sample
SAMPLED_WARPS = 8


def sampled_lanes(c: WarpBatch, place: Positions) -> tuple[Array, Array] | None:
    """The pair (positions, warp numbers) of the lanes of a sample; None if no lane executes."""
    lanes, index = place.lanes, place.index
    if lanes is None and place.mask is None:
        some = slice(None if c.wave.engine.sampling == 2 else 32 * SAMPLED_WARPS)
        return index[some] + place.shift, c.every_lane[some] >> 5
    if lanes is None:
        lanes = flatnonzero(place.mask)
        index = index[lanes]
    if not len(lanes):
        return None
    warps = lanes >> 5
    if c.wave.engine.sampling == 1:
        sampled = warps < warps[0] + SAMPLED_WARPS
        index, warps = index[sampled], warps[sampled]
    return index + place.shift, warps


def is_sampled(c: WarpBatch, site: Site) -> bool:
    """Counts an execution of a memory operand. True if it belongs to the sample that statistics are taken from."""
    site.count += c.blocks
    if c.wave.engine.sampling == 2:
        return True
    if site.count < site.next_sample:
        return False
    site.next_sample = max(4 * site.count, 64 * c.blocks)
    return True


def distinct(values: Array) -> int:
    """The number of different values among ``values``, which is not empty; faster than ``unique``."""
    ordered = np.sort(values)
    return count_nonzero(ordered[1:] != ordered[:-1]) + 1


def sample_shared(c: WarpBatch, site: Site, place: Positions, unit: int) -> None:
    if not is_sampled(c, site):
        return
    lanes = sampled_lanes(c, place)
    if lanes is None:
        site.sampled += c.blocks
        return
    index, warps = lanes
    size = site.size
    start = index * unit % c.wave.stride
    # banks are 4 bytes wide; 8-byte accesses are processed by half warps, 16-byte accesses by quarter warps
    group = (warps - warps.min()) * 8 + ((np.arange(len(warps)) % 32 * size) >> 7 if size > 4 else 0)
    words = (group << 20) + start // 4
    if size > 4:
        words = np.concatenate([words + i for i in range(size // 4)])
    words.sort()
    words = words[flatnonzero(np.append(True, words[1:] != words[:-1]))]
    counts = np.bincount((words >> 20) * 32 + words % 32, minlength=int(words[-1] >> 20) * 32 + 32)
    deepest = counts.reshape(-1, 32).max(axis=1)  # for each group of lanes: most words in one bank
    site.sampled += distinct(warps)
    site.wavefronts += int(deepest.sum())
    site.ideal += count_nonzero(deepest)
    site.bytes += len(index) * size


def sample_global(c: WarpBatch, site: Site, place: Positions, unit: int) -> None:
    if not is_sampled(c, site):
        return
    lanes = sampled_lanes(c, place)
    if lanes is None:
        site.sampled += c.blocks
        return
    index, warps = lanes
    start = index * unit
    first, last = start >> 5, (start + site.size - 1) >> 5
    keys = np.concatenate([warps * (1 << 40) + first, warps * (1 << 40) + last])
    site.sampled += distinct(warps)
    site.sectors += distinct(keys)
    site.distinct += distinct(warps * (1 << 40) + index) * site.size
    site.bytes += len(index) * site.size


def add_access_stats(stats: Stats, sites: list[Site]) -> None:
    """Adds the counts of the sites, scaled to all executions, to the statistics of the launch."""
    for site in sites:
        if not site.sampled:
            continue
        scale = site.count / site.sampled
        access = (
            stats.shared
            if site.space == "shared"
            else (stats.global_load if site.operation == "read" else stats.global_store)
        )
        access.requests += site.count
        access.wavefronts += scale * site.wavefronts
        access.ideal += scale * site.ideal
        access.sectors += scale * site.sectors
        access.bytes += scale * site.bytes
        access.distinct += scale * site.distinct


# ---- addresses


def from_generic(c: WarpBatch, at: Array, lanes: Array, ins: Instruction) -> Array:
    """Converts generic addresses to shared addresses; faults outside shared memory."""
    bad = (at < SHARED_WINDOW) | (at >= SHARED_WINDOW + WINDOW)
    if any_true(bad):
        i = int(np.argmax(bad))
        raise fault(OutOfBoundsFault, "a generic address outside shared memory", c, ins, int(lanes[i]), int(at[i]))
    return at - SHARED_WINDOW


def locate(c: WarpBatch, at: Array, lanes: Array, size: int, ins: Instruction, any_block: bool) -> tuple[Array, Array]:
    """The pair (positions in the wave's arena, blocks) of shared addresses; ``any_block``: they may be in any block of
    the cluster."""
    wave = c.wave
    rank, offset = at >> RANK, at & OFFSET
    row = lanes >> 5
    own_rank = wave.ranks[row]
    count = wave.engine.cluster_blocks
    bad = (at < 0) | (offset < wave.base) | (offset + size > wave.end) | (rank >= count)
    if not any_block:
        bad |= rank != own_rank
    if any_true(bad):
        i = int(np.argmax(bad))
        if 0 <= rank[i] < count and rank[i] != own_rank[i] and wave.base <= offset[i] < wave.end:
            message = f"shared memory of rank {int(rank[i])}, which only .shared::cluster can access"
        else:
            message = f"{size} bytes of shared memory outside [{wave.base:#x}, {wave.end:#x})"
            if at[i] >= 0 and rank[i]:
                message += f", or of rank {int(rank[i])} in a cluster of {count}"
        raise fault(OutOfBoundsFault, message, c, ins, int(lanes[i]), int(at[i]), lanes=lanes[bad])
    target = row - own_rank + rank
    if wave.async_state is not None and any_true(async_state(wave).exited[target]):
        i = int(np.argmax(async_state(wave).exited[target]))
        text = f"the shared memory of a block that has exited (rank {int(rank[i])}) is accessed"
        raise fault(RaceFault, text, c, ins, int(lanes[i]), int(at[i]))
    return target * wave.stride + offset, target


def cluster_shared_at(
    c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int, atomic: bool, any_block: bool
) -> Positions:
    """The checked positions of explicit addresses of some lanes in shared memory, for kernels with clusters."""
    index, _ = locate(c, at, lanes, site.size, site.ins, any_block)
    check_aligned(c, site, at, lanes)
    if len(at):
        offset = at & OFFSET
        touch = Touch(page_bits(int(offset.min()), int(offset.max()) + site.size), index, 0, site.size, None, site.ins)
        touch.lanes = lanes
        record_access(c, touch, "atomic" if atomic else site.operation, site.slots)
    place = Positions(index >> (unit.bit_length() - 1), 0, lanes, None)
    if c.wave.engine.sampling:
        sample_shared(c, site, place, unit)
    return place


def cluster_info(c: WarpBatch, site: Site) -> AddressInfo:
    """The cached facts about the addresses in a register, for kernels with clusters: addresses relative to the window
    of the executing block."""
    values, windows = c.v[site.view], c.wave.windows
    assert windows is not None
    at = np.full(c.n, int(values), np.int64) if values.ndim == 0 else values.astype(np.int64) - windows[c.row]
    ored = int(np.bitwise_or.reduce(at))
    info = AddressInfo(int(at.min()), int(at.max()), ored, at + c.row * c.wave.stride)
    c.addresses[site.key] = info
    return info


def cluster_shared(
    c: WarpBatch, site: Site, m: Mask, unit: int, atomic: bool = False, any_block: bool = False
) -> Positions:
    """The checked positions of an access in shared memory, for kernels with clusters."""
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = cluster_info(c, site)
    wave, offset, size = c.wave, site.offset, site.size
    lo, hi = info.lo + offset, info.hi + offset + size
    if lo >= wave.base and hi <= wave.end and not (info.ored | offset) & (size - 1):
        place = Positions(info.unit(unit), offset // unit, None, m)
        touch = Touch(page_bits(lo, hi), info.index, offset, size, m, site.ins)
        record_access(c, touch, "atomic" if atomic else site.operation, site.slots)
        if wave.engine.sampling:
            sample_shared(c, site, place, unit)
        return place
    lanes = flatnonzero(active(c, m))
    return cluster_shared_at(c, site, site.addresses(c, lanes), lanes, unit, atomic, any_block)


def cluster_parts(c: WarpBatch, site: Site, m: Mask, unit: int) -> list[tuple[dict[int, Array], Positions]]:
    """The memory that an instruction with .shared::cluster accesses."""
    return [(c.wave.views, cluster_shared(c, site, m, unit, any_block=True))]
