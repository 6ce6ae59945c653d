"""The baseline PyTorch: eager operations on whole arrays, and the same function compiled by ``torch.compile``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ptxgen.errors import LaunchError
from ptxgen.expr.node import variables
from ptxgen.operations.gemm.strided_arrays import A, B
from ptxgen.operations.task.assembling import roots
from ptxgen.operations.task.baselines.checked import FACTOR, Candidate, TaskBaseline
from ptxgen.operations.task.baselines.libraries import module_of
from ptxgen.operations.task.baselines.operands import downloaded, rows_of
from ptxgen.operations.task.baselines.parts import Parts
from ptxgen.operations.task.baselines.tensors import on_stream, tensor
from ptxgen.operations.task.baselines.torch_text import sources
from ptxgen.operations.task.checks import array_shape
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Aggregate, RowReduce, Select
from ptxgen.problem.operation import VendorTimes
from ptxgen.problem.reference import Array
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.vendor_libraries import load_torch

SLAB = 1 << 28  #: the most elements of a slab of the cube M×K×N
CHUNK = 1 << 26  #: the most pairs that are computed together, if results are lists or reductions of rows
LARGE = 1 << 37  #: from so many steps on, an execution may take seconds: forms that would be slow are not timed
#: a form is not timed if its first chunk of rows takes so many times as long as that of another form, and HOST_US more
LONGER, HOST_US = 4, 2000


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
        """The context that sets the stream and the settings of PyTorch's operations."""
        return on_stream(torch, self.driver, self.problem.compute == "tf32")

    def sources(self, parts: Parts) -> dict[str, str]:
        """Name of a form -> the source of its module."""
        return sources(parts)

    def prepared(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The function that is timed, made from the ``compute`` of a module."""
        return compute

    def slab(self, pairs: int) -> int:
        """The number of steps along k of a slab of ``pairs`` pairs."""
        return max(1, min(self.problem.k, SLAB // pairs))

    def forms(self, modules: Mapping[str, str]) -> dict[str, tuple[str, int]]:
        """What is timed: name -> (module, number of rows that are computed together). ``modules``: the sources of
        modules by name. The cube of a large problem is timed only if there is no other form."""
        rows, cubes = chunk_rows(self.problem), not self.large or set(modules) == {"cube"}
        return {name: (x, rows) for name, x in modules.items() if cubes or name != "cube"}

    @property
    def large(self) -> bool:
        p = self.problem
        return p.m * p.n * p.k >= LARGE

    def repeated(self, launches: Sequence[Callable[[], object]], timing: Timing) -> list[float]:
        """The microseconds of launches. Lists of selected pairs are timed without a graph, because the host reads their
        length."""
        if not any(isinstance(x, Select) for x in self.problem.program.outputs):
            return super().repeated(launches, timing)
        return [self.driver.elapsed(launches[n % len(launches)]) for n in range(timing.samples)]

    def checked(self, sets: Sequence[Mapping[str, int]]) -> Iterator[tuple[Candidate, str]]:
        p, parts = self.problem, Parts(self.problem)
        if p.batch > 1:
            raise LaunchError(f"batch is {p.batch}; it must be 1")
        arrays = downloaded(self.driver, p, sets[0])
        part, some = rows_of(p, arrays, self.sampled_rows())
        groups = groups_of(p)
        extents = {"i": part.m, "j": p.n, "k": p.k}
        expected = evaluate(p.program, {**some, **p.typical_scalars}, extents, groups)
        made: list[tuple[Candidate, str, float]] = []  # with the fault, and the microseconds of the first chunk
        for name, (source, rows) in self.forms(self.sources(parts)).items():
            compute, us = module_of(source).compute, 0.0
            prepared, numbers = self.prepared(compute), (p.n, p.k, self.slab(rows * p.n), groups)
            launches = [
                functools.partial(_kept(by_rows(prepared, p, rows)), *self._operands(each), p.m, *numbers)
                for each in sets
            ]
            try:
                wrong = self._difference(expected, compute(*self._tensors(part, some), part.m, *numbers))
                if not wrong and self.large and rows < p.m:
                    chunk = functools.partial(by_rows(prepared, p, rows, rows), *self._operands(sets[0]), p.m, *numbers)
                    chunk()  # compiles
                    us = self.driver.elapsed(chunk)
            except self.errors as error:
                wrong = self._told(error)
            made.append((Candidate(name, launches), wrong, us))
        least = min((us for _, wrong, us in made if not wrong), default=0.0)
        while made:
            candidate, wrong, us = made.pop(0)
            if not wrong and us > LONGER * least + HOST_US:
                wrong = f"its first rows take {us:.0f} us, those of another form {least:.0f}"
            if not wrong:
                try:
                    candidate.launches[0]()  # compiles, allocates
                    self.driver.synchronize()
                except self.errors as error:
                    wrong = self._told(error)
            yield candidate, wrong

    def _told(self, error: Exception) -> str:
        """The first line of an error. LaunchError: the context is lost."""
        self.driver.synchronize()
        return str(error).strip().partition("\n")[0]

    def _difference(self, expected: Mapping[str, Any], results: Sequence[Any]) -> str:
        """The fault of the results of the sampled rows; empty if they are correct."""
        for output, got in zip(self.problem.program.outputs, results, strict=True):
            actual = tuple(_host(x) for x in got) if isinstance(got, tuple) else _host(got)
            if wrong := difference(expected[output.name], actual, FACTOR):
                return f"its result is wrong: {wrong}"
        return ""

    def _tensors(self, p: Task, arrays: Mapping[str, Array]) -> list[Any]:
        """Copies of host arrays as tensors, A as M×K and B as K×N."""
        torch, out = load_torch(), []
        for u in p.roles.uses:
            x = arrays[u.role]
            x = x.T if (u.role, u.axes) in (("A", ("k", "i")), ("B", ("j", "k"))) else x
            out.append(_device(torch, np.ascontiguousarray(x), u.dtype))
        return out

    def _operands(self, addresses: Mapping[str, int]) -> list[Any]:
        """The arrays of an operand set as tensors, without copies, A as M×K and B as K×N."""
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
        torch = load_torch()
        compiled: Callable[..., Any] = torch.compile(compute, dynamic=False)
        tensors: dict[int, Any] = {}

        def call(a: Any, *arguments: Any) -> Any:
            """``compute``, whose ``row``, if it is given, is a tensor: each other number would compile again."""
            if not isinstance(arguments[-1], int):
                return compiled(a, *arguments)
            *others, row = arguments
            if row not in tensors:  # at the first call, which no graph captures
                tensors[row] = torch.tensor(row, dtype=torch.int32, device=a.device)
            return compiled(a, *others, tensors[row])

        return call

    def slab(self, pairs: int) -> int:
        return self.problem.k

    def forms(self, modules: Mapping[str, str]) -> dict[str, tuple[str, int]]:
        """The cube on all rows at once, because the compiler fuses it; other forms, whose M×N matrix is in memory, by
        chunks of rows. The cube of a large problem is computed by chunks, too, because the compiler executes a kernel
        in several configurations, each seven times or more, to choose one."""
        p, rows = self.problem, chunk_rows(self.problem)
        return {name: (x, p.m if name == "cube" and not self.large else rows) for name, x in modules.items()}


def chunk_rows(p: Task) -> int:
    """The number of rows that are computed together: all, unless the results are lists or reductions of rows, and do
    not read M."""
    results = (isinstance(x, Select) or (isinstance(x, RowReduce) and x.axis == "i") for x in p.program.outputs)
    if "M" in variables(*roots(p.program)) or not all(results):
        return p.m
    return max(1, min(p.m, CHUNK // p.n))


def by_rows(compute: Callable[..., Any], p: Task, rows: int, end: int | None = None) -> Callable[..., Any]:
    """The function that computes chunks of ``rows`` rows one after the other, and joins their results. ``end``: the
    end of the rows that it computes; None: all."""
    if rows >= p.m:
        return compute
    along = [0 if u.role == "A" else u.axes.index("i") if "i" in u.axes else None for u in p.roles.uses]

    def computed(*arguments: Any) -> list[Any]:
        *tensors, m, n, k, slab, groups = arguments
        results = []
        for first in range(0, m if end is None else end, rows):
            size = min(rows, m - first)
            own = [x if axis is None else x.narrow(axis, first, size) for x, axis in zip(tensors, along, strict=True)]
            results.append(compute(*own, size, n, k, slab, groups, first))
        return [_joined(parts) for parts in zip(*results, strict=True)]

    return computed


def _joined(parts: Sequence[Any]) -> Any:
    torch = load_torch()
    if isinstance(parts[0], tuple):
        return tuple(torch.cat(x) for x in zip(*parts, strict=True))
    return torch.cat(parts)


def groups_of(p: Task) -> dict[str, tuple[int, int]]:
    """Name of an output -> the extents of its groups."""
    return {x.name: p.group_extents for x in p.program.outputs if isinstance(x, Aggregate)}


def _kept(compute: Callable[..., Any]) -> Callable[..., None]:
    """A function that calls ``compute`` and keeps the results until its next call, so that their memory is reused."""
    results: list[Any] = []

    def call(*arguments: Any) -> None:
        results.clear()
        results.append(compute(*arguments))

    return call


def _device(torch: Any, x: Array, element_type: str) -> Any:
    """A copy of an array on the GPU. The bits of bf16 are copied as integers, because PyTorch takes no bf16 arrays of
    NumPy."""
    if element_type == "bf16":
        return torch.from_numpy(x.view(np.int16)).to("cuda").view(torch.bfloat16)
    return torch.from_numpy(x).to("cuda")


def _host(x: Any) -> Array:
    """A tensor as a NumPy array. bf16 becomes f32, which has all its numbers."""
    array: Array = (x.float() if str(x.dtype) == "torch.bfloat16" else x).cpu().numpy()
    return array
