"""Blocks of a cluster: their windows in shared memory, and the barrier that they have in common.

An address in the window .shared::cluster holds the rank of its block above 24 bits of offset, as on sm_90; an address
in .shared::cta is one of the own block's. Blocks of one cluster follow each other in a chunk, in the order of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.global_memory import SHARED_BASE, SHARED_WINDOW, WINDOW
from ptxgen.emulator.ops.access import Place, Site, active, misaligned, sample_shared, watch
from ptxgen.emulator.ops.builder import Builder, fault
from ptxgen.emulator.ops.registry import Step, instruction
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.sync.checks import Touch, page_bits
from ptxgen.emulator.warp_batch import AddressInfo
from ptxgen.errors import BarrierFault, InputError, OutOfBoundsFault, RaceFault

if TYPE_CHECKING:
    from ptxgen.emulator.sync.happens_before import Order
    from ptxgen.emulator.warp_batch import Chunk, Team

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None
RANK = 24
OFFSET = (1 << RANK) - 1
#: most blocks of a cluster
MOST = 16


def extents(directives: dict[str, tuple[int, ...]], asked: Any, entry: str) -> tuple[int, int, int]:
    """The shape of a launch's clusters: what the kernel declares, or what the launch asks for."""
    declared = directives.get("reqnctapercluster")
    size = None if asked is None else (*(asked if isinstance(asked, (tuple, list)) else (asked,)), 1, 1)[:3]
    if declared is not None:
        declared = (*declared, 1, 1)[:3]
        if size is not None and size != declared:
            raise InputError(f"cluster is {size}, .reqnctapercluster of {entry} asks for {declared}")
        size = declared
    if size is None:
        if "explicitcluster" in directives:
            raise InputError(f"{entry} is .explicitcluster: the launch must give the cluster's size")
        return 1, 1, 1
    x, y, z = (int(n) for n in size)
    most = min((MOST, *directives.get("maxclusterrank", ())))
    if min(x, y, z) < 1 or x * y * z > most:
        raise InputError(f"cluster is {(x, y, z)}; it must have 1 to {most} blocks")
    return x, y, z


# ---- addresses


def from_generic(c: Team, at: Array, lanes: Array, ins: Instruction) -> Array:
    """Shared addresses of generic ones."""
    bad = (at < SHARED_WINDOW) | (at >= SHARED_WINDOW + WINDOW)
    if bad.any():
        i = int(np.argmax(bad))
        raise fault(OutOfBoundsFault, "a generic address outside shared memory", c, ins, int(lanes[i]), int(at[i]))
    return at - SHARED_WINDOW


def locate(c: Team, at: Array, lanes: Array, size: int, ins: Instruction, everywhere: bool) -> tuple[Array, Array]:
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
    if chunk.asynchrony is not None and chunk.asynchrony.exited[target].any():
        i = int(np.argmax(chunk.asynchrony.exited[target]))
        text = f"the shared memory of a block that has exited (rank {int(rank[i])}) is accessed"
        raise fault(RaceFault, text, c, ins, int(lanes[i]), int(at[i]))
    return target * chunk.stride + offset, target


def shared_at(c: Team, site: Site, at: Array, lanes: Array, unit: int, atomic: bool, everywhere: bool) -> Place:
    """As `access.shared_at`, in a cluster."""
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


def own_addresses(c: Team, site: Site) -> AddressInfo:
    """The address cache of a register: addresses less the window of the own block."""
    values, windows = c.v[site.view], c.chunk.windows
    assert windows is not None
    at = np.full(c.n, int(values), np.int64) if values.ndim == 0 else values.astype(np.int64) - windows[c.row]
    ored = int(np.bitwise_or.reduce(at))
    found = AddressInfo(int(at.min()), int(at.max()), ored, at + c.row * c.chunk.stride)
    c.addresses[site.key] = found
    return found


def shared(c: Team, site: Site, m: Mask, unit: int, atomic: bool = False, everywhere: bool = False) -> Place:
    """As `access.shared`, in a cluster."""
    if m is None:
        m = c.alive
    info = c.addresses[site.key]
    if info is None:
        info = own_addresses(c, site)
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
    return shared_at(c, site, site.addresses(c, lanes), lanes, unit, atomic, everywhere)


def anywhere(c: Team, site: Site, m: Mask, unit: int) -> list[tuple[dict[int, Array], Place]]:
    """Where an instruction with .shared::cluster goes."""
    return [(c.chunk.views, shared(c, site, m, unit, everywhere=True))]


