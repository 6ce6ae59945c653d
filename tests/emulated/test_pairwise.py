"""``pairwise``: results of all pairs of rows, executed on the emulated device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, runners
from ptxgen.errors import DtypeError, InputError, ShapeError, TaskError
from ptxgen.operations.task import fast_distances
from ptxgen.operations.task.tracing.pairs import NAMED_STEPS
from ptxgen.operations.task.tracing.traced_function import TracedFunction
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.selection import require

RNG = np.random.default_rng(7)
M, N, K = 19, 26, 5
X, Y = (RNG.standard_normal((rows, K)).astype(np.float32) for rows in (M, N))
X[3] = Y[4] = 0
CUBE = X[:, None].astype("f8") - Y
L1, L2 = abs(CUBE).sum(-1), (CUBE**2).sum(-1)

#: distances of the differences and of x and y
EXPECTED: dict[str, Any] = {
    "sqeuclidean": lambda x, y: ((x - y) ** 2).sum(-1),
    "euclidean": lambda x, y: np.sqrt(((x - y) ** 2).sum(-1)),
    "cityblock": lambda x, y: abs(x - y).sum(-1),
    "chebyshev": lambda x, y: abs(x - y).max(-1),
    "minkowski": lambda x, y: (abs(x - y) ** 3.5).sum(-1) ** (1 / 3.5),
    "canberra": lambda x, y: (abs(x - y) / np.maximum(abs(x) + abs(y), 1e-300)).sum(-1),
    "hamming": lambda x, y: (x != y).mean(-1),
    "jaccard": lambda x, y: ((x != 0) != (y != 0)).sum(-1) / np.maximum(((x != 0) | (y != 0)).sum(-1), 1),
    "cosine": lambda x, y: 1 - (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)),
}


def taxicab(x: Any, y: Any) -> Any:
    return abs(x - y)


def kernels() -> int:
    return len({bound.kernel.source.digest for bound in runners.runners.values()})


@pytest.mark.parametrize("name", NAMED_STEPS)
def test_distances_have_the_names_of_scipy(name: str) -> None:
    p = {"p": 3.5} if name == "minkowski" else {}
    y = np.where(RNG.random(Y.shape) < 0.5, X[0], Y)
    with np.errstate(invalid="ignore"):
        expected = EXPECTED[name](X[:, None].astype("f8"), y.astype("f8"))
    result = ptxgen.pairwise(X, y, name, **p).dense()
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-6)  # a row of zeros has no cosine: NaN
    if name in ("euclidean", "minkowski"):
        assert result.dtype == np.float32
        doubles = ptxgen.pairwise(X.astype("f8"), y.astype("f8"), name, **p)
        np.testing.assert_allclose(doubles.min(axis=0), expected.min(0), rtol=1e-14)
        np.testing.assert_array_equal(doubles.argmin(), expected.argmin(1))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "f2"])
def test_distances_of_integers(dtype: str) -> None:
    """Unsigned integers, and sums beyond the range of the type."""
    limits = np.array([0, 1, 3, 100] if dtype == "f2" else [np.iinfo(dtype).min // 2, 0, 1, np.iinfo(dtype).max // 2])
    x, y = (RNG.choice(limits, (rows, K)).astype(dtype) for rows in (5, 6))
    for name in ("sqeuclidean", "euclidean", "cosine"):
        with np.errstate(invalid="ignore"):
            expected = EXPECTED[name](x[:, None].astype("f8"), y.astype("f8"))
        np.testing.assert_allclose(ptxgen.pairwise(x, y, name).dense(), expected, rtol=1e-5, atol=1e-6)
    for name in ("cityblock", "chebyshev", "canberra", "minkowski"):
        expected = EXPECTED[name](x[:, None].astype("f8"), y.astype("f8"))
        if name == "cityblock" and dtype in ("i4", "u4"):
            expected = expected % 2.0**32 if dtype == "u4" else (expected + 2.0**31) % 2.0**32 - 2.0**31
        d = ptxgen.pairwise(x, y, name, p=3.5 if name == "minkowski" else None)
        np.testing.assert_allclose(d.dense(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["sqeuclidean", "euclidean", "cityblock", "chebyshev", "canberra"])
def test_rows_without_elements_have_no_distance(name: str) -> None:
    x = np.zeros((3, 0), np.float32)
    d = ptxgen.pairwise(x, x[:2], name)
    assert d.dense().tolist() == [[0, 0]] * 3
    assert (d.min().tolist(), d.max(axis=0).tolist()) == ([0] * 3, [0] * 2)


def test_distances_of_truth_values_count_bits() -> None:
    runners.runners.clear()
    x, y = RNG.random((18, 70)) < 0.5, RNG.random((9, 70)) < 0.4
    x[0] = y[0] = False
    for name in ("hamming", "jaccard"):
        d, expected = ptxgen.pairwise(x, y, name), EXPECTED[name](x[:, None], y)
        np.testing.assert_allclose(d.dense(), expected, rtol=1e-6)
        np.testing.assert_array_equal(d.argmin(), expected.argmin(1))
    pairs = {runner.plan.config.family for (_, p), runner in runners.runners.items() if p.dtype == "u8"}
    assert pairs == {"mma"}


def test_every_method() -> None:
    d = ptxgen.pairwise(X, Y, taxicab)
    eps = 4.0
    gx, gy = RNG.integers(0, 3, M).astype(np.int32), RNG.integers(0, 4, N).astype(np.int32)
    sums = np.zeros((3, N))
    np.add.at(sums, gx, L1)
    rows = {"min": d.min(), "max": d.max(), "sum": d.sum(), "mean": d.mean()}
    for name, result in rows.items():
        np.testing.assert_allclose(result, getattr(L1, name)(1), rtol=1e-5)
    np.testing.assert_array_equal(d.argmin(axis=0), L1.argmin(0))
    np.testing.assert_array_equal(d.argmax(), L1.argmax(1))
    np.testing.assert_allclose(d.logsumexp(axis=0), np.log(np.exp(L1).sum(0)), rtol=1e-5)
    exact = ptxgen.pairwise(X.astype("f8"), Y.astype("f8"), taxicab).logsumexp()
    np.testing.assert_allclose(exact, np.log(np.exp(L1.astype("f8")).sum(1)), rtol=1e-13)
    np.testing.assert_allclose(d.sum_by(gx, None), sums, rtol=1e-5)
    any_sums, any_counts = (
        f(np.array([-5, 2**40, 7])[gx], np.arange(-4, 0)[gy], keys="any")
        for f in (d.sum_by, lambda *keys, **given: d.count_by(lambda c: c < eps, *keys, **given))
    )
    order = np.argsort([-5, 2**40, 7])
    assert (any_sums.rows.tolist(), any_sums.columns.tolist()) == ([-5, 7, 2**40], [-4, -3, -2, -1])
    np.testing.assert_allclose(any_sums.values, d.sum_by(gx, gy)[order], rtol=1e-5)
    np.testing.assert_array_equal(any_counts.values, d.count_by(lambda c: c < eps, gx, gy)[order])
    counts = d.count_by(lambda c: c < eps, gx, gy, groups=(3, 4))
    assert counts.sum() == np.less(L1, eps).sum() == d.count(lambda c: c < eps).sum()
    before = kernels()

    def within(c: Any) -> Any:
        return c < eps

    for eps in (4.0, 2.0):  # another number compiles nothing
        near = d.select(within, sorted=True)
        i, j = np.nonzero(np.less(L1, eps))
        assert (near.i.tolist(), near.j.tolist()) == (i.tolist(), j.tolist())
        np.testing.assert_allclose(near.values, L1[i, j], rtol=1e-5)
    assert kernels() == before + 1
    out = np.empty((M, N), np.float32)
    assert d.dense(out=out) is out
    np.testing.assert_allclose(out, L1, rtol=1e-5)


def test_equal_tests_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lambda is a new function in each call; its numbers are those of the call, wherever they are."""
    traced, trace = [], TracedFunction._traced
    monkeypatch.setattr(TracedFunction, "_traced", lambda *given: traced.append(1) or trace(*given))
    d = ptxgen.pairwise(X, Y, taxicab)

    def counts(eps: float) -> Any:
        return d.count(lambda c: c < eps), d.count(lambda c, least=1.0: (c > least) & (c < eps))

    for eps in (4.0, 2.0, 3.0):
        below, between = counts(eps)
        np.testing.assert_array_equal(below, np.less(L1, eps).sum(1))
        np.testing.assert_array_equal(between, (np.less(L1, eps) & np.greater(L1, 1)).sum(1))
    assert len(traced) == 2
    np.testing.assert_array_equal(counts(4)[0], np.less(L1, 4).sum(1))  # an integer: another type
    assert len(traced) > 2


