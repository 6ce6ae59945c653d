"""Checks of ``ptxgen.torch.enabled`` against PyTorch, for tensors of any device. Values are small integers in float64, so
that results must be equal."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import ptxgen.torch as pt  # noqa: E402
from ptxgen.torch import override  # noqa: E402
from tests.torch_checks import Tensors  # noqa: E402

#: (function of a call of PyTorch, shapes of its tensors, name that counts it)
CASES = {
    "mm": (lambda a, b: torch.mm(a, b), ((6, 4), (4, 5)), "mm"),
    "mm of a tensor": (lambda a, b: a.mm(mat2=b), ((6, 4), (4, 5)), "mm"),
    "operator": (lambda a, b: a @ b, ((2, 6, 4), (4,)), "matmul"),
    "linalg": (lambda a, b: torch.linalg.matmul(a, b), ((6, 4), (4, 5)), "matmul"),
    "bmm": (lambda a, b: torch.bmm(a, b), ((3, 6, 4), (3, 4, 5)), "bmm"),
    "addmm with a bias": (lambda a, b, c: torch.addmm(c, a, b), ((6, 4), (4, 5), (5,)), "addmm"),
    "addmm": (lambda a, b, c: c.addmm(a, b, beta=3, alpha=2), ((6, 4), (4, 5), (6, 1)), "addmm"),
    "addmm of nothing": (lambda a, b, c: torch.addmm(c, a, b, beta=0), ((6, 4), (4, 5), (5,)), "addmm"),
    "baddbmm": (lambda a, b, c: torch.baddbmm(c, a, b, alpha=2), ((3, 6, 4), (3, 4, 5), (3, 6, 5)), "baddbmm"),
    "baddbmm of rows": (lambda a, b, c: torch.baddbmm(c, a, b), ((3, 6, 4), (3, 4, 5), (5,)), "baddbmm"),
    "linear": (lambda a, b, c: functional.linear(a, b, bias=c), ((2, 3, 4), (5, 4), (5,)), "linear"),
    "conv2d": (
        lambda a, b: functional.conv2d(a, b, stride=2, padding="valid"),
        ((2, 3, 5, 6), (4, 3, 3, 2)),
        "conv2d",
    ),
    "conv1d": (lambda a, b, c: torch.conv1d(a, b, c, 1, 1), ((2, 3, 9), (4, 3, 3), (4,)), "conv1d"),
    "transposed": (
        lambda a, b: functional.conv_transpose2d(a, b, stride=2, groups=2),
        ((2, 4, 3, 3), (4, 2, 3, 2)),
        "conv_transpose2d",
    ),
}


class OverrideChecks(Tensors):
    """Tests for the tensors of ``device``."""

    @pytest.mark.parametrize("name", CASES)
    def test_functions_of_pytorch(self, name):
        function, shapes, counted = CASES[name]
        given = self.tensors(shapes)
        wanted = self.derivatives(function, given)
        before = override.CALLS.computed.get(counted, 0)
        with pt.enabled(report=False):
            derivatives = self.derivatives(function, given)
        assert override.CALLS.computed[counted] == before + 1
        for x, y in zip(derivatives, wanted, strict=True):
            assert x.shape == y.shape
            assert torch.equal(x, y)

    def test_calls_with_names(self):
        """Their order is free; those that the function lacks, and missing ones, reach PyTorch."""
        a, b, c = self.tensors(((6, 4), (4, 5), (6, 5)))
        before = override.CALLS.computed.get("mm", 0)
        with pt.enabled(report=False) as calls:
            assert torch.equal(torch.mm(mat2=b, input=a), pt.matmul(a, b))
            assert torch.equal(a.mm(mat2=b), pt.matmul(a, b))
            assert torch.equal(torch.mm(a, b, out=None), pt.matmul(a, b))
            assert calls.computed["mm"] == before + 3
            assert torch.equal(torch.addmm(c, a, mat2=b, alpha=2), c + 2 * pt.matmul(a, b))
            for call in (
                lambda: torch.mm(mat2=b),
                lambda: torch.mm(a),
                lambda: torch.mm(a, b, c),
                lambda: torch.mm(None, b),
            ):
                with pytest.raises(TypeError):
                    call()
            assert calls.refused["mm"]["more than 2 arguments"] > 0

    def test_later_calls_read_other_operands(self):
        a, b, c = self.tensors(((6, 4), (4, 5), (6, 5)))
        with pt.enabled(report=False):
            for n in range(4):
                x, y = a + n, c * n
                assert torch.equal(torch.addmm(y, x, b), y + pt.matmul(x, b))
                assert torch.equal(torch.addmm(y[0], x, b), y[0] + pt.matmul(x, b))

    def test_sparse_matrices(self):
        a, b = self.tensors(((6, 4), (4, 5)))
        for each in (a.to_sparse_csr(), a.to_sparse()):
            before = dict(override.CALLS.computed)
            with pt.enabled(report=False):
                result = torch.sparse.mm(each, b), each @ b, torch.mm(each, b)
            assert all(torch.equal(x, a @ b) for x in result)
            assert override.CALLS.computed["mm"] == before.get("mm", 0) + 2

    def test_layers_of_attention(self):
        """Their linear layers are computed by ptxgen, in evaluation too, where PyTorch has a function in C++."""
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(self.device, torch.float64).eval()
        x = torch.randn(2, 3, 8, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            wanted = layer(x)
            before = override.CALLS.computed.get("linear", 0)
            with pt.enabled(report=False):
                result = layer(x)
                assert not torch.backends.mha.get_fastpath_enabled()
        assert torch.backends.mha.get_fastpath_enabled()
        assert override.CALLS.computed["linear"] == before + 4
        assert torch.allclose(result, wanted)

    def test_a_model_with_gradients(self):
        stock, _, x = self.model()
        wanted = torch.autograd.grad(stock(x).square().sum(), list(stock.parameters()))
        with pt.enabled(report=False):
            derivatives = torch.autograd.grad(stock(x).square().sum(), list(stock.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(derivatives, wanted, strict=True))

    def test_pytorch_computes_the_rest(self):
        a, b = self.tensors(((6, 4), (4, 5)))
        before = {name: dict(reasons) for name, reasons in override.CALLS.refused.items()}.get("mm", {})
        with pt.enabled(report=False) as calls, torch.no_grad():
            assert torch.equal(torch.mm(a.long(), b.long()) if self.device == "cpu" else (a @ b).long(), (a @ b).long())
            out = torch.mm(a, b, out=a.new_empty(6, 5))
            with pytest.raises(RuntimeError):
                torch.mm(a, a)
        assert torch.equal(out, a @ b)
        reasons = calls.refused["mm"]
        assert reasons["argument out"] == before.get("argument out", 0) + 1
        assert any("the last axis of input, 4, must be the rows" in reason for reason in reasons)
        if self.device == "cpu":
            assert reasons["int64 tensors"] == before.get("int64 tensors", 0) + 1

    def test_scaled_products(self):
        """The result is that of the product of scaled operands; torch._scaled_mm of a CPU takes scales of one element."""
        a = self.integers(16, 32, dtype=torch.float32).to(torch.float8_e4m3fn)
        b = self.integers(16, 32, seed=1, dtype=torch.float32).to(torch.float8_e4m3fn).t()
        rows = 2.0 ** self.integers(16, 1, dtype=torch.float32), 2.0 ** self.integers(1, 16, dtype=torch.float32)
        one = torch.tensor(0.5, device=self.device), torch.tensor(4.0, device=self.device)
        bias = self.integers(16, dtype=torch.bfloat16)
        for scales, c in ((rows, None), (one, bias), (one, None)):
            wanted = a.double() @ b.double() * scales[0].double() * scales[1].double()
            wanted = wanted if c is None else wanted + c.double()
            before = override.CALLS.computed.get("scaled_mm", 0)
            with pt.enabled(report=False):
                for _ in range(3):
                    result = torch._scaled_mm(a, b, *scales, bias=c, out_dtype=torch.bfloat16)
            assert torch.equal(result, wanted.bfloat16())
            assert override.CALLS.computed["scaled_mm"] == before + 3

    def test_scales_of_blocks(self):
        """Scales in both orders; later calls use the launch of the first one."""
        a = self.integers(3, 256, dtype=torch.float32).to(torch.float8_e4m3fn)
        b = self.integers(136, 256, seed=1, dtype=torch.float32).to(torch.float8_e4m3fn).t()
        rows = 2.0 ** self.integers(3, 2, dtype=torch.float32)
        weights = 2.0 ** self.integers(2, 2, seed=2, dtype=torch.float32)
        left = a.double() * rows.double().repeat_interleave(128, 1)
        right = b.double() * weights.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:, :136]
        for scale_a in (rows, rows.t().contiguous().t()):
            with pt.enabled(report=False):
                for _ in range(2):
                    result = torch._scaled_mm(a, b, scale_a, weights, out_dtype=torch.float32)
            assert torch.equal(result, (left @ right).float())

    def test_products_of_groups(self):
        x, w, y = self.integers(7, 16), self.integers(2, 16, 8), self.integers(7, 8)
        ends = torch.tensor([3, 7], dtype=torch.int32, device=self.device)
        with pt.enabled(report=False):
            rows = torch._grouped_mm(x, w, offs=ends)
            sums = functional.grouped_mm(x.t(), y, offs=ends)
        assert torch.equal(rows, torch.cat([x[:3] @ w[0], x[3:] @ w[1]]))
        assert torch.equal(sums, torch.stack([x[:3].t() @ y[:3], x[3:].t() @ y[3:]]))

    def test_functions_are_those_of_pytorch_afterwards(self):
        before = [vars(place).get(name) for place, name, _ in override.OVERRIDES]
        with pt.enabled(report=False), pt.enabled(report=False):
            pass
        assert [vars(place).get(name) for place, name, _ in override.OVERRIDES] == before
