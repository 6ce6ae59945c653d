"""Checks of ``ptxgen.torch`` against PyTorch, for tensors of any device. Values are small integers in float64, unless a
check is about another type, so that all sums are exact and results must be equal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import ptxgen.torch as pt  # noqa: E402
from ptxgen.errors import DeviceError, DtypeError, InputError, ShapeError  # noqa: E402
from ptxgen.torch import activations, conv, grouped, products  # noqa: E402

#: function of ptxgen.torch -> the function of PyTorch
THEIRS = {
    "matmul": torch.matmul,
    **{name: getattr(functional, name) for name in pt.__all__ if name.startswith("conv") or name == "linear"},
}
#: (function, shapes of the tensor arguments, other arguments)
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("matmul", ((4,), (4,)), {}),
    ("matmul", ((3, 4), (4,)), {}),
    ("matmul", ((4,), (2, 4, 3)), {}),
    ("matmul", ((2, 3, 4), (4, 5)), {}),
    ("matmul", ((2, 1, 3, 4), (3, 4, 2)), {}),
    ("linear", ((3, 4), (2, 4), None), {}),
    ("linear", ((2, 3, 4), (4,)), {}),
    ("linear", ((2, 3, 5), (6, 5), (6,)), {}),
    ("conv1d", ((2, 3, 9), (4, 3, 3), (4,)), {"stride": 2, "padding": 2, "dilation": 2}),
    ("conv1d", ((3, 9), (4, 3, 2), None), {"padding": "same"}),
    ("conv2d", ((2, 4, 6, 5), (6, 2, 3, 2), (6,)), {"stride": [2, 1], "padding": (1, 0), "groups": 2}),
    ("conv2d", ((2, 3, 5, 4), (2, 3, 1, 1), None), {}),
    ("conv3d", ((1, 2, 4, 3, 4), (3, 2, 2, 2, 2), (3,)), {"stride": (2, 1, 1), "padding": 1}),
    ("conv_transpose1d", ((2, 3, 4), (3, 2, 3), (2,)), {"stride": 3, "output_padding": 2}),
    ("conv_transpose2d", ((2, 4, 3, 3), (4, 2, 3, 2), (4,)), {"stride": 2, "padding": 1, "groups": 2}),
    ("conv_transpose2d", ((1, 2, 3, 3), (2, 2, 2, 2), None), {"stride": 2, "dilation": 4, "output_padding": 3}),
    ("conv_transpose3d", ((1, 2, 2, 2, 2), (2, 2, 2, 2, 2), None), {"stride": 2}),
]
#: the same for torch.vmap: shapes with the batch axis, and that axis of each argument
BATCHES: list[tuple[str, tuple[Any, ...], tuple[int | None, ...], dict[str, Any]]] = [
    ("matmul", ((3, 4), (4, 2, 5)), (None, 2), {}),
    ("matmul", ((5, 4), (5, 3, 4, 2)), (0, 0), {}),
    ("matmul", ((3, 5, 2, 4), (5, 4)), (1, 0), {}),
    ("linear", ((5, 3, 4), (5, 2, 4), (5, 2)), (0, 0, 0), {}),
    ("linear", ((3, 4), (2, 4), (2, 5)), (None, None, 1), {}),
    ("linear", ((5, 4), (5, 2, 4), (2,)), (0, 0, None), {}),
    ("conv2d", ((3, 2, 4, 5, 5), (4, 2, 3, 3), (4,)), (0, None, None), {"groups": 2}),
    ("conv2d", ((2, 4, 5, 5), (4, 3, 2, 3, 3), (4,)), (None, 1, None), {"groups": 2}),
    ("conv2d", ((2, 4, 5, 5), (4, 4, 3, 3), (3, 4)), (None, None, 0), {}),
    ("conv_transpose2d", ((3, 2, 2, 3, 3), (3, 2, 2, 3, 3), (3, 2)), (0, 0, 0), {"stride": 2}),
]

#: activation -> PyTorch's function of the sums
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": lambda s: functional.gelu(s, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "swiglu": lambda s: functional.silu(s[..., ::2]) * s[..., 1::2],
    "x*sigmoid(2*x)*(up+1)": lambda s: s[..., ::2] * torch.sigmoid(2 * s[..., ::2]) * (s[..., 1::2] + 1),
}


def jagged(x: Any) -> Any:
    return torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged)


class Model(nn.Module):
    """A layer of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")
        self.conv = nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.up(torch.relu(self.conv(self.ring(x))), output_size=(8, 8)))


class Tensors:
    """Tensors of ``device`` and what checks compute of them."""

    device = "cpu"

    def integers(self, *shape: int, seed: int = 0, **options: Any) -> Any:
        generator = torch.Generator().manual_seed(seed + sum(shape))
        return torch.randint(-2, 3, shape, generator=generator).to(self.device, **{"dtype": torch.float64, **options})

    def tensors(self, shapes: tuple[Any, ...], **options: Any) -> list[Any]:
        return [None if s is None else self.integers(*s, seed=i, **options) for i, s in enumerate(shapes)]

    def model(self, dtype: Any = torch.float64) -> tuple[Any, Any, Any]:
        """A model of PyTorch with integer weights, its copy with replaced modules, and an input."""
        stock = Model()
        with torch.no_grad():
            for i, p in enumerate(stock.parameters()):
                p.copy_(self.integers(*p.shape, seed=i))
        stock = stock.to(self.device, dtype)
        return stock, pt.replace_modules(copy.deepcopy(stock)), self.integers(1, 2, 4, 4, dtype=dtype)

    def derivatives(self, function: Callable[..., Any], given: list[Any]) -> list[Any]:
        """The result, the gradients of a sum of squares, and the gradients of a sum of those."""
        leaves = [x.clone().requires_grad_() for x in given if x is not None]
        rest = iter(leaves)
        y = function(*(None if x is None else next(rest) for x in given))
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        return [y, *first, *second]