def test_topk_has_the_least_results_unless_told() -> None:
    d, n = ptxgen.pairwise(X, Y, "euclidean"), 3
    order = np.argsort(L2, axis=1, kind="stable")
    least = d.topk(n)
    np.testing.assert_array_equal(least.indices, order[:, :n])
    np.testing.assert_allclose(least.values, np.sort(np.sqrt(L2))[:, :n], rtol=1e-5)
    before = kernels()
    np.testing.assert_array_equal(d.kmin(2).indices, order[:, :2])  # another n compiles nothing
    assert kernels() == before
    greatest = ptxgen.pairwise(X, Y, taxicab).topk(2, largest=True, axis=0)
    np.testing.assert_array_equal(greatest.indices, np.argsort(-L1, axis=0, kind="stable")[:2].T)
    np.testing.assert_allclose(greatest.values, -np.sort(-L1, axis=0)[:2].T, rtol=1e-5)
    few = ptxgen.pairwise(X[:2], step="euclidean", when=lambda i, j: i != j).kmin(2)
    assert few.indices.tolist() == [[1, -1], [0, -1]]
    assert (few.values[:, 1] == np.inf).all()
    with pytest.raises(ShapeError, match="n is 65537; it must be an integer from 0 to 65536"):
        d.topk(1 << 16 | 1)
    with pytest.raises(InputError, match="largest is 1; it must be True or False"):
        d.topk(3, largest=1)


