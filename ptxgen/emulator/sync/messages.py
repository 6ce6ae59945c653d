"""Synchronisation between threads through global memory: releases by fences, acquires by reads.

A fence publishes the clocks of its warp. A store or an atomic operation after the fence carries that publication, also
when another warp executes it after a barrier. A strong read (volatile, relaxed, acquire, atomic) of the value receives
the publication. The warp acquires the publication at once if the read has .acquire, otherwise at its next fence or
barrier.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.reductions import flatnonzero
from ptxgen.emulator.sync.checks import Checks
from ptxgen.emulator.sync.memory_order import Scope
from ptxgen.emulator.warp_batch import WarpBatch, Wave

Array = NDArray[Any]


#: number of a cluster -> an array with the clocks of its warps, and the clocks up to which proxy fences follow their
#: writes: to global memory, and to tensor maps
Clocks = dict[int, Array]


def merge(target: Clocks, other: Clocks) -> None:
    """Adds the clocks of ``other`` to ``target``."""
    for cluster, clocks in other.items():
        old = target.get(cluster)
        target[cluster] = clocks if old is None else np.maximum(old, clocks)


class Publication:
    """The clocks that a fence releases: those for all threads, those for threads of its cluster, and by block those for
    threads of its block."""

    def __init__(self) -> None:
        self.block_scope: dict[int, Clocks] = {}
        self.cluster_scope: Clocks = {}
        self.device_scope: Clocks = {}


class Publications:
    """The publications of one launch, by number; number 0 is empty."""

    def __init__(self) -> None:
        self.publications = [Publication()]
        self.unions: dict[tuple[int, ...], int] = {}

    def __getitem__(self, number: int) -> Publication:
        return self.publications[number]

    def publish(self, publication: Publication) -> int:
        """The number of a new publication."""
        self.publications.append(publication)
        return len(self.publications) - 1

    def unite(self, numbers: list[int]) -> int:
        """The number of a publication that contains several publications."""
        key = tuple(sorted({n for n in numbers if n}))
        if len(key) < 2:
            return key[0] if key else 0
        number = self.unions.get(key)
        if number is None:
            union = Publication()
            for n in key:
                for block, clocks in self.publications[n].block_scope.items():
                    merge(union.block_scope.setdefault(block, {}), clocks)
                merge(union.cluster_scope, self.publications[n].cluster_scope)
                merge(union.device_scope, self.publications[n].device_scope)
            number = self.unions[key] = self.publish(union)
        return number


class History:
    """The states that one warp released or acquired, by the clock of the warp. Each entry includes the earlier ones."""

    def __init__(self) -> None:
        self.clocks: list[int] = []
        self.entries: list[Any] = []

    def add(self, clock: int, entry: Any) -> None:
        self.clocks.append(clock)
        self.entries.append(entry)

    def at(self, clock: int) -> Any:
        """The last entry at or before a clock; None if there is none."""
        i = bisect_right(self.clocks, clock)
        return self.entries[i - 1] if i else None


class Messages:
    """The messages between the threads of one wave and others. Warps are numbered within their cluster, clusters within
    the launch."""

    def __init__(self, wave: Wave, checks: Checks, publications: Publications) -> None:
        self.wave, self.checks, self.publications = wave, checks, publications
        self.size = self.checks.size
        self.first = wave.first // self.size
        self.fences: dict[tuple[int, int], History] = {}
        self.acquired: dict[tuple[int, int], History] = {}
        self.pending: dict[tuple[int, int], set[int]] = {}
        self.received: set[tuple[int, int, int]] = set()
        shape = (len(wave.batches), wave.blocks)
        self.versions = np.zeros(shape, np.int64)
        self.numbers = np.zeros(shape, np.int32)

    def cluster(self, block: int) -> int:
        return self.first + block // self.size

    def clocks(self, warp: int, block: int) -> Array:
        """The clocks that a warp has acquired of the warps of its cluster, and those up to which proxy fences follow
        their writes."""
        checks = self.checks
        out = np.zeros((3, checks.actors), np.int32)
        out[0] = checks.clocks[warp, :, block]
        fenced = getattr(checks, "fenced", None)
        if fenced is not None:
            out[1:] = fenced[warp, checks.actors :, block].reshape(2, -1)
        return out

    def other_clusters(self, warp: int, block: int) -> Clocks:
        """The clocks that a warp has acquired of the warps of other clusters."""
        out: Clocks = {}
        if self.acquired:
            cluster = self.cluster(block)
            for actor in range(self.checks.actors):
                history = self.acquired.get((cluster, actor))
                clocks = history and history.at(int(self.checks.clocks[warp, actor, block]))
                if clocks:
                    merge(out, clocks)
        return out

    # ---- release

    def fence(self, c: WarpBatch, blocks: Array, scope: Scope) -> None:
        """Publishes the clocks of warp ``c`` of some blocks to the threads of a scope."""
        self.apply_received(c, blocks)
        self.checks.close(c)
        self.checks.mark_release(c, np.isin(c.row, blocks))
        for block in blocks.tolist():
            actor = int(self.checks.base[block]) + c.warp
            released = self.clocks(c.warp, block)
            released[0, actor] -= 1
            history = self.fences.setdefault((self.cluster(block), actor), History())
            publication = Publication()
            if history.entries:
                last = self.publications[history.entries[-1]]
                publication.block_scope = {number: dict(clocks) for number, clocks in last.block_scope.items()}
                publication.cluster_scope = dict(last.cluster_scope)
                publication.device_scope = dict(last.device_scope)
            if scope == Scope.BLOCK:
                mine = publication.block_scope.setdefault(self.wave.first + block, {})
                merge(mine, {self.cluster(block): released})
            else:
                merge(publication.cluster_scope, {self.cluster(block): released})
            if scope == Scope.DEVICE:
                merge(publication.device_scope, {self.cluster(block): released})
                merge(publication.device_scope, self.other_clusters(c.warp, block))
            history.add(int(released[0, actor]), self.publications.publish(publication))

    def carried(self, c: WarpBatch, lanes: Array) -> Array:
        """The numbers of the publications that stores of some lanes carry; 0: none."""
        if not self.fences:
            return np.zeros(len(lanes), np.int32)
        blocks = np.unique(lanes >> 5)
        versions = self.checks.clocks[c.warp][:, blocks].sum(axis=0)
        for block in blocks[self.versions[c.warp, blocks] != versions].tolist():
            cluster, numbers = self.cluster(block), []
            for actor in range(self.checks.actors):
                history = self.fences.get((cluster, actor))
                number = history and history.at(int(self.checks.clocks[c.warp, actor, block]))
                if number:
                    numbers.append(number)
            self.numbers[c.warp, block] = self.publications.unite(numbers)
        self.versions[c.warp, blocks] = versions
        out: Array = self.numbers[c.warp, lanes >> 5]
        return out

    # ---- acquire

    def receive(self, c: WarpBatch, lanes: Array, numbers: Array, acquires: bool) -> None:
        """Lanes read values that carry publications. ``numbers``: those of the publications; ``acquires``: the read has
        .acquire."""
        some = flatnonzero(numbers)
        if not len(some):
            return
        blocks = lanes[some] >> 5
        for block, number in set(zip(blocks.tolist(), numbers[some].tolist(), strict=True)):
            if (c.warp, block, number) not in self.received:
                self.received.add((c.warp, block, number))
                self.pending.setdefault((c.warp, block), set()).add(number)
        if acquires:
            self.apply_received(c, np.unique(blocks))

    def apply_received(self, c: WarpBatch, blocks: Array) -> None:
        """Acquires the publications that warp ``c`` of some blocks has received."""
        if not self.pending:
            return
        checks, w = self.checks, c.warp
        for block in blocks.tolist():
            waiting = self.pending.pop((w, block), None)
            if waiting is None:
                continue
            checks.close(c)
            checks.forget_stale(c)
            cluster, actor = self.cluster(block), int(checks.base[block]) + w
            received: Clocks = {}
            for number in waiting:
                acquired = self.publications[number]
                merge(received, acquired.device_scope)
                merge(received, acquired.block_scope.get(self.wave.first + block, {}))
                if cluster in acquired.cluster_scope:
                    merge(received, {cluster: acquired.cluster_scope[cluster]})
            own_cluster = received.pop(cluster, None)
            if own_cluster is not None:
                checks.acquire_own_clock(c, np.array([block]), own_cluster[0, actor])
                checks.clocks[w, :, block] = np.maximum(checks.clocks[w, :, block], own_cluster[0])
                fenced = getattr(checks, "fenced", None)
                if fenced is not None:
                    part = fenced[w, checks.actors :, block]
                    np.maximum(part, own_cluster[1:].reshape(-1), out=part)
            if received:
                history = self.acquired.setdefault((cluster, actor), History())
                if history.entries:
                    merge(received, history.entries[-1])
                history.add(int(checks.clocks[w, actor, block]), received)

    def acquired_clock(self, warp: int, block: int, cluster: int, actor: int, row: int = 0) -> int:
        """The clock up to which a warp has acquired a warp (``actor``) of another cluster; ``row``: as in
        ``Shadow.ordered``."""
        known = self.other_clusters(warp, block).get(cluster)
        return 0 if known is None else int(known[row, actor])
