"""Grouped products on a GPU: random groups of every family, calls from PyTorch, graphs that are replayed with other
sizes."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ptxgen
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.problem.reference import INPUTS
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, generate
from tests.cases import SOURCES

pytestmark = pytest.mark.gpu
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))
SIZES = (7, 0, 130, 33, 1, 64)


@pytest.mark.parametrize(
    "family", ["simt", "mma", "mma_scaled", "wgmma", "wgmma_scaled", "quantized_mma", "quantized_wgmma"]
)
@pytest.mark.parametrize("part", range(7))
def test_random_groups(family: str, part: int) -> None:
    """238 groups of each family, nine input sets each. Memory around each item is poisoned."""
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
        scales = [s for s in SCALES if s[1] == 0 or not p.gated]  # gated activations need beta = 0
        for inputs, (alpha, beta) in itertools.product(INPUTS, scales):
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


def blocks_of(torch: Any, x: Any, ends: list[int]) -> Any:
    """The number of the block of 128 tokens of each token: blocks begin at the first token of each expert."""
    numbers, count = torch.zeros(x.shape[0], dtype=torch.long, device="cuda"), 0
    for start, end in zip([0, *ends], ends, strict=False):
        numbers[start:end] = count + torch.arange(end - start, device="cuda") // 128
        count += -(-(end - start) // 128)
    return numbers


@pytest.mark.parametrize("kmajor", itertools.product((True, False), (True, False)))
def test_a_graph_of_weight_gradients_with_scales_replays_with_other_offsets(kmajor: tuple[bool, bool]) -> None:
    """The kernels read the offsets on the GPU; items begin at any token. The call under capture synchronises nothing.
    ``kmajor``: True if tokens are contiguous."""
    torch = pytest.importorskip("torch")
    tokens, k, n = 1003, 272, 200
    x, dy = (
        torch.randn(w, tokens, device="cuda").to(torch.float8_e4m3fn).T
        if along
        else torch.randn(tokens, w, device="cuda").to(torch.float8_e4m3fn)
        for w, along in zip((k, n), kmajor, strict=True)
    )
    scale_a, scale_b = (torch.rand(20, w, device="cuda") + 0.5 for w in (k, n))
    out = torch.empty(4, k, n, device="cuda")
    offsets = torch.tensor([256, 256, 512, 1003], dtype=torch.int32, device="cuda")

    def run() -> None:
        ptxgen.gemm_jagged_weight_grad(x, dy, offsets, out=out, scale_a=scale_a, scale_b=scale_b)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for ends in ([256, 256, 512, 1003], [1, 131, 131, 900], [0, 0, 1003, 1003]):
        offsets.copy_(torch.tensor(ends, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        block = blocks_of(torch, x, ends)
        left, right = (y.double() * s.double()[block] for y, s in ((x, scale_a), (dy, scale_b)))
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            wide = left[start:end].T @ right[start:end]
            assert (out[i] - wide).abs().max() <= 1e-3 * max(float(wide.abs().max()), 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_graph_of_a_list_with_scales_replays(layout: str) -> None:
    """Items of any K and alignment, also without K."""
    torch = pytest.importorskip("torch")
    shapes = ((72, 48, 5), (300, 131, 200), (1, 1, 1), (130, 140, 1024), (9, 5, 300), (20, 24, 0))
    a = [torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn) for m, _, k in shapes]
    b = [torch.randn(k, n, device="cuda").to(torch.float8_e5m2) for _, n, k in shapes]
    a, b = ([x.T.contiguous().T for x in y] if letter == "T" else y for y, letter in zip((a, b), layout, strict=True))
    scale_a = [torch.rand(m, -(-k // 128), device="cuda") + 0.5 for m, _, k in shapes]
    scale_b = [torch.rand(-(-k // 128), -(-n // 128), device="cuda") + 0.5 for _, n, k in shapes]
    outs = [torch.empty(m, n, device="cuda") for m, n, _ in shapes]

    def run() -> None:
        ptxgen.gemm_grouped(a, b, outs, scale_a=scale_a, scale_b=scale_b)

    def check() -> None:
        for (m, n, k), x, w, s, t, out in zip(shapes, a, b, scale_a, scale_b, outs, strict=True):
            left = x.double() * s.double().repeat_interleave(128, 1)[:, :k]
            right = w.double() * t.double().repeat_interleave(128, 0)[:k].repeat_interleave(128, 1)[:, :n]
            wide = left @ right
            assert out.shape == (m, n)
            assert (out - wide).abs().max() <= 1e-3 * max(float(wide.abs().max()), 1e-9)

    run()
    check()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for out in outs:
        out.fill_(float("nan"))
    graph.replay()
    check()


@pytest.mark.parametrize("first", [0, 1])
def test_experts_with_scales_take_operands_of_any_strides(first: int) -> None:
    """Rows or columns are contiguous; addresses and pitches are multiples of 16 bytes, or odd."""
    torch = pytest.importorskip("torch")
    tokens, k, n, ends = 304, 272 - first, 144 - first, [100, 100, 303]
    offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
    scale_a, scale_b = (torch.rand(*s, device="cuda") + 0.5 for s in ((tokens, 3), (3, 3, 2)))
    for a_order, b_order in itertools.product(((0, 1), (1, 0)), ((0, 1, 2), (0, 2, 1))):
        x = torch.randn(*((tokens, k + first)[i] for i in a_order), device="cuda").to(torch.float8_e4m3fn)
        w = torch.randn(*((3, k, n + first)[i] for i in b_order), device="cuda").to(torch.float8_e4m3fn)
        x, w = x.permute(a_order)[:, first:], w.permute(b_order)[:, :, first:]
        out = torch.full((tokens, n), float("nan"), device="cuda")
        ptxgen.gemm_jagged(x, w, offsets, out=out, scale_a=scale_a, scale_b=scale_b)
        left = x.double() * scale_a.double().repeat_interleave(128, 1)[:, :k]
        right = w.double() * scale_b.double().repeat_interleave(128, 1)[:, :k].repeat_interleave(128, 2)[:, :, :n]
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            wide = left[start:end] @ right[i]
            assert end == start or (out[start:end] - wide).abs().max() <= 1e-3 * wide.abs().max()
        assert out[ends[-1] :].isnan().all()


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


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_groups_store_the_sums(name: str, activation: str) -> None:
    torch = pytest.importorskip("torch")
    element, ends = getattr(torch, name), torch.tensor(SIZES).cumsum(0).tolist()
    x, w = integers(torch, ends[-1], 64, dtype=element), integers(torch, len(SIZES), 64, 96, dtype=element)
    offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
    wanted = expected(torch, x, w, ends)
    results = wanted.relu() if activation == "relu" else torch.nn.functional.silu(wanted[:, ::2]) * wanted[:, 1::2]
    sums = torch.full_like(wanted, torch.nan)
    out = ptxgen.gemm_jagged(x, w, offsets, activation=activation, sums=sums)
    assert torch.equal(sums, wanted)
    torch.testing.assert_close(out, results, rtol=2e-2, atol=1e-2)
    parts = [torch.full_like(part, torch.nan) for part in wanted.split(SIZES)]
    outs = ptxgen.gemm_grouped(list(x.split(SIZES)), list(w), activation=activation, sums=parts)
    assert torch.equal(torch.cat(parts), wanted)
    torch.testing.assert_close(torch.cat(outs), results, rtol=2e-2, atol=1e-2)
