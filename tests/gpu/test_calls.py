"""``gemm`` called from PyTorch: captured in graphs, from threads, with a caller's workspace, after a fork."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import driver_state, drivers, launches, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import LaunchError
from ptxgen.runtime import workspace
from ptxgen.tuning import selection
from tests.forks import forked
from tests.threads import join

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ANY = "ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2"
SLICED = {"flags": f"{ANY} kg=2 splitk=flag_red", "sums": f"{ANY} kg=2 splitk=workspace"}


@pytest.fixture(params=SLICED)
def sliced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """All products use split-K with a workspace, which begins small."""
    config = parse_config(SLICED[request.param])
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    driver_state.state_of.cache_clear()
    monkeypatch.setattr(workspace, "MIN_BYTES", 256)
    monkeypatch.setattr(selection, "select", lambda p, *_: [selection.Selection(p, config, "given")])
    yield request.param
    driver_state.state_of.cache_clear()


class Product:
    def __init__(self, size: int, seed: int = 0) -> None:
        numbers = torch.Generator("cuda").manual_seed(seed)
        self.a, self.b = (
            torch.randint(-3, 4, (size, size), generator=numbers, device="cuda").float() for _ in range(2)
        )
        self.c, self.want = torch.zeros_like(self.a), (self.a.double() @ self.b.double()).float()
        torch.cuda.synchronize()

    def queue(self, **options: Any) -> None:
        ptxgen.gemm(self.a, self.b, out=self.c, **options)

    @property
    def right(self) -> bool:
        torch.cuda.synchronize()
        result = torch.equal(self.c, self.want)
        self.c.zero_()
        torch.cuda.synchronize()
        return result


def captured(*products: Product, stream: Any = None) -> Any:
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded, stream=stream):
        for p in products:
            p.queue()
    return recorded


@pytest.mark.parametrize("warm", [False, True])
def test_small_graph_replays_after_capture_of_a_larger_one(sliced: str, warm: bool) -> None:
    """On one stream; ``warm``: after a call on that stream, as PyTorch recommends."""
    small, large = Product(64), Product(1500)
    stream = torch.cuda.Stream()
    if warm:
        with torch.cuda.stream(stream):
            small.queue()
        assert small.right
    first = captured(small, stream=stream)
    second = captured(small, large, stream=stream)
    with torch.cuda.stream(stream):
        large.queue()
    assert large.right
    taken = [torch.full((1 << 20,), 7, device="cuda") for _ in range(64)]  # overwrites freed memory
    for _ in range(3):
        first.replay()
        assert small.right
        second.replay()
        assert small.right
        assert large.right
    assert all(bool((x == 7).all()) for x in taken)


def test_two_graphs_of_one_stream_replay_concurrently(sliced: str) -> None:
    stream, products = torch.cuda.Stream(), [Product(256, seed) for seed in (1, 2)]
    graphs = [captured(p, stream=stream) for p in products]
    sides = [torch.cuda.Stream() for _ in graphs]
    for _ in range(200):
        for graph, side in zip(graphs, sides, strict=True):
            with torch.cuda.stream(side):
                graph.replay()
    assert all(p.right for p in products)


def test_memory_of_destroyed_graphs_is_freed(sliced: str) -> None:
    p = Product(1024)
    p.queue()
    assert p.right
    stream, held = torch.cuda.Stream(), []
    for _ in range(6):
        graph = captured(p, stream=stream)
        graph.replay()
        assert p.right
        held.append(len(drivers.driver()._memory))  # type: ignore[attr-defined]
        del graph
        gc.collect()
        torch.cuda.synchronize()
    assert held[2:] == held[2:3] * 4


def test_threads_share_a_stream(sliced: str) -> None:
    """Each product grows the workspace of the stream that all threads use."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for size in range(64, 900, 97):
                p = Product(size + seed, seed)
                for _ in range(20):
                    p.queue()
                torch.cuda.current_stream().synchronize()
                assert torch.equal(p.c, p.want), (size, seed)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
    for t in threads:
        t.start()
    join(*threads)
    assert not failures


def test_thread_allocates_while_another_captures(sliced: str) -> None:
    small, large = Product(64), Product(700)
    recorded = torch.cuda.CUDAGraph()
    other = threading.Thread(target=large.queue, daemon=True)
    with torch.cuda.graph(recorded):
        small.queue()
        other.start()
        join(other)
        small.queue()
    assert large.right
    recorded.replay()
    assert small.right


def test_caller_workspace(sliced: str) -> None:
    """In eager mode and in a graph."""
    p = Product(512)
    size = ptxgen.workspace_size(ptxgen.gemm, p.a, p.b, out=p.c)
    assert size > 0
    own = torch.full((size,), 255, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        p.queue(workspace=own)
        assert p.right
        own.fill_(255)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        p.queue(workspace=own)
    for _ in range(3):
        recorded.replay()
        assert p.right
        own.fill_(255)


def product() -> float:
    x = torch.eye(64, device="cuda")
    return float(ptxgen.gemm(x, x).sum())


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn"])
def test_alpha_zero_reads_neither_operand(name: str, beta: float) -> None:
    """Large products and small ones, whose kernels split K, also in a graph; jagged ones and lists."""
    dtype = getattr(torch, name)
    sizes, ends = ((16, 16, 8192), (512, 384, 256)), torch.tensor([16, 48], dtype=torch.int32, device="cuda")
    recorded = torch.cuda.CUDAGraph()
    nan = [[torch.full(s, torch.nan, device="cuda").to(dtype) for s in ((m, k), (n, k))] for m, n, k in sizes]
    made = torch.float32 if name == "float32" else torch.bfloat16
    outs = [torch.ones(m, n, dtype=made, device="cuda") for m, n, _ in sizes]
    listed, jagged = [x.clone() for x in outs], torch.ones(64, 16, dtype=made, device="cuda")
    grads = torch.ones(2, 64, 16, dtype=made, device="cuda")
    rows = torch.full((64, 64), torch.nan, device="cuda").to(dtype)
    weights = torch.full((2, 16, 64), torch.nan, device="cuda").to(dtype).mT

    def queue() -> None:
        for (a, b), out in zip(nan, outs, strict=True):
            ptxgen.gemm(a, b.T, alpha=0.0, beta=beta, out=out)
        ptxgen.gemm_grouped([a for a, _ in nan], [b.T for _, b in nan], listed, alpha=0.0, beta=beta)
        ptxgen.gemm_jagged(rows, weights, ends, alpha=0.0, beta=beta, out=jagged)
        ptxgen.gemm_jagged_weight_grad(rows, rows[:, :16], ends, alpha=0.0, beta=beta, out=grads)

    queue()
    torch.cuda.synchronize()
    with torch.cuda.graph(recorded):
        queue()
    recorded.replay()
    torch.cuda.synchronize()
    for out in (*outs, *listed, jagged[:48], grads):
        assert (out == beta * beta).all()
    assert (jagged[48:] == 1).all()


def test_forked_process_gets_an_error_that_recommends_spawn() -> None:
    assert product() == 64
    x = np.eye(8, dtype=np.float32)

    def child() -> str:
        with pytest.raises(LaunchError) as caught:
            ptxgen.gemm(x, x)
        return str(caught.value)

    assert 'multiprocessing.get_context("spawn")' in forked(child)
    assert product() == 64


def test_spawned_process_multiplies() -> None:
    assert product() == 64
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(product) == 64
