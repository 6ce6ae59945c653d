"""The barrier of a cluster (barrier.cluster)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, count_nonzero, flatnonzero
from ptxgen.emulator.sync.happens_before import FENCED, HappensBefore, Released
from ptxgen.emulator.warp_batch import WarpBatch, Wave, active, fault
from ptxgen.errors import BarrierFault

Mask = NDArray[np.bool_] | None
Array = NDArray[Any]


class ClusterBarrier:
    """The arrivals of warps, as [warp, block], and the phase that each warp waits for."""

    def __init__(self, wave: Wave, order: HappensBefore) -> None:
        self.wave, self.order = wave, order
        shape = (len(wave.batches), wave.blocks)
        self.group = np.arange(wave.blocks) // wave.engine.cluster_blocks
        self.arrived = np.zeros(shape, bool)
        self.due = np.zeros(shape, bool)  # whether a warp has arrived and not waited
        self.arrivals = np.zeros(shape, np.int64)  # number of arrivals of each warp
        self.waits = np.zeros(shape, np.int64)  # number of completed waits of each warp
        self.ready = np.zeros(shape, bool)  # whether a warp that is due may continue
        self.released = order.release(wave.batches[0], np.arange(0))
        self.known: list[tuple[Array, Released, Released]] = []  # blocks; what is released to the cluster, to the block
        self.waiting: list[tuple[WarpBatch, Instruction, Array, int]] = []

    def arrive(self, c: WarpBatch, m: Mask, ins: Instruction, relaxed: bool) -> None:
        warps = c.warps(m)
        bad = warps & self.due[c.warp]
        if any_true(bad):
            raise fault(
                BarrierFault,
                "a warp arrives at the cluster barrier twice, without a wait between",
                c,
                ins,
                32 * int(np.argmax(bad)),
            )
        blocks = flatnonzero(warps)
        known = self.order.release(c, blocks, relaxed, True)
        self.known.append((blocks, known, self.order.release(c, blocks, relaxed) if relaxed else known))
        self.order.mark_release(c, active(c, m))
        self.arrived[c.warp] |= warps
        self.arrivals[c.warp] += warps
        self.due[c.warp] |= warps
        self.wave.engine.stats.barriers += len(blocks)
        self.complete()

    def warps_exited(self) -> None:
        """Completes the phases at which only warps that have exited were missing."""
        self.complete()

    def complete(self) -> None:
        missing = np.stack([t.warps(None) for t in self.wave.batches]) & ~self.arrived
        size = self.wave.engine.cluster_blocks
        done = ~missing.any(axis=0).reshape(-1, size).any(axis=1) & self.arrived.any(axis=0).reshape(-1, size).any(
            axis=1
        )
        if not any_true(done):
            return
        engine, order = self.wave.engine, self.order
        engine.progress += 1
        blocks = np.repeat(done, size)
        shape, wide = (order.actors, self.wave.blocks), (len(FENCED) * order.actors, self.wave.blocks)
        to_cluster, to_block = (
            Released(np.zeros(shape, np.int32), np.zeros(wide, np.int32), np.zeros(self.wave.blocks, np.uint64))
            for _ in range(2)
        )
        remaining = []
        for arrived, *released in self.known:
            complete = blocks[arrived]
            at = arrived[complete]
            for total, known in zip((to_cluster, to_block), released, strict=True):
                total.clocks[:, at] = np.maximum(total.clocks[:, at], known.clocks[:, complete])
                total.fenced[:, at] = np.maximum(total.fenced[:, at], known.fenced[:, complete])
                total.events[at] |= known.events[complete]
            if not all_true(complete):
                keep = ~complete
                first, second = (Released(k.clocks[:, keep], k.fenced[:, keep], k.events[keep]) for k in released)
                remaining.append((arrived[keep], first, second))
        self.known = remaining
        n = self.wave.blocks // size
        clocks = np.repeat(to_cluster.clocks.reshape(order.actors, n, size).max(axis=2), size, axis=1)
        fenced = np.repeat(to_cluster.fenced.reshape(len(to_cluster.fenced), n, size).max(axis=2), size, axis=1)
        events = np.repeat(np.bitwise_or.reduce(to_cluster.events.reshape(n, size), axis=1), size)
        clocks, fenced = np.maximum(clocks, to_block.clocks), np.maximum(fenced, to_block.fenced)
        events |= to_block.events
        if not self.released.clocks.shape[1]:
            self.released = Released(np.zeros_like(clocks), np.zeros_like(fenced), np.zeros_like(events))
        self.released.clocks[:, blocks] = clocks[:, blocks]
        self.released.fenced[:, blocks] = fenced[:, blocks]
        self.released.events[blocks] = events[blocks]
        self.ready |= self.arrived & blocks
        self.arrived &= ~blocks
        waiting, self.waiting = self.waiting, []
        for batch, ins, mask, after in waiting:
            self.wait(batch, mask, ins, after)

    def wait(self, c: WarpBatch, m: Mask, ins: Instruction, after: int) -> None:
        lanes = active(c, m)
        warps = c.warps(lanes)
        bad = warps & ~self.due[c.warp]
        if any_true(bad):
            raise fault(
                BarrierFault,
                "a warp waits at the cluster barrier before it has arrived",
                c,
                ins,
                32 * int(np.argmax(bad)),
            )
        free = warps & self.ready[c.warp]
        if any_true(free):
            blocks = flatnonzero(free)
            released = self.released
            self.order.acquire(
                c,
                blocks,
                type(released)(released.clocks[:, blocks], released.fenced[:, blocks], released.events[blocks]),
            )
            self.order.synchronise_warps(c, free)
            self.due[c.warp] &= ~free
            self.waits[c.warp] += free
            self.ready[c.warp] &= ~free
            c.add(after, lanes & np.repeat(free, 32))
        if not all_true(free):
            rest = lanes & ~np.repeat(free, 32)
            if any_true(rest):
                self.waiting.append((c, ins, rest, after))

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        out = []
        for batch, ins, mask, _ in self.waiting:
            block = int(np.argmax(mask)) // 32
            first = block - int(self.wave.ranks[block])
            size = self.wave.engine.cluster_blocks
            arrived = count_nonzero(self.arrived[:, first : first + size])
            out.append((batch, ins, mask, f"the cluster barrier: {arrived} of {size * len(self.wave.batches)} warps"))
        return out