@instruction("mapa")
def mapa(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] not in ("u32", "u64") or not set(ins.mods[:-1]) <= {"shared::cluster"}:
        raise b.unsupported()
    kind = ins.mods[-1]
    generic = len(ins.mods) == 1
    dst, src, rank = b.dst(ins.operands[0], kind), b.src(ins.operands[1], kind), b.src(ins.operands[2], "u32")

    def step(c: Team, m: Mask) -> None:
        v = c.v
        lanes = np.flatnonzero(active(c, m))
        at = np.broadcast_to(v[src], (c.n,))[lanes].astype(np.int64)
        if generic:
            at = from_generic(c, at, lanes, ins)
        to = np.broadcast_to(v[rank], (c.n,))[lanes].astype(np.int64) & 255
        found = (at & OFFSET) + (to << RANK) + (SHARED_WINDOW if generic else 0)
        v[dst][lanes] = found.astype(v[dst].dtype)

    return step


@instruction("getctarank")
def getctarank(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] not in ("u32", "u64") or not set(ins.mods[:-1]) <= {"shared::cluster"}:
        raise b.unsupported()
    generic = len(ins.mods) == 1
    dst, src = b.dst(ins.operands[0], "u32"), b.src(ins.operands[1], ins.mods[-1])

    def step(c: Team, m: Mask) -> None:
        v = c.v
        lanes = np.flatnonzero(active(c, m))
        at = np.broadcast_to(v[src], (c.n,))[lanes].astype(np.int64)
        if generic:
            at = from_generic(c, at, lanes, ins)
        v[dst][lanes] = (at >> RANK).astype(np.uint32)

    return step


@instruction("isspacep.shared", "isspacep.shared::cta", "isspacep.shared::cluster")
def isspacep(b: Builder, ins: Instruction) -> Step:
    dst, src = b.dst(ins.operands[0], "pred"), b.src(ins.operands[1], "u64")
    own = ins.mods[0] != "shared::cluster"

    def step(c: Team, m: Mask) -> None:
        at = np.broadcast_to(c.v[src], (c.n,)).astype(np.int64)
        found = (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + WINDOW)
        if own and c.chunk.windows is not None:
            found &= (at - SHARED_WINDOW) >> RANK == c.chunk.ranks[c.row]
        np.copyto(c.v[dst], found, where=True if m is None else m)

    return step


# ---- the barrier of a cluster


