"""Tasks on a GPU: random programs and configurations against the oracle, calls with PyTorch tensors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.errors import PtxgenError
from ptxgen.families.common.space import candidates
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.checks import check_with, known_results
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.runner import generate
from tests.cases import SOURCES

pytestmark = pytest.mark.gpu
PROGRAMS, EACH = 150, 2  #: random programs, and candidates for each of them besides the random configuration
PARTS = 3  #: tests among which the programs of a source are divided, so that several processes share them
SHOWN = 4


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", [x for x in SOURCES if x == "task" or x.startswith("task_")])
def test_random_programs(random_kernels_driver: Any, name: str, part: int) -> None:
    """The configurations of a program are compared with the same results of the oracle, which takes the most time."""
    driver, rng, kernels = random_kernels_driver, np.random.default_rng([5, part]), []
    for p, c in islice(SOURCES[name].cases(23, PROGRAMS, driver.device, 400), part, None, PARTS):
        columns = candidates(lower(p), driver.device)
        kernels.append((p, [c, *(columns.row(int(i)) for i in rng.integers(0, len(columns), EACH))]))
    pairs = [(p, c) for p, configs in kernels for c in configs]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: assemble(generate(*pair, driver)[1]), pairs))
    wrong = []
    for n, (p, configs) in enumerate(kernels):
        known = list(known_results(p, n))
        for c in configs:
            try:
                bad = [f"{r.inputs}: {r.deviation}" for r in check_with(driver, p, c, known) if not r.ok]
            except PtxgenError as error:
                bad = [str(error)]
            wrong += [f"{p.key()} | {c}: {', '.join(bad)}"] if bad else []
    assert not wrong, f"{len(wrong)} of {len(pairs)}:\n" + "\n".join(wrong[:SHOWN])


def test_calls_with_tensors() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    a, b = torch.randn(333, 257, device="cuda"), torch.randn(257, 190, device="cuda")
    expected = (a[:, :, None] + b[None]).amin(1)
    assert torch.equal(ptxgen.matmul_over("min_plus", a, b), expected)
    out = torch.empty(333, 190, device="cuda")
    assert ptxgen.matmul_over("min_plus", a, b.t().contiguous().t(), out=out) is out
    assert torch.equal(out, expected)


@pytest.mark.parametrize("k", [3, 40, 1024])
def test_the_best_values(k: int) -> None:
    """With small integers, whose sums are exact, and of normal values."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    step = "reduce (k) { accum += P[i,k] * R[j,k]; }"
    for m, n, best in ((3000, 3500, 128), (3000, 3500, 5000), (700, 900, 1), (20, 100_000, 300)):
        p, r = (torch.randint(-3, 4, (rows, k), device="cuda").float() for rows in (m, n))
        c = p @ r.T
        result = ptxgen.task(f"where (i, j) {{ {step} b.top({best}, accum, i, j); }}")(P=p, R=r)
        ordered = torch.sort(c.flatten(), descending=True, stable=True)
        assert torch.equal(result.values, ordered.values[:best])
        assert torch.equal(result.i.long() * n + result.j, ordered.indices[:best])
        width = min(best, 200)
        rows = ptxgen.task(f"where (i, j) {{ {step} b[i].bottom({width}, accum, j); }}")(P=p, R=r)
        assert torch.equal(rows.j.long(), torch.sort(c, dim=1, stable=True).indices[:, :width])
        p, r = torch.randn_like(p), torch.randn_like(r)
        result = ptxgen.task(f"where (i, j) {{ {step} b.top({best}, accum, i, j); }}")(P=p, R=r)
        exact = p.double() @ r.double().T
        assert torch.allclose(result.values.double(), torch.topk(exact.flatten(), best).values, atol=1e-3)


