"""``ptxgen.torch`` on a GPU: the checks of tensors on the CPU, CUDA graphs, streams and the settings of PyTorch."""

from __future__ import annotations

import json

import pytest

from tests.scripts import script
from tests.torch_checks import Checks, pt, torch
from tests.torch_mlp_checks import MlpChecks
from tests.torch_override_checks import OverrideChecks, override
from tests.torch_pairwise_checks import PairwiseChecks
from tests.torch_sparse_checks import SparseChecks, dense
from tests.torch_task_checks import TaskChecks

pytestmark = pytest.mark.gpu


class TestTorch(Checks):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _gpu(self):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")

    def test_captured_training_step(self):
        stock, model, x = self.model()
        wanted = self.gradients(stock, x)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.gradients(model, x)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            derivatives = self.gradients(model, x)
        for t in derivatives:
            t.detach().zero_()
        graph.replay()
        torch.cuda.synchronize()
        for a, b in zip(derivatives, wanted, strict=True):
            assert torch.equal(a, b)

    def test_calls_use_the_current_stream(self):
        x, w = self.integers(512, 512), self.integers(512, 512)
        wanted = x @ w.T
        pt.linear(x, w)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(10_000_000)
            late = x + 0
            result = pt.linear(late, w)
        side.synchronize()
        assert torch.equal(result, wanted)

    def test_settings_of_pytorch_choose_the_arithmetic(self):
        x = torch.randn(64, 4096, device="cuda")
        exact = x.double() @ x.double().T
        before = torch.get_float32_matmul_precision()
        try:
            errors = {}
            for precision in ("highest", "high"):
                torch.set_float32_matmul_precision(precision)
                for _ in range(2):
                    errors[precision] = float((pt.linear(x, x) - exact).abs().max())
        finally:
            torch.set_float32_matmul_precision(before)
        assert errors["highest"] < errors["high"] / 10

    def test_bench_torch_measures_every_mode(self, capsys):
        words = ["--size", "tiny", "--batch", "2", "--repeats", "1", "--calls", "2", "--json"]
        assert script("bench-torch").main(words) == 0
        for entry in json.loads(capsys.readouterr().out)["models"].values():
            assert len(entry["times"]) == 6
            assert entry["difference"]["ours"]["output"] < 0.05

    def test_compiled_by_inductor(self):
        stock, model, x = self.model()
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        wanted = self.gradients(stock, x)
        for _ in range(3):
            for a, b in zip(self.gradients(compiled, x), wanted, strict=True):
                assert torch.equal(a, b)


class TestSparse(SparseChecks):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _gpu(self):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")

    def test_a_conversion_on_another_stream_is_waited_for(self):
        a, b = self.matrix(60, 50, 700, dtype=torch.float32), self.integers(50, 8, dtype=torch.float32)
        batch = torch.stack([dense(a), dense(a)]).to_sparse_csr()
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(100_000_000)
            pt.spmm(batch, b)
        assert torch.equal(pt.spmm(batch, b)[1], dense(a) @ b)

    @pytest.mark.parametrize("trained", [False, True])
    def test_captured_products_and_gradients(self, trained):
        a, b = self.matrix(60, 50, 700), self.integers(50, 8).requires_grad_()
        values = a.values.requires_grad_(trained)

        def step():
            b.grad = None
            y = pt.spmm(a._replace(values=values), b)
            y.square().sum().backward()
            return y, b.grad

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, grad = step()
        with torch.no_grad():
            b.add_(1)
            if trained:
                values.mul_(2)
        graph.replay()
        full = dense(a).detach()
        assert torch.equal(y, full @ b)
        assert torch.equal(grad, full.T @ (2 * full @ b))

    def test_compiled_by_inductor(self):
        a, b = self.matrix(60, 50, 700), self.integers(50, 8)

        def step(v, b):
            m = a._replace(values=v)
            h = torch.relu(pt.spmm(m, b))
            return pt.sddmm(m, h, b).sum() + h.square().sum()

        operators = []
        for function in (torch.compile(step, fullgraph=True), step):
            leaves = [x.clone().requires_grad_() for x in (a.values, b)]
            y = function(*leaves)
            operators.append([y, *torch.autograd.grad(y, leaves)])
        assert all(map(torch.equal, *operators))


class TestMlp(MlpChecks):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _gpu(self):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")


class TestTasks(TaskChecks):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _gpu(self):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")


class TestPairwise(PairwiseChecks):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _gpu(self):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")


class TestOverride(OverrideChecks):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _gpu(self):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")

    def test_compiled_models(self):
        """Compiled code calls the operators of ptxgen."""
        torch.compiler.reset()
        stock, _, x = self.model()
        graphs = []

        def keep(graph, inputs):
            graphs.append(str(graph.graph))
            return graph.forward

        with pt.enabled(report=False), torch.no_grad():
            result = torch.compile(stock, backend=keep)(x)
        assert torch.equal(result, stock(x))
        assert "ptxgen" in "".join(graphs)

    def test_tensors_on_the_cpu_are_computed_by_pytorch(self):
        with pt.enabled(report=False) as calls:
            torch.ones(2, 2) @ torch.ones(2, 2)
        assert calls.refused["matmul"]["tensors on cpu"] == 1
        assert override.CALLS is calls
