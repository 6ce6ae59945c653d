"""Two GPUs of one host in one process, with PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import pytest

import ptxgen
from ptxgen.api import runners
from ptxgen.errors import DeviceError
from tests.threads import join

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available() or module.cuda.device_count() < 2:
        pytest.skip("fewer than two GPUs")
    return module


def operands(torch, index, size=257):
    """Small integers, whose products are exact."""
    make = lambda: torch.randint(-3, 4, (size, size), device=f"cuda:{index}").float()  # noqa: E731
    return make(), make()


@pytest.mark.parametrize("current", [0, 1])
def test_the_gpu_of_the_operands_computes(torch, current):
    with torch.cuda.device(current):
        for _ in range(3):
            for index in (0, 1):
                a, b = operands(torch, index)
                for compute in (lambda a=a, b=b: ptxgen.gemm(a, b), lambda a=a, b=b: ptxgen.gemm_grouped([a], [b])[0]):
                    c = compute()
                    assert c.device == a.device
                    assert torch.equal(c, a @ b)
        assert torch.cuda.current_device() == current
    indices = {on.index for on, _ in runners.runners if on.name == "cuda"}
    assert indices >= {0, 1}


def test_default_and_other_streams_of_each_gpu_are_ordered(torch):
    """The operands are written just before the product, on the same stream, while the other GPU is current."""
    for index in (0, 1):
        with torch.cuda.device(index):
            streams = [torch.cuda.default_stream(), torch.cuda.Stream()]
        a, b = operands(torch, index, 2048)
        torch.cuda.synchronize(index)
        for stream in streams:
            for n in range(1, 6):
                with torch.cuda.stream(stream):
                    x = a * n
                    with torch.cuda.device(1 - index):
                        torch.cuda.current_stream()
                    c = ptxgen.gemm(x, b)
                stream.synchronize()
                assert torch.equal(c, n * (a @ b))


def test_threads_use_a_gpu_each(torch):
    failures = []

    def work(index):
        try:
            torch.cuda.set_device(index)
            a, b = operands(torch, index)
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    assert torch.equal(ptxgen.gemm(a, b), a @ b)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i % 2,), daemon=True) for i in range(4)]
    for t in threads:
        t.start()
    join(*threads)
    assert not failures


def test_each_gpu_captures_graphs(torch):
    for index in (1, 0):
        with torch.cuda.device(index):
            a, b = operands(torch, index)
            ptxgen.gemm(a, b)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                graph, stream=torch.cuda.Stream(index)
            ):  # the default one is of the first GPU that captures
                c = ptxgen.gemm(a, b)
        a.copy_(2 * a)
        graph.replay()
        torch.cuda.synchronize(index)
        assert torch.equal(c, a @ b)


def test_operands_of_two_gpus_are_refused(torch):
    (a, b), (x, _) = operands(torch, 0), operands(torch, 1)
    with pytest.raises(DeviceError, match="b is on GPU 1"):
        ptxgen.gemm(a, x)
    with pytest.raises(DeviceError, match="out is on GPU 1"):
        ptxgen.gemm(a, b, out=x)


@pytest.mark.parametrize("how", ["set_device", "visible", "tensor"])
def test_a_rank_uses_its_own_gpu_only(torch, how):
    """As torchrun starts it. The context of another GPU would take memory there."""
    code = """
        import os, sys
        import numpy as np
        import torch
        import ptxgen
        from ptxgen.api import runners
        how = sys.argv[1]
        index = 0 if how == "visible" else 1
        if how == "set_device":
            torch.cuda.set_device(1)
        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        if how != "tensor":
            assert np.array_equal(ptxgen.gemm(x, x), x @ x)
        t = torch.tensor(x, device=f"cuda:{index}")
        assert np.array_equal(ptxgen.gemm(t, t).cpu().numpy(), x @ x)
        with ptxgen.autotune(time_limit=30) as tuned:
            ptxgen.gemm(t, t)
        assert tuned[0].winner is not None
        assert np.array_equal(ptxgen.gemm(t, t).cpu().numpy(), x @ x)
        assert {on.index for on, _ in runners.runners} == {index}
        print("done")
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if how == "visible":
        environment["CUDA_VISIBLE_DEVICES"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), how],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
