#!/usr/bin/env python3
"""Nearest rows, the n nearest, a kernel density and neighbours within a radius, with ptxgen, PyTorch and KeOps.

    examples/nearest_neighbours.py [--rows 65536] [--columns 65536] [-k 64] [-n 10]

Points are normal, distances squared Euclidean ones of float32: those of ``ptxgen.pairwise``; of PyTorch, which computes
chunks of 2^26 distances, by ``torch.cdist`` and as sums of squares and a product; of KeOps' ``LazyTensor``, if it is
installed.

library     exact, cdist and keops compute differences, fast and mm sums of squares and products
difference  from the results of torch.cdist, the greatest: of the distances of the neighbours, over the sums of squares
            of both rows; of the densities' logarithms; of the numbers of neighbours within the radius
ms          milliseconds of a call, the median of --repeats

--device cpu computes on the emulated device, without times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import ptxgen  # noqa: E402

CHUNK = 1 << 26  #: distances that PyTorch computes together
Method = Callable[[], Any]


class WithPtxgen:
    def __init__(self, x: Tensor, y: Tensor, n: int, radius: float, precision: str) -> None:
        self.d = ptxgen.pairwise(x, y, precision=precision)
        self.kernel = ptxgen.pairwise(x, y, finish=lambda c: c * -0.5, precision=precision)
        self.n, self.near = n, lambda c: c < radius

    def nearest(self) -> Tensor:
        rows: Tensor = self.d.argmin()
        return rows[:, None]

    def topk(self) -> Tensor:
        rows: Tensor = self.d.topk(self.n).indices
        return rows

    def density(self) -> Tensor:
        density: Tensor = self.kernel.logsumexp()
        return density

    def within(self) -> Tensor:
        counts: Tensor = self.d.count(self.near)
        return counts


class WithTorch:
    """``product``: squared distances as sums of squares and a product; else ``torch.cdist``."""

    def __init__(self, x: Tensor, y: Tensor, n: int, radius: float, product: bool) -> None:
        self.x, self.y, self.n, self.radius, self.product = x, y, n, radius, product

    def _by_rows(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        squares = (self.y * self.y).sum(1) if self.product else None
        parts = []
        for x in self.x.split(max(1, CHUNK // len(self.y))):
            if squares is None:
                c = torch.cdist(x, self.y, compute_mode="donot_use_mm_for_euclid_dist").square_()
            else:
                c = torch.addmm(squares, x, self.y.T, alpha=-2).add_((x * x).sum(1)[:, None]).clamp_(min=0)
            parts.append(of(c))
        return torch.cat(parts)

    def nearest(self) -> Tensor:
        return self._by_rows(lambda c: c.argmin(1)[:, None])

    def topk(self) -> Tensor:
        return self._by_rows(lambda c: c.topk(self.n, largest=False).indices)

    def density(self) -> Tensor:
        return self._by_rows(lambda c: c.mul_(-0.5).logsumexp(1))

    def within(self) -> Tensor:
        return self._by_rows(lambda c: (c < self.radius).sum(1))


class WithKeops:
    def __init__(self, x: Tensor, y: Tensor, n: int, radius: float) -> None:
        from pykeops.torch import LazyTensor

        self.c = LazyTensor(x[:, None].contiguous()).sqdist(LazyTensor(y[None].contiguous()))
        self.n, self.radius = n, radius

    def nearest(self) -> Tensor:
        rows: Tensor = self.c.argmin(dim=1)
        return rows

    def topk(self) -> Tensor:
        rows: Tensor = self.c.argKmin(self.n, dim=1)
        return rows

    def density(self) -> Tensor:
        density: Tensor = (self.c * -0.5).logsumexp(dim=1)
        return density.flatten()

    def within(self) -> Tensor:
        counts: Tensor = (self.radius - self.c).step().sum(dim=1)
        return counts.flatten()


METHODS = ("nearest", "topk", "density", "within")


def milliseconds(call: Method, repeats: int) -> float:
    """The median time of a call, after one."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[1:])


def difference(name: str, result: Tensor, wanted: Tensor, x: Tensor, y: Tensor) -> float:
    if name in ("density", "within"):
        return float((result.double() - wanted.double()).abs().max())
    distances = [((x[:, None] - y[each.long()]).double() ** 2).sum(-1) for each in (result, wanted)]
    sizes = (x.double() ** 2).sum(-1)[:, None] + (y[wanted.long()].double() ** 2).sum(-1)
    return float(((distances[0] - distances[1]).abs() / sizes).max())


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1 << 16)
    parser.add_argument("--columns", type=int, default=1 << 16)
    parser.add_argument("-k", type=int, default=64, help="elements of a row")
    parser.add_argument("-n", type=int, default=10, help="of the nearest rows")
    parser.add_argument("--method", choices=METHODS, action="append", help="[default: all]")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(words)
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(m, given.k, generator=draw).to(given.device) for m in (given.rows, given.columns))
    some = torch.cdist(x[:64], y[:4096]).square().flatten()
    radius = float(some.kthvalue(max(1, len(some) // 1000)).values)
    common = x.numpy() if given.device == "cpu" else x, y.numpy() if given.device == "cpu" else y, given.n, radius
    makers: dict[str, Callable[[], Any]] = {
        "cdist": lambda: WithTorch(x, y, given.n, radius, False),
        "mm": lambda: WithTorch(x, y, given.n, radius, True),
        "keops": lambda: WithKeops(x, y, given.n, radius),
        "exact": lambda: WithPtxgen(*common, "exact"),
        "fast": lambda: WithPtxgen(*common, "fast"),
    }
    made: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            made[name] = make()
        except ImportError:
            print(f"{name} is not installed")
    print(f"{given.rows}×{given.columns} rows of {given.k}, radius² {radius:.4g}")
    print(f"{'method':8} {'library':8} {'difference':>10}" + (f" {'ms':>9}" if given.device == "cuda" else ""))
    for method in given.method or METHODS:
        wanted = getattr(made["cdist"], method)()
        for name, each in made.items():
            call = getattr(each, method)
            try:
                error = difference(method, torch.as_tensor(call()), wanted, x, y)
                time = f" {milliseconds(call, given.repeats):9.3f}" if given.device == "cuda" else ""
            except (RuntimeError, ValueError) as failed:  # memory, or what a library lacks
                print(f"{method:8} {name:8} {str(failed).splitlines()[0]}")
                continue
            print(f"{method:8} {name:8} {error:10.1e}{time}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
