"""Calls of ``gemm`` from threads, in graphs, after a fork and after Ctrl-C; caller workspaces; kernels that shapes
share. Only the selection of configurations is replaced."""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, driver_state, drivers, launches, runners, streams
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DeviceError, InputError, LaunchError, OverlapError
from ptxgen.runtime import workspace
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection
from ptxgen.tuning.store.database import Database
from tests.forks import SECONDS, forked
from tests.tensors import LIBRARY, Tensor
from tests.threads import join

Array = np.ndarray[Any, Any]
ANY = "ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2"
#: split-K with flags, which a launch finds and leaves zero, or with partial sums that a second kernel adds
FLAGS, SUMS = f"{ANY} kg=2 splitk=flag_red", f"{ANY} kg=2 splitk=workspace"
STREAM = 42


class Driver(EmulatedDriver):
    """The emulated device as a GPU. ``graph``: a list that receives the launches instead, as a capture does;
    ``before``: called before each launch; ``loads``: digests of the loaded kernels."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.graph: list[Callable[[], None]] | None = None
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.loads: list[str] = []
        self.parameters: list[bytes] = []
        self.sizes: dict[int, int] = {}
        self.made = 0

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self.sizes[address] = size
        self.made += 1
        return address

    def release(self, address: int) -> None:
        super().release(address)
        del self.sizes[address]

    def load(self, source: Any) -> Any:
        self.loads.append(source.digest)
        return super().load(source)

    def launch(self, kernel: Any, step: Any, parameters: bytes, stream: int = 0) -> None:
        self.parameters.append(parameters)
        self.before()

        def work() -> None:
            EmulatedDriver.launch(self, kernel, step, parameters)

        if self.graph is not None and stream == STREAM:
            self.graph.append(work)
        else:
            work()
        self.after()

    def capturing(self, stream: int) -> bool:
        return self.graph is not None and stream == STREAM

    def capture(self, stream: int) -> Any:
        return SimpleNamespace(id=id(self.graph), watch=lambda: lambda: True)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Selects ``text``, a configuration, for all problems."""
    source = SimpleNamespace(text=FLAGS)
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(selection, "select", lambda p, *_: [selection.Selection(p, parse_config(source.text), "given")])
    return source