def test_the_best_of_filtered_sums() -> None:
    """Tensor cores list candidates from 2**33 steps on."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    p, r = (torch.randn(rows, 1024, device="cuda") for rows in (4096, 4000))
    step = "reduce (k) { accum += P[i,k] * R[j,k]; }"
    c = p.double() @ r.double().T
    result = ptxgen.task(f"where (i, j) {{ {step} b.top(128, accum, i, j); }}")(P=p, R=r)
    assert torch.allclose(result.values.double(), torch.topk(c.flatten(), 128).values, atol=1e-3)
    assert torch.allclose(c[result.i.long(), result.j.long()], result.values.double(), atol=1e-3)
    rows = ptxgen.task(f"where (i, j) {{ {step} b[j].top(10, accum, i); }}")(P=p, R=r)
    assert torch.allclose(rows.values.double(), torch.topk(c, 10, dim=0).values.T, atol=1e-3)


def test_a_graph_captures_a_call() -> None:
    torch = pytest.importorskip("torch")
    distance = ptxgen.task("where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } C[i,j] = accum * s; }")
    p, r, out = (torch.randn(*shape, device="cuda") for shape in ((128, 64), (96, 64), (128, 96)))
    distance(P=p, R=r, s=2.0, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        distance(P=p, R=r, s=2.0, out=out)
    p.copy_(torch.randn_like(p))
    graph.replay()
    expected = 2 * (p[:, None] - r[None]).abs().sum(-1)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)


def test_a_graph_captures_the_best_of_few_pairs() -> None:
    torch = pytest.importorskip("torch")
    step = "reduce (k) { accum += P[i,k] * R[j,k]; }"
    rows = ptxgen.task(f"where (i, j) {{ {step} b[i].top(5, accum, j); }}")
    p, r = torch.randn(128, 64, device="cuda"), torch.randn(200, 64, device="cuda")
    rows(P=p, R=r)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = rows(P=p, R=r)
    p.copy_(torch.randn_like(p))
    graph.replay()
    expected = torch.topk(p.double() @ r.double().T, 5)
    torch.testing.assert_close(result.values.double(), expected.values, rtol=1e-5, atol=1e-4)


def test_lists_of_tensors_grow_and_are_captured() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    query = ptxgen.task("""where (i, j) when (i < j) {
        reduce (k) { accum += P[i,k] * R[k,j]; } accum > thres ? hits.add(accum, i, j); }""")
    p, r = (torch.randint(-3, 4, shape, device="cuda", dtype=torch.float32) for shape in ((515, 37), (37, 290)))

    def check(hits: Any, thres: float) -> None:
        product = p @ r  # exact
        selected = torch.triu(product > thres, 1)
        assert hits.count == selected.sum()
        order = torch.argsort(hits.i.long() * r.shape[1] + hits.j)
        assert torch.equal(torch.stack([hits.i, hits.j], 1)[order].long(), selected.nonzero())
        assert torch.equal(hits.values[order], product[selected])

    check(query(P=p, R=r, thres=-1.0, capacity=10), -1.0)
    check(query(P=p, R=r, thres=40.0, sorted=True), 40.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hits = query(P=p, R=r, thres=5.0, capacity=p.shape[0] * r.shape[1], overflow="truncate")
    for _ in range(2):
        p.copy_(torch.randint_like(p, -3, 4))
        graph.replay()
        torch.cuda.synchronize()
        check(hits, 5.0)


def test_later_calls_repeat_several_launches() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    several = ptxgen.task(
        "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } D[i,j] = accum; S[i] += accum * s; }"
    )
    batch = ptxgen.task("where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } S[i] += accum * s; }")
    listed = ptxgen.task(
        "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } accum < t ? L.add(accum, i, j); }"
    )
    for s in (2.0, 2.0, -1.5, 2.0):
        p, r = (torch.randint(-3, 4, shape, device="cuda").float() for shape in ((3, 128, 64), (96, 64)))  # exact sums
        distances = (p[:, :, None] - r[None, None]).abs().sum(-1)
        result = several(p[1], r, s)
        assert torch.equal(result.D, distances[1])
        assert torch.equal(result.S, distances[1].sum(1) * s)
        assert torch.equal(batch(p, r, s), distances.sum(2) * s)
        threshold = float(distances[2].flatten().kthvalue(100 * abs(int(s))).values) + 0.5
        hits = listed(p[2], r, threshold, sorted=True)
        assert hits.count == (distances[2] < threshold).sum()
        assert torch.equal(hits.values, distances[2][hits.i.long(), hits.j.long()])


def test_a_graph_captures_several_launches() -> None:
    torch = pytest.importorskip("torch")
    task = ptxgen.task(
        "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } S[i] += accum * s; T[j] = max(T[j], accum); }"
    )
    p, r = torch.randn(128, 64, device="cuda"), torch.randn(96, 64, device="cuda")
    for _ in range(2):
        task(p, r, 2.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = task(p, r, 2.0)
    for _ in range(2):
        p.copy_(torch.randn_like(p))
        graph.replay()
        distances = (p[:, None] - r[None]).abs().sum(-1)
        torch.testing.assert_close(result.S, distances.sum(1) * 2)
        torch.testing.assert_close(result.T, distances.amax(0))