def test_one_array_finish_and_condition_on_indices() -> None:
    width = 2.0
    d = ptxgen.pairwise(
        X, step=lambda x, y: (x - y) ** 2, finish=lambda c: ptxgen.exp(-c / width), when=lambda i, j: i != j
    )
    expected = np.exp(-((X[:, None].astype("f8") - X) ** 2).sum(-1) / width)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(d.sum(), expected.sum(1), rtol=1e-5)
    greatest = ptxgen.pairwise(X, X[:0], "euclidean").max()
    assert (greatest == -np.inf).all()  # there is no pair
    np.testing.assert_allclose(ptxgen.pairwise(X, None, "cosine").argmin(axis=0)[:3], [3] * 3)  # NaN comes first
    integers = RNG.integers(0, 9, (6, 4)).astype(np.int8)
    result = ptxgen.pairwise(integers, step="euclidean").max()
    np.testing.assert_allclose(result, EXPECTED["euclidean"](integers[:, None] * 1.0, integers * 1.0).max(1), rtol=1e-6)
    assert ptxgen.pairwise(X, Y, when=lambda i, j: False).select(lambda c: True).count == 0
    assert ptxgen.pairwise(X, Y, when=lambda i, j: True).select(lambda c: True).count == M * N
    largest = ptxgen.pairwise(X, Y, lambda x, y: ptxgen.minimum(x, y), reduce="argmax").dense()
    np.testing.assert_array_equal(largest, np.minimum(X[:, None], Y).argmax(-1))