class ClusterBarrier:
    """Arrivals of warps [warp, block], and the phase that each waits for."""

    def __init__(self, chunk: Chunk, order: Order) -> None:
        self.chunk, self.order = chunk, order
        shape = (len(chunk.teams), chunk.blocks)
        self.group = np.arange(chunk.blocks) // chunk.engine.cluster_blocks
        self.arrived = np.zeros(shape, bool)
        self.telling = np.zeros(shape, bool)
        self.due = np.zeros(shape, bool)  # arrived, and has not waited
        self.arrivals = np.zeros(shape, np.int64)  # that each warp has made
        self.waits = np.zeros(shape, np.int64)  # that it has come out of
        self.ready = np.zeros(shape, bool)  # of those, whose barrier has completed
        self.told = order.release(chunk.teams[0], np.arange(0))
        self.known: list[Any] = []
        self.waiting: list[tuple[Team, Instruction, Array, int]] = []

    def arrive(self, c: Team, m: Mask, ins: Instruction, relaxed: bool) -> None:
        warps = c.warps(m)
        bad = warps & self.due[c.warp]
        if bad.any():
            raise fault(
                BarrierFault,
                "a warp arrives at the cluster's barrier again, without a wait between",
                c,
                ins,
                32 * int(np.argmax(bad)),
            )
        blocks = np.flatnonzero(warps)
        self.known.append((c.warp, blocks, self.order.release(c, blocks, relaxed)))
        self.arrived[c.warp] |= warps
        self.arrivals[c.warp] += warps
        self.due[c.warp] |= warps
        self.chunk.engine.stats.barriers += len(blocks)
        self.complete()

    def leave(self) -> None:
        """Some warps have exited."""
        self.complete()

    def complete(self) -> None:
        missing = np.stack([t.warps(None) for t in self.chunk.teams]) & ~self.arrived
        size = self.chunk.engine.cluster_blocks
        done = ~missing.any(axis=0).reshape(-1, size).any(axis=1) & self.arrived.any(axis=0).reshape(-1, size).any(
            axis=1
        )
        if not done.any():
            return
        engine, order = self.chunk.engine, self.order
        engine.progress += 1
        blocks = np.repeat(done, size)
        clocks = np.zeros((order.actors, self.chunk.blocks), np.int32)
        fenced = np.zeros((2 * order.actors, self.chunk.blocks), np.int32)
        events = np.zeros(self.chunk.blocks, np.uint64)
        left = []
        for warp, where, known in self.known:
            mine = blocks[where]
            if mine.any():
                at = where[mine]
                clocks[:, at] = np.maximum(clocks[:, at], known.clocks[:, mine])
                fenced[:, at] = np.maximum(fenced[:, at], known.fenced[:, mine])
                events[at] |= known.events[mine]
            if not mine.all():
                keep = ~mine
                left.append(
                    (warp, where[keep], type(known)(known.clocks[:, keep], known.fenced[:, keep], known.events[keep]))
                )
        self.known = left
        n = self.chunk.blocks // size
        clocks = np.repeat(clocks.reshape(order.actors, n, size).max(axis=2), size, axis=1)
        fenced = np.repeat(fenced.reshape(2 * order.actors, n, size).max(axis=2), size, axis=1)
        events = np.repeat(np.bitwise_or.reduce(events.reshape(n, size), axis=1), size)
        if not self.told.clocks.shape[1]:
            self.told = type(self.told)(np.zeros_like(clocks), np.zeros_like(fenced), np.zeros_like(events))
        self.told.clocks[:, blocks] = clocks[:, blocks]
        self.told.fenced[:, blocks] = fenced[:, blocks]
        self.told.events[blocks] = events[blocks]
        self.ready |= self.arrived & blocks
        self.arrived &= ~blocks
        waiting, self.waiting = self.waiting, []
        for team, ins, mask, after in waiting:
            self.wait(team, mask, ins, after)

    def wait(self, c: Team, m: Mask, ins: Instruction, after: int) -> None:
        lanes = active(c, m)
        warps = c.warps(lanes)
        bad = warps & ~self.due[c.warp]
        if bad.any():
            raise fault(
                BarrierFault,
                "a warp waits at the cluster's barrier without having arrived",
                c,
                ins,
                32 * int(np.argmax(bad)),
            )
        free = warps & self.ready[c.warp]
        if free.any():
            blocks = np.flatnonzero(free)
            told = self.told
            self.order.acquire(
                c, blocks, type(told)(told.clocks[:, blocks], told.fenced[:, blocks], told.events[blocks])
            )
            self.order.warps_meet(c, free)
            self.due[c.warp] &= ~free
            self.waits[c.warp] += free
            self.ready[c.warp] &= ~free
            c.add(after, lanes & np.repeat(free, 32))
        if not free.all():
            rest = lanes & ~np.repeat(free, 32)
            if rest.any():
                self.waiting.append((c, ins, rest, after))

    def standing(self) -> list[tuple[Team, Instruction, Array, str]]:
        out = []
        for team, ins, mask, _ in self.waiting:
            block = int(np.argmax(mask)) // 32
            first = block - int(self.chunk.ranks[block])
            size = self.chunk.engine.cluster_blocks
            arrived = int(np.count_nonzero(self.arrived[:, first : first + size]))
            out.append((team, ins, mask, f"the cluster's barrier: {arrived} of {size * len(self.chunk.teams)} warps"))
        return out


@instruction("barrier.cluster.arrive", kind="warp")
def arrive(b: Builder, ins: Instruction) -> Step:
    if not set(ins.mods[2:]) <= {"release", "relaxed", "aligned"} or ins.operands:
        raise b.unsupported()
    relaxed = "relaxed" in ins.mods

    def step(c: Team, m: Mask) -> None:
        assert c.chunk.asynchrony is not None
        c.chunk.asynchrony.cluster.arrive(c, m, ins, relaxed)

    return step


@instruction("barrier.cluster.wait", kind="blocking")
def wait(b: Builder, ins: Instruction) -> Step:
    if not set(ins.mods[2:]) <= {"acquire", "aligned"} or ins.operands:
        raise b.unsupported()

    def step(c: Team, m: Mask, after: int) -> None:
        assert c.chunk.asynchrony is not None
        c.chunk.asynchrony.cluster.wait(c, m, ins, after)

    return step
