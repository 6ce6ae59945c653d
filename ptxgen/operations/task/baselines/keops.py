"""The baseline KeOps: it reduces rows or columns of a formula over all pairs, without storing a matrix of the pairs."""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, redirect_stdout
from typing import Any

from ptxgen.errors import DtypeError, LaunchError, UnavailableError
from ptxgen.expr.node import Node, walk
from ptxgen.expr.python_text import TORCH, Library, PythonText, type_in
from ptxgen.expr.value_types import type_of
from ptxgen.install_advice import install
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.baselines.checked import ONCE_US, Candidate
from ptxgen.operations.task.baselines.parts import Parts, Read
from ptxgen.operations.task.baselines.tensors import on_default_stream
from ptxgen.operations.task.baselines.torch_arrays import TorchEager
from ptxgen.operations.task.baselines.torch_text import distance_of
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.program import EXTENTS, POSITIONS, RowReduce
from ptxgen.operations.task.text_blocks import filled
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.vendor_libraries import load_torch

SOURCE = """\
import torch
from pykeops.torch import LazyTensor


def maximum(x, y):
    return y + (x - y).relu()


def minimum(x, y):
    return y - (y - x).relu()


def compute(«arguments»M, N, K, slab, groups):
    a = LazyTensor(A.to(«type»)[:, None, :].contiguous())
    b = LazyTensor(B.T.to(«type»)[None].contiguous())
    «operands»
    «reduction»
    «value»
    return [«result»]
"""
#: KeOps as a library of Python text: formulas have floats of one type, and call methods
_METHODS = ("abs", "sqrt", "rsqrt", "exp", "log")
KEOPS = Library(
    functions={
        **{name: f"LazyTensor.{name}" for name in _METHODS},
        **dict.fromkeys(("max", "fmax"), "maximum"),
        **dict.fromkeys(("min", "fmin"), "minimum"),
    },
    types={},
    select="",
)
#: operator -> reduction over k
_INNER = {"+": "sum", "max": "max", "min": "min", "fmax": "max", "fmin": "min"}
#: operator -> reduction over i or j
_OUTER = {"+": "sum", "logsumexp": "logsumexp", "mean": "sum", **{x: x for x in ("max", "min", *POSITIONS)}}
#: axes of an array -> the index that makes it a vector for each i or j, or a parameter
_OPERANDS = {
    ("i",): "[:, None, None]",
    ("j",): "[None, :, None]",
    ("k",): "[None, None, :]",
    ("i", "k"): "[:, None, :]",
    ("k", "i"): ".T[:, None, :]",
    ("j", "k"): "[None]",
    ("k", "j"): ".T[None]",
}


@functools.cache
def load_keops() -> Any:
    """The module ``pykeops.torch``. UnavailableError: it is missing, or PyTorch or KeOps finds no GPU: KeOps would
    compute on the CPU."""
    load_torch()
    try:
        with redirect_stdout(sys.stderr):  # it tells there what it lacks
            import pykeops.torch
    except ImportError as error:
        advice = f"{install('pykeops')}; it compiles with g++ and the CUDA toolkit's NVRTC"
        raise UnavailableError(f"KeOps cannot be imported ({error}); {advice}") from error
    if not pykeops.config.gpu_available:
        rule = "LD_LIBRARY_PATH must have the folders of libcuda.so and libnvrtc.so, and CUDA_PATH the CUDA toolkit's"
        raise UnavailableError(f"KeOps was imported without CUDA; {rule}, and g++ must be on PATH")
    pykeops.set_verbose(False)
    return pykeops.torch


def _text_of(read: Read) -> str:
    if read.name in EXTENTS:
        return f"float({read.name})"
    if read.indexed:
        raise LaunchError(f"the task reads the index {read.name}; KeOps has none")
    return {"A": "a", "B": "b"}.get(read.name, f"{read.name}_{''.join(read.axes)}")


