"""What the calls of users share: the driver, the kernels that were chosen and loaded, libraries of arrays, streams."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ptxgen import dispatch, settings
from ptxgen.arrays import View, overlap, overlaps_itself
from ptxgen.database import Database
from ptxgen.drivers import Driver, open_driver
from ptxgen.dtypes import Dtype
from ptxgen.errors import DeviceError, DtypeError, InputError, OverlapError, ShapeError, UnavailableError
from ptxgen.operations import Problem
from ptxgen.runner import Runner, Workspace

KEPT = 4096  #: kinds of calls that are remembered
#: bytes that tables of remembered calls take: those of ResNet-50 with 400 images, in all three directions
TABLES_KEPT = 1 << 30

lock = threading.RLock()
#: by the key of a call: what launches it, what a result that is to be made is like, and whose launch it is
ready: OrderedDict[Any, tuple[Callable[..., None], Any, Runner]] = OrderedDict()
workspaces: dict[int, Workspace] = {}
runners: OrderedDict[Problem, Runner] = OrderedDict()
captured: set[Runner] = set()  #: somebody's graph may replay them at any time: they stay


@cache
def driver() -> Driver:
    """The driver that arrays of this process are computed on: the GPU's where there is one, else the emulated
    device's (PTXGEN_DRIVER decides otherwise)."""
    return open_driver(settings.settings().driver)


@cache
def database() -> Database | None:
    path = settings.settings().database
    return Database(path, readonly=True) if path.exists() else None


def remember(key: Any, go: Callable[..., None], kind: Any, bound: Runner) -> None:
    """Lets later calls of this key go straight to the launch."""
    while len(ready) >= KEPT:
        ready.popitem(last=False)
    ready[key] = go, kind, bound


def prepared(key: Any) -> tuple[Callable[..., None], Any, Runner] | None:
    """What ``remember`` was given for this key, if it is still there."""
    try:
        found = ready.get(key)
    except TypeError:  # an argument cannot be hashed: the checks of a first call refuse it
        return None
    if found is not None:
        try:  # noqa: SIM105 suppress() would cost each call a quarter of a microsecond
            ready.move_to_end(key)
        except KeyError:  # another thread has just dropped it
            pass
    return found


def require_driver(v: View) -> None:
    """UnavailableError: an array is on a GPU, and the driver is not."""
    if not v.host and driver().name != "cuda":
        raise UnavailableError("the arrays are on a GPU, and ptxgen's driver is the emulated device; unset"
                               ' PTXGEN_DRIVER or install it with: pip install "ptxgen[cuda]"')  # fmt: skip


def require_device(**named: View) -> None:
    """DeviceError: an array is on another GPU than the driver's."""
    for name, v in named.items():
        if v.device:
            raise DeviceError(f"{name} is on GPU {v.device}, ptxgen's driver on GPU 0; CUDA_VISIBLE_DEVICES chooses")


def require_own(out: View, **operands: View) -> None:
    """OverlapError: ``out`` shares memory with an operand; InputError: it cannot be written; ShapeError: its own
    elements share memory."""
    for name, x in operands.items():
        if overlap(out, x):
            raise OverlapError(f"out shares memory with {name}; it must have memory of its own")
    if out.readonly:
        raise InputError("out is read-only")
    if overlaps_itself(out):
        raise ShapeError(f"out has shape {out.shape} and strides {out.strides}; its elements must not share memory")


def empty(x: Any, shape: tuple[int, ...], kind: Dtype) -> Any:
    """An array of the library that ``x`` is of, in its memory. InputError: the library is not known."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, kind.numpy)
    if (named := torch_dtype(x, kind)) is not None:
        return x.new_empty(shape, dtype=named)
    library = importlib.import_module(type(x).__module__.partition(".")[0])
    if library.__name__ != "cupy":
        raise InputError(f"out is None; with arrays of {library.__name__} it must be given")
    return library.empty(shape, kind.numpy)


def torch_dtype(x: Any, kind: Dtype) -> Any:
    """What PyTorch calls a type, where ``x`` is one of its tensors; else None."""
    if not hasattr(x, "new_empty"):
        return None
    return getattr(importlib.import_module("torch"), kind.numpy.name)


def runner(problem: Problem) -> Runner:
    """What computes ``problem``, chosen, generated and loaded once."""
    found = runners.get(problem)
    if found is None:
        while len(runners) >= KEPT:
            runners.popitem(last=False)
        found = runners[problem] = _make(problem)
        if found.tables:
            _trim(problem)
    runners.move_to_end(problem)
    return found


def _trim(newest: Problem) -> None:
    """Lets go of other calls that have tables while all tables take more than they may: first of those that are not
    prepared, and of what was used least recently."""
    tables = workspaces[0].tables
    known = [(key, bound.problem) for key, (_, _, bound) in list(ready.items()) if bound.tables]
    held = {problem for _, problem in known}
    alone = [problem for problem, bound in runners.items() if bound.tables and problem not in held]
    for key, problem in (*((None, problem) for problem in alone), *known):
        if tables.bytes <= TABLES_KEPT:
            return
        if problem != newest:
            ready.pop(key, None)
            runners.pop(problem, None)


def _make(problem: Problem) -> Runner:
    on = driver()
    chosen = dispatch.select(problem, on.device, database())
    if not chosen:
        kind = f"{problem.dtype} summed in {problem.compute} into {problem.out}"
        names = "a and b" if problem.operation == "gemm" else "operands"
        raise DtypeError(f"{names} are {problem.dtype}; no kernel multiplies {kind} on {on.device.name}:"
                         f" {dispatch.lacking(problem, on.device)}")  # fmt: skip
    return Runner.of(on, problem, chosen[0].config, workspaces.setdefault(0, Workspace(on)))


def launcher(bound: Runner, alpha: float = 1.0, beta: float = 0.0, swapped: bool = False,
             more: tuple[int, ...] = ()) -> Callable[..., None]:  # fmt: skip
    """What launches on addresses of first operand, second operand and result, on a stream; ``swapped``: the operands
    come in the other order; ``more``: addresses that the epilogue reads."""
    steps = bound.prepare(alpha, beta)
    launch, kernel, on, found = bound.launch, bound.kernel, bound.driver, bool(bound.tables)

    def go(a: int, b: int, c: int, stream: int, more: tuple[int, ...] = more) -> None:
        if swapped:
            a, b = b, a
        space = workspaces.get(stream)
        if space is None:
            space = workspaces[stream] = Workspace(on)
        w = space.address(launch)
        if found and stream > 1 and on.capturing(stream):
            captured.add(bound)
        for ready in steps:
            on.launch(kernel, ready.step, ready.parameters(a, b, c, w, more), stream)

    return go


def stream_of(x: Any) -> int:
    """The raw handle of the stream that the array's library queues on; its default stream, 0, is 1 to the driver."""
    if hasattr(x, "new_empty"):
        import torch

        return int(torch._C._cuda_getCurrentRawStream(x.device.index)) or 1
    if type(x).__module__.startswith("cupy"):
        import cupy

        return int(cupy.cuda.get_current_stream().ptr) or 1
    return int(x.__cuda_array_interface__.get("stream") or 1)
