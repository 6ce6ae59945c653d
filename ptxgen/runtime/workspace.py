"""The workspaces of launches: who owns their memory, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from ptxgen.codegen.source import Launch
from ptxgen.errors import LaunchError
from ptxgen.runtime.device_tables import Allocation, Residents
from ptxgen.runtime.driver import Driver

LEAST = 1 << 16  #: bytes of the smallest allocation
STREAMS_KEPT = 64  #: streams whose workspaces are kept; the memory of the oldest is freed
PER_THREAD_STREAM = 2  #: the handle CU_STREAM_PER_THREAD, which means another stream in each thread


class Workspace:
    """Device memory for launches whose kernels run one after the other, as those of one stream do.

    A launch takes an allocation, and gives it back when all its kernels are queued. Until then the allocation has no
    other user and cannot be freed; the next launch that takes it is queued behind. A launch that fails does not give it
    back: memory that may hold raised flags is freed and never used again. A launch that needs zeros leaves zeros, so
    its memory is cleared once; launches that do not leave zeros use other memory.

    ``kept``: a list that gets every allocation, and so keeps it when a larger one takes its place. ``tables``: those of
    the kernels that may be launched, which own them.
    """

    def __init__(self, driver: Driver, kept: list[Allocation] | None = None) -> None:
        self.driver = driver
        self.tables = Residents(driver)
        self._free: tuple[list[Allocation], list[Allocation]] = ([], [])
        self._kept = kept

    def take(self, launch: Launch) -> Allocation:
        """At least ``launch.workspace`` bytes, all zero if ``launch.zeroed``. LaunchError: there is not enough."""
        free = self._free[launch.zeroed]
        found: Allocation | None
        try:
            found = free.pop()
        except IndexError:  # of the first launch, or another thread has it
            found = None
        if found is None or found.size < launch.workspace:
            try:
                found = Allocation(self.driver, max(launch.workspace, 2 * found.size if found else 0, LEAST))
            except LaunchError:  # the device may have room for what is needed once the smaller one is freed
                found = None
                found = Allocation(self.driver, launch.workspace)
            if launch.zeroed:
                self.driver.fill(found.address, found.size)
            if self._kept is not None:
                self._kept.append(found)
        return found

    def give(self, launch: Launch, taken: Allocation) -> None:
        """Returns what ``take`` gave for ``launch``, all of whose kernels are queued."""
        self._free[launch.zeroed].append(taken)

    def address(self, launch: Launch) -> int:
        """Where the next launch like ``launch`` finds W; 0 if it needs none."""
        if not launch.workspace:
            return 0
        taken = self.take(launch)
        self.give(launch, taken)
        return taken.address

    def release(self) -> None:
        """Forgets what no launch has taken: it is freed unless something else refers to it."""
        for free in self._free:
            free.clear()


@dataclass
class _Graph:
    """What a captured graph uses. ``exists``: whether the graph, or anything instantiated from it, does."""

    exists: Callable[[], bool]
    users: set[Hashable] = field(default_factory=set)
    kept: list[Allocation] = field(default_factory=list)
    workspaces: dict[Hashable, Workspace] = field(default_factory=dict)


class Workspaces:
    """All workspaces of a driver: one for each stream, and one for each stream of each captured graph.

    ``own``: that of the driver's own stream; ``streams``: those of the other streams, by handle.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.own = Workspace(driver)
        self.streams: dict[Hashable, Workspace] = {}
        self._graphs: dict[int, _Graph] = {}
        self._lock = threading.Lock()

    def of(self, stream: int) -> Workspace:
        """That of a stream that is not being captured."""
        with self._lock:
            found = self.streams.get(_key(stream))
            if found is None:
                while len(self.streams) >= STREAMS_KEPT:
                    self.streams.pop(next(iter(self.streams)))
                found = self.streams[_key(stream)] = Workspace(self.driver)
            return found

    def captured(self, stream: int, user: Hashable) -> Workspace:
        """That of ``stream`` in the graph it is being captured into. The graph keeps it, and ``user``, for as long as
        it or anything instantiated from it exists; what graphs since destroyed have kept is freed."""
        capture = self.driver.capture(stream)
        with self._lock:
            graph = self._graphs.get(capture.id)
            if graph is None:
                self._graphs = {key: graph for key, graph in self._graphs.items() if graph.exists()}
                graph = self._graphs[capture.id] = _Graph(capture.watch())
            graph.users.add(user)
            found = graph.workspaces.get(_key(stream))
            if found is None:
                found = graph.workspaces[_key(stream)] = Workspace(self.driver, graph.kept)
            return found


def _key(stream: int) -> Hashable:
    return stream if stream != PER_THREAD_STREAM else (stream, threading.get_ident())
