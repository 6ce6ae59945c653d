"""Checks of the tasks of ``ptxgen.torch`` against PyTorch's gradients of the same formula on arrays M×N×K."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

import ptxgen  # noqa: E402
import ptxgen.torch as pt  # noqa: E402
from ptxgen.errors import DtypeError, InputError, ShapeError, TaskError  # noqa: E402

M, N, K = 3, 4, 5
SHAPES = {"a": (M, K), "b": (N, K), "t": (M,), "u": (N,), "w": (K,), "e": (M, N)}


def text(step: str, output: str, when: str = "") -> str:
    return f"where (i, j) {when} {{ reduce (k) {{ {step} }} {output} }}"


#: name -> (text, the formula of arrays that broadcast as (i, j, k), tensors, their dtype)
CASES: dict[str, tuple[str, Callable[..., Any], str, Any]] = {
    "L1": (
        text("accum += abs(a[i,k] - b[j,k]);", "C[i,j] = accum;"),
        lambda a, b: (a - b).abs().sum(2),
        "ab",
        torch.float32,
    ),
    "L2": (
        text("accum += (a[i,k] - b[j,k]) * (a[i,k] - b[j,k]);", "C[j,i] = sqrt(accum);"),
        lambda a, b: (a - b).square().sum(2).sqrt().T,
        "ab",
        torch.float64,
    ),
    "products above a threshold": (
        text("accum += a[i,k]*b[j,k] + (a[i,k]*b[j,k] > t[i]) * (a[i,k]*b[j,k] - t[i]);", "C[i,j] = accum;"),
        lambda a, b, t: (a * b + torch.relu(a * b - t)).sum(2),
        "abt",
        torch.float64,
    ),
    "max-plus": (
        text("accum max= a[i,k] + b[j,k];", "C[i,j] = accum;"),
        lambda a, b: (a + b).amax(2),
        "ab",
        torch.float64,
    ),
    "scaled min-plus": (
        text("accum min= a[i,k] + b[j,k] * w[k];", "C[i,j] = accum * u[j];"),
        lambda a, b, u, w: (a + b * w).amin(2) * u[..., 0],
        "abuw",
        torch.float64,
    ),
    "kernel density": (
        text("accum += (a[i,k] - b[j,k]) * (a[i,k] - b[j,k]) * w[k];", "C[i] += exp(-accum * t[i]) + e[i,j];"),
        lambda a, b, t, w, e: (torch.exp(-((a - b).square() * w).sum(2) * t[..., 0]) + e[..., 0]).sum(1),
        "abtwe",
        torch.float32,
    ),
    "canberra": (
        text("accum += abs(a[i,k] - b[j,k]) / (abs(a[i,k]) + abs(b[j,k]));", "C[i] max= accum;"),
        lambda a, b: ((a - b).abs() / (a.abs() + b.abs())).sum(2).amax(1),
        "ab",
        torch.float64,
    ),
    "logsumexp": (
        text("accum mean= a[i,k] * b[j,k];", "C[j] logsumexp= accum;"),
        lambda a, b: (a * b).mean(2).logsumexp(0),
        "ab",
        torch.float32,
    ),
}
#: the axes of each tensor in the order (i, j, k)
VIEWS = {"a": (M, 1, K), "b": (1, N, K), "t": (M, 1, 1), "u": (1, N, 1), "w": (1, 1, K), "e": (M, N, 1)}

L1 = text("accum += abs(a[i,k] - b[j,k]);", "C[i,j] = accum * s;")


class TaskChecks:
    """Tests for the tensors of ``device``."""

    device = "cpu"

    def normal(self, *shape: int, seed: int = 0, dtype: Any = torch.float64) -> Any:
        generator = torch.Generator().manual_seed(10 * seed + sum(shape))
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(self.device, dtype)

    def leaves(self, names: str, dtype: Any = torch.float64) -> dict[str, Any]:
        return {x: self.normal(*SHAPES[x], seed=ord(x), dtype=dtype).requires_grad_() for x in names}

    @pytest.mark.parametrize("name", CASES)
    def test_gradients_are_those_of_pytorch(self, name):
        """Some of the second ones, too."""
        source, formula, names, dtype = CASES[name]
        leaves, derivatives = self.leaves(names, dtype), []
        for y in (
            pt.task(source)(**leaves),
            formula(**{x: leaves[x].reshape(VIEWS[x]) for x in names}),
        ):
            factors = self.normal(*y.shape, dtype=dtype)
            first = torch.autograd.grad((y * factors).sum(), leaves.values(), create_graph=True)
            total = sum(g.square().sum() for g in first)
            twice = ()
            if name in ("L2", "scaled min-plus"):
                twice = torch.autograd.grad(total, leaves.values(), allow_unused=True, materialize_grads=True)
            derivatives.append([y, *first, *twice])
        tolerance = {} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
        for x, y in zip(*derivatives, strict=True):
            torch.testing.assert_close(x, y, **tolerance)

    def test_gradcheck(self):
        a, b = self.normal(2, 3).requires_grad_(), self.normal(3, 2, seed=1).requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b: pt.matmul_over("min_max", a, b), (a, b), fast_mode=True)
        s = self.normal().requires_grad_()  # a number of the task
        task = pt.task(text("accum += a[i,k] * b[k,j] * s;", "C[j,i] = accum;"))
        b = b.detach()[:, :1].requires_grad_()
        assert torch.autograd.gradcheck(task, (a, b, s), fast_mode=True)
        assert torch.autograd.gradgradcheck(task, (a, b, s), fast_mode=True)

    def test_opcheck(self):
        x, y = self.leaves("ab").values()
        program = (
            "a:f64[i,k];b:f64[j,k];s:f64;accum:f64;where(i,j){reduce(k){accum+=abs(a[i,k]-b[j,k]);}C[i,j]=s*accum;}"
        )
        args = (x, y, *(None,) * 14, [2.0], program, False)
        done = torch.library.opcheck(torch.ops.ptxgen.task.default, args)
        assert set(done.values()) == {"SUCCESS"}

    def test_compiled_without_a_break(self):
        scale = 0.5
        i, j, k = ptxgen.axes("i j k")

        @pt.task
        def distances(p, q, s):
            d = ptxgen.sum(k, abs(p[i, k] - q[j, k]))
            return {"scaled": d * scale * s, "least": ptxgen.min(j, d)}

        def loss(a, b):
            result = distances(a, b, 2.0)
            return result.scaled.square().sum() + result.least.sum()

        leaves = list(self.leaves("ab").values())
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
        for a, b in zip(*(torch.autograd.grad(f(*leaves), leaves) for f in (compiled, loss)), strict=True):
            assert torch.equal(a, b)
        rows = [x.detach()[:2].clone().requires_grad_() for x in leaves]
        assert torch.equal(compiled(*rows), loss(*rows))

    def test_outputs_read_one_reduction(self):
        step = "accum += abs(a[i,k] - b[k,j]) * s;"
        source = text(step, "c[j,i] = accum * u[j]; left[i] max= accum; d[i,j] = accum;")
        leaves = {"a": self.normal(2, 33), "b": self.normal(33, 3), "u": self.normal(3), "s": self.normal()}
        leaves = {name: x.requires_grad_() for name, x in leaves.items()}
        d = (leaves["a"][:, None] - leaves["b"].T).abs().sum(2) * leaves["s"]
        result, wanted = pt.task(source)(**leaves), ((d * leaves["u"]).T, d.amax(1), d)
        grads = [torch.autograd.grad(sum(x.square().sum() for x in y), leaves.values()) for y in (result, wanted)]
        for x, y in zip((*result, *grads[0]), (*wanted, *grads[1]), strict=True):
            torch.testing.assert_close(x, y)
        assert result._fields == ("c", "left", "d")

    def test_types(self):
        """Sums of products of f16 are products of f16 again."""
        given = [self.normal(*shape, dtype=torch.float16).requires_grad_() for shape in ((4, 8), (8, 8))]
        source = text("accum += a[i,k] * b[k,j];", "C[i,j] = f16(accum);")
        derivatives = [torch.autograd.grad(y.sum(), given) for y in (pt.task(source)(*given), given[0] @ given[1])]
        for a, b in zip(*derivatives, strict=True):
            assert a.dtype is torch.float16
            torch.testing.assert_close(a, b)

    def test_pairs_that_when_excludes_have_no_gradient(self):
        """The derivative of the square root is infinite on the diagonal."""
        step = "accum += (X[i,k] - X[j,k]) * (X[i,k] - X[j,k]);"
        x = self.normal(3, 2).requires_grad_()
        y = pt.task(text(step, "C[i,j] = sqrt(accum);", "when (i < j)"))(x)
        [derivatives] = torch.autograd.grad(y.sum(), x)
        [wanted] = torch.autograd.grad(torch.pdist(x).sum(), x)
        assert not y.detach().tril().any()
        torch.testing.assert_close(derivatives, wanted)

    def test_operands_that_no_gradient_needs_may_change_before_it(self):
        a, b = self.normal(2, 3).requires_grad_(), self.normal(3, 2, seed=1)
        held = a * 1
        y = pt.matmul_over("plus_times", held, b)
        held.detach().zero_()
        torch.testing.assert_close(torch.autograd.grad(y.sum(), a)[0], b.sum(1).expand(2, 3))

    def test_equal_values(self):
        """The first of equal steps, and half of each of equal operands, has the gradient; |0| has none."""
        a, b = (torch.ones(1, 3, dtype=torch.float64, device=self.device, requires_grad=True) for _ in range(2))
        for step, gradient in (
            ("accum max= a[i,k] + b[j,k];", [1.0, 0, 0]),
            ("accum += max(a[i,k], b[j,k]);", [0.5, 0.5, 0.5]),
            ("accum += abs(a[i,k] - b[j,k]);", [0.0, 0, 0]),
        ):
            y = pt.task(text(step, "C[i,j] = accum;"))(a, b)
            assert torch.autograd.grad(y.sum(), a)[0].tolist() == [gradient]

    def test_fast_gradients_are_products(self):
        leaves = self.leaves("ab", torch.float32)
        task = pt.task(text("accum += (a[i,k] - b[j,k]) * (a[i,k] - b[j,k]);", "C[i,j] = accum;"))
        derivatives = [
            torch.autograd.grad(task(**leaves, precision=p).sum(), leaves.values()) for p in ("exact", "fast")
        ]
        for a, b in zip(*derivatives, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_batches_and_transforms(self):
        task, b = pt.task(L1), self.leaves("b")["b"]
        batch = self.normal(2, M, K).requires_grad_()
        derivatives = torch.autograd.grad(task(batch, b, 1.5).square().sum(), (batch, b))
        wanted = torch.autograd.grad(((batch[:, :, None] - b).abs().sum(-1) * 1.5).square().sum(), (batch, b))
        for x, y in zip(derivatives, wanted, strict=True):
            torch.testing.assert_close(x, y)
        each = torch.vmap(torch.func.grad(lambda a: task(a, b.detach(), 1.5).square().sum()))(batch.detach())
        torch.testing.assert_close(each, wanted[0])

    def test_empty_extents(self):
        for m, n, k in ((0, 2, 2), (2, 0, 2), (2, 2, 0)):
            a, b = self.normal(m, k).requires_grad_(), self.normal(k, n).requires_grad_()
            for semiring in ("plus_times", "max_plus"):
                y = pt.matmul_over(semiring, a, b)
                assert y.shape == (m, n)
                assert not any(x.any() for x in torch.autograd.grad(y.sum(), (a, b)))

    def test_autocast_keeps_types(self):
        with torch.autocast(self.device, dtype=torch.bfloat16):
            y = pt.task(L1)(**self.leaves("ab", torch.float32), s=1.0)
        assert y.dtype is torch.float32

    @pytest.mark.parametrize(
        ("step", "output", "message"),
        [
            ("accum *= a[i,k] + b[j,k];", "C[i,j] = accum;", "`[*]` has no derivative as a reduction over k"),
            ("accum += a[i,k] + b[j,k];", "C[i] *= accum;", "`[*]` has no derivative as a reduction of rows"),
            ("accum += f32(s32(a[i,k])) * b[j,k];", "C[i,j] = accum;", r"`s32\(…\)` has no derivative"),
            ("accum += f32(popcount(u32(a[i,k]))) * b[j,k];", "C[i,j] = accum;", r"`popcount\(…\)` has no derivative"),
        ],
    )
    def test_operators_without_derivative_are_named(self, step, output, message):
        leaves = self.leaves("ab", torch.float32)
        y = pt.task(text(step, output))(**leaves)
        with pytest.raises(TaskError, match=message):
            y.sum().backward()

    @pytest.mark.parametrize(
        ("error", "message", "call"),
        [
            (ShapeError, "s has shape .5,.; it must be a number", lambda a, b: pt.task(L1)(a, b, a[0])),
            (TaskError, "b is a number; it must be an array", lambda a, b: pt.task(L1)(a, 1.0, 1.0)),
            (InputError, "s must be given", lambda a, b: pt.task(L1)(a, b)),
            (
                InputError,
                "s is of type str; it must be a torch.Tensor or a number",
                lambda a, b: pt.task(L1)(a, b, "1"),
            ),
            (ShapeError, "axis k has the extent 5 in a and 4 in b", lambda a, b: pt.task(L1)(a, b[:, 1:], 1.0)),
            (ShapeError, "a has shape .5,.; the task reads", lambda a, b: pt.task(L1)(a[0], b, 1.0)),
            (DtypeError, "a is torch.complex128; it must be", lambda a, b: pt.task(L1)(a.cdouble(), b, 1.0)),
            (DtypeError, "a is f64 and b is f32", lambda a, b: pt.matmul_over("min_plus", a, b.float().T)),
            (InputError, "semiring is 'sum'", lambda a, b: pt.matmul_over("sum", a, b)),
            (InputError, "precision is 'low'", lambda a, b: pt.task(L1)(a, b, 1.0, precision="low")),
            (
                InputError,
                "h is a list; ptxgen.torch.task has",
                lambda a, b: pt.task(text("accum += a[i,k] * b[j,k];", "accum > 0 ? h.add(i, j);"))(a, b),
            ),
        ],
    )
    def test_refused_arguments(self, error, message, call):
        for given in (self.leaves("ab").values(), [x.detach() for x in self.leaves("ab").values()]):
            with pytest.raises(error, match=message):
                call(*given)