@pytest.fixture
def driver(chosen: Any, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(drivers, "driver", lambda: made)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    monkeypatch.setattr(streams, "current_stream", lambda x: STREAM)
    return made


class Product:
    """Operands and a result on the device, and the expected result."""

    def __init__(self, driver: Driver, size: int, seed: int = 0) -> None:
        numbers = np.random.default_rng(seed)
        x, y = (numbers.integers(-3, 4, (size, size)).astype(np.float32) for _ in range(2))
        self.a, self.b, self.c = Tensor(driver, x), Tensor(driver, y), Tensor(driver, np.zeros_like(x))
        self.driver, self.want = driver, x @ y

    def queue(self, **options: Any) -> None:
        ptxgen.gemm(self.a, self.b, out=self.c, **options)

    @property
    def right(self) -> bool:
        """True if the result is right; it is cleared."""
        equal = np.array_equal(self.c.numpy(), self.want)
        self.driver.fill(self.c.address, self.c.nbytes)
        return equal


def captured(driver: Driver, *products: Product) -> list[Callable[[], None]]:
    """The launches of a graph that computes ``products``."""
    driver.graph = work = []
    for p in products:
        p.queue()
    driver.graph = None
    return work


# ---- graphs


@pytest.mark.parametrize("text", [FLAGS, SUMS])
def test_graph_replays_after_the_workspace_grew(
    driver: Driver, chosen: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A small model, then a larger one on the same stream, and then the small one is replayed."""
    monkeypatch.setattr(workspace, "MIN_BYTES", 1)
    chosen.text = text
    small, large = Product(driver, 20), Product(driver, 70)
    graphs = [(captured(driver, small), [small]), (captured(driver, small, large), [small, large])]
    large.queue()  # outside any graph
    assert large.right
    for graph, products in (*graphs, *graphs):
        assert not any(p.right for p in products)
        for work in graph:
            work()
        assert all(p.right for p in products)


def test_graphs_of_one_stream_replay_concurrently(driver: Driver, chosen: Any) -> None:
    chosen.text = SUMS
    one, two = Product(driver, 20), Product(driver, 20, seed=1)
    first, second = captured(driver, one), captured(driver, two)
    assert len(first) == len(second) == 2
    for pair in zip(first, second, strict=True):
        for work in pair:
            work()
    assert one.right
    assert two.right


# ---- threads


def test_threads_launch_on_one_stream_concurrently(driver: Driver, chosen: Any) -> None:
    """Between the two kernels of a call another thread queues its own call, and one that grows the workspace."""
    chosen.text = SUMS
    one, two, large = Product(driver, 20), Product(driver, 20, seed=1), Product(driver, 200)
    one.queue()
    assert one.right

    def others() -> None:
        driver.after = lambda: None
        for p in (two, large):
            worker = threading.Thread(target=p.queue, daemon=True)
            worker.start()
            join(worker)

    driver.after = others
    one.queue()
    assert one.right
    assert two.right
    assert large.right


# ---- Ctrl-C


@pytest.mark.parametrize("error", [KeyboardInterrupt, LaunchError])
def test_interrupted_launch_leaves_no_flags_set(
    driver: Driver, chosen: Any, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """For arrays of the device and of the host."""
    p = Product(driver, 40)
    x, y = p.a.numpy().copy(), p.b.numpy().copy()

    def flags() -> tuple[int, int]:
        address = int.from_bytes(driver.parameters[-1][24:32], "little")
        return address, driver.sizes[address]

    def interrupted() -> None:
        driver.fill(*flags(), 1)
        raise error

    def check_flags() -> None:
        assert not any(driver.machine.read(*flags()))

    driver.before = check_flags

    def queued() -> bool:
        p.queue()
        return p.right

    for call in (queued, lambda: np.array_equal(ptxgen.gemm(x, y), p.want)):
        assert call()
        monkeypatch.setattr(driver, "after", interrupted)
        with pytest.raises(error):
            call()
        monkeypatch.setattr(driver, "after", lambda: None)
        assert call()


# ---- forks


def test_fork_while_a_thread_multiplies(chosen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the child and the parent multiply."""
    on = Driver()
    on.name = "emulated"
    monkeypatch.setattr(drivers, "driver", lambda: on)
    x = np.eye(20, dtype=np.float32)
    inside, forking = threading.Event(), threading.Event()
    done: list[Array] = []

    def wait() -> None:
        if threading.current_thread() is worker:
            inside.set()
            forking.wait(SECONDS)

    on.before = wait
    worker = threading.Thread(target=lambda: done.append(ptxgen.gemm(x, x)), daemon=True)
    worker.start()
    assert inside.wait(SECONDS)
    os.register_at_fork(before=forking.set)  # it runs before those that were registered earlier
    assert forked(lambda: np.array_equal(ptxgen.gemm(x, 2 * x), 2 * x)) == "True"
    join(worker)
    assert np.array_equal(ptxgen.gemm(x, 3 * x), 3 * x)
    assert np.array_equal(done[0], x)


def test_forked_process_reopens_the_database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite connections must not cross a fork."""
    path = tmp_path / "tuning.sqlite"
    Database(path).close()
    monkeypatch.setattr(choice.settings, "settings", lambda: SimpleNamespace(database=path))
    choice.database.cache_clear()
    try:
        before = choice.database()
        assert before is not None
        assert forked(lambda: choice.database() not in (None, before)) == "True"
        assert choice.database() is before
    finally:
        choice.database.cache_clear()


# ---- workspaces


@pytest.mark.parametrize("text", [FLAGS, SUMS])
def test_calls_of_a_stream_share_a_workspace(driver: Driver, chosen: Any, text: str) -> None:
    chosen.text = text
    p = Product(driver, 40)
    p.queue()
    made = driver.made
    for _ in range(3):
        p.queue()
        assert p.right
    assert driver.made == made
    assert len({sent[24:32] for sent in driver.parameters[:: 1 if text == FLAGS else 2]}) == 1


@pytest.mark.parametrize("text", [FLAGS, SUMS, ANY])
def test_caller_workspace(driver: Driver, chosen: Any, text: str) -> None:
    """With any contents; in the first call and in cached calls, which allocate nothing."""
    chosen.text = text
    p = Product(driver, 40)
    size = ptxgen.workspace_size(ptxgen.gemm, p.a, p.b, out=p.c)
    assert not driver.parameters
    assert (size > 0) == (text != ANY)
    own = Tensor(driver, np.full(max(size // 4, 1), 77, np.float32))
    held = dict(driver.sizes)
    for _ in range(3):
        p.queue(workspace=own)
        assert p.right
        driver.fill(own.address, own.nbytes, 1)
    assert driver.sizes == held
    assert ptxgen.workspace_size(ptxgen.gemm, p.a, p.b, out=p.c) == size
    p.queue()
    assert p.right


def test_invalid_workspaces_are_refused(driver: Driver) -> None:
    p = Product(driver, 40)
    size = ptxgen.workspace_size(ptxgen.gemm, p.a, p.b, out=p.c)
    small, host = Tensor(driver, np.zeros(size // 4 - 1, np.float32)), np.zeros(size, np.uint8)
    odd = Tensor(driver, np.zeros(size, np.float32))
    odd.address += 16
    columns = Tensor(driver, np.zeros((size, 2), np.float32), (1, 0))
    other = Tensor(driver, np.zeros(size, np.float32))
    other.device = other.device._replace(index=1)
    shared = Tensor(driver, np.zeros(2 * size, np.float32))
    shared.address = p.b.address
    for _ in range(2):  # the first call, and a remembered one
        for bad, error, words in (
            (small, InputError, f"workspace has {size - 4} bytes; it must have at least {size}"),
            (host, InputError, "workspace is ndarray, not on a GPU; it must be a GPU array"),
            (odd, InputError, "workspace is at address 0x.*10; it must be a multiple of 256"),
            (columns, InputError, r"workspace has strides \(1, \d+\); its elements must be contiguous"),
            (other, DeviceError, "workspace is on GPU 1"),
            (shared, OverlapError, "workspace shares memory with b"),
        ):
            with pytest.raises(error, match=words):
                p.queue(workspace=bad)
        p.queue()
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(InputError, match="workspace is given and the operands are in host memory"):
        ptxgen.gemm(x, x, workspace=small)
    assert ptxgen.workspace_size(ptxgen.gemm, x, x) == 0
    assert ptxgen.workspace_size(ptxgen.conv2d, x[None, None], x[None, None]) == 0
    with pytest.raises(InputError, match=r"call is of type ndarray; it must be the function .*\(ptxgen.gemm, a, b\)"):
        ptxgen.workspace_size(x, x)  # type: ignore[arg-type]


def test_caller_workspace_of_a_convolution(driver: Driver, chosen: Any) -> None:
    chosen.text = SUMS
    images, filters = np.ones((1, 4, 6, 6), np.float32), np.ones((3, 4, 3, 3), np.float32)
    x, f = Tensor(driver, images), Tensor(driver, filters)
    size = ptxgen.workspace_size(ptxgen.conv2d, x, f)
    assert size > 0
    own = Tensor(driver, np.full(size // 4, 77, np.float32))
    for _ in range(2):
        assert np.array_equal(ptxgen.conv2d(x, f, workspace=own).numpy(), np.full((1, 3, 4, 4), 36, np.float32))
        assert all(own.address == int.from_bytes(sent[24:32], "little") for sent in driver.parameters[::2])
    with pytest.raises(InputError, match=f"workspace has 4 bytes; it must have at least {size}"):
        ptxgen.conv2d(x, f, workspace=Tensor(driver, np.zeros(1, np.float32)))


# ---- kernels


def test_shapes_share_kernels(driver: Driver) -> None:
    """Each kernel is loaded once, and stays loaded while a cached call launches it."""
    for size in range(20, 60, 4):
        p = Product(driver, size)
        p.queue()
        assert p.right
    assert len(runners.runners) == 10
    kernels = {id(bound.kernel) for bound in runners.runners.values()}
    assert len(driver.loads) == len(set(driver.loads)) == len(kernels) < 10
    launches.launches.clear()
    runners.runners.clear()
    assert not driver_state.state_of(driver).kernels


def test_number_of_loaded_kernels_is_limited(driver: Driver, chosen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "MAX_KERNELS", 3)
    for n, depth in enumerate((2, 4, 8, 16, 32)):
        chosen.text = f"{ANY} u={depth}"
        for size in (12, 16):
            p = Product(driver, size + 20 * n)
            p.queue()
            assert p.right
            assert len(driver_state.state_of(driver).kernels) <= 3
    assert len(set(driver.loads)) == 5