def _printed(parts: Parts, x: Node, names: dict[Node, str], prefix: str) -> tuple[list[str], str]:
    """The lines of definitions for an expression, and its text. Operands have the type of sums; squares are method
    calls."""
    lines, known = list[str](), dict(names)
    for y in walk(x):
        if y.op == "cast" and y.arguments[0] in known:
            known[y] = known[y.arguments[0]]
        elif y.op == "select" or (y.op not in ("variable", "constant", "cast") and not type_of(y.type).floating):
            raise LaunchError(f"the task has {y.op} of {y.type}; KeOps has arithmetic of floats")
        elif y.op == "*" and y.arguments[0] is y.arguments[1]:
            inner = PythonText([y.arguments[0]], known, KEOPS, f"{prefix}{len(lines)}_")
            lines += [*inner.definitions, f"{prefix}{len(lines)} = {inner(y.arguments[0])}.square()"]
            known[y] = lines[-1].partition(" = ")[0]
    text = PythonText([x], known, KEOPS, prefix + "t")
    return [*lines, *text.definitions], text(x)


def sources(parts: Parts) -> dict[str, str]:
    """Name of a formula -> source of its module. LaunchError, DtypeError: KeOps cannot express the program."""
    program, algebra = parts.problem.program, parts.algebra
    output = program.outputs[0]
    if len(program.outputs) > 1 or not isinstance(output, RowReduce) or program.when is not None:
        raise LaunchError("KeOps reduces all results of rows or of columns; the task has another output")
    if output.op not in _OUTER or algebra.reduce not in _INNER or program.reduction in POSITIONS:
        known = f"{', '.join(_INNER)} over k, and {', '.join(_OUTER)} of results"
        raise LaunchError(f"the reductions are {program.reduction} and {output.op}; KeOps has {known}")
    total = type_in(TORCH, algebra.type)
    if algebra.type not in ("f32", "f64"):
        raise DtypeError(f"the reduction is of {algebra.type}; KeOps has f32 and f64")
    value = parts.value
    reads = [r for r in parts.reads(parts.step, value) if r.axes and r.name not in "AB"]
    if any(r.axes not in _OPERANDS for r in reads):
        raise LaunchError("the task reads an array at [i,j]; KeOps has vectors of i and of j")
    operands = [f"{_text_of(r)} = LazyTensor({r.name}.to({total}){_OPERANDS[r.axes]}.contiguous())" for r in reads]
    names = parts.names(_text_of, parts.step, value)
    forms: dict[str, list[str]] = {}
    if algebra_of(parts.problem.roles) is PLUS_TIMES:
        forms["dot product"] = ["accum = a | b"]
    elif distance_of(algebra) == "2.0":
        forms["sqdist"] = ["accum = a.sqdist(b)"]
    else:
        lines, step = _printed(parts, parts.step, names, "s")
        forms["formula"] = [*lines, f"accum = ({step}).{_INNER[algebra.reduce]}(-1)"]
    lines, text = _printed(parts, value, names, "v")
    along, n = (1, "N") if output.axis == "i" else (0, "M")
    result = f"({text}).{_OUTER[output.op]}(dim={along})[:, 0]"
    result += {"mean": f" / {n}", **dict.fromkeys(POSITIONS, ".to(torch.int32)")}.get(output.op, "")
    others = "".join(f"{u.role}, " for u in parts.problem.roles.others)
    words = {"arguments": f"A, B, {others}", "type": total, "result": result}
    return {
        name: filled(SOURCE, {"operands": operands, "reduction": x, "value": lines}, words) for name, x in forms.items()
    }


class Keops(TorchEager):
    """The baseline of KeOps: a formula of ``LazyTensor``. KeOps compiles a formula at its first call, and waits for
    each launch, so launches are timed on the host."""

    title = "KeOps"
    errors = (Exception,)  # its compilers raise their own

    def sources(self, parts: Parts) -> dict[str, str]:
        return sources(parts)

    def forms(self, modules: Mapping[str, str]) -> dict[str, tuple[str, int]]:
        return {name: (x, self.problem.m) for name, x in modules.items()}

    def context(self, torch: Any) -> AbstractContextManager[None]:
        return on_default_stream(torch, self.driver)

    def timed(self, candidate: Candidate, timing: Timing, least: float) -> float:
        first, *_ = times = [self._once(candidate, 0)]
        if first > ONCE_US:
            return first
        times += [self._once(candidate, n) for n in range(1, timing.samples)]
        return statistics.median(times)

    def _once(self, candidate: Candidate, n: int) -> float:
        launches = candidate.launches
        self.driver.synchronize()
        start = time.perf_counter()
        launches[n % len(launches)]()
        self.driver.synchronize()
        return 1e6 * (time.perf_counter() - start)
