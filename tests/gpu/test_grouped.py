"""Grouped products on a GPU: random groups of every family, calls from PyTorch, graphs that are replayed with other
sizes."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ptxgen
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.problem.reference import INPUTS
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, generate
from tests.cases import SOURCES

pytestmark = pytest.mark.gpu
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))
SIZES = (7, 0, 130, 33, 1, 64)


@pytest.mark.parametrize("family", ["simt", "mma", "wgmma", "quantized_mma", "quantized_wgmma"])
@pytest.mark.parametrize("part", range(7))
def test_random_groups(family: str, part: int) -> None:
    """238 groups of each family, nine input sets each: 6,426 cases. Memory around each item is poisoned."""
    driver = open_driver("cuda")
    cases = list(SOURCES[f"grouped_{family}"].cases(part, 34, driver.device, limit=300))

    def load(case: Any) -> Any:
        plan, source = generate(*case, driver)
        assemble(source)  # into the disk cache
        return *case, plan, source

    with ThreadPoolExecutor(16) as pool:
        loaded = list(pool.map(load, cases))
    for n, (p, c, plan, source) in enumerate(loaded):
        runner = Runner(driver, plan, driver.load(source), p)
        for inputs, (alpha, beta) in itertools.product(INPUTS, SCALES):
            arrays = random_group(p, n, inputs)
            if beta == 0:
                arrays["C"][...] = p.output.poison
            out = runner.compute(arrays, alpha, beta)["C"]
            deviation = group_deviation(p, arrays, out, inputs, alpha, beta)
            assert deviation.ok, f"{p.key()} | {c} | {inputs}, alpha={alpha:g}, beta={beta:g}: {deviation}"
        runner.workspace.release()


def integers(torch: Any, *shape: int, dtype: Any) -> Any:
    """Small integers: sums are exact."""
    return torch.randint(-3, 4, shape, device="cuda").to(dtype)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_lists(name: str) -> None:
    """Items of all shapes, some of them views with unaligned starts and gaps between rows."""
    torch = pytest.importorskip("torch")
    inputs = getattr(torch, name)
    shapes = [(33, 17, 20), (0, 5, 5), (5, 0, 3), (7, 9, 0), (64, 64, 64), (1, 1, 1), (13, 37, 101), (300, 200, 100)]
    a = [integers(torch, m, k + i % 2, dtype=inputs)[:, i % 2 :] for i, (m, n, k) in enumerate(shapes)]
    b = [integers(torch, k, n, dtype=inputs) for m, n, k in shapes]
    for x, y, z in zip(ptxgen.gemm_grouped(a, b), a, b, strict=True):
        assert torch.equal(x, (y.double() @ z.double()).to(inputs))


def expected(torch: Any, x: Any, w: Any, ends: list[int]) -> Any:
    parts = [x[s:e].double() @ w[i].double() for i, (s, e) in enumerate(zip([0, *ends], ends, strict=False))]
    return torch.cat(parts).to(x.dtype)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_graph_of_a_jagged_product_replays_with_other_offsets(name: str) -> None:
    torch = pytest.importorskip("torch")
    inputs, total = getattr(torch, name), sum(SIZES)
    x, w = integers(torch, total, 64, dtype=inputs), integers(torch, len(SIZES), 64, 96, dtype=inputs)
    offsets = torch.zeros(len(SIZES), dtype=torch.int32, device="cuda")
    out = torch.zeros(total, 96, dtype=inputs, device="cuda")
    ptxgen.gemm_jagged(x, w, offsets, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ptxgen.gemm_jagged(x, w, offsets, out=out)
    for sizes in (SIZES, SIZES[::-1], (total, 0, 0, 0, 0, 0)):
        ends = torch.tensor(sizes).cumsum(0)
        offsets.copy_(ends.int())
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected(torch, x, w, ends.tolist()))


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    total = sum(SIZES)
    x, w = integers(torch, total, 64, dtype=torch.bfloat16), integers(torch, 6, 64, 96, dtype=torch.bfloat16)
    dy, ends = integers(torch, total, 96, dtype=torch.bfloat16), torch.tensor(SIZES).cumsum(0)
    offsets = ends.int().cuda()
    dx = ptxgen.gemm_jagged_input_grad(dy, w, offsets)
    assert torch.equal(dx, expected(torch, dy, w.transpose(1, 2), ends.tolist()))
    dw = ptxgen.gemm_jagged_weight_grad(x, dy, offsets)
    for i, (s, e) in enumerate(zip([0, *ends.tolist()], ends.tolist(), strict=False)):
        assert torch.equal(dw[i], (x[s:e].double().T @ dy[s:e].double()).to(torch.bfloat16))


def test_a_graph_of_a_list_copies_its_table() -> None:
    torch = pytest.importorskip("torch")
    a = [integers(torch, m, 40, dtype=torch.float32) for m in SIZES]
    b = [integers(torch, 40, 24, dtype=torch.float32) for _ in SIZES]
    outs = [torch.zeros(m, 24, device="cuda") for m in SIZES]
    ptxgen.gemm_grouped(a, b, outs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ptxgen.gemm_grouped(a, b, outs)
    for x in outs:
        x.fill_(float("nan"))
    ptxgen.gemm_grouped(a[:2], b[:2])  # another table
    graph.replay()
    torch.cuda.synchronize()
    for x, y, z in zip(outs, a, b, strict=True):
        assert torch.equal(x, y @ z)
