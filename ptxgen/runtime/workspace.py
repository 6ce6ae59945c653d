"""Workspaces: device memory for launches, one per stream and one per stream of each captured graph."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field

from ptxgen.codegen.source import Launch
from ptxgen.errors import LaunchError
from ptxgen.runtime.device_tables import Allocation, DeviceTables
from ptxgen.runtime.driver import Driver

MIN_BYTES = 1 << 16  #: bytes of the smallest allocation
MAX_STREAMS = 64  #: streams with a workspace; the oldest workspace is freed first
PER_THREAD_STREAM = 2  #: the handle CU_STREAM_PER_THREAD, a different stream in each thread


class Workspace:
    """Device memory for launches on one stream, which run one after the other.

    A launch acquires an allocation and returns it when all its kernels are queued. Until then no other launch can use
    or free the allocation; a later launch that acquires it is queued behind. A failed launch does not return its
    allocation: flags may be set, so the memory is freed. If a larger allocation does not fit into memory, the smaller
    one that it would have replaced is allocated again, so that launches that fitted before still fit. Kernels that need
    a zeroed workspace leave the workspace zeroed, so it is cleared once; other launches use separate allocations.

    ``allocations``: a list that keeps every allocation, so that none is freed when a larger one replaces it.
    ``tables``: the device tables of loaded kernels. The kernels hold the references.
    """

    def __init__(self, driver: Driver, allocations: list[Allocation] | None = None) -> None:
        self.driver = driver
        self.tables = DeviceTables(driver)
        self._free: tuple[list[Allocation], list[Allocation]] = ([], [])
        self._allocations = allocations

    def acquire(self, launch: Launch) -> Allocation:
        """An allocation of at least ``launch.workspace`` bytes, all zero if ``launch.zeroed``. LaunchError: out of
        memory."""
        free = self._free[launch.zeroed]
        smaller: Allocation | None
        try:
            smaller = free.pop()
        except IndexError:  # the first launch, or another thread uses the allocation
            smaller = None
        if smaller is not None and smaller.size >= launch.workspace:
            return smaller
        size = smaller.size if smaller is not None else 0
        held = weakref.ref(smaller) if smaller is not None else lambda: None
        try:
            return self._allocate(max(launch.workspace, 2 * size, MIN_BYTES), launch.zeroed)
        except LaunchError:
            smaller = None  # memory may hold the larger one without it
        try:
            return self._allocate(launch.workspace, launch.zeroed)
        except LaunchError:
            if size:
                with suppress(LaunchError):
                    free.append(held() or self._allocate(size, launch.zeroed))  # a graph holds its own
            raise

    def _allocate(self, size: int, zeroed: bool) -> Allocation:
        allocation = Allocation(self.driver, size)
        if zeroed:
            self.driver.fill(allocation.address, size)
        if self._allocations is not None:
            self._allocations.append(allocation)
        return allocation

    def put_back(self, launch: Launch, allocation: Allocation) -> None:
        """Returns an allocation from ``acquire`` when all kernels of ``launch`` are queued."""
        self._free[launch.zeroed].append(allocation)

    def address(self, launch: Launch) -> int:
        """The workspace address of the next launch like ``launch``; 0 if it needs none."""
        if not launch.workspace:
            return 0
        allocation = self.acquire(launch)
        self.put_back(launch, allocation)
        return allocation.address

    def release(self) -> None:
        """Drops the references to all allocations that no launch uses."""
        for free in self._free:
            free.clear()


@dataclass
class _Graph:
    """The memory of a captured graph. ``exists()``: True while the graph, or an instance of the graph, exists."""

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
            workspace = self.streams.get(_key(stream))
            if workspace is None:
                while len(self.streams) >= MAX_STREAMS:
                    self.streams.pop(next(iter(self.streams)))
                workspace = self.streams[_key(stream)] = Workspace(self.driver)
            return workspace

    def for_capture(self, stream: int, user: Hashable) -> Workspace:
        """The workspace of ``stream`` in the graph of its capture. The workspace and ``user`` are not freed while the
        graph or an instance of it exists. Memory of graphs that no longer exist is freed."""
        capture = self.driver.capture(stream)
        with self._lock:
            graph = self._graphs.get(capture.id)
            if graph is None:
                self._graphs = {key: graph for key, graph in self._graphs.items() if graph.exists()}
                graph = self._graphs[capture.id] = _Graph(capture.watch())
            graph.users.add(user)
            workspace = graph.workspaces.get(_key(stream))
            if workspace is None:
                workspace = graph.workspaces[_key(stream)] = Workspace(self.driver, graph.allocations)
            return workspace


def _key(stream: int) -> Hashable:
    """The key of a stream. The per-thread default stream has one key per thread."""
    return stream if stream != PER_THREAD_STREAM else (stream, threading.get_ident())
