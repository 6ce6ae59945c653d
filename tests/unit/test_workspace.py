"""Ownership of device memory: workspaces of streams and of captured graphs, and copies of host arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.source import Launch
from ptxgen.errors import LaunchError
from ptxgen.runtime import workspace as module
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.runner import Buffers
from ptxgen.runtime.workspace import MIN_BYTES, Workspace, Workspaces
from tests.threads import join

SMALL, LARGE = Launch((), 1000), Launch((), 10 * MIN_BYTES)
FLAGS, MORE_FLAGS = Launch((), 1000, zeroed=True), Launch((), 2 * MIN_BYTES, zeroed=True)


class Capture:
    """A capture whose graph exists until the test destroys it."""

    def __init__(self, number: int) -> None:
        self.id, self.destroyed = number, False

    def watch(self) -> Callable[[], bool]:
        return lambda: not self.destroyed


class Memory:
    """A driver that counts allocations; it rejects those whose numbers are in ``reject``, and those beyond ``room``."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.count, self.room = 0, 1 << 40
        self.reject: set[int] = set()
        self.log: list[str] = []
        self.captures: dict[int, Capture] = {}

    def allocate(self, size: int) -> int:
        self.count += 1
        if self.count in self.reject or sum(self.held.values()) + size > self.room:
            raise LaunchError(f"allocating {size} bytes: out of memory")
        self.held[self.count << 20] = size
        self.log.append("allocate")
        return self.count << 20

    def release(self, address: int) -> None:
        del self.held[address]
        self.log.append("release")

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        assert self.held[address] == size
        self.log.append("fill")

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        assert address in self.held

    def capture(self, stream: int) -> Capture:
        return self.captures[stream]


@pytest.fixture
def on() -> Any:
    return Memory()


def use(workspace: Workspace, launch: Launch) -> int:
    taken = workspace.acquire(launch)
    workspace.put_back(launch, taken)
    return taken.address


# ---- growth, and the lack of memory


def test_memory_is_allocated_before_the_smaller_one_is_freed(on: Any) -> None:
    w = Workspace(on)
    use(w, SMALL)
    large = use(w, LARGE)
    assert on.log == ["allocate", "allocate", "release"]
    assert list(on.held) == [large]
    assert use(w, SMALL) == large


def test_smaller_memory_is_freed_first_if_both_do_not_fit(on: Any) -> None:
    w = Workspace(on)
    on.room = LARGE.workspace
    use(w, SMALL)
    assert use(w, LARGE) in on.held
    assert on.log == ["allocate", "release", "allocate"]


def test_no_freed_address_is_used_after_out_of_memory(on: Any) -> None:
    """The next small launch has allocated memory, and nothing is freed twice."""
    w = Workspace(on)
    for launch, more in ((SMALL, LARGE), (FLAGS, MORE_FLAGS)):
        use(w, launch)
        on.room = sum(on.held.values())
        with pytest.raises(LaunchError, match="out of memory"):
            w.acquire(more)
        on.room = 1 << 40
        assert use(w, launch) in on.held
        assert use(w, more) in on.held
    w.release()
    assert not on.held


def test_launches_that_fitted_before_fit_after_out_of_memory(on: Any) -> None:
    """Other programs take all memory that is free after the failed call."""
    w = Workspace(on)
    for launch, more in ((SMALL, LARGE), (FLAGS, MORE_FLAGS)):
        use(w, launch)
        on.room = sum(on.held.values())
        with pytest.raises(LaunchError, match="out of memory"):
            w.acquire(more)
        on.room = 0
        assert on.held[use(w, launch)] >= launch.workspace
        on.room = 1 << 40
    assert on.log.count("fill") == 2  # flags are zero in the memory that was allocated again


def test_graph_keeps_its_memory_after_out_of_memory(on: Any) -> None:
    on.captures[5] = Capture(1)
    w = Workspaces(on).for_capture(5, "kernel")
    first = use(w, SMALL)
    on.room = sum(on.held.values())
    with pytest.raises(LaunchError, match="out of memory"):
        w.acquire(LARGE)
    assert first in on.held
    assert use(w, SMALL) == first


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_copies_are_freed_if_one_allocation_fails(on: Any, failing: int) -> None:
    on.reject = {failing}
    with pytest.raises(LaunchError) as caught:
        Buffers(on, {name: np.ones(4) for name in "ABC"})
    assert not on.held
    del caught
    on.reject = set()
    with Buffers(on, {"A": np.ones(4), "B": np.ones(0)}) as copies:
        assert set(copies.addresses.values()) == on.held.keys()
    assert not on.held


