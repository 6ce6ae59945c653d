"""Workspaces: device memory that launches use, one per stream and per stream of each captured graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from ptxgen.codegen.source import Launch
from ptxgen.errors import LaunchError
from ptxgen.runtime.device_tables import Allocation, DeviceTables
from ptxgen.runtime.driver import Driver

MIN_BYTES = 1 << 16  #: bytes of the smallest allocation
MAX_STREAMS = 64  #: streams whose workspaces are allocations; the memory of the oldest is freed
PER_THREAD_STREAM = 2  #: the handle CU_STREAM_PER_THREAD, which means another stream in each thread


class Workspace:
    """Device memory for launches that run one after the other, as on one stream.

    A launch acquires an allocation and puts it back when all its kernels are queued. Until then the allocation has no
    other user and is not freed; the next launch that acquires it is queued behind. A launch that fails does not put it
    back: its flags may be set, so the memory is freed and not reused. Kernels that need a zeroed workspace leave it
    zeroed, so it is cleared once; other launches use other memory.

    ``allocations``: a list that receives every allocation, and so keeps it when a larger one replaces it. ``tables``:
    the device tables of kernels that may be launched, which own them.
    """

    def __init__(self, driver: Driver, allocations: list[Allocation] | None = None) -> None:
        self.driver = driver
        self.tables = DeviceTables(driver)
        self._free: tuple[list[Allocation], list[Allocation]] = ([], [])
        self._kept = allocations

    def acquire(self, launch: Launch) -> Allocation:
        """At least ``launch.workspace`` bytes, all zero if ``launch.zeroed``. LaunchError: out of memory."""
        free = self._free[launch.zeroed]
        found: Allocation | None
        try:
            found = free.pop()
        except IndexError:  # the first launch, or another thread holds it
            found = None
        if found is None or found.size < launch.workspace:
            try:
                found = Allocation(self.driver, max(launch.workspace, 2 * found.size if found else 0, MIN_BYTES))
            except LaunchError:  # freeing the smaller allocation may make room
                found = None
                found = Allocation(self.driver, launch.workspace)
            if launch.zeroed:
                self.driver.fill(found.address, found.size)
            if self._kept is not None:
                self._kept.append(found)
        return found

    def put_back(self, launch: Launch, taken: Allocation) -> None:
        """Returns what ``acquire`` gave for ``launch``, all of whose kernels are queued."""
        self._free[launch.zeroed].append(taken)

    def address(self, launch: Launch) -> int:
        """The workspace address that the next launch like ``launch`` gets; 0 if it needs none."""
        if not launch.workspace:
            return 0
        taken = self.acquire(launch)
        self.put_back(launch, taken)
        return taken.address

    def release(self) -> None:
        """Drops every allocation that no launch holds: it is freed unless something else refers to it."""
        for free in self._free:
            free.clear()


@dataclass
class _Graph:
    """The memory of a captured graph. ``exists``: whether the graph, or anything instantiated from it, still exists."""

    exists: Callable[[], bool]
    users: set[Hashable] = field(default_factory=set)
    allocations: list[Allocation] = field(default_factory=list)
    workspaces: dict[Hashable, Workspace] = field(default_factory=dict)


class Workspaces:
    """All workspaces of a driver: one for each stream, and one for each stream of each captured graph.

    ``own``: the workspace of the driver's own stream; ``streams``: those of other streams, by handle.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.own = Workspace(driver)
        self.streams: dict[Hashable, Workspace] = {}
        self._graphs: dict[int, _Graph] = {}
        self._lock = threading.Lock()

    def for_stream(self, stream: int) -> Workspace:
        """The workspace of a stream that is not being captured."""
        with self._lock:
            found = self.streams.get(_key(stream))
            if found is None:
                while len(self.streams) >= MAX_STREAMS:
                    self.streams.pop(next(iter(self.streams)))
                found = self.streams[_key(stream)] = Workspace(self.driver)
            return found

    def for_capture(self, stream: int, user: Hashable) -> Workspace:
        """The workspace of ``stream`` in the graph that it is being captured into. The graph keeps it, and ``user``,
        while the graph or anything instantiated from it exists. Memory of graphs that no longer exist is freed."""
        capture = self.driver.capture(stream)
        with self._lock:
            graph = self._graphs.get(capture.id)
            if graph is None:
                self._graphs = {key: graph for key, graph in self._graphs.items() if graph.exists()}
                graph = self._graphs[capture.id] = _Graph(capture.watch())
            graph.users.add(user)
            found = graph.workspaces.get(_key(stream))
            if found is None:
                found = graph.workspaces[_key(stream)] = Workspace(self.driver, graph.allocations)
            return found


def _key(stream: int) -> Hashable:
    """The key of a stream: the per-thread default stream is another stream in each thread."""
    return stream if stream != PER_THREAD_STREAM else (stream, threading.get_ident())
