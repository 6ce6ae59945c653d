"""Checks of ``ptxgen.torch.mlp`` against PyTorch in float64, for tensors of any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.nn import functional  # noqa: E402

import ptxgen.torch as pt  # noqa: E402
from ptxgen.errors import DtypeError, InputError, ShapeError  # noqa: E402
from ptxgen.torch import activations, feed_forward, products  # noqa: E402
from tests.torch_checks import ACTIVATIONS, Tensors  # noqa: E402

#: activation -> PyTorch's function of the sums; the kernel of a product computes the gradients of the first ones
FUSED: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "gelu": ACTIVATIONS["gelu"],
    "sigmoid": torch.sigmoid,
    "x*sigmoid(2*x)": lambda s: s * torch.sigmoid(2 * s),
    "2*x": lambda s: 2 * s,
}
ALL = {**FUSED, "swiglu": ACTIVATIONS["swiglu"]}
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


def theirs(x: Any, w1: Any, w2: Any, b1: Any, b2: Any, activation: str) -> Any:
    return functional.linear(ALL[activation](functional.linear(x, w1, b1)), w2, b2)


class MlpChecks(Tensors):
    """Tests for the tensors of ``device``."""

    def given(self, activation: str, biases: bool = True, rows: tuple[int, ...] = (2, 5), dtype: Any = None) -> Any:
        """Input, weights and biases of a map from 8 to 6 to 4 elements."""
        sums = 12 if activation == "swiglu" else 6
        shapes = (*rows, 8), (sums, 8), (4, 6), *(((sums,), (4,)) if biases else (None, None))
        generator = torch.Generator().manual_seed(len(activation))
        made = [None if s is None else torch.randn(s, generator=generator, dtype=torch.float64) / 2 for s in shapes]
        return [None if x is None else x.to(self.device, dtype or torch.float64) for x in made]

    @pytest.mark.parametrize("biases", [True, False])
    @pytest.mark.parametrize("activation", ALL)
    def test_results_and_derivatives_of_two_orders(self, activation, biases, monkeypatch):
        """In float64, with stored sums and, as gradient graphs may ask for, without."""
        given = self.given(activation, biases)
        wanted = self.derivatives(lambda *a: theirs(*a, activation), given)
        for _ in range(2):
            computed = self.derivatives(lambda *a: pt.mlp(*a, activation=activation), given)
            for x, y in zip(computed, wanted, strict=True):
                torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)
            monkeypatch.setattr(activations, "records_gradient", lambda *tensors: False)

    @pytest.mark.parametrize("dtype", ROUNDOFF)
    @pytest.mark.parametrize("activation", FUSED)
    def test_kernels_compute_the_gradient_of_the_activation(self, activation, dtype, monkeypatch):
        """Each gradient, and each sum of magnitudes times the roundoff, is that of float64. The second step repeats the
        launches of the first."""
        monkeypatch.setattr(activations, "gradient", None)
        given = self.given(activation, rows=(7,), dtype=dtype)
        leaves = [t.clone().requires_grad_() for t in given]
        wide = [t.double().requires_grad_() for t in given]
        x, w1, w2, b1, b2 = (t.detach().abs() for t in wide)
        dy = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        dy = dy.to(dtype).to(self.device)
        y = theirs(*wide, activation)
        wanted = [y, *torch.autograd.grad(y, wide, dy.double())]
        hidden, d_hidden = 2 * (x @ w1.mT + b1), 2 * (dy.double().abs() @ w2)  # 2: the greatest slope
        bounds = (
            hidden @ w2.mT + b2,
            d_hidden @ w1,
            d_hidden.mT @ x,
            dy.double().abs().mT @ hidden,
            d_hidden.sum(0),
            dy.double().abs().sum(0),
        )
        for _ in range(2):
            y = pt.mlp(*leaves, activation=activation)
            computed = [y, *torch.autograd.grad(y, leaves, dy)]
            for result, exact, bound in zip(computed, wanted, bounds, strict=True):
                assert result.dtype is dtype
                assert ((result.double() - exact).abs() <= 8 * ROUNDOFF[dtype] * bound).all()

    def test_the_kernel_adds_the_columns(self, monkeypatch):
        """The gradient of the first bias is no sum of PyTorch."""
        given = [t.requires_grad_() for t in self.given("gelu", dtype=torch.float32)]
        dy, w2, sums = torch.ones(2, 5, 4, device=self.device), given[2].detach(), given[0].detach()[..., :6]
        monkeypatch.setattr(torch.Tensor, "sum_to_size", None)
        for _ in range(2):  # the second call repeats the launch of the first
            grad, columns = feed_forward.MLP_HIDDEN_GRAD(dy, w2, sums.contiguous(), "gelu", True)
            torch.testing.assert_close(columns, grad.sum((0, 1)), rtol=1e-5, atol=1e-5)

    def test_adversarial_sums(self):
        """The gradient is 0 times or once that of the results where sums are 0, NaN, infinite and very large."""
        sums = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1.0])
        x, w1, w2 = torch.ones(1, 1), sums[:, None], torch.eye(8)
        for activation, slopes in (("relu", (0, 0, 1, 1, 0, 1, 0, 1)), ("silu", (0.5, 0.5, float("nan"), 1, 0, 1, 0))):
            leaf = w1.to(self.device, copy=True).requires_grad_()
            pt.mlp(x.to(self.device), leaf, w2.to(self.device), activation=activation).sum().backward()
            got = leaf.grad[: len(slopes), 0].cpu()
            wanted = torch.tensor(slopes, dtype=torch.float32)
            finite = torch.isfinite(sums[: len(slopes)]) | (activation == "relu")
            torch.testing.assert_close(got[finite], wanted[finite], rtol=1e-5, atol=1e-6, equal_nan=True)

    @pytest.mark.parametrize("needed", [(0,), (1,), (2,), (3,), (4,), (0, 3)])
    def test_only_needed_gradients(self, needed):
        given = self.given("gelu", dtype=torch.float32)
        leaves = [t.clone().requires_grad_(i in needed) for i, t in enumerate(given)]
        wide = [t.double().requires_grad_(i in needed) for i, t in enumerate(given)]
        pt.mlp(*leaves).square().sum().backward()
        theirs(*wide, "gelu").square().sum().backward()
        for i, (a, b) in enumerate(zip(leaves, wide, strict=True)):
            assert (a.grad is not None) == (i in needed)
            if i in needed:
                torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-4)

    def test_what_is_stored_for_the_backward_step(self):
        """The results of ReLU alone, whose signs are those of the sums; without a recorded gradient nothing."""
        given = self.given("relu", dtype=torch.float32)
        for activation, keeps, hidden, sums in (("relu", True, 60, 0), ("gelu", True, 60, 60), ("gelu", False, 0, 0)):
            _, *kept = feed_forward.MLP(*given, activation, keeps)
            assert [x.numel() for x in kept] == [hidden, sums]

    @pytest.mark.parametrize("rows", [(), (0,), (3, 1, 2)])
    def test_rows_of_any_shape(self, rows):
        given = self.given("gelu", rows=rows, dtype=torch.float32)
        leaves = [t.clone().requires_grad_() for t in given]
        y = pt.mlp(*leaves)
        assert y.shape == (*rows, 4)
        y.sum().backward()
        wide = [t.double().requires_grad_() for t in given]
        theirs(*wide, "gelu").sum().backward()
        for a, b in zip(leaves, wide, strict=True):
            torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-4)

    def test_strided_tensors(self):
        given = self.given("gelu", dtype=torch.float32)
        strided = [given[0].mT.contiguous().mT, given[1].t().contiguous().t(), given[2][:, ::2].repeat(1, 2)[:, ::1]]
        leaves = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (*strided, *given[3:])]
        wide = [t.detach().double().requires_grad_() for t in leaves]
        y = pt.mlp(*leaves)
        torch.autograd.backward(y, torch.ones(1, 1, 4, device=self.device).expand_as(y))
        theirs(*wide, "gelu").sum().backward()
        for a, b in zip(leaves, wide, strict=True):
            torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("activation", ["gelu", "x*sigmoid(2*x)", "swiglu"])
    def test_compiled_steps_have_no_graph_break(self, activation):
        """The compiled backward step calls the operator whose kernel multiplies by the slope."""
        given = self.given(activation, dtype=torch.float32)
        graphs: list[str] = []

        def keep(graph, inputs):
            graphs.append(graph.print_readable(print_output=False))
            return make_boxed_func(graph.forward)

        torch.compiler.reset()
        step = lambda *t: pt.mlp(*t, activation=activation) + 1  # noqa: E731
        compiled = torch.compile(step, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)
        leaves = [t.clone().requires_grad_() for t in given]
        eager, result = step(*leaves), compiled(*leaves)
        assert torch.equal(eager, result)
        pairs = zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (eager, result)), strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a, b)
        assert "ptxgen.mlp.default" in graphs[0]
        assert ("ptxgen.mlp_hidden_grad.default" in graphs[1]) == (activation != "swiglu")
        with torch.no_grad():
            assert torch.equal(compiled(*given), step(*given))

    def test_transforms(self):
        given = self.given("gelu")
        x, rest = given[0], given[1:]
        twice = torch.stack([x, x + 1])
        wanted = theirs(twice, *rest, "gelu")
        torch.testing.assert_close(torch.vmap(lambda x: pt.mlp(x, *rest))(twice), wanted, rtol=1e-12, atol=1e-12)
        weights = torch.stack([rest[0], 2 * rest[0]])
        by_weight = torch.vmap(lambda w: pt.mlp(x, w, *rest[1:]))(weights)
        torch.testing.assert_close(by_weight[1], theirs(x, weights[1], *rest[1:], "gelu"), rtol=1e-12, atol=1e-12)
        of_sample = torch.vmap(torch.func.grad(lambda w, x: pt.mlp(x, w, *rest[1:]).sum()), (None, 0))(rest[0], twice)
        leaf = rest[0].clone().requires_grad_()
        theirs(twice[1], leaf, *rest[1:], "gelu").sum().backward()
        torch.testing.assert_close(of_sample[1], leaf.grad, rtol=1e-12, atol=1e-12)

    def test_batched_gradients(self):
        given = self.given("gelu", rows=(2,), dtype=torch.float32)
        leaves = [t.requires_grad_() for t in given]
        derivatives, wanted = (
            torch.autograd.grad(y, leaves, torch.eye(8).to(y).view(8, *y.shape), is_grads_batched=True)
            for y in (pt.mlp(*leaves), theirs(*leaves, "gelu"))
        )
        for a, b in zip(derivatives, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("activation", [None, "gelu", "swiglu"])
    @pytest.mark.parametrize("dtype", [torch.float64, *ROUNDOFF])
    def test_weight_gradients_with_bias_gradients(self, activation, dtype, monkeypatch):
        """The kernel of the weight gradient of a large layer adds the rows of the gradient, in ``linear`` and in
        ``mlp``, also in gradients that are differentiated again, and in compiled steps."""
        monkeypatch.setattr(products, "LARGE", 0)
        monkeypatch.setattr(torch.Tensor, "sum_to_size", None)
        given = self.given(activation or "gelu", dtype=dtype)
        if activation is not None:
            tolerance = {"rtol": 20 * ROUNDOFF.get(dtype, 1e-14), "atol": 20 * ROUNDOFF.get(dtype, 1e-14)}
            step = lambda *a: pt.mlp(*a, activation=activation)  # noqa: E731
            stock = lambda *a: theirs(*a, activation)  # noqa: E731
        else:
            given, tolerance = [given[n].mul(2).round() for n in (0, 1, 3)], {"rtol": 0, "atol": 0}
            step, stock = pt.linear, functional.linear
        for _ in range(2):  # the second step repeats the launches of the first
            leaves = [t.clone().requires_grad_() for t in given]
            wide = [t.to(torch.float64, copy=True).requires_grad_() for t in given]
            step(*leaves).sum().backward()
            stock(*wide).sum().backward()
            for a, b in zip(leaves, wide, strict=True):
                torch.testing.assert_close(a.grad.double(), b.grad, **tolerance)
        monkeypatch.undo()
        monkeypatch.setattr(products, "LARGE", 0)
        if dtype is torch.float64:
            computed, wanted = (self.derivatives(f, given) for f in (step, stock))
            for a, b in zip(computed, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-11)
        if dtype is torch.float32:
            torch.compiler.reset()
            leaves = [t.clone().requires_grad_() for t in given]
            compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
            for a, b in zip(
                torch.autograd.grad(compiled(*leaves).sum(), leaves),
                torch.autograd.grad(step(*leaves).sum(), leaves),
                strict=True,
            ):
                torch.testing.assert_close(a, b)

    def test_operator_of_weight_and_bias_gradients(self):
        """In transforms, with one of its results, without rows; and the checks of operators."""
        x, dy = self.tensors(((3, 4, 8), (3, 4, 6)))
        operator = products.LINEAR_WEIGHT_BIAS_GRAD
        weight, bias = operator(x, dy)
        assert torch.equal(weight, torch.einsum("bmn,bmk->nk", dy, x))
        assert torch.equal(bias, dy.sum((0, 1)))
        weights, biases = torch.vmap(operator)(x, dy)
        assert torch.equal(weights, torch.einsum("bmn,bmk->bnk", dy, x))
        assert torch.equal(biases, dy.sum(1))
        weights, biases = torch.vmap(operator, (0, None))(x, dy[0])
        assert torch.equal(biases, dy[0].sum(0).expand(3, 6))
        weight, bias = operator(x[:, :0], dy[:, :0])
        assert not weight.any()
        assert not bias.any()
        leaves = [t.requires_grad_() for t in (x, dy)]
        (of_grad,) = torch.autograd.grad(operator(*leaves)[1].square().sum(), leaves[1])
        assert torch.equal(of_grad, 2 * dy.sum((0, 1)).expand_as(dy))
        done = torch.library.opcheck(torch.ops.ptxgen.linear_weight_bias_grad.default, tuple(leaves))
        assert set(done.values()) == {"SUCCESS"}

    @pytest.mark.parametrize("activation", ["gelu", "swiglu"])
    def test_opcheck(self, activation):
        leaves = [t.requires_grad_() for t in self.given(activation)]
        done = torch.library.opcheck(torch.ops.ptxgen.mlp.default, (*leaves, activation, True))
        assert set(done.values()) == {"SUCCESS"}

    def test_opcheck_of_the_gradient(self):
        dy, w2, sums = (t.float() for t in self.tensors(((2, 5, 4), (4, 6), (2, 5, 6))))
        for columns in (True, False):
            arguments = dy, w2, sums, "gelu", columns
            done = torch.library.opcheck(torch.ops.ptxgen.mlp_hidden_grad.default, arguments)
            assert set(done.values()) == {"SUCCESS"}

    def test_autocast(self):
        given = self.given("gelu", dtype=torch.float32)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            assert pt.mlp(*given).dtype is torch.bfloat16

    def test_python_functions(self):
        given = self.given("gelu", dtype=torch.float32)
        result = pt.mlp(*given, activation=lambda x: x * x)
        wide = [t.double() for t in given]
        wanted = functional.linear(functional.linear(wide[0], wide[1], wide[3]).square(), wide[2], wide[4])
        torch.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-4)

    def test_wrong_arguments_are_named(self):
        x, w1, w2, b1, b2 = self.given("gelu")
        for call, error, words in (
            (lambda: pt.mlp(x, w1[:, 1:], w2), ShapeError, "input has 8 columns and weight1 7"),
            (lambda: pt.mlp(x, w1, w2[0]), ShapeError, "the result of the activation has 3 dimensions and weight2 1"),
            (lambda: pt.mlp(x, w1, w1), ShapeError, "the result of the activation has 6 columns and weight2 8"),
            (
                lambda: pt.mlp(x, w1, w2, b2, b2),
                ShapeError,
                r"bias1 has shape \(4,\); it must be \(6,\), the rows of w",
            ),
            (
                lambda: pt.mlp(x, w1, w2, b1, b1),
                ShapeError,
                r"bias2 has shape \(6,\); it must be \(4,\), the rows of w",
            ),
            (lambda: pt.mlp(x, w1, w2.float()), DtypeError, "input is torch.float64 and weight2 is torch.float32"),
            (lambda: pt.mlp(x, w1, w2, activation="relu_grad"), InputError, "which reads aux; it must be an act"),
            (
                lambda: pt.mlp(x, w1, w2, activation="step"),
                InputError,
                "it must be one of relu, gelu, silu, sigmoid, g",
            ),
            (lambda: pt.mlp(x, w1, w2, activation=None), InputError, "activation is None; it must be a name, an expr"),
            (lambda: pt.mlp(x, w1[:5], w2, activation="swiglu"), ShapeError, "the product has 5 columns; a gated"),
        ):
            with pytest.raises(error, match=words):
                call()