def test_fast_distances_take_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (RNG.standard_normal((rows, 32)).astype(np.float32) for rows in (33, 40))
    squares = EXPECTED["sqeuclidean"](x[:, None].astype("f8"), y.astype("f8"))
    bound = 2.0**-19 * ((x**2).sum(-1)[:, None] + (y**2).sum(-1))
    d = ptxgen.pairwise(x, y, precision="fast")
    for least, compute in ((1 << 30, "f32"), (1, "f32_bf16x6")):
        monkeypatch.setattr(fast_distances, "LEAST", least)
        runners.runners.clear()
        np.testing.assert_array_equal(d.argmin(), squares.argmin(1))
        assert compute in {bound.problem.compute for bound in runners.runners.values()}
    limit = float(np.sort(squares.ravel())[50:52].mean())
    near = d.select(lambda c: c < limit, sorted=True)
    assert near.count == 51
    assert (abs(near.values - squares[near.i, near.j]) <= bound[near.i, near.j]).all()
    density = ptxgen.pairwise(x, y, finish=lambda c: -c / 8, precision="fast", compute="tf32").logsumexp()
    np.testing.assert_allclose(density, np.log(np.exp(-squares / 8).sum(1)), rtol=1e-2)


def test_tensor_cores_compute_where_they_are_faster() -> None:
    from ptxgen.operations.task.language.parser import parse
    from ptxgen.operations.task.roles import roles_of

    def compute(k: int, device_name: str = "h100", dtype: str = "f32", m: int = 1 << 14) -> str:
        text = "where (i, j) { reduce (k) { accum += A[i, k] * B[j, k]; } C[i] min= accum; }"
        roles = roles_of(parse(text, dict.fromkeys("AB", dtype)))
        return fast_distances.fast_compute(roles, (m, 1 << 14, k), device(device_name))

    assert [compute(k) for k in (3, 16, 24, 64)] == ["", "", "f32_bf16x6", "f32_bf16x6"]
    assert [compute(64, "a100"), compute(64, dtype="f64"), compute(64, m=64)] == ["", "", ""]


def test_memory_is_told() -> None:
    d = ptxgen.pairwise(X, Y)
    assert "dense                 1,976" in str(d)
    assert "select                   12 · the number of pairs" in str(d)
    assert "topk                    152 · n" in str(d)
    assert d.memory("topk", 10).results == 8 * 10 * M
    assert repr(d) == "Pairwise(sqeuclidean, 19×26 pairs of rows with 5 elements of f32, exact)"
    assert d.memory("dense") == (4 * M * N, 0)
    assert d.memory("argmin").results == 4 * M
    assert d.memory("argmin").workspace >= 8 * M  # states of a tile: a value and an index
    assert d.memory("select", 100) == (1200, 0)
    large = ptxgen.pairwise(np.zeros((4096, 96), np.float32), np.zeros((100_000, 96), np.float32), precision="fast")
    assert large.memory("argmin").workspace < large.memory("dense").results / 10


