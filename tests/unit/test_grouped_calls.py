"""Repeated calls of ``gemm_grouped`` on tensors: they launch again, on other addresses, without the checks of new ones."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, drivers, grouped, launches, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import OverlapError, ShapeError
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection
from tests.tensors import LIBRARY, Tensor

ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
PAIRS = ANY.replace(vec_c=2)  #: for gated activations
ITEMS = ((5, 7, 9), (16, 3, 20), (0, 4, 4), (1, 1, 1), (7, 5, 0))


class Gpu(EmulatedDriver):
    name = "cuda"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver = Gpu()
    for module, name in ((launches, "launches"), (launches, "grouped_calls"), (runners, "runners")):
        monkeypatch.setattr(module, name, OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(
        selection, "select", lambda p, *_, **__: [selection.Selection(p, PAIRS if p.gated else ANY, "given")]
    )
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    yield driver
    grouped._launchers.clear()


def arrays(gpu: Gpu, seed: int, transposed: bool = False) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """A, B and results of all items. ``transposed``: results are stored by columns."""
    rng = np.random.default_rng(seed)

    def make(rows: int, columns: int, order: tuple[int, ...] | None = None) -> Tensor:
        return Tensor(gpu, rng.integers(-3, 4, (rows, columns)).astype(np.float32), order)

    return (
        [make(m, k) for m, _, k in ITEMS],
        [make(k, n) for _, n, k in ITEMS],
        [make(m, n, (1, 0) if transposed else None) for m, n, _ in ITEMS],
    )


def no_checks(*_: Any) -> Any:
    raise AssertionError("a cached call checks no items")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("allocates", [False, True])
def test_repeated_call(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, transposed: bool, allocates: bool) -> None:
    for seed in range(3):
        a, b, outs = arrays(gpu, seed, transposed)
        alpha = [1.0, 2.0, 3.0, 4.0, 5.0]
        got = ptxgen.gemm_grouped(a, b, None if allocates else outs, alpha=alpha)
        for x, y, c, scale in zip(a, b, got, alpha, strict=True):
            assert np.array_equal(c.numpy(), scale * (x.numpy() @ y.numpy()))
        assert len(launches.grouped_calls) == 1
        monkeypatch.setattr(grouped, "_item", no_checks)


def test_other_shapes_and_numbers_are_other_calls(gpu: Gpu) -> None:
    a, b, outs = arrays(gpu, 0)
    for count, alpha in ((5, 1.0), (4, 1.0), (5, 2.0)):
        ptxgen.gemm_grouped(a[:count], b[:count], outs[:count], alpha=alpha)
        assert np.array_equal(outs[1].numpy(), alpha * (a[1].numpy() @ b[1].numpy()))
    assert len(launches.grouped_calls) == 3


def test_items_with_alpha_zero_are_not_read(gpu: Gpu) -> None:
    for count in range(2):  # the second call is cached
        a, b, outs = arrays(gpu, count)
        for x in (a[1], b[1]):
            gpu.upload(x.address, np.full(x.shape, np.nan, np.float32))
        ptxgen.gemm_grouped(a, b, outs, alpha=[1, 0, 1, 1, 1])
        assert not outs[1].numpy().any()
        assert np.array_equal(outs[0].numpy(), a[0].numpy() @ b[0].numpy())
    assert len(launches.grouped_calls) == 1
    outs[1].address = a[1].address
    with pytest.raises(OverlapError, match="item 1"):
        ptxgen.gemm_grouped(a, b, outs, alpha=[1, 0, 1, 1, 1])


def test_alpha_zero_of_one_product(gpu: Gpu) -> None:
    a, b, outs = arrays(gpu, 0, transposed=True)
    for x in (a[1], b[1]):
        gpu.upload(x.address, np.full(x.shape, np.nan, np.float32))
    for beta in (-2.0, 0.0) * 2:
        before = outs[1].numpy()
        ptxgen.gemm(a[1], b[1], alpha=0.0, beta=beta, out=outs[1])
        assert np.array_equal(outs[1].numpy(), beta * before)
    assert len(launches.launches) == 2
    outs[1].address = a[1].address
    with pytest.raises(OverlapError, match="out shares memory with a"):
        ptxgen.gemm(a[1], b[1], alpha=0.0, out=outs[1])


@pytest.mark.parametrize("shared", ["input", "output"])
def test_overlap_in_a_repeated_call_is_reported(gpu: Gpu, shared: str) -> None:
    a, b, outs = arrays(gpu, 0)
    ptxgen.gemm_grouped(a, b, outs)
    moved = copy.copy(outs[1])
    moved.address = (a[0] if shared == "input" else outs[0]).address + 16
    with pytest.raises(OverlapError, match="item 1"):
        ptxgen.gemm_grouped(a, b, [outs[0], moved, *outs[2:]])


def test_unaligned_arrays_are_not_served_by_a_kernel_of_aligned_ones(gpu: Gpu) -> None:
    a, b, outs = arrays(gpu, 0)
    ptxgen.gemm_grouped(a, b, outs)
    [(_, call)] = launches.grouped_calls.items()
    at = np.array([[x.data_ptr(), y.data_ptr(), c.data_ptr()] for x, y, c in zip(a, b, outs, strict=True)])
    assert call.serves(at)
    for item, operand in ((0, 0), (1, 1), (3, 2)):
        other = at.copy()
        other[item, operand] += 4
        assert not call.serves(other)
    at[2] += 4  # an item without elements
    assert call.serves(at)


def test_errors_of_a_repeated_call_are_those_of_a_new_one(gpu: Gpu) -> None:
    a, b, outs = arrays(gpu, 0)
    ptxgen.gemm_grouped(a, b, outs)
    with pytest.raises(ShapeError, match="item 0"):
        ptxgen.gemm_grouped([a[1], *a[1:]], b, outs)


def test_strides_of_axes_of_extent_one_do_not_count(gpu: Gpu) -> None:
    """A residual with a row or a column has the strides of ``out`` along the other axis."""
    for shape in ((1, 6), (6, 1), (1, 1)):
        x, w, residual = (Tensor(gpu, np.ones(s, np.float32)) for s in ((shape[0], 3), (3, shape[1]), shape))
        residual.strides = tuple(40 if n == 1 else s for n, s in zip(shape, residual.strides, strict=True))
        [got] = ptxgen.gemm_grouped([x], [w], residual=[residual])
        assert np.array_equal(got.numpy(), np.full(shape, 4, np.float32))
        assert np.array_equal(ptxgen.gemm(x, w, residual=residual).numpy(), got.numpy())
    far = Tensor(gpu, np.ones((2, 6), np.float32), (1, 0))
    x, w = Tensor(gpu, np.ones((2, 3), np.float32)), Tensor(gpu, np.ones((3, 6), np.float32))
    with pytest.raises(ShapeError, match=r"item 0: residual has strides \(1, 2\); they must be those of out, \(6, 1\)"):
        ptxgen.gemm_grouped([x], [w], residual=[far])


@pytest.mark.parametrize("transposed", [False, True])
def test_lists_store_the_sums_of_tensors(gpu: Gpu, transposed: bool) -> None:
    for _ in range(2):
        a, b, outs = arrays(gpu, 0, transposed)
        sums = arrays(gpu, 1, transposed)[2]
        ptxgen.gemm_grouped(a, b, outs, activation="relu", sums=sums)
        for x, y, c, s in zip(a, b, outs, sums, strict=True):
            assert np.array_equal(s.numpy(), x.numpy() @ y.numpy())
            assert np.array_equal(c.numpy(), np.maximum(s.numpy(), 0))
    with pytest.raises(ShapeError, match=r"item 0: sums has strides \(.*\); they must be \(.*\), for out with"):
        ptxgen.gemm_grouped(a, b, outs, activation="relu", sums=arrays(gpu, 1, not transposed)[2])


def columns_of(full: Tensor, count: int) -> Tensor:
    """The first ``count`` columns of a tensor."""
    return full[tuple(slice(0, n, 1) for n in (*full.shape[:-1], count))]


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("activation", ["relu", "x*up"])
@pytest.mark.parametrize("shape", [(5, 1), (1, 3), (1, 1), (1, 5, 1), (3, 5, 1), (3, 1, 1), (3, 1, 2), (5, 0), (0, 1)])
def test_results_of_one_row_or_column_have_sums(gpu: Gpu, shape: tuple[int, ...], activation: str, gap: int) -> None:
    """Two columns of sums stand beside one column of results. ``gap``: columns of results between two rows."""
    (*batch, m, n), each, rng = shape, 2 if activation == "x*up" else 1, np.random.default_rng(sum(shape))
    x, w = (rng.integers(-3, 4, (*batch, *s)).astype(np.float32) for s in ((m, 7), (7, n * each)))
    wanted = x @ w
    results = wanted[..., ::2] * wanted[..., 1::2] if each == 2 else np.maximum(wanted, 0)

    def multiply(out: Tensor, sums: Tensor) -> None:
        ptxgen.gemm(Tensor(gpu, x), Tensor(gpu, w), activation=activation, out=out, sums=sums)

    def of_list(out: Tensor, sums: Tensor) -> None:
        ptxgen.gemm_grouped([Tensor(gpu, x)], [Tensor(gpu, w)], [out], activation=activation, sums=[sums])

    def of_experts(out: Tensor, sums: Tensor) -> None:
        ends = Tensor(gpu, np.array([m], np.int32))
        ptxgen.gemm_jagged(Tensor(gpu, x), Tensor(gpu, w[None]), ends, activation=activation, out=out, sums=sums)

    for call in (multiply,) if batch else (multiply, of_list, of_experts):
        rows = [Tensor(gpu, np.full((*batch, m, (n + gap) * k), np.nan, np.float32)) for k in (1, each)]
        out, sums = (columns_of(full, n * k) for full, k in zip(rows, (1, each), strict=True))
        call(out, sums)
        assert np.array_equal(sums.numpy(), wanted)
        assert np.array_equal(out.numpy(), results)
        assert all(np.isnan(full.numpy()[..., n * k :]).all() for full, k in zip(rows, (1, each), strict=True))


def test_sums_beside_one_column_have_the_gaps_of_the_result(gpu: Gpu) -> None:
    x, w, out = (Tensor(gpu, np.ones(s, np.float32)) for s in ((3, 4), (4, 2), (3, 1)))
    sums = columns_of(Tensor(gpu, np.zeros((3, 4), np.float32)), 2)
    with pytest.raises(
        ShapeError, match=r"sums has strides \(4, 1\); they must be \(2, 1\), for out with strides \(1, 0\)"
    ):
        ptxgen.gemm_grouped([x], [w], [out], activation="x*up", sums=[sums])


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_rows_of_experts_store_the_sums_of_tensors(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, activation: str) -> None:
    """Sums whose rows have gaps, as those of the result, and whose address has less alignment."""
    chosen: list[Any] = []

    def select(p: Any, *_: Any, **__: Any) -> list[selection.Selection]:
        chosen.append(p)
        return [selection.Selection(p, PAIRS if p.gated else ANY, "given")]

    monkeypatch.setattr(selection, "select", select)
    rng, each = np.random.default_rng(3), 2 if activation == "swiglu" else 1
    x, w = (Tensor(gpu, rng.integers(-3, 4, s).astype(np.float32)) for s in ((9, 8), (2, 8, 8)))
    ends = Tensor(gpu, np.array([2, 8], np.int32))
    out = Tensor(gpu, np.full((9, 16 // each), 7, np.float32))[0:9, 0 : 8 // each]
    sums = Tensor(gpu, np.full((9, 16), 7, np.float32))[0:9, 2:10]
    ptxgen.gemm_jagged(x, w, ends, out=out, activation=activation, sums=sums)
    wanted = np.concatenate([x.numpy()[:2] @ w.numpy()[0], x.numpy()[2:8] @ w.numpy()[1], np.full((1, 8), 7)])
    assert np.array_equal(sums.numpy(), wanted)
    gate, up = (wanted[:8, n::2].astype(np.float64) for n in range(2))
    with np.errstate(over="ignore"):
        results = gate / (1 + np.exp(-gate)) * up if each == 2 else np.maximum(wanted[:8], 0)
    np.testing.assert_allclose(out.numpy()[:8], results, rtol=1e-4, atol=1e-4)
    assert (out.numpy()[8] == 7).all()
    assert chosen[-1].aligned_c == 8
    with pytest.raises(ShapeError, match=r"sums has strides \(8, 1\); they must be \(16, 1\), for out with strides"):
        ptxgen.gemm_jagged(x, w, ends, out=out, activation=activation, sums=Tensor(gpu, wanted.astype(np.float32)))