def test_failed_upload_frees_the_copies(on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on, "upload", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        Buffers(on, {"A": np.ones(4)})
    assert caught
    assert not on.held


# ---- launches that fail, and launches at the same time


def test_memory_of_a_failed_launch_is_not_used_again(on: Any) -> None:
    """It may hold flags that are set: its replacement is zeroed."""
    w = Workspace(on)
    first = use(w, FLAGS)
    taken: Allocation | None = w.acquire(FLAGS)
    assert taken is not None
    assert taken.address == first
    assert first in on.held  # its kernels may still run
    taken = None
    assert first not in on.held
    assert use(w, FLAGS) != first
    assert on.log == ["allocate", "fill", "release", "allocate", "fill"]


def test_memory_of_a_launch_is_exclusive(on: Any) -> None:
    """A thread keeps its memory until its kernels are queued, while another thread grows the workspace."""
    w = Workspace(on)
    mine = w.acquire(SMALL)
    other = w.acquire(LARGE)
    assert other.address != mine.address
    w.put_back(LARGE, other)
    w.release()
    del other
    assert list(on.held) == [mine.address]
    w.put_back(SMALL, mine)
    del mine
    assert use(w, SMALL) in on.held
    assert len(on.held) == 1


def test_streams_have_workspaces_of_their_own(on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    every = Workspaces(on)
    assert every.for_stream(1) is every.for_stream(1) is every.streams[1]
    assert len({id(w) for w in (every.own, every.for_stream(1), every.for_stream(3))}) == 3
    workspaces: list[Workspace] = [every.for_stream(module.PER_THREAD_STREAM)]  # a handle of a stream of each thread
    worker = threading.Thread(target=lambda: workspaces.append(every.for_stream(module.PER_THREAD_STREAM)), daemon=True)
    worker.start()
    join(worker)
    assert workspaces[0] is not workspaces[1]
    monkeypatch.setattr(module, "MAX_STREAMS", 2)
    use(every.for_stream(8), LARGE)
    every.for_stream(9)
    every.for_stream(10)
    assert set(every.streams) == {9, 10}
    assert not on.held


# ---- graphs


def test_graphs_captured_on_one_stream_have_workspaces_of_their_own(on: Any) -> None:
    """They grow without freeing captured memory."""
    every = Workspaces(on)
    eager = use(every.for_stream(5), SMALL)
    on.captures[5] = Capture(1)
    first = [
        use(every.for_capture(5, "a"), SMALL),
        use(every.for_capture(5, "b"), LARGE),
        use(every.for_capture(5, "a"), FLAGS),
    ]
    on.captures[5] = Capture(2)
    second = [use(every.for_capture(5, "a"), SMALL), use(every.for_capture(5, "a"), LARGE)]
    use(every.for_stream(5), LARGE)
    assert len({*first, *second}) == 5
    assert eager not in on.held
    assert {*first, *second} <= on.held.keys()


def test_streams_of_one_graph_run_concurrently(on: Any) -> None:
    every = Workspaces(on)
    on.captures[5] = on.captures[6] = Capture(1)
    assert use(every.for_capture(5, "a"), SMALL) != use(every.for_capture(6, "a"), SMALL)


def test_memory_of_a_destroyed_graph_is_freed_at_the_next_capture(on: Any) -> None:
    class User:
        pass

    every, users = Workspaces(on), [User(), User()]
    kept = []
    for n, user in enumerate(users):
        on.captures[5] = Capture(n)
        kept.append(use(every.for_capture(5, user), LARGE))
        kept.append(use(every.for_capture(5, user), FLAGS))
    old = on.captures[5]
    on.captures[5] = Capture(7)
    every.for_capture(5, users[0])
    assert set(kept) == on.held.keys()
    old.destroyed = True
    on.captures[5] = Capture(8)
    every.for_capture(5, users[0])
    assert set(kept[:2]) == on.held.keys()


def test_failed_launch_in_a_capture_leaves_its_memory_to_the_graph(on: Any) -> None:
    """Some of its kernels may have been captured."""
    every = Workspaces(on)
    on.captures[5] = Capture(1)
    address = every.for_capture(5, "a").acquire(FLAGS).address
    assert address in on.held
    assert use(every.for_capture(5, "a"), FLAGS) != address
