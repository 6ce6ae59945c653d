#!/usr/bin/env python3
"""Trains two layers of graph convolutions (Kipf and Welling 2017) on a random graph, with ptxgen and with PyTorch.

    examples/graph_convolution.py [--nodes 131072] [--degree 16] [--features 128] [--hidden 64] [--classes 64]

A step is forward and backward: relu(A·(X·W1)), A·(H·W2), the cross entropy, and the gradients of W1 and W2. A is the
normalized adjacency matrix of the graph with loops. The products with A are ``ptxgen.torch.spmm`` or
``torch.sparse.mm``; all else is PyTorch's in both.

difference   the norm of the difference of the results with ptxgen from those with PyTorch, over their norm: of the
             classes and of both gradients
mode         eager, compile (torch.compile; with ptxgen without a graph break), graph (a CUDA graph of an eager step)
torch, ptxgen, ratio   milliseconds of a step, the median of --repeats alternating rounds; torch over ptxgen

A mode that fails has its error in place of times. --device cpu computes on the emulated device, without times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

import ptxgen  # noqa: E402
import ptxgen.torch  # noqa: E402

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
MODES = ("eager", "compile", "graph")
Step = Callable[[], list[Tensor]]


def normalized_adjacency(nodes: int, degree: int, dtype: torch.dtype, device: str) -> ptxgen.SparseMatrix:
    """D^-1/2 (A + I) D^-1/2 of a random undirected graph, in CSR."""
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(0, nodes, (2, nodes * degree // 2), generator=draw)
    loops = torch.arange(nodes)
    rows, columns = torch.cat([ends[0], ends[1], loops]), torch.cat([ends[1], ends[0], loops])
    places = torch.unique(rows * nodes + columns)  # sorted by rows, then columns
    rows, columns = places // nodes, places % nodes
    indptr = torch.searchsorted(rows, torch.arange(nodes + 1))
    scale = indptr.diff().double().rsqrt()
    values = (scale[rows] * scale[columns]).to(dtype)
    arrays = (indptr.int().to(device), columns.int().to(device), values.to(device))
    return ptxgen.SparseMatrix(*arrays, (nodes, nodes))


def forward(multiply: Callable[[Tensor], Tensor], x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """The classes of two layers. ``multiply``: by A."""
    return multiply(torch.relu(multiply(x @ w1)) @ w2)


class Training:
    """Steps with the same data. ``multiply``: by A."""

    def __init__(self, multiply: Callable[[Tensor], Tensor], data: Sequence[Tensor], labels: Tensor) -> None:
        self.x, *weights = data
        self.weights = [w.clone().requires_grad_() for w in weights]
        self.labels, self.classes = labels, lambda x, w1, w2: forward(multiply, x, w1, w2)

    def step(self, classes: Callable[..., Tensor] | None = None) -> list[Tensor]:
        """The classes, and the gradients of the weights."""
        y = (classes or self.classes)(self.x, *self.weights)
        loss = functional.cross_entropy(y.float(), self.labels)
        return [y.detach(), *torch.autograd.grad(loss, self.weights)]

    def in_mode(self, mode: str, fullgraph: bool) -> Step:
        """The step in a mode, computed once or more before."""
        if mode == "graph":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.step()
            side.synchronize()
            graph, results = torch.cuda.CUDAGraph(), list[Tensor]()
            with torch.cuda.graph(graph):
                results += self.step()
            return lambda: (graph.replay(), results)[1]
        compiled = torch.compile(self.classes, fullgraph=fullgraph) if mode == "compile" else None
        step: Step = lambda: self.step(compiled)  # noqa: E731
        step()
        return step


def milliseconds(steps: Sequence[Step], repeats: int, calls: int) -> list[float]:
    """The median time of each step, in rounds that alternate."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(repeats):
        for step, samples in zip(steps, times, strict=True):
            step()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                step()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end) / calls)
    return [statistics.median(each) for each in times]


def difference(result: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[float]:
    return [float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(result, wanted, strict=True)]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 1 << 17), ("degree", 16), ("features", 128), ("hidden", 64), ("classes", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--mode", choices=MODES, action="append", help="of which times are measured [default: all]")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20, help="steps of a round")
    given = parser.parse_args(words)
    dtype = DTYPES[given.dtype]
    warnings.filterwarnings("ignore", "Sparse")
    a = normalized_adjacency(given.nodes, given.degree, dtype, given.device)
    stock = torch.sparse_csr_tensor(a.indptr, a.indices, a.values, a.shape)
    draw = torch.Generator().manual_seed(1)
    sizes = (given.nodes, given.features), (given.features, given.hidden), (given.hidden, given.classes)
    data = [(torch.randn(s, generator=draw) / s[1] ** 0.5).to(given.device, dtype) for s in sizes]
    labels = torch.randint(0, given.classes, (given.nodes,), generator=draw).to(given.device)
    trainings: dict[str, tuple[Training, bool]] = {
        "torch": (Training(lambda b: torch.sparse.mm(stock, b), data, labels), False),
        "ptxgen": (Training(lambda b: ptxgen.torch.spmm(a, b), data, labels), True),
    }
    theirs, ours = (training.step() for training, _ in trainings.values())
    print(f"{given.nodes} nodes, {len(a.values)} nonzeros, {given.dtype}")
    print("difference", *(f"{x:.1e}" for x in difference(ours, theirs)))
    if given.device == "cpu":
        return 0
    print(f"{'mode':8} {'torch':>9} {'ptxgen':>9} {'ratio':>6}")
    for mode in given.mode or MODES:
        steps: dict[str, Step] = {}
        errors: list[str] = []
        for name, (training, fullgraph) in reversed(trainings.items()):  # a capture that fails may spoil later ones
            try:
                steps[name] = training.in_mode(mode, fullgraph)
            except Exception as error:  # of a mode that the library lacks
                torch.cuda.synchronize()
                errors.append(f"{name}: {str(error).splitlines()[0]}")
        times: dict[str, Any] = dict(
            zip(steps, milliseconds(list(steps.values()), given.repeats, given.calls), strict=True)
        )
        cells = [f"{times[name]:9.3f}" if name in times else f"{'-':>9}" for name in trainings]
        ratio = f"{times['torch'] / times['ptxgen']:6.2f}" if len(times) == len(trainings) else f"{'-':>6}"
        print(f"{mode:8} {' '.join(cells)} {ratio}", *errors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
