"""PyTorch as a baseline: eager operations on whole arrays, and the same function compiled by ``torch.compile``."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ptxgen.errors import LaunchError
from ptxgen.operations.gemm.strided_arrays import A, B
from ptxgen.operations.task.baselines.checked import FACTOR, Candidate, TaskBaseline
from ptxgen.operations.task.baselines.libraries import module_of
from ptxgen.operations.task.baselines.operands import downloaded, rows_of
from ptxgen.operations.task.baselines.parts import Parts
from ptxgen.operations.task.baselines.tensors import on_stream, tensor
from ptxgen.operations.task.baselines.torch_text import sources
from ptxgen.operations.task.checks import array_shape
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Aggregate, Select
from ptxgen.problem.operation import VendorTimes
from ptxgen.problem.reference import Array
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.vendor_libraries import load_torch

SLAB = 1 << 28  #: elements of a slab of the cube


class TorchEager(TaskBaseline):
    """The forms of ``torch_text`` in eager mode."""

    title = "PyTorch"
    errors: tuple[type[Exception], ...] = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        torch = load_torch()
        try:
            with self.context(torch):
                return super().best(sets, timing)
        finally:
            torch.cuda.empty_cache()

    def context(self, torch: Any) -> AbstractContextManager[None]:
        """The stream and the settings of PyTorch's operations."""
        return on_stream(torch, self.driver, self.problem.compute == "tf32")

    def sources(self, parts: Parts) -> dict[str, str]:
        """The modules that are timed, by name."""
        return sources(parts)

    def prepared(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The function that is timed."""
        return compute

    @property
    def slab(self) -> int:
        """Steps of a slab."""
        p = self.problem
        return max(1, min(p.k, SLAB // (p.m * p.n)))

    def timed(self, candidate: Candidate, timing: Timing, least: float) -> float:
        """Microseconds. A list of selected pairs has a length that the host reads, which no graph can capture."""
        if not any(isinstance(x, Select) for x in self.problem.program.outputs):
            return super().timed(candidate, timing, least)
        launches = candidate.launches
        elapsed = self.driver.elapsed
        return statistics.median(elapsed(launches[n % len(launches)]) for n in range(timing.samples))

    def checked(self, sets: Sequence[Mapping[str, int]]) -> Iterator[tuple[Candidate, str]]:
        p, parts = self.problem, Parts(self.problem)
        if p.batch > 1:
            raise LaunchError(f"batch is {p.batch}; it must be 1")
        arrays = downloaded(self.driver, p, sets[0])
        part, some = rows_of(p, arrays, self.sampled_rows())
        groups = groups_of(p)
        extents = {"i": part.m, "j": p.n, "k": p.k}
        expected = evaluate(p.program, {**some, **p.typical_scalars}, extents, groups)
        for name, source in self.sources(parts).items():
            compute = module_of(source).compute
            try:
                found = compute(*self._tensors(part, some), part.m, p.n, p.k, self.slab, groups)
                self.driver.synchronize()
                wrong = self._difference(expected, found)
                function = self.prepared(compute)
                launches = [
                    functools.partial(_kept(function), *self._operands(each), p.m, p.n, p.k, self.slab, groups)
                    for each in sets
                ]
                if not wrong:
                    launches[0]()  # compiles, allocates
                    self.driver.synchronize()
            except self.errors as error:
                self.driver.synchronize()  # raises if the context is lost
                wrong, launches = str(error).strip().partition("\n")[0], []
            yield Candidate(name, launches), wrong

    def _difference(self, expected: Mapping[str, Any], found: Sequence[Any]) -> str:
        """What is wrong with results of the sampled rows."""
        for output, got in zip(self.problem.program.outputs, found, strict=True):
            actual = tuple(_host(x) for x in got) if isinstance(got, tuple) else _host(got)
            if wrong := difference(expected[output.name], actual, FACTOR):
                return f"its result is wrong: {wrong}"
        return ""

    def _tensors(self, p: Task, arrays: Mapping[str, Array]) -> list[Any]:
        """Copies of arrays of the host, A as M×K and B as K×N."""
        torch, out = load_torch(), []
        for u in p.roles.uses:
            x = arrays[u.role]
            x = x.T if (u.role, u.axes) in (("A", ("k", "i")), ("B", ("j", "k"))) else x
            out.append(_device(torch, np.ascontiguousarray(x), u.dtype))
        return out

    def _operands(self, addresses: Mapping[str, int]) -> list[Any]:
        """The arrays of an operand set, without copies, A as M×K and B as K×N."""
        torch, p, out = load_torch(), self.problem, []
        for u in p.roles.uses:
            if u.role in "AB":
                n = A if u.role == "A" else B
                rows, columns = p.stored[n]
                x = tensor(torch, addresses[u.role], (rows, (p.lda, p.ldb)[n]), u.dtype)[:, :columns]
                out.append(x if p.layout[n] == "N" else x.T)
            else:
                out.append(tensor(torch, addresses[u.role], array_shape(p, u.role), u.dtype))
        return out


class TorchCompiled(TorchEager):
    """The function of ``TorchEager`` compiled by ``torch.compile``, which fuses the cube and its reduction."""

    title = "torch.compile"
    errors = (Exception,)  # the compiler raises its own

    def prepared(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        found: Callable[..., Any] = load_torch().compile(compute, dynamic=False)
        return found

    @property
    def slab(self) -> int:
        return self.problem.k


def groups_of(p: Task) -> dict[str, tuple[int, int]]:
    """The extents of groups, by output."""
    return {x.name: p.group_extents for x in p.program.outputs if isinstance(x, Aggregate)}


def _kept(compute: Callable[..., Any]) -> Callable[..., None]:
    """A call that keeps its results until the next one, whose memory is used again."""
    results: list[Any] = []

    def call(*arguments: Any) -> None:
        results.clear()
        results.append(compute(*arguments))

    return call


def _device(torch: Any, x: Array, kind: str) -> Any:
    """A copy on the GPU. NumPy has no bf16: its bits are copied."""
    if kind == "bf16":
        return torch.from_numpy(x.view(np.int16)).to("cuda").view(torch.bfloat16)
    return torch.from_numpy(x).to("cuda")


def _host(x: Any) -> Array:
    """A tensor as an array; f32 has every number of bf16."""
    found: Array = (x.float() if str(x.dtype) == "torch.bfloat16" else x).cpu().numpy()
    return found
