"""Checks of ``ptxgen.torch.pairwise`` against PyTorch's gradients of the same results on arrays M×N×K."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

import ptxgen  # noqa: E402
import ptxgen.torch as pt  # noqa: E402
from ptxgen.errors import DtypeError, InputError, ShapeError, TaskError  # noqa: E402
from ptxgen.torch import pairs  # noqa: E402

M, N, K = 5, 6, 4
WIDTH = 2.0


def taxicab(x: Any, y: Any) -> Any:
    return abs(x - y)


def others(i: Any, j: Any) -> Any:
    return i != j


def density(c: Any) -> Any:
    return ptxgen.exp(-c / WIDTH)


def p_norm(p: float) -> Callable[..., Any]:
    return lambda x, y: torch.cdist(x, y, p=p, compute_mode="donot_use_mm_for_euclid_dist")


#: distance -> PyTorch's function of X and Y
DISTANCES: dict[Any, Callable[..., Any]] = {
    "sqeuclidean": lambda x, y: (x[:, None] - y).square().sum(-1),
    "euclidean": p_norm(2),
    "cityblock": p_norm(1),
    "chebyshev": lambda x, y: (x[:, None] - y).abs().amax(-1),
    "minkowski": p_norm(3.5),
    "canberra": lambda x, y: ((x[:, None] - y).abs() / (x[:, None].abs() + y.abs())).sum(-1),
    "cosine": lambda x, y: 1 - torch.cosine_similarity(x[:, None], y, dim=-1),
    taxicab: p_norm(1),
}
#: method -> PyTorch's function of all results
METHODS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dense": (lambda d: d.dense(), lambda c: c),
    "sum": (lambda d: d.sum(), lambda c: c.sum(1)),
    "mean": (lambda d: d.mean(axis=0), lambda c: c.mean(0)),
    "logsumexp": (lambda d: d.logsumexp(axis=0), lambda c: c.logsumexp(0)),
    "min": (lambda d: d.min(axis=0), lambda c: c.amin(0)),
    "max": (lambda d: d.max(), lambda c: c.amax(1)),
    "topk": (lambda d: d.topk(3).values, lambda c: c.topk(3, largest=False).values),
    "kmax": (lambda d: d.kmax(2, axis=0).values, lambda c: c.topk(2, dim=0).values.T),
}


class PairwiseChecks:
    """Tests for the tensors of ``device``."""

    device = "cpu"

    def normal(self, *shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
        generator = torch.Generator().manual_seed(10 * seed + sum(shape))
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(self.device, dtype)

    def rows(self, dtype: Any = torch.float32) -> list[Any]:
        return [self.normal(n, K, seed=n, dtype=dtype).requires_grad_() for n in (M, N)]

    def compare(self, result: Any, expected: Any, leaves: list[Any]) -> None:
        factors = self.normal(*expected.shape, seed=3, dtype=result.dtype)
        derivatives = [
            torch.autograd.grad((y * factors).sum(), leaves, retain_graph=y is expected) for y in (result, expected)
        ]
        for a, b in zip((result, *derivatives[0]), (expected, *derivatives[1]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("step", DISTANCES)
    @pytest.mark.parametrize("one", [False, True])
    def test_distances(self, step, one):
        """The diagonal of one tensor has distances of 0."""
        x, y = self.rows()
        leaves = [x] if one else [x, y]
        d = pt.pairwise(*leaves, step=step, p=3.5 if step == "minkowski" else None)
        for name in ("dense", "min"):
            method, of_all = METHODS[name]
            self.compare(method(d), of_all(DISTANCES[step](x, x if one else y)), leaves)

    @pytest.mark.parametrize("name", METHODS)
    @pytest.mark.parametrize("at_once", [1 << 25, 20])
    def test_methods(self, name, at_once, monkeypatch):
        """Few rows, and few pairs, at once."""
        monkeypatch.setattr(pairs, "LISTED", at_once)
        method, of_all = METHODS[name]
        for step in ("euclidean", "cosine"):
            leaves = self.rows()
            self.compare(method(pt.pairwise(*leaves, step=step)), of_all(DISTANCES[step](*leaves)), leaves)

    @pytest.mark.parametrize("at_once", [1 << 25, 10])
    def test_finish_and_condition(self, at_once, monkeypatch):
        monkeypatch.setattr(pairs, "LISTED", at_once)
        [x, _] = self.rows()
        d = pt.pairwise(x, finish=density, when=others)
        own = torch.eye(M, dtype=torch.bool, device=self.device)
        expected = torch.exp(-(x[:, None] - x).square().sum(-1) / WIDTH).masked_fill(own, 0)
        self.compare(d.dense(), expected, [x])
        self.compare(d.sum(axis=0), expected.sum(0), [x])
        self.compare(d.max(), expected.amax(1), [x])
        best = d.topk(M, largest=True)
        order = expected.masked_fill(own, -torch.inf).argsort(1, descending=True)
        assert torch.equal(best.indices[:, :-1], order[:, :-1])
        assert best.indices[:, -1].tolist() == [-1] * M
        assert best.values[:, -1].tolist() == [-torch.inf] * M
        self.compare(best.values[:, :-1], expected.gather(1, order)[:, :-1], [x])

    def test_extents_in_conditions_are_those_of_all_rows(self, monkeypatch):
        monkeypatch.setattr(pairs, "LISTED", 10)
        x, y = self.rows()

        def last(i: Any, j: Any) -> Any:
            return i >= i.extent - 2

        expected = DISTANCES["sqeuclidean"](x, y).sum(1) * (torch.arange(M, device=self.device) >= M - 2)
        self.compare(pt.pairwise(x, y, when=last).sum(), expected, [x, y])

    def test_second_derivatives(self):
        leaves = self.rows(torch.float64)
        for method in (lambda d: d.dense(), lambda d: d.topk(2).values):
            assert torch.autograd.gradgradcheck(
                lambda x, y, method=method: method(pt.pairwise(x, y, "euclidean")), leaves, fast_mode=True
            )

    def test_rows_are_gathered_in_parts(self, monkeypatch):
        """No array has an element for each pair, or for each listed pair and element of its rows."""
        monkeypatch.setattr(pairs, "LISTED", 3 * K)
        leaves, listed, made = self.rows(), pairs.Pairwise._listed, []
        monkeypatch.setattr(pairs.Pairwise, "_listed", lambda d, i, j: made.append(len(i)) or listed(d, i, j))
        pt.pairwise(*leaves).topk(2).values.sum().backward()
        assert set(made) == {3, 1}
        assert sum(made) == 2 * 2 * M  # once more in the backward step

    def test_compiled_without_a_break(self):
        def loss(x, y):
            first, second = pt.pairwise(x, y, "euclidean"), pt.pairwise(x, None, taxicab, finish=density, when=others)
            return first.logsumexp().sum() + first.min().sum() + second.topk(2, largest=True).values.square().sum()

        leaves = self.rows()
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
        for a, b in zip(*(torch.autograd.grad(f(*leaves), leaves) for f in (compiled, loss)), strict=True):
            assert torch.equal(a, b)

    def test_integers_and_empty_tensors(self):
        x = torch.tensor([[1, 2], [4, -2]], dtype=torch.int32, device=self.device)
        assert pt.pairwise(x).dense().tolist() == [[0, 25], [25, 0]]
        assert pt.pairwise(x, x[:1], "cityblock").max().tolist() == [0, 7]
        assert pt.pairwise(x, step="cityblock", when=others).kmin(2).values.tolist() == [[7, 2**31 - 1]] * 2
        y = self.rows()[0]
        for one, other in ((y, y[:0]), (y[:0], y), (y[:, :0], y[:, :0])):
            d = pt.pairwise(one, other)
            assert d.dense().shape == d.shape
            identity = 0.0 if d.shape == (M, M) else torch.inf
            assert d.min().tolist() == [identity] * len(one)
            values, indices = d.topk(3)
            assert values.shape == indices.shape == (len(one), 3)
            assert not any(g.any() for g in torch.autograd.grad(d.min().sum() + values.sum() + d.sum().sum(), y))

    def test_truth_values(self):
        x, y = (rows.detach() > 0 for rows in self.rows())
        assert torch.equal(pt.pairwise(x, y, "hamming").dense(), (x[:, None] != y).float().mean(-1))
        product = pt.matmul_over("or_and", x, y.T)
        assert torch.equal(product, (x[:, None] & y).any(-1))
        masked = pt.task(
            "where (i, j) { reduce (k) { accum += a[i,k] * b[j,k]; } C[i,j] = m[i,j] != 0 ? accum : 0.0; }"
        )
        a, b = self.rows()
        self.compare(masked(a, b, product), (a @ b.T).where(product, 0), [a, b])
        with pytest.raises(InputError, match=r"out is no input of the task; its inputs are a, b, m$"):
            masked(a, b, product, out=a)

    def test_nan_and_infinity(self):
        x, y = self.rows()
        with torch.no_grad():
            x[1, 2], y[0, 0], y[4] = torch.nan, torch.inf, torch.inf
        d, expected = pt.pairwise(x, y, "cityblock"), DISTANCES["cityblock"](x, y)
        assert d.argmin().tolist() == expected.argmin(1).tolist()
        for name in ("dense", "min", "max", "topk"):
            method, of_all = METHODS[name]
            torch.testing.assert_close(method(d), of_all(expected), equal_nan=True)

    def test_operators_without_derivative_are_named(self):
        x, y = self.rows()
        for reduce, message in (("*", "`[*]` has no derivative"), ("fmin", "`fmin` is no reduction of listed pairs")):
            with pytest.raises(TaskError, match=message):
                pt.pairwise(x, y, taxicab, reduce).min().sum().backward()

    @pytest.mark.parametrize(
        ("error", "message", "call"),
        [
            (InputError, "X is of type list; it must be a torch.Tensor", lambda x, y: pt.pairwise([[1.0]], y)),
            (ShapeError, "Y has shape .4,.; it must have two dimensions", lambda x, y: pt.pairwise(x, y[0])),
            (ShapeError, "X has 4 columns and Y has 3; they must be equal", lambda x, y: pt.pairwise(x, y[:, 1:])),
            (DtypeError, "X is torch.float32 and Y is torch.float64", lambda x, y: pt.pairwise(x, y.double())),
            (DtypeError, "X is torch.int64; it must be one of .*: write X.int()", lambda x, y: pt.pairwise(x.long())),
            (InputError, "step is 'euclidian'; .*: write euclidean", lambda x, y: pt.pairwise(x, y, "euclidian")),
            (InputError, "axis is 2; it must be 1", lambda x, y: pt.pairwise(x, y).min(axis=2)),
            (ShapeError, "n is 2.5; it must be an integer", lambda x, y: pt.pairwise(x, y).topk(2.5)),
        ],
    )
    def test_refused_arguments(self, error, message, call):
        with pytest.raises(error, match=message):
            call(*self.rows())
