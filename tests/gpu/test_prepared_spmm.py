"""Handles of sparse PyTorch tensors on a GPU: products, updates, graphs, checks of the pattern."""

from __future__ import annotations

from typing import Any

import pytest

import ptxgen
from ptxgen.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Sparse")]


def matrix(dtype: Any, m: int = 300, k: int = 200) -> Any:
    """A sparse matrix of small integers with int64 indices."""
    torch.manual_seed(1)
    dense = torch.randint(-2, 3, (m, k), device="cuda") * (torch.rand(m, k, device="cuda") < 0.2)
    return dense.to(dtype).to_sparse_csr()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("calls", [0, 1000])
def test_products_and_updates(name: str, calls: int) -> None:
    dtype = getattr(torch, name)
    a = matrix(dtype)
    exact = a.to_dense().double()
    p = ptxgen.spmm_prepare(a, calls=calls, n=64)
    for n in (1, 64, 33):
        b = torch.randint(-2, 3, (200, n), device="cuda").to(dtype)
        for x in (b, b.T.contiguous().T):
            assert torch.equal(p(x).double(), exact @ b.double())
            assert torch.equal(ptxgen.spmm(a, x).double(), exact @ b.double())
    a.values().mul_(2)
    p.update(a.values())
    assert torch.equal(p(b).double(), 2 * exact @ b.double())
    p.tune(33)
    assert torch.equal(p(b).double(), 2 * exact @ b.double())


def test_a_graph_replays_prepared_calls() -> None:
    a = matrix(torch.float16)
    exact = a.to_dense().double()
    p = ptxgen.spmm_prepare(a, n=64)
    b = torch.randint(-2, 3, (200, 64), device="cuda").half()
    out = torch.zeros(300, 64, device="cuda", dtype=torch.float16)
    p(b, out)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        p(b, out)
    for factor in (1, 2):
        b.copy_(torch.randint(-2, 3, (200, 64), device="cuda").half())
        out.zero_()
        recorded.replay()
        assert torch.equal(out.double(), factor * exact @ b.double())
        a.values().mul_(2)
        p.update(a.values())


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_captured_preparation_is_refused() -> None:
    a = matrix(torch.float16)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded), pytest.raises(InputError, match="spmm_prepare must be called before"):
        ptxgen.spmm_prepare(a)


def test_the_pattern_is_checked() -> None:
    a = matrix(torch.float32)
    rows, columns, values = a.crow_indices().clone(), a.col_indices().clone(), a.values()
    columns[7] = 200
    with pytest.raises(InputError, match=r"a\.indices\[7\] is 200; it must be at least 0 and less than 200"):
        ptxgen.spmm_prepare(ptxgen.SparseMatrix(rows, columns, values, (300, 200)))
    rows[5] = rows[4] - 1
    with pytest.raises(InputError, match=r"a\.indptr\[5\] is .*; it must be at least a\.indptr\[4\]"):
        ptxgen.spmm_prepare(ptxgen.SparseMatrix(rows, columns, values, (300, 200)))


@pytest.mark.parametrize("form", ["coo", "csc"])
def test_other_formats_are_converted_again_when_they_change(form: str) -> None:
    a = getattr(matrix(torch.float32), f"to_sparse_{form}")()
    b = torch.randint(-2, 3, (200, 16), device="cuda").float()
    values = a._values() if form == "coo" else a.values()
    exact = a.to_dense()
    for factor in (1, 2, 4):
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                result = ptxgen.spmm(a, b)
            torch.cuda.synchronize()
            assert torch.equal(result.double(), factor * (exact.double() @ b.double()))
        values.mul_(2)


def test_handles_of_one_pattern() -> None:
    a = matrix(torch.float32)
    b = torch.randint(-2, 3, (200, 16), device="cuda").float()
    other = torch.sparse_csr_tensor(a.crow_indices(), a.col_indices(), 3 * a.values(), a.shape)
    handles = [ptxgen.spmm_prepare(x, n=16) for x in (a, other)]
    exact = a.to_dense().double() @ b.double()
    assert torch.equal(handles[0](b).double(), exact)
    assert torch.equal(handles[1](b).double(), 3 * exact)
    assert handles[1].prepare_us > 0


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_transposes_and_sampled_products(name: str) -> None:
    dtype = getattr(torch, name)
    a = matrix(dtype, 1500, 1300)
    exact, rows = (
        a.to_dense().double(),
        torch.repeat_interleave(torch.arange(1500, device="cuda"), a.crow_indices().diff()),
    )
    p = ptxgen.spmm_prepare(a)
    for n in (1, 33, 64, 128):
        x, y = (torch.randint(-2, 3, (m, n), device="cuda").to(dtype) for m in a.shape)
        assert torch.equal(p.t(x), (exact.T @ x.double()).to(dtype))
        assert torch.equal(ptxgen.spmm(a, x, transpose=True), p.t(x))
        assert torch.equal(ptxgen.spmm(x.T, a), p.t(x).T)
        wanted = (x.double()[rows] * y.double()[a.col_indices()]).sum(1)
        assert torch.equal(p.sddmm(x, y), wanted.to(dtype))
        assert torch.equal(p.sddmm(x.T.contiguous().T, y, scaled=True), (wanted * a.values()).to(dtype))
    a.values().mul_(2)
    p.update(a.values())
    assert torch.equal(p.t(x), (2 * exact.T @ x.double()).to(dtype))


def test_a_graph_replays_transposes_and_sampled_products() -> None:
    a = matrix(torch.float32)
    exact, rows = (
        a.to_dense().double(),
        torch.repeat_interleave(torch.arange(300, device="cuda"), a.crow_indices().diff()),
    )
    p = ptxgen.spmm_prepare(a)
    x, y = (torch.randint(-2, 3, (m, 64), device="cuda").float() for m in a.shape)
    for _ in range(2):
        p.t(x)
        p.sddmm(x, y)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        product, sampled = p.t(x), p.sddmm(x, y)
    x.add_(1)
    recorded.replay()
    assert torch.equal(product.double(), exact.T @ x.double())
    assert torch.equal(sampled.double(), (x.double()[rows] * y.double()[a.col_indices()]).sum(1))
