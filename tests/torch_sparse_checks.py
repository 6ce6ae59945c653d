"""Checks of the sparse products of ``ptxgen.torch`` against PyTorch, for tensors of any device. Values are small integers
in float64, so that all sums are exact and results must be equal."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

import ptxgen  # noqa: E402
import ptxgen.torch as pt  # noqa: E402
from ptxgen.errors import DeviceError, DtypeError, InputError, ShapeError  # noqa: E402
from ptxgen.torch import sparse  # noqa: E402


def csr(m: int, k: int, nnz: int, seed: int = 0, index: Any = torch.int64, **options: Any) -> Any:
    """A matrix with empty rows, unsorted columns and several nonzeros of one place."""
    generator = torch.Generator().manual_seed(seed)
    rows = (torch.randint(0, m, (nnz,), generator=generator) // 2 * 2).sort().values
    indptr = torch.searchsorted(rows, torch.arange(m + 1)).to(index)
    indices = torch.randint(0, k, (nnz,), generator=generator).to(index)
    values = torch.randint(1, 4, (nnz,), generator=generator).to(options.pop("dtype", torch.float64))
    device = options.pop("device")
    return ptxgen.SparseMatrix(indptr.to(device), indices.to(device), values.to(device), (m, k))


def dense(a: Any, values: Any = None) -> Any:
    """The dense matrix, with gradients of the values."""
    rows = torch.repeat_interleave(torch.arange(a.shape[0], device=a.indptr.device), a.indptr.diff().long())
    zeros = a.values.new_zeros(a.shape)
    return zeros.index_put((rows, a.indices.long()), a.values if values is None else values, accumulate=True)


def at_nonzeros(a: Any, x: Any, y: Any) -> Any:
    rows = torch.repeat_interleave(torch.arange(a.shape[0], device=a.indptr.device), a.indptr.diff().long())
    return (x[rows] * y[a.indices.long()]).sum(1)


@pytest.mark.filterwarnings("ignore:Sparse")
class SparseChecks:
    """Tests for the tensors of ``device``."""

    device = "cpu"

    def integers(self, *shape: int, seed: int = 0, **options: Any) -> Any:
        generator = torch.Generator().manual_seed(seed + sum(shape))
        return torch.randint(-2, 3, shape, generator=generator).to(self.device, **{"dtype": torch.float64, **options})

    def matrix(self, m: int = 6, k: int = 5, nnz: int = 14, **options: Any) -> Any:
        return csr(m, k, nnz, device=self.device, **options)

    def derivatives(self, function: Any, given: list[Any]) -> list[Any]:
        """The result, the gradients of a sum of squares, and the gradients of a sum of those."""
        leaves = [x.clone().requires_grad_() for x in given]
        y = function(*leaves)
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        return [y, *first, *second]

    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    def test_products_and_gradients_are_those_of_dense_matrices(self, index):
        a, b = self.matrix(index=index), self.integers(5, 3)
        derivatives = self.derivatives(lambda v, b: pt.spmm(a._replace(values=v), b), [a.values, b])
        wanted = self.derivatives(lambda v, b: dense(a, v) @ b, [a.values, b])
        assert all(map(torch.equal, derivatives, wanted))
        assert torch.equal(pt.spmm(a, b[:, 0]), dense(a) @ b[:, 0])
        x, y = self.integers(6, 3), self.integers(5, 3, seed=1)
        for scale in (False, True):
            derivatives = self.derivatives(
                lambda v, x, y, s=scale: pt.sddmm(a._replace(values=v), x, y, scaled=s) + v * v, [a.values, x, y]
            )
            wanted = self.derivatives(
                lambda v, x, y, s=scale: at_nonzeros(a, x, y) * (v if s else 1) + v * v, [a.values, x, y]
            )
            assert all(map(torch.equal, derivatives, wanted))

    def test_gradcheck(self):
        a = self.matrix(4, 3, 7)
        draw = torch.Generator().manual_seed(0)
        v, b, x = (torch.randn(*s, generator=draw, dtype=torch.float64).to(self.device) for s in ((7,), (3, 2), (4, 2)))
        leaves = [t.requires_grad_() for t in (v, b)]
        assert torch.autograd.gradcheck(lambda v, b: pt.spmm(a._replace(values=v), b), leaves, fast_mode=True)
        assert torch.autograd.gradgradcheck(lambda v, b: pt.spmm(a._replace(values=v), b), leaves, fast_mode=True)
        leaves = [t.requires_grad_() for t in (x, b)]
        assert torch.autograd.gradcheck(lambda x, y: pt.sddmm(a, x, y), leaves, fast_mode=True)
        assert torch.autograd.gradgradcheck(lambda x, y: pt.sddmm(a, x, y), leaves, fast_mode=True)

    def test_opcheck(self):
        a, b, x = self.matrix(), self.integers(5, 3).requires_grad_(), self.integers(6, 3).requires_grad_()
        values = a.values.requires_grad_()
        for name, args in (
            ("spmm", (values, x, a.indptr, a.indices, 5, True)),
            ("sddmm", (x, b, a.indptr, a.indices)),
        ):
            done = torch.library.opcheck(getattr(torch.ops.ptxgen, name).default, args)
            assert set(done.values()) == {"SUCCESS"}

    def test_sparse_tensors(self):
        a, b = self.matrix(), self.integers(5, 3)
        full = dense(a)
        for form in ("csr", "csc", "coo"):
            x = getattr(full, f"to_sparse_{form}")()
            assert torch.equal(pt.spmm(x, b), full @ b)
            if form == "coo":
                with pytest.raises(InputError, match="sparse_coo and requires a gradient"):
                    pt.spmm(x.requires_grad_(), b)
        x, y = full.to_sparse_csr().requires_grad_(), b.clone().requires_grad_()
        pt.spmm(x, y).square().sum().backward()
        wanted = full.clone().requires_grad_(), b.clone().requires_grad_()
        (wanted[0] @ wanted[1]).square().sum().backward()
        assert torch.equal(y.grad, wanted[1].grad)
        assert torch.equal(x.grad.to_dense(), wanted[0].grad * (full != 0))
        left, right = self.integers(6, 3), self.integers(5, 3, seed=1)
        rows = full.nonzero()
        assert torch.equal(pt.sddmm(x, left, right), (left @ right.T)[rows[:, 0], rows[:, 1]])

    def test_batches_of_matrices(self):
        one = dense(self.matrix(4, 4, 9))
        full = torch.stack([one, one.T])
        a, b = full.to_sparse_csr(), self.integers(2, 4, 3)
        assert torch.equal(pt.spmm(a, b), full @ b)
        assert torch.equal(pt.spmm(a, b[0]), full @ b[0])
        x, rows = self.integers(2, 4, 3, seed=1), torch.stack([m.nonzero() for m in full])
        wanted = torch.stack([(x @ b.mT)[i, rows[i, :, 0], rows[i, :, 1]] for i in range(2)])
        assert torch.equal(pt.sddmm(a, x, b), wanted)
        assert torch.equal(pt.sddmm(a, x, b, scaled=True), wanted * a.values())
        leaf, other = b.clone().requires_grad_(), b.clone().requires_grad_()
        pt.spmm(a, leaf).square().sum().backward()
        (full @ other).square().sum().backward()
        assert torch.equal(leaf.grad, other.grad)
        for wrong, message in (
            (b[:1], "a has 2 matrices and b has 1; they must have as many"),
            (b[0, 0], "b has 1 dimensions; it must have 2 or 3, as a is a batch"),
            (b[0, 1:], "b has 3 rows; it must have 4, the columns of a"),
        ):
            with pytest.raises(ShapeError, match=message):
                pt.spmm(a, wrong)

    def test_vmap(self):
        a, b, x, y = self.matrix(), self.integers(5, 2, 3), self.integers(6, 2, 3), self.integers(5, 3)
        assert torch.equal(torch.vmap(lambda b: pt.spmm(a, b), 1, 1)(b), torch.einsum("mk,kbn->mbn", dense(a), b))
        values = self.integers(2, 14)
        result = torch.vmap(lambda v, b: pt.spmm(a._replace(values=v), b), (0, None))(values, y)
        assert torch.equal(result, torch.stack([dense(a, v) @ y for v in values]))
        result = torch.vmap(lambda x: pt.sddmm(a, x, y), 1)(x)
        assert torch.equal(result, torch.stack([at_nonzeros(a, x[:, i], y) for i in range(2)]))
        grad = torch.func.grad(lambda b: pt.spmm(a, b).square().sum())(y)
        assert torch.equal(grad, torch.func.grad(lambda b: (dense(a) @ b).square().sum())(y))

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compiled_without_a_break(self, dynamic):
        a, b = self.matrix(), self.integers(5, 3)

        def step(v, b):
            m = a._replace(values=v)
            h = torch.relu(pt.spmm(m, b))
            return pt.sddmm(m, h, b).sum() + h.square().sum()

        compiled, recorded = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic), []
        for function in (compiled, step):  # AOT autograd has no second derivatives
            leaves = [x.clone().requires_grad_() for x in (a.values, b)]
            y = function(*leaves)
            recorded.append([y, *torch.autograd.grad(y, leaves)])
        assert all(map(torch.equal, *recorded))

    def test_a_matrix_is_an_argument_of_compiled_code(self):
        a, b = self.matrix(), self.integers(5, 3)
        compiled = torch.compile(pt.spmm, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(a, b), dense(a) @ b)

    def test_autocast(self):
        a, b = self.matrix(dtype=torch.float32), self.integers(5, 4, dtype=torch.float32).requires_grad_()
        with torch.autocast(self.device, dtype=torch.bfloat16):
            y = pt.spmm(a, b)
            v = pt.sddmm(a, y, b)
            scaled = pt.sddmm(a, y, b, scaled=True)
            known = list(sparse._matrices.values())[-1]
            changes = known.changes
            assert torch.equal(pt.spmm(a, b), y)
            assert known.changes == changes  # the handle has the cast values
        assert y.dtype is v.dtype is scaled.dtype is torch.bfloat16
        assert torch.equal(y.float(), dense(a) @ b)
        y.float().sum().backward()
        assert torch.equal(b.grad, dense(a).T @ torch.ones_like(y, dtype=torch.float32))

    def test_handles_follow_values_and_end_with_the_pattern(self):
        sparse._matrices.clear()
        a, b = self.matrix(), self.integers(5, 3)
        g = self.integers(6, 3)
        for factor in range(1, 6):
            a.values.mul_(factor) if factor % 2 else a.values.add_(1)
            x = b.clone().requires_grad_()
            y = pt.spmm(a, x)
            assert torch.equal(y, dense(a) @ b)
            y.backward(g)
            assert torch.equal(x.grad, dense(a).T @ g)
        assert len(sparse._matrices) == 1
        assert torch.equal(pt.spmm(a._replace(values=2 * a.values), b), 2 * dense(a) @ b)
        a.indices[0] = (a.indices[0] + 1) % 5
        assert torch.equal(pt.spmm(a, b), dense(a) @ b)
        [known] = sparse._matrices.values()
        del a, x, y
        gc.collect()
        assert not known.current
        other = self.matrix(7, 5)
        pt.spmm(other, b)
        assert len(sparse._matrices) == 1

    def test_views_with_other_strides_are_no_known_pattern(self):
        a, b = self.matrix(), self.integers(5, 3)
        wide = torch.stack([a.indices, (a.indices + 1) % 5]).reshape(-1)  # the view begins at the same address
        pt.spmm(a._replace(indices=wide[:14]), b)
        with pytest.raises(ShapeError, match=r"a.indices has strides; its elements must be contiguous"):
            pt.spmm(a._replace(indices=wide[::2]), b)

    def test_operands_that_no_gradient_needs_may_change_before_it(self):
        a, x, y = self.matrix(), self.integers(6, 3), self.integers(5, 3)
        for i, call in enumerate(
            (
                lambda v: pt.spmm(a, v),
                lambda v: pt.spmm(a._replace(values=v), y),
                lambda v: pt.sddmm(a, v, y),
                lambda v: pt.sddmm(a, x, v),
            )
        ):
            leaf = (y, a.values, x, y)[i].clone().requires_grad_()
            [wanted] = torch.autograd.grad(call(leaf).sum(), leaf)
            held = leaf * 1
            result = call(held)
            held.zero_()
            assert torch.equal(torch.autograd.grad(result.sum(), leaf)[0], wanted)

    def test_gradients_after_inference(self):
        a, full = self.matrix(dtype=torch.float32), dense(self.matrix())
        coo, batch = full.to_sparse_coo(), full[None].to_sparse_csr()
        b, single = self.integers(5, 3), self.integers(5, 4, dtype=torch.float32)
        with torch.inference_mode(), torch.autocast(self.device, dtype=torch.bfloat16):
            pt.spmm(a, single)
        with torch.inference_mode():
            pt.spmm(coo, b), pt.spmm(batch, b)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            y = pt.spmm(a, single.requires_grad_())
        y.float().sum().backward()
        assert torch.equal(single.grad, dense(a).T @ torch.ones_like(y, dtype=torch.float32))
        for x in (coo, batch):
            leaf = b.clone().requires_grad_()
            pt.spmm(x, leaf).sum().backward()
            assert torch.equal(leaf.grad, full.T @ torch.ones(6, 3).to(full))

    def test_captured_calls_keep_the_handle_and_make_its_values_unknown(self, monkeypatch):
        sparse._matrices.clear()
        a, b = self.matrix(), self.integers(5, 3)
        pt.spmm(a, b)
        handle = list(sparse._matrices.values())[-1].handle
        updates, update = [], type(handle).update
        monkeypatch.setattr(type(handle), "update", lambda self, v: (updates.append(v), update(self, v)))
        values = [a.values * i for i in range(1, 6)]
        with monkeypatch.context() as patch:
            patch.setattr(sparse, "_is_captured", lambda x: True)
            for each in values:
                assert torch.equal(pt.spmm(a._replace(values=each), b), dense(a, each) @ b)
        assert list(sparse._matrices.values())[-1].handle is handle
        pt.spmm(a._replace(values=values[-1]), b)  # launches of the graph may have replaced these values
        assert len(updates) == 6
        monkeypatch.setattr(sparse, "MAX_MATRICES", 1)
        others = [self.matrix(seed=i) for i in (1, 2)]
        for other in others:
            assert torch.equal(pt.spmm(other, b), dense(other) @ b)
        assert handle in [known.handle for known in sparse._matrices.values()]
        assert len(sparse._matrices) == 2

    def test_transposes_of_tensors_in_other_formats_follow_their_values(self):
        coo, b = dense(self.matrix()).to_sparse_coo().coalesce(), self.integers(6, 3)
        for _ in range(2):
            assert torch.equal(ptxgen.spmm(coo, b, transpose=True), coo.to_dense().T @ b)
            coo._values().mul_(2)

    def test_empty_extents(self):
        for m, k, n, nnz in ((4, 3, 2, 0), (4, 0, 2, 0), (0, 3, 2, 0), (4, 3, 0, 5)):
            a, b = self.matrix(max(m, 1), max(k, 1), nnz), self.integers(k, n)
            a = a._replace(indptr=a.indptr[: m + 1], shape=(m, k))
            x, leaf = self.integers(m, n), b.requires_grad_()
            y = pt.spmm(a, leaf)
            assert y.shape == (m, n)
            y.sum().backward()
            assert leaf.grad.shape == (k, n)
            assert not leaf.grad.any()
            assert pt.sddmm(a, x, b.detach()).shape == (nnz,)

    @pytest.mark.parametrize(
        ("error", "message", "call"),
        [
            (InputError, "a is a dense tensor of shape", lambda a, b: pt.spmm(b, b)),
            (InputError, "a is of type list; it must be a sparse", lambda a, b: pt.spmm([1], b)),
            (InputError, "b is of type list; it must be a torch.Tensor", lambda a, b: pt.spmm(a, [1])),
            (ShapeError, "a has 5 columns and b has 4 rows; they must be as many", lambda a, b: pt.spmm(a, b[1:])),
            (ShapeError, "b has 3 dimensions", lambda a, b: pt.spmm(a, b[None])),
            (DtypeError, "values is torch.float64 and b is torch.float32", lambda a, b: pt.spmm(a, b.float())),
            (ShapeError, r"a.values has shape \(3,\)", lambda a, b: pt.spmm(a._replace(values=a.values[:3]), b)),
            (DtypeError, "a.indptr is torch.float64", lambda a, b: pt.spmm(a._replace(indptr=a.indptr.double()), b)),
            (InputError, "a.values is of type list", lambda a, b: pt.spmm(a._replace(values=[1.0]), b)),
            (
                ShapeError,
                r"a has shape \(6, 5, 1\); it must have 2",
                lambda a, b: pt.spmm(a._replace(shape=(6, 5, 1)), b),
            ),
            (ShapeError, "a.indptr has 7 elements; it must have 9", lambda a, b: pt.spmm(a._replace(shape=(8, 5)), b)),
            (ShapeError, "y has 6 rows; it must have 5, the columns", lambda a, b: pt.sddmm(a, b[[0] * 6], b[[0] * 6])),
            (InputError, "a is a torch.sparse_coo tensor of shape", lambda a, b: pt.spmm(b[0].to_sparse_coo(), b)),
            (InputError, "a has 1 dense dimensions; it must have none", lambda a, b: pt.spmm(b.to_sparse(1), b)),
            (InputError, "a has 1 dense dimensions", lambda a, b: pt.spmm(b[None].to_sparse_csr(dense_dim=1), b)),
            (DtypeError, "they must be the same", lambda a, b: pt.spmm(a._replace(indptr=a.indptr.int()), b)),
            (DeviceError, "a.indices is on meta", lambda a, b: pt.spmm(a._replace(indices=a.indices.to("meta")), b)),
            (ShapeError, "x has 5 rows; it must have 6, the rows of a", lambda a, b: pt.sddmm(a, b, b)),
            (ShapeError, "they must be M×N and K×N", lambda a, b: pt.sddmm(a, b[[0] * 6], b[:, 1:])),
        ],
    )
    def test_refused_arguments(self, error, message, call):
        with pytest.raises(error, match=message):
            call(self.matrix(), self.integers(5, 3))