def test_memory_of_candidates_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores of an H200 list up to 64 pairs (i, j) of each row."""
    monkeypatch.setattr(drivers, "driver_of", lambda v: EmulatedDriver(device("h200")))
    d = ptxgen.pairwise(np.zeros((4096, 96), np.float32), np.zeros((65536, 96), np.float32), "euclidean")
    assert 8 * 64 * 4096 < d.memory("argmin").workspace < 1 << 25


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"X": X[0]}, ShapeError, r"X has shape \(5,\); it must have two dimensions"),
        ({"Y": Y[:, :4]}, ShapeError, "X has 5 columns and Y has 4; they must be equal"),
        ({"Y": Y.astype("f8")}, DtypeError, "X is f32 and Y is f64; they must have one dtype"),
        ({"step": "euclidian"}, InputError, "step is 'euclidian'; it must be one of .*: write euclidean"),
        ({"step": np.add}, InputError, "step is <ufunc 'add'>; it must be a Python function or the name"),
        ({"step": taxicab, "reduce": "plus"}, InputError, r"reduce is 'plus'; it must be one of \+, \*"),
        ({"step": taxicab, "reduce": "sum"}, InputError, "reduce is 'sum'; it must be one of .*: write [+]"),
        ({"X": X.astype(object)}, DtypeError, "X has dtype object; it must be one of float64, .* uint8, bool"),
        ({"reduce": "max"}, InputError, "reduce is 'max'; the distance sqeuclidean has its own"),
        ({"step": "minkowski"}, InputError, "p is None; it must be a positive number"),
        ({"p": 2}, InputError, "p is 2; it must be None with sqeuclidean"),
        ({"step": "minkowski", "p": np.inf}, InputError, "p is inf; it must be finite: write chebyshev"),
        ({"finish": 3}, InputError, "finish is 3; it must be a Python function"),
        ({"finish": lambda c, q: c}, InputError, r"missing a required argument: 'q'; it must be lambda c: …"),
        ({"step": lambda x: x}, InputError, "step is a function whose parameters differ: .* it must be lambda x, y"),
        ({"compute": "bf16"}, InputError, "compute is 'bf16'; it must be one of f32, tf32, f32_bf16x6"),
        ({"precision": "quick"}, InputError, "precision is 'quick'; it must be one of exact, fast"),
    ],
)
def test_errors_precede_work(given: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ptxgen.pairwise(**{"X": X, "Y": Y, **given})


def test_errors_of_methods() -> None:
    d = ptxgen.pairwise(X, Y, taxicab)
    with pytest.raises(InputError, match="axis is 2; it must be 1"):
        d.min(axis=2)
    with pytest.raises(InputError, match=r"axis is .*; it must be 1"):
        d.min(axis=np.arange(2))
    for count in (d.count, lambda test: d.count_by(test, np.zeros(M, np.int32), None)):
        with pytest.raises(TaskError, match="the result of the test is a number of f32; it must be a comparison"):
            count(lambda c: c)
    for key, message in (
        (2**40, "greatest keys of gx and j give a result of"),
        (-(2**31), "gx has the key -2147483648"),
    ):
        with pytest.raises(InputError, match=f'{message}.*keys="any", which takes any integers'):
            d.sum_by(np.full(M, key), None)
    with pytest.raises(InputError, match="gx and gy are None"):
        d.sum_by(None, None)
    with pytest.raises(ShapeError, match=r"gy has shape \(3,\); it must be \(26,\)"):
        d.sum_by(None, np.zeros(3, np.int32))
    for given in ({"groups": (0, 0)}, {"out": np.zeros((M, 0), np.float32)}):
        with pytest.raises(ShapeError, match=r"both extents must be 1 or more, because there are 19×26 pairs"):
            d.sum_by(None, np.zeros(N, np.int32), **given)
    assert ptxgen.pairwise(X, Y[:0]).sum_by(None, np.zeros(0, np.int32), groups=(M, 0)).shape == (M, 0)
    with pytest.raises(InputError, match="method is 'mode'; it must be one of dense"):
        d.memory("mode")
    with pytest.raises(TaskError, match=r"(?s)test_pairwise.py, line .*x if x > y else y.*\^"):
        ptxgen.pairwise(X, Y, lambda x, y: x if x > y else y).dense()
    with pytest.raises(TaskError, match=r"test_pairwise.py, line .*the mean is of s32"):
        ptxgen.pairwise(X.astype(np.int32), step=taxicab).mean()


def test_short_rows_of_one_array_are_computed_whole() -> None:
    """Half of the pairs takes more time where another family holds rows in registers."""
    points = RNG.standard_normal((37, 3)).astype(np.float32)
    runners.runners.clear()
    d = ptxgen.pairwise(points, when=lambda i, j: i != j)
    squares = EXPECTED["sqeuclidean"](points[:, None].astype("f8"), points.astype("f8"))
    np.fill_diagonal(squares, np.inf)
    np.testing.assert_array_equal(d.argmin(), squares.argmin(1))
    np.testing.assert_array_equal(d.argmin(axis=0), squares.argmin(0))
    large = {
        (k, axis): require(replace(bound.problem, m=1 << 14, n=1 << 14, k=k, lda=0, ldb=0, ldc=0), device("h100"))[
            0
        ].config
        for bound in list(runners.runners.values())
        for axis in bound.problem.program.outputs[0].axis
        for k in (3, 16)
    }
    assert {at for at, config in large.items() if config.family == "resident_rows"} == {(3, "i")}