class Checks(Tensors):
    """Tests for the tensors of ``device``."""

    @pytest.mark.parametrize(("name", "shapes", "options"), CASES)
    def test_results_and_gradients_are_those_of_pytorch(self, name, shapes, options):
        given = self.tensors(shapes)
        derivatives = self.derivatives(lambda *a: getattr(pt, name)(*a, **options), given)
        wanted = self.derivatives(lambda *a: THEIRS[name](*a, **options), given)
        for x, y in zip(derivatives, wanted, strict=True):
            assert x.shape == y.shape
            assert torch.equal(x, y)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_types(self, dtype):
        x, w, b = self.tensors(((3, 8), (4, 8), (4,)), dtype=dtype)
        assert torch.equal(pt.linear(x, w, b), functional.linear(x, w, b))

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_linear_with_an_activation(self, activation):
        """Results, first and second derivatives in float64; kernels in float16, with and without recorded sums."""
        theirs = ACTIVATIONS[activation]
        given = [x / 2 for x in self.tensors(((2, 5, 8), (6, 8), (6,)))]
        computed = self.derivatives(lambda *a: pt.linear(*a, activation=activation), given)
        wanted = self.derivatives(lambda *a: theirs(functional.linear(*a)), given)
        for x, y in zip(computed, wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)
        half = [x.half().requires_grad_() for x in given]
        y = pt.linear(*half, activation=activation)
        y.sum().backward()
        with torch.no_grad():
            kernel = pt.linear(*half, activation=activation)
        for x in (y, kernel):
            torch.testing.assert_close(x.double(), wanted[0], rtol=4e-3, atol=4e-3)
        leaves = [x.clone().requires_grad_() for x in given]
        theirs(functional.linear(*leaves)).sum().backward()
        for x, y in zip(half, leaves, strict=True):
            torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-2, atol=2e-2)

    def test_activations_in_transforms_and_compiled(self):
        x, w, rows = self.tensors(((3, 2, 8), (3, 6, 8), (9, 8)), dtype=torch.float16)
        gated = functional.silu(x @ w.mT[..., ::2]) * (x @ w.mT[..., 1::2])
        by_weight = torch.vmap(lambda x, w: pt.linear(x, w, activation="swiglu"))(x, w)
        torch.testing.assert_close(by_weight, gated, rtol=4e-3, atol=4e-3)
        of_rows = torch.vmap(lambda x: pt.linear(x, w[0], activation="swiglu"))(x)
        torch.testing.assert_close(of_rows[0], gated[0], rtol=4e-3, atol=4e-3)
        grad = torch.func.grad(lambda w: pt.linear(x[0], w, activation="swiglu").sum())(w[0])
        ends = torch.tensor([2, 7], dtype=torch.int32, device=self.device)
        weights = w[:2].mT.contiguous()

        def step(rows, weights, w):
            return (
                pt.gemm_jagged(rows, weights, ends, activation="swiglu").sum()
                + pt.linear(x[0], w, activation="swiglu").sum()
                + pt.gemm_grouped([rows, x[0]], [w.mT, w.mT], activation="swiglu")[1].sum()
                + pt.conv1d(w.view(6, 2, 4), weights.view(8, 2, 6)[..., :2], activation="x*sigmoid(x)").sum()
            )

        leaves = [t.clone().requires_grad_() for t in (rows, weights, w[0])]
        eager = torch.autograd.grad(step(*leaves), leaves)
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
        for a, b in zip(eager, torch.autograd.grad(compiled(*leaves), leaves), strict=True):
            torch.testing.assert_close(a, b)
        of_linear = torch.autograd.grad(pt.linear(x[0], leaves[2], activation="swiglu").sum(), leaves[2])[0]
        torch.testing.assert_close(of_linear, grad, rtol=1e-2, atol=2e-2)
        with torch.no_grad():
            torch.testing.assert_close(compiled(*leaves), step(*leaves))
        with pytest.raises(Exception, match=r"in torch\.compile it must be a text"):
            torch.compile(
                lambda x, w: pt.linear(x, w, activation=lambda x: x * x), backend="aot_eager", fullgraph=True
            )(x[0], w[0])

    @pytest.mark.parametrize("activation", ["swiglu", "sigmoid"])
    def test_jagged_rows_with_an_activation(self, activation):
        """Also rows after the last offset, which are 0, and have no gradient."""
        rows, weights = (x.half().requires_grad_() for x in self.tensors(((9, 8), (2, 8, 6))))
        ends = torch.tensor([2, 7], dtype=torch.int32, device=self.device)
        y = pt.gemm_jagged(rows, weights, ends, activation=activation)
        with torch.no_grad():
            kernel = pt.gemm_jagged(rows, weights, ends, activation=activation)
        wide = [x.detach().double().requires_grad_() for x in (rows, weights)]
        wanted = ACTIVATIONS[activation](torch.cat([wide[0][:2] @ wide[1][0], wide[0][2:7] @ wide[1][1]]))
        for x in (y, kernel):
            torch.testing.assert_close(x[:7].double(), wanted, rtol=4e-3, atol=4e-3)
            assert not x[7:].any()
        computed = torch.autograd.grad(y.sum(), (rows, weights))
        for x, z in zip(computed, torch.autograd.grad(wanted.sum(), wide), strict=True):
            torch.testing.assert_close(x.double(), z, rtol=1e-2, atol=2e-2)

    @pytest.mark.parametrize(
        ("name", "activation", "shapes", "options"),
        [
            ("conv2d", "gelu", ((2, 4, 5, 4), (6, 2, 3, 2), (6,)), {"stride": 2, "padding": 1, "groups": 2}),
            ("conv2d", "swiglu", ((2, 4, 5, 4), (8, 2, 3, 2), (8,)), {"stride": 2, "padding": 1, "groups": 2}),
            ("conv1d", "x*sigmoid(2*x)*(up+1)", ((3, 5), (4, 3, 2), (4,)), {"padding": "same"}),
            ("conv_transpose1d", "x*sigmoid(2*x)", ((3, 4), (3, 2, 3), (2,)), {"stride": 2}),
        ],
    )
    def test_convolutions_with_an_activation(self, name, activation, shapes, options, monkeypatch):
        """Results, first and second derivatives in float64, of products and of the operator with the activation, whose
        gradient graphs may ask for; in float16 the kernel computes the activation."""
        of_rows = ACTIVATIONS.get(activation, lambda s: s * torch.sigmoid(2 * s))
        axis = 1 - len(shapes[1])  # of channels
        theirs = lambda s: of_rows(s.movedim(axis, -1)).movedim(-1, axis)  # noqa: E731
        ours, stock = getattr(pt, name), THEIRS[name]
        given = [x / 4 for x in self.tensors(shapes)]
        step = lambda *a: ours(*a, **options, activation=activation)  # noqa: E731
        computed = self.derivatives(step, given)
        wanted = self.derivatives(lambda *a: theirs(stock(*a, **options)), given)
        for x, y in zip(computed, wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)
        gradient = torch.vmap(torch.func.grad(lambda x: step(x, *given[1:]).sum()))
        x, twice = given[0], torch.stack([given[0], given[0] + 1])
        by_stock = [torch.func.grad(lambda x: theirs(stock(x, *given[1:], **options)).sum())(x) for x in twice]
        torch.testing.assert_close(gradient(twice), torch.stack(by_stock), rtol=1e-12, atol=1e-11)
        of_batch = torch.vmap(lambda x: step(x, *given[1:]))(twice)
        torch.testing.assert_close(of_batch[0], wanted[0], rtol=1e-12, atol=1e-11)
        monkeypatch.setattr(activations, "records_gradient", lambda *tensors: False)
        for x, y in zip(self.derivatives(step, given), wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)
        monkeypatch.setattr(activations, "value", None)
        half = [x.half() for x in given]
        for _ in range(2):  # the second call repeats the launch of the first
            y = step(*half)
            torch.testing.assert_close(y.double(), wanted[0], rtol=4e-3, atol=4e-3)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose2d"])
    def test_one_kernel_computes_an_activation_and_its_sums(self, name, dtype, monkeypatch):
        """While gradients are recorded, in eager and compiled calls, in each memory format."""
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # PyTorch allows it for convolutions by default
        spatial = (2, 3, 4)[-{"1": 1, "2": 2, "3": 3}[name[-2]] :]
        given = [x.to(dtype) for x in self.tensors(((2, 4, *spatial), (4, 4, *(2 for _ in spatial)), (4,)))]
        wide = [x.double().requires_grad_() for x in given]
        functional.silu(THEIRS[name](*wide)).square().sum().backward()
        step = lambda *a: getattr(pt, name)(*a, activation="silu")  # noqa: E731
        torch.compiler.reset()
        calls = [step, step, torch.compile(step, backend="aot_eager", fullgraph=True)]
        for operator in (conv.CONV_ACTIVATION, conv.CONV_INPUT_GRAD_ACTIVATION, activations.ACTIVATION):
            monkeypatch.setattr(operator, "kernel", None)
        monkeypatch.setattr(activations, "value", None)
        formats = {2: [torch.channels_last], 3: [torch.channels_last_3d]}.get(len(spatial), [])
        bound = {"rtol": 4e-2, "atol": 1e-1} if dtype is not torch.float32 else {"rtol": 1e-4, "atol": 1e-4}
        for form in (torch.contiguous_format, *formats):
            first = given[0].contiguous(memory_format=form)
            for call in calls:
                leaves = [x.clone().requires_grad_() for x in (first, *given[1:])]
                y = call(*leaves)
                assert y.is_contiguous(memory_format=form)
                torch.testing.assert_close(y.double(), functional.silu(THEIRS[name](*wide)), **bound)
                y.square().sum().backward()
                for x, z in zip(leaves, wide, strict=True):
                    torch.testing.assert_close(x.grad.double(), z.grad, **bound)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_gated_convolutions_keep_the_memory_format(self, dtype, monkeypatch):
        """Kernels, and PyTorch where gradients are recorded and for float64, keep the format; so do compiled calls."""
        images, filters = (x.to(dtype) for x in self.tensors(((2, 3, 4, 5), (4, 3, 3, 3))))
        step = lambda x, w: pt.conv2d(x, w, padding=1, activation="geglu")  # noqa: E731
        sums = functional.conv2d(images.double(), filters.double(), padding=1)
        wanted = functional.gelu(sums[:, ::2], approximate="tanh") * sums[:, 1::2]
        torch.compiler.reset()
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
        if dtype is not torch.float64:
            monkeypatch.setattr(conv, "_conv", None)  # the kernel computes the activation
        for form in (torch.contiguous_format, torch.channels_last):
            x = images.contiguous(memory_format=form)
            results = [step(x, filters), compiled(x, filters)]
            if dtype is torch.float64:
                results += [step(x, filters.clone().requires_grad_()), compiled(x, filters.clone().requires_grad_())]
            for y in results:
                assert y.is_contiguous(memory_format=form)
                torch.testing.assert_close(y.double(), wanted, rtol=1e-2, atol=1e-2)

    @pytest.mark.parametrize("activation", ["swiglu", "sigmoid"])
    def test_groups_with_an_activation(self, activation, monkeypatch):
        given = [x / 2 for x in self.tensors(((3, 4), (2, 6), (4, 6), (6, 2)))]
        step = lambda *t: pt.gemm_grouped(t[:2], t[2:], activation=activation)  # noqa: E731
        theirs = lambda a, b, c, d: [ACTIVATIONS[activation](y) for y in (a @ c, b @ d)]  # noqa: E731
        computed, wanted = (
            self.derivatives(lambda *t, f=f: torch.cat([y.flatten() for y in f(*t)]), given) for f in (step, theirs)
        )
        for x, y in zip(computed, wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)
        monkeypatch.setattr(activations, "value", None)
        for x, y in zip(step(*(x.half() for x in given)), theirs(*given), strict=True):
            torch.testing.assert_close(x.double(), y, rtol=4e-3, atol=4e-3)
        with pytest.raises(ShapeError, match=r"b\[0\] has 5 columns; a gated activation takes an even number"):
            pt.gemm_grouped([given[0]], [given[2][:, :5]], activation="swiglu")

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("activation", ["swiglu", "sigmoid"])
    def test_compiled_groups_take_one_kernel_for_products_and_activation(self, activation, dtype, monkeypatch):
        given = [(x / 2).to(dtype) for x in self.tensors(((3, 4), (2, 6), (4, 6), (6, 2)))]
        wide = [x.double().requires_grad_() for x in given]
        theirs = [ACTIVATIONS[activation](a @ b) for a, b in zip(wide[:2], wide[2:], strict=True)]
        sum(x.square().sum() for x in theirs).backward()
        step = lambda *t: pt.gemm_grouped(t[:2], t[2:], activation=activation)  # noqa: E731
        torch.compiler.reset()
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
        calls, multiply = [], grouped.grouped.gemm_grouped

        def counted(*args, **options):
            calls.append(options["activation"])
            return multiply(*args, **options)

        monkeypatch.setattr(grouped.grouped, "gemm_grouped", counted)
        monkeypatch.setattr(activations, "value", None)
        bound = {"rtol": 2e-2, "atol": 2e-2} if dtype is not torch.float32 else {"rtol": 1e-5, "atol": 1e-5}
        with torch.no_grad():
            results = compiled(*given)
        assert calls == [activation]
        leaves = [x.clone().requires_grad_() for x in given]
        recorded = compiled(*leaves)
        assert calls == [activation] * 2
        sum(x.square().sum() for x in recorded).backward()
        assert calls == [activation] * 2 + [None] * 2  # the sums are not computed again
        for x, y, z in zip(results, recorded, theirs, strict=True):
            torch.testing.assert_close(x.double(), z, **bound)
            assert torch.equal(x, y)
        for x, y in zip(leaves, wide, strict=True):
            torch.testing.assert_close(x.grad.double(), y.grad, **bound)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
    def test_gated_activations_take_pairs_of_filters_of_convolutions(self, dtype):
        """Operators, which graphs call, have the same rules as functions."""
        images, filters = (x.to(dtype) for x in self.tensors(((1, 6, 4, 4), (6, 3, 3, 3))))
        geometry, ops = ([1, 1], [0] * 4, [1, 1], 2, "swiglu"), torch.ops.ptxgen
        for call in (
            lambda: pt.conv2d(images, filters, groups=2, activation="swiglu"),
            lambda: ops.conv_activation(images, filters, None, *geometry),
        ):
            with pytest.raises(ShapeError, match="weight has 6 filters and groups is 2; a gated activation takes an"):
                call()
        for call in (
            lambda: pt.conv_transpose2d(images, filters, groups=2, activation="swiglu"),
            lambda: ops.conv_input_grad_activation(images, filters, None, [1, 6, 6, 6], *geometry),
        ):
            with pytest.raises(InputError, match="activation is 'swiglu', a gated activation, which takes two sums"):
                call()

    @pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
    def test_activations_of_convolutions_without_channels(self, name):
        """The result is the activation of the bias."""
        bias = self.integers(2, dtype=torch.float32)
        shape = (0, 2, 1, 1) if "transpose" in name else (2, 0, 1, 1)
        y = getattr(pt, name)(bias.new_empty(1, 0, 1, 1), bias.new_empty(shape), bias, activation="sigmoid")
        assert torch.equal(y.flatten(), torch.sigmoid(bias))
        if name == "conv2d":
            y = pt.conv2d(bias.new_empty(1, 0, 1, 1), bias.new_empty(shape), bias, activation="x*up")
            assert torch.equal(y.flatten(), bias[:1] * bias[1:])

    @pytest.mark.parametrize(
        ("activation", "error", "words"),
        [
            (
                "relu_grad",
                InputError,
                "activation is 'relu_grad', which reads aux; it must be an activation of x, or of x and up",
            ),
            (
                "step",
                InputError,
                r"activation is 'step'; it must be one of relu, gelu, silu, sigmoid, gelu_erf, swiglu, geglu, tanh, clamp",
            ),
            ("swiglu", ShapeError, "the product has 5 columns; a gated activation takes an even number"),
        ],
    )
    def test_bad_activations(self, activation, error, words):
        with pytest.raises(error, match=words):
            pt.linear(self.integers(3, 4), self.integers(5, 4), activation=activation)

    @pytest.mark.parametrize(("name", "shapes", "dims", "options"), BATCHES)
    def test_vmap(self, name, shapes, dims, options):
        given = self.tensors(shapes)
        result, wanted = (
            torch.vmap(lambda *a, f=f: f(*a, **options), dims)(*given) for f in (getattr(pt, name), THEIRS[name])
        )
        assert torch.equal(result, wanted)

    @pytest.mark.parametrize(
        ("name", "weight", "images"),
        [
            ("linear", (2, 4), (5, 3, 4)),
            ("conv2d", (2, 4, 3, 3), (3, 2, 4, 4, 4)),
            ("conv_transpose2d", (2, 3, 2, 2), (3, 1, 2, 3, 3)),
        ],
    )
    def test_gradients_of_each_sample(self, name, weight, images):
        w, x = self.tensors((weight, images))
        result, wanted = (
            torch.vmap(torch.func.grad(lambda w, x, f=f: f(x, w).square().sum()), (None, 0))(w, x)
            for f in (getattr(pt, name), THEIRS[name])
        )
        assert torch.equal(result, wanted)

    @pytest.mark.parametrize("name", ["linear", "conv1d", "gemm_grouped", "gemm_jagged"])
    def test_transforms_of_torch_func(self, name):
        x, w = self.tensors(((1, 2, 3), (4, 2, 3)))
        offsets = torch.tensor([2], dtype=torch.int32, device=self.device)
        ours, theirs = {
            "linear": (lambda x: pt.linear(x, w[0]), lambda x: functional.linear(x, w[0])),
            "conv1d": (lambda x: pt.conv1d(x, w), lambda x: functional.conv1d(x, w)),
            "gemm_grouped": (lambda x: pt.gemm_grouped([x[0]], [w[0].mT])[0], lambda x: x[0] @ w[0].mT),
            "gemm_jagged": (lambda x: pt.gemm_jagged(x[0], w[:1].mT, offsets), lambda x: x[0] @ w[0].mT),
        }[name]

        derivatives, wanted = (torch.func.grad(lambda x, f=f: f(x).square().sum())(x) for f in (ours, theirs))
        assert torch.equal(derivatives, wanted)
        (y, derivatives), (_, wanted) = torch.func.vjp(ours, x), torch.func.vjp(theirs, x)
        for grad in (y, y.clone().requires_grad_()):  # after the transform, with and without a recorded gradient
            assert torch.equal(derivatives(grad)[0], wanted(grad)[0])
        with torch.no_grad():
            assert torch.equal(derivatives(y)[0], wanted(y)[0])

    def test_functionalize(self):
        x, w = self.tensors(((2, 3), (3, 4)))

        def step(x):
            y = x.clone()
            y.mul_(2)
            return pt.matmul(y, w).square().sum()

        assert torch.equal(torch.func.functionalize(step)(x), step(x))
        assert torch.equal(torch.func.functionalize(torch.vmap(lambda x: pt.matmul(x, w)))(x), x @ w)

    @pytest.mark.parametrize("name", ["linear", "conv2d"])
    def test_batched_gradients(self, name):
        x, w = self.tensors({"linear": ((2, 3), (4, 3)), "conv2d": ((1, 2, 3, 3), (2, 2, 2, 2))}[name])
        last = {"memory_format": torch.channels_last}
        given = [t.to(**last).requires_grad_() if t.dim() == 4 else t.requires_grad_() for t in (x, w)]
        derivatives, wanted = (
            torch.autograd.grad(
                y, given, torch.eye(y.numel()).to(y).reshape(-1, *y.shape), is_grads_batched=True, retain_graph=True
            )
            for y in (getattr(pt, name)(*given), THEIRS[name](*given))
        )
        assert all(map(torch.equal, derivatives, wanted))

    def test_vmap_of_an_empty_batch(self):
        x, w = self.tensors(((0, 2, 2, 4, 4), (3, 2, 3, 3)))
        assert torch.vmap(lambda x: pt.conv2d(x, w))(x).shape == (0, 2, 3, 2, 2)
        assert torch.vmap(lambda x: pt.linear(x, w[0, 0]))(x[..., :3]).shape == (0, 2, 2, 4, 3)

    def test_tensors_that_outlive_a_transform(self):
        x, w = self.tensors(((2, 3), (3, 4)))
        leaf, kept = w.requires_grad_(), []
        torch.func.grad(lambda y: (kept.append(y), y.sum())[1])(leaf)
        assert torch.equal(torch.autograd.grad(pt.matmul(x, kept[0]).sum(), leaf)[0], x.sum(0)[:, None].expand(3, 4))
        with torch.no_grad():
            assert torch.equal(pt.matmul(kept[0].mT, x.mT), leaf.mT @ x.mT)
            assert torch.equal(pt.linear(x, kept[0].mT), x @ leaf)

    def test_a_stride_that_is_no_integer_is_not_cached(self):
        x, w = self.tensors(((1, 2, 7), (3, 2, 1)))
        with pytest.raises(ShapeError, match="stride is 3"):
            pt.conv1d(x, w, stride=3.0)
        assert torch.equal(pt.conv1d(x, w, stride=3), functional.conv1d(x, w, stride=3))
        stride = torch.tensor(3)
        for _ in range(3):
            assert torch.equal(pt.conv1d(x, w, stride=stride), functional.conv1d(x, w, stride=int(stride)))
            stride -= 1

    def test_tensors_of_the_meta_device(self):
        model = pt.replace_modules(nn.Sequential(nn.Conv1d(3, 4, 2), nn.Linear(5, 7))).to("meta")
        y = model(torch.empty(2, 3, 6, device="meta"))
        assert y.is_meta
        assert y.shape == (2, 4, 7)
        with pytest.raises(DeviceError, match=f"input is on {self.device}.* and other on meta"):
            pt.matmul(*self.tensors(((4, 4),)), y.double())

    def test_empty_results_and_lists(self):
        x, w, b = self.tensors(((3, 4), (0, 4), (0,)))
        for y in self.derivatives(pt.linear, (x, w, b)):
            assert not y.any()
        assert pt.gemm_grouped([], []) == []

    def test_negative_views_of_jagged_products(self):
        x, w = self.tensors(((3, 2), (1, 2, 4)))
        offsets = torch.tensor([3], dtype=torch.int32, device=self.device)
        negative = torch.complex(x, -x).conj().imag  # equal to x, by the negative bit
        assert torch.equal(pt.gemm_jagged(negative, w, offsets), x @ w[0])

    def test_backward_of_grouped_products_computes_the_needed_gradients(self, monkeypatch):
        calls = []
        monkeypatch.setattr(
            grouped, "gemm_grouped", lambda a, b: calls.append(a) or [x @ y for x, y in zip(a, b, strict=True)]
        )
        x, w = self.tensors(((2, 3), (3, 2)))
        y = torch.ops.ptxgen.gemm_grouped([x.requires_grad_(), w], [w, x.detach()])
        assert torch.equal(torch.autograd.grad(y[0].sum(), x)[0], y[0].new_ones(2, 2) @ w.mT)
        assert len(calls) == 1

    def test_grouped_and_jagged_products(self):
        offsets = torch.tensor([1, 1, 4], dtype=torch.int32, device=self.device)
        bounds = list(zip([0, 1, 1], [1, 1, 4], strict=True))

        def products_of_rows(x, w):
            rows = [x[i:j] @ w[e] for e, (i, j) in enumerate(bounds)]
            return torch.cat([*rows, x.new_zeros(1, w.shape[2])])  # the fifth row belongs to no expert

        given = self.tensors(((5, 2), (3, 2, 3)))
        derivatives = self.derivatives(lambda x, w: pt.gemm_jagged(x, w, offsets), given)
        for x, y in zip(derivatives, self.derivatives(products_of_rows, given), strict=True):
            assert torch.equal(x, y)
        given = self.tensors(((2, 3), (4, 1), (3, 2), (1, 3)))
        derivatives = self.derivatives(
            lambda a, b, c, d: torch.cat([y.flatten() for y in pt.gemm_grouped([a, b], [c, d])]), given
        )
        wanted = self.derivatives(lambda a, b, c, d: torch.cat([(a @ c).flatten(), (b @ d).flatten()]), given)
        for x, y in zip(derivatives, wanted, strict=True):
            assert torch.equal(x, y)

    def test_vmap_of_grouped_and_jagged_products(self):
        offsets = torch.tensor([1, 4], dtype=torch.int32, device=self.device)
        x, w = self.tensors(((3, 4, 2), (2, 2, 3)))
        result = torch.vmap(lambda x: pt.gemm_jagged(x, w, offsets))(x)
        assert torch.equal(result, torch.stack([pt.gemm_jagged(item, w, offsets) for item in x]))
        pairs = torch.vmap(lambda x: tuple(pt.gemm_grouped([x, w[1]], [w[0], w[1].mT])))(x)
        assert torch.equal(pairs[0], x @ w[0])

    # ---- torch.library

    @pytest.mark.parametrize(
        ("name", "shapes", "rest"),
        [
            ("linear", ((2, 3), (4, 3), (4,)), ()),
            ("matmul", ((2, 2, 3), (3, 4)), ()),
            ("linear_weight_grad", ((2, 3), (2, 4)), ()),
            ("conv", ((1, 2, 4, 3), (2, 1, 3, 3), (2,)), ([2, 1], [1, 1, 0, 1], [1, 1], 2)),
            ("conv_input_grad", ((1, 2, 4, 4), (2, 2, 3, 3), (2,)), ([1, 2, 4, 4], [1, 1], [1, 1, 1, 1], [1, 1], 1)),
            ("conv_weight_grad", ((1, 2, 4, 4), (1, 2, 4, 4)), ([2, 2, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1], 1)),
            ("conv_activation", ((1, 2, 4, 3), (2, 1, 3, 3), (2,)), ([2, 1], [1, 1, 0, 1], [1, 1], 2, "silu")),
            (
                "conv_input_grad_activation",
                ((1, 2, 4, 4), (2, 2, 3, 3), (2,)),
                ([1, 2, 4, 4], [1, 1], [1, 1, 1, 1], [1, 1], 1, "relu"),
            ),
            ("conv_activation", ((1, 2, 4, 3), (4, 2, 3, 3), (4,)), ([2, 1], [1, 1, 0, 1], [1, 1], 1, "swiglu")),
            ("conv_activation_sums", ((1, 2, 4, 3), (2, 1, 3, 3), (2,)), ([2, 1], [1, 1, 0, 1], [1, 1], 2, "relu")),
            ("conv_activation_sums", ((1, 2, 4, 3), (4, 2, 3, 3), (4,)), ([2, 1], [1, 1, 0, 1], [1, 1], 1, "swiglu")),
            (
                "conv_input_grad_activation_sums",
                ((1, 2, 4, 4), (2, 2, 3, 3), (2,)),
                ([1, 2, 4, 4], [1, 1], [1, 1, 1, 1], [1, 1], 1, "silu"),
            ),
            ("activation", ((3, 4),), ("x*up", -1)),
            ("activation", ((1, 4, 2, 3),), ("geglu", 1)),
            ("gemm_jagged", ((4, 2), (2, 2, 3)), ("offsets",)),
            ("linear_activation", ((3, 2), (4, 2), (4,)), ("swiglu", True)),
            ("gemm_jagged_activation", ((4, 2), (2, 2, 4)), ("offsets", None, "sigmoid", True)),
            ("gemm_jagged_weight_grad", ((4, 2), (4, 3)), ("offsets",)),
            ("gemm_grouped", (((4, 2), (1, 3)), ((2, 3), (3, 2))), ()),
            ("gemm_grouped_activation", (((4, 2), (1, 3)), ((2, 4), (3, 2))), ("swiglu", True)),
            ("gemm_grouped_activation", (((4, 2), (1, 3)), ((2, 3), (3, 2))), ("sigmoid", False)),
        ],
    )
    def test_opcheck(self, name, shapes, rest):
        def leaf(shape):
            return [leaf(s) for s in shape] if isinstance(shape[0], tuple) else self.integers(*shape).requires_grad_()

        offsets = torch.tensor([1, 4], dtype=torch.int32, device=self.device)
        arguments = [*(leaf(s) for s in shapes), *(offsets if x == "offsets" else x for x in rest)]
        if name.startswith("conv"):
            arguments[0] = arguments[0].detach().to(memory_format=torch.channels_last).requires_grad_()
        tests = ("test_schema", "test_autograd_registration", "test_faketensor")
        if name in ("linear", "gemm_jagged"):  # most of the time of the first of them is that of importing a compiler
            tests += ("test_aot_dispatch_dynamic",)
        done = torch.library.opcheck(getattr(torch.ops.ptxgen, name).default, tuple(arguments), test_utils=tests)
        assert set(done.values()) == {"SUCCESS"}

    def test_eager_calls_do_not_use_the_dispatcher(self, monkeypatch):
        x, w, b = self.tensors(((3, 4), (2, 4), (2,)))
        images, filters = self.tensors(((1, 2, 4, 4), (3, 2, 3, 3)))
        for operator in (
            products.LINEAR,
            products.MATMUL,
            products.LINEAR_WEIGHT_GRAD,
            conv.CONV,
            conv.CONV_INPUT_GRAD,
            conv.CONV_WEIGHT_GRAD,
        ):
            monkeypatch.setattr(operator, "overload", None)
        pt.linear(x, w, b)
        leaves = [t.requires_grad_() for t in (x, w, b, images, filters)]
        (pt.linear(x, w, b).sum() + pt.conv2d(images, filters).sum() + pt.matmul(x, w.T).sum()).backward()
        assert all(t.grad is not None for t in leaves)

    # ---- models

    def gradients(self, model, x):
        model.zero_grad()
        y = model(x)
        y.square().sum().backward()
        return [y, *(p.grad.clone() for p in model.parameters())]

    def test_replaced_modules_are_the_same_objects(self):
        stock, model, x = self.model()
        calls = []
        linear = stock.out
        linear.register_forward_hook(lambda *_: calls.append(1))
        assert pt.replace_modules(stock) is stock
        assert stock.out is linear
        assert {type(m) for m in stock.children()} == {pt.Conv2d, pt.ConvTranspose2d, pt.Linear}
        assert list(stock.state_dict()) == list(model.state_dict())
        stock(x)
        assert calls
        kept = pt.replace_modules(nn.Sequential(nn.Linear(2, 2, dtype=torch.complex64), nn.LazyLinear(2)))
        assert [type(m) for m in kept] == [nn.Linear, nn.LazyLinear]

    def test_the_states_of_modules_name_the_library_and_the_reason(self, caplog):
        class Own(nn.Linear):
            pass

        model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), Own(2, 2), nn.LazyLinear(2), nn.Embedding(3, 2))
        model.append(nn.Linear(2, 2, dtype=torch.complex64))
        assert [s.replaced for s in pt.module_states(model)] == [False] * 5
        with caplog.at_level("INFO", "ptxgen"):
            pt.replace_modules(model)
        states = {s.name: s for s in pt.module_states(model)}
        assert list(states) == ["0", "2", "3", "4", "5"]  # not the norm, which multiplies no matrices
        assert states["0"] == pt.ModuleState("0", "Linear", True, "")
        reasons = ("a subclass of torch.nn.Linear", "no shape before the first call", "no such module", "complex64")
        assert all(reason in states[name].reason for name, reason in zip("2345", reasons, strict=True))
        [record] = caplog.records
        assert record.levelname == "INFO"
        assert "1 of 5 modules with weights compute with ptxgen" in record.getMessage()
        assert all(str(states[name]) in record.getMessage() for name in "2345")
        caplog.clear()
        pt.replace_modules(nn.Sequential(Own(2, 2)))
        assert [r.levelname for r in caplog.records] == ["WARNING"]

    def test_replacement_of_some_modules_and_the_way_back(self):
        def replaced():
            return [s.name for s in pt.module_states(model) if s.replaced]

        stock, _, _ = self.model()
        model = nn.ModuleDict({"a": stock, "ab": nn.Linear(2, 2)})
        kinds = [type(m) for m in model.modules()]
        pt.replace_modules(model, only=["ab"])
        assert replaced() == ["ab"]
        pt.replace_modules(model, only=[nn.Conv2d, "a.out"])
        first = replaced()
        assert {"ab", "a.out"} < set(first)
        assert {type(m) for m in stock.modules()} >= {pt.Conv2d, pt.Linear, nn.ConvTranspose2d}
        pt.restore_modules(model, only=["a"])
        assert replaced() == ["ab"]
        pt.restore_modules(pt.replace_modules(model))
        assert [type(m) for m in model.modules()] == kinds
        for only, words in (
            (["b"], "only has 'b'; it must be the name of a module of model"),
            ([3], "only has 3; it must be a name or a class of modules"),
            ("ab", "only is 'ab'; it must be a list"),
        ):
            with pytest.raises(InputError, match=words):
                pt.replace_modules(model, only=only)
        assert replaced() == []

    def test_model_in_eager_mode_compiled_and_exported(self):
        stock, model, x = self.model()
        wanted = self.gradients(stock, x)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for result in (self.gradients(model, x), self.gradients(compiled, x)):
            for a, b in zip(result, wanted, strict=True):
                assert torch.equal(a, b)
        program = torch.export.export(model, (x,))
        assert {"ptxgen.conv.default", "ptxgen.conv_input_grad.default", "ptxgen.linear.default"} <= {
            str(n.target) for n in program.graph.nodes
        }
        assert torch.equal(program.module()(x), wanted[0])

    def test_compiled_with_dynamic_shapes_and_transforms(self):
        w = self.integers(2, 4)
        compiled = torch.compile(
            lambda x: pt.matmul(pt.linear(x, w), w), backend="aot_eager", fullgraph=True, dynamic=True
        )
        for rows in (3, 5):
            x = self.integers(rows, 4)
            assert torch.equal(compiled(x), x @ w.T @ w)
        x = self.integers(3, 2, 4)
        batched = torch.compile(torch.vmap(lambda x: pt.linear(x, w)), backend="aot_eager", fullgraph=True)
        assert torch.equal(batched(x), x @ w.T)

    @pytest.mark.parametrize("grad", [True, False])
    def test_torch_jit_trace_passes_its_check(self, grad):
        """The check traces again without gradients, and compares the graphs with their source lines."""
        w, x = self.integers(3, 4), self.integers(2, 4)
        layer = pt.replace_modules(nn.Linear(4, 3, dtype=x.dtype, device=x.device))
        functions = lambda x: pt.linear(x, w), lambda x: pt.matmul(pt.matmul(x, w.T), w), layer
        with torch.set_grad_enabled(grad):
            for f in functions:
                traced = torch.jit.trace(f, x)
                assert "ptxgen::" in str(traced.inlined_graph)
                assert torch.equal(traced(x + 1), f(x + 1))

    def test_compiled_code_calls_the_kernel_without_the_dispatcher(self):
        """Unless gradients are recorded, or a mode or a meta tensor needs the dispatcher."""

        def dispatched(call, *args):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                result = call(*args)
            return sum(e.count for e in profile.key_averages() if e.key == "ptxgen::linear"), result

        x, w = self.integers(3, 4), self.integers(2, 4)
        compiled = torch.compile(pt.linear, backend="aot_eager", fullgraph=True)
        compiled(x, w)
        count, result = dispatched(compiled, x, w)
        assert count == 0
        assert torch.equal(result, x @ w.T)
        operator = torch.ops.ptxgen.linear.default
        with torch.no_grad():
            negative = torch.complex(x, x).conj().imag
            assert torch.equal(operator(negative, w, None), -x @ w.T)
            assert dispatched(operator, x, w, None)[0] == 0
            assert dispatched(operator, x.to("meta"), w.to("meta"), None)[0] == 1
            with pytest.raises(ShapeError, match="4 columns and weight 5"):
                operator(x, self.integers(2, 5), None)
        assert dispatched(operator, x, w.requires_grad_(), None)[0] >= 1
        assert operator(x, w, None).requires_grad

    @pytest.mark.parametrize("compiles", [False, True])
    def test_autocast(self, compiles):
        stock, model, x = self.model(torch.float32)

        def step(model):
            model.zero_grad()
            with torch.autocast(self.device, dtype=torch.bfloat16):
                y = model(x)
            y.float().sum().backward()
            return [y, *(p.grad for p in model.parameters())]

        result = step(torch.compile(model, backend="aot_eager", fullgraph=True) if compiles else model)
        for a, b in zip(result, step(stock), strict=True):
            torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)  # dtypes too
        with torch.autocast(self.device, dtype=torch.bfloat16):
            assert pt.matmul(x.double(), x.double()).dtype is torch.float64

    def test_channels_last_is_kept(self):
        last = {"memory_format": torch.channels_last}
        x, w = (
            self.integers(2, 3, 5, 4).to(**last).requires_grad_(),
            self.integers(4, 3, 3, 3).to(**last).requires_grad_(),
        )
        y = pt.conv2d(x, w, padding=1)
        up = pt.conv_transpose2d(y, w, stride=2)
        up.backward(self.integers(*up.shape))  # contiguous
        for t in (y, up, x.grad, w.grad):
            assert t.is_contiguous(**last)
            assert not t.is_contiguous()
        assert pt.conv2d(x.detach().contiguous(), w.detach()).is_contiguous(**last)
        plain = [t.detach().contiguous().requires_grad_() for t in (x, w)]
        again = functional.conv_transpose2d(functional.conv2d(*plain, padding=1), plain[1], stride=2)
        again.backward(self.integers(*up.shape))
        for a, b in ((up, again), (x.grad, plain[0].grad), (w.grad, plain[1].grad)):
            assert torch.equal(a, b)

    def test_channels_last_of_one_channel_or_pixel_is_kept(self):
        shapes = (  # images, filters, groups
            ((2, 1, 5, 5), (4, 1, 3, 3), 1),
            ((2, 4, 5, 5), (1, 4, 3, 3), 1),
            ((2, 4, 5, 5), (4, 1, 3, 3), 4),
            ((2, 4, 1, 1), (3, 4, 1, 1), 1),
            ((2, 3, 5, 5), (4, 3, 5, 5), 1),
            ((2, 1, 3, 4, 5), (2, 1, 3, 3, 3), 1),
            ((2, 1, 1, 1), (1, 1, 1, 1), 1),  # formats with the same strides: contiguous
        )
        for images, filters, groups in shapes:
            last = torch.channels_last if len(images) == 4 else torch.channels_last_3d
            conv = pt.conv2d if len(images) == 4 else pt.conv3d
            for formats in ((last, last), (last, None), (None, last), (None, None)):
                operands = [
                    self.integers(*shape).to(memory_format=given or torch.contiguous_format).requires_grad_()
                    for shape, given in zip((images, filters), formats, strict=True)
                ]
                y = conv(*operands, groups=groups)
                grads = torch.autograd.grad(y, operands, torch.ones_like(y, memory_format=torch.contiguous_format))
                wanted = last if any(formats) else torch.contiguous_format
                for t in (y, *grads):
                    assert t.stride() == torch.empty(t.shape, memory_format=wanted).stride(), (images, filters, formats)

    # ---- arguments

    def test_views_and_empty_extents(self):
        x, w = self.integers(6, 8), self.integers(4, 6)
        for view in (x.T, x[:, 1:7], x[::2, :6].unsqueeze(0), torch._neg_view(x)[:, :6], w[:1].expand(3, 6)):
            k = view.shape[-1]
            assert torch.equal(pt.linear(view, w[:, :k]), functional.linear(view, w[:, :k]))
        for a, b in (((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 0, 4), (4, 5))):
            p, q = self.integers(*a).requires_grad_(), self.integers(*b).requires_grad_()
            y = pt.matmul(p, q)
            y.sum().backward()
            assert torch.equal(y, p @ q)
            assert torch.equal(q.grad, p.detach().flatten(0, -2).sum(0, keepdim=True).T.expand(b))
        images, filters = self.integers(0, 2, 4, 4), self.integers(3, 2, 3, 3).requires_grad_()
        pt.conv2d(images, filters, self.integers(3)).sum().backward()
        assert not filters.grad.any()
        out = torch.empty(6, 4, dtype=x.dtype, device=self.device)
        assert pt.matmul(x[:, :6], w.T, out=out) is out
        assert torch.equal(out, x[:, :6] @ w.T)
        assert torch.equal(pt.matmul(x[:, :6], w.T, out=x.new_empty(0)), out)
        elsewhere = x.new_empty(0, device="meta")
        with pytest.raises(DeviceError, match="out is on meta"):
            pt.matmul(x[:, :6], w.T, out=elsewhere)
        assert elsewhere.shape == (0,)  # a refused tensor is not resized

    @pytest.mark.parametrize(
        ("error", "message", "call"),
        [
            (DtypeError, "complex tensors are not supported", lambda x: pt.matmul(x.cfloat(), x.cfloat())),
            (DtypeError, "complex tensors are not supported", lambda x: pt.conv1d(x[None].cfloat(), x[None].cfloat())),
            (DtypeError, "input is torch.int32; it must be float16", lambda x: pt.linear(x.int(), x.int())),
            (DtypeError, "input is torch.float64 and weight is torch.float16", lambda x: pt.linear(x, x.half())),
            (ShapeError, "input has 4 columns and weight 3", lambda x: pt.linear(x, x[:, 1:])),
            (ShapeError, "bias has shape", lambda x: pt.linear(x, x, x[0, 1:])),
            (ShapeError, "cannot be broadcast", lambda x: pt.matmul(x.expand(2, 4, 4), x.expand(3, 4, 4))),
            (ShapeError, "weight needs 5", lambda x: pt.conv1d(x[None], x.new_ones(1, 4, 5))),
            (ShapeError, "stride is", lambda x: pt.conv1d(x[None], x.new_ones(1, 4, 1), stride=0)),
            (
                ShapeError,
                "requires a stride of 1",
                lambda x: pt.conv1d(x, x.new_ones(1, 4, 1), stride=2, padding="same"),
            ),
            (ShapeError, "output_padding is", lambda x: pt.conv_transpose1d(x, x[..., None], output_padding=1)),
            (ShapeError, "groups is 0", lambda x: pt.conv_transpose1d(x[None], x[..., None], groups=0)),
            (ShapeError, "groups is None; it must be an integer", lambda x: pt.conv1d(x, x[..., None], groups=None)),
            (ShapeError, "padding is -1; it must be", lambda x: pt.conv1d(x, x[..., None], padding=-1)),
            (ShapeError, "must have at least one element", lambda x: pt.conv1d(x, x.new_ones(1, 4, 0))),
            (ShapeError, "input has 3 channels", lambda x: pt.conv_transpose1d(x[None, :3], x[..., None])),
            (ShapeError, "without pixels", lambda x: pt.conv_transpose1d(x[None], x[..., None], padding=2)),
            (ShapeError, "input has 2 axes and weight 2", lambda x: pt.conv2d(x, x)),
            (ShapeError, "they must be T×K, E×K×N and E", lambda x: pt.gemm_jagged(x, x, x)),
            (InputError, "input is a torch.sparse_coo tensor", lambda x: pt.matmul(x.to_sparse(), x)),
            (InputError, "weight is a torch.sparse_coo tensor", lambda x: pt.linear(x, x.to_sparse())),
            (InputError, "weight is of type list; it must be a torch.Tensor", lambda x: pt.linear(x, [1.0])),
            (InputError, "other is of type NoneType", lambda x: pt.matmul(x, None)),
            (InputError, "input is of type ndarray", lambda x: pt.conv1d(x.cpu().numpy(), x[..., None])),
            (InputError, "input is a nested tensor", lambda x: pt.linear(jagged(x), x)),
            (InputError, "input is a nested tensor", lambda x: pt.conv1d(jagged(x), x[..., None])),
            (InputError, r"b\[1\] is a nested tensor", lambda x: pt.gemm_grouped([x, x], [x, jagged(x)])),
            (InputError, "torch.jit.trace cannot", lambda x: torch.jit.trace(pt.conv1d, (x[None], x[..., None]))),
            (InputError, "out is of type list", lambda x: pt.matmul(x, x, out=[1.0])),
            (DeviceError, "out is on meta; it must be on", lambda x: pt.matmul(x, x, out=x.to("meta"))),
            (DeviceError, "weight on meta; they must be on one", lambda x: pt.linear(x, x.to("meta"))),
            (DeviceError, "bias on meta; they must be on one", lambda x: pt.conv1d(x, x[..., None], x[0].to("meta"))),
            (InputError, "model is of type list; it must be a", lambda x: pt.replace_modules([nn.Linear(2, 2)])),
            (InputError, "a has 1 items and b has 2", lambda x: pt.gemm_grouped([x], [x, x])),
            (InputError, "a gradient is recorded", lambda x: pt.matmul(x.requires_grad_(), x, out=x.detach() + 1)),
        ],
    )
    def test_refused_arguments(self, error, message, call):
        with pytest.raises(error, match=message):
            call(self.integers(4, 4))

    def test_forward_mode_is_refused(self):
        from torch.autograd import forward_ad

        x = self.integers(4, 4)
        with forward_ad.dual_level():
            assert torch.equal(pt.matmul(x, x), x @ x)
            with pytest.raises(InputError, match="has a tangent"):
                pt.matmul(forward_ad.make_dual(x, x), x)
            with pytest.raises(InputError, match="has a tangent"):
                pt.gemm_grouped([forward_ad.make_dual(x, x)], [x])
        with pytest.raises(InputError, match="has a tangent"):
            torch.func.jvp(lambda y: pt.matmul(y, x), (x,), (x,))
