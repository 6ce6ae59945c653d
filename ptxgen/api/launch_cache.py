"""What the calls of users share: the driver, the kernels that were chosen and loaded, libraries of arrays, streams."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ptxgen import settings
from ptxgen.api.arrays import View, overlap, overlaps_itself, raw, tensor
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import DeviceError, DtypeError, InputError, OverlapError, ShapeError, UnavailableError
from ptxgen.problem.dtypes import Dtype
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, generate
from ptxgen.runtime.workspace import Workspaces
from ptxgen.tuning import selection
from ptxgen.tuning.database import Database

KEPT = 4096  #: kinds of calls that are remembered
#: bytes that tables of remembered calls take: those of ResNet-50 with 400 images, in all three directions
TABLES_KEPT = 1 << 30
KERNELS_KEPT = 512  #: distinct kernels that remembered calls keep loaded
ALIGNED = 256  #: bytes that the address of a caller's workspace is a multiple of

lock = threading.RLock()
#: by the key of a call: what launches it, what a result that is to be made is like, and whose launch it is
ready: OrderedDict[Any, tuple[Callable[..., None], Any, Runner]] = OrderedDict()
runners: OrderedDict[Problem, Runner] = OrderedDict()
SIZE = object()  #: as ``workspace=``: the call returns how many bytes it needs, and launches nothing


@cache
def driver() -> Driver:
    """The driver that arrays of this process are computed on: the GPU's where there is one, else the emulated
    device's (PTXGEN_DRIVER decides otherwise)."""
    return open_driver(settings.settings().driver)


@cache
def database() -> Database | None:
    path = settings.settings().database
    return Database(path, readonly=True) if path.exists() else None


class Loaded:
    """What calls share on one driver. ``workspaces``: device memory that launches work in; ``kernels``: each loaded
    once, and unloaded with the last runner, prepared call or captured graph that may launch it."""

    def __init__(self, on: Driver) -> None:
        self.driver = on
        self.workspaces = Workspaces(on)
        self.tables = self.workspaces.own.tables
        self.kernels: weakref.WeakValueDictionary[Source, Kernel] = weakref.WeakValueDictionary()

    def kernel(self, source: Source) -> Kernel:
        """``source``, loaded. AssembleError: it was rejected."""
        key = replace(source, text=source.digest)
        found = self.kernels.get(key)
        if found is None:
            found = self.kernels[key] = self.driver.load(source)
        return found


@lru_cache(maxsize=1)  # a process has one driver
def loaded(on: Driver) -> Loaded:
    return Loaded(on)


def _before_fork() -> None:
    """A fork waits until no thread selects, generates or loads a kernel, or computes on host arrays: the child finds
    all of that whole."""
    lock.acquire()


def _after_fork(child: bool) -> None:
    """A child gets a lock of its own, and opens the database again: SQLite's connections must not cross a fork."""
    global lock
    if not child:
        lock.release()
        return
    lock = threading.RLock()
    if _database.cache_info().currsize:
        _of_parent.append(_database())
        _database.cache_clear()


_database = database
_of_parent: list[Database | None] = []  #: what a child must not close
os.register_at_fork(
    before=_before_fork, after_in_parent=lambda: _after_fork(False), after_in_child=lambda: _after_fork(True)
)


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
        raise UnavailableError(
            "the arrays are on a GPU, and ptxgen's driver is the emulated device; unset"
            ' PTXGEN_DRIVER or install it with: pip install "ptxgen[cuda]"'
        )


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
        shared = loaded(driver())
        found = runners[problem] = _make(problem, shared)
        _trim(problem, shared)
    runners.move_to_end(problem)
    return found


def _trim(newest: Problem, shared: Loaded) -> None:
    """Forgets calls other than the newest while tables, or kernels, take more than they may: first those that are not
    prepared, then those used least recently."""
    _forget(newest, lambda: shared.tables.bytes > TABLES_KEPT, lambda bound: bool(bound.tables))
    _forget(newest, lambda: len(shared.kernels) > KERNELS_KEPT, lambda bound: True)


def _forget(newest: Problem, crowded: Callable[[], bool], counts: Callable[[Runner], bool]) -> None:
    """Forgets calls whose runner ``counts``, in that order, while it is ``crowded``."""
    if not crowded():
        return
    known = [(key, bound.problem) for key, (_, _, bound) in list(ready.items()) if counts(bound)]
    held = {problem for _, problem in known}
    alone = [problem for problem, bound in runners.items() if counts(bound) and problem not in held]
    for key, problem in (*((None, problem) for problem in alone), *known):
        if not crowded():
            return
        if problem != newest:
            ready.pop(key, None)
            runners.pop(problem, None)


def _make(problem: Problem, shared: Loaded) -> Runner:
    on = shared.driver
    chosen = selection.select(problem, on.device, database())
    if not chosen:
        kind = f"{problem.dtype} summed in {problem.compute} into {problem.out}"
        names = "a and b" if problem.operation == "gemm" else "operands"
        raise DtypeError(
            f"{names} are {problem.dtype}; no kernel multiplies {kind} on {on.device.name}:"
            f" {selection.lacking(problem, on.device)}"
        )
    plan, source = generate(problem, chosen[0].config, on)
    return Runner(on, plan, shared.kernel(source), problem, shared.workspaces.own)


def launcher(
    bound: Runner, alpha: float = 1.0, beta: float = 0.0, swapped: bool = False, more: tuple[int, ...] = ()
) -> Callable[..., None]:
    """What launches on addresses of first operand, second operand and result, on a stream; ``swapped``: the operands
    come in the other order; ``more``: addresses that the epilogue reads; ``own``: that of a caller's workspace."""
    steps = bound.prepare(alpha, beta)
    launch, kernel, on, needs = bound.launch, bound.kernel, bound.driver, bound.launch.workspace > 0
    workspaces = loaded(on).workspaces
    streams = workspaces.streams
    clear = Step("", (launch.workspace, 1, 1), arguments=(("u64", "W"),))

    def go(a: int, b: int, c: int, stream: int, more: tuple[int, ...] = more, own: int | None = None) -> None:
        if swapped:
            a, b = b, a
        space = taken = None
        if stream > 1 and on.capturing(stream):  # the legacy default stream, 1, cannot be captured
            space = workspaces.captured(stream, bound)
        if needs and own is None:
            space = space or streams.get(stream) or workspaces.of(stream)
            taken = space.take(launch)
            w = taken.address
        else:
            w = own or 0
            if needs and launch.zeroed:
                on.launch(kernel, clear, w.to_bytes(8, sys.byteorder), stream)
        for ready in steps:
            on.launch(kernel, ready.step, ready.parameters(a, b, c, w, more), stream)
        if taken is not None and space is not None:
            space.give(launch, taken)

    return go


def workspace_of(x: Any, bound: Runner, **arrays: Any) -> int | None:
    """The address of a caller's workspace ``x``, or None. InputError, OverlapError, DeviceError: it cannot serve."""
    if x is None:
        return None
    address, size = raw(x, "workspace")
    if address % ALIGNED:
        raise InputError(f"workspace is at address {address:#x}; it must be a multiple of {ALIGNED}")
    if size < bound.launch.workspace:
        raise InputError(
            f"workspace has {size} bytes; it must have at least {bound.launch.workspace}, as"
            " ptxgen.workspace_size tells"
        )
    for name, array in arrays.items():
        first, end = tensor(array, name).span
        if address < end and first < address + size:
            raise OverlapError(f"workspace shares memory with {name}")
    return address


def host_workspace(x: Any) -> int | None:
    """What ``workspace_size`` tells of host arrays; None: they are to be computed. InputError: a workspace is given."""
    if x is None or x is SIZE:
        return None if x is None else 0
    raise InputError("workspace is given and the operands are in host memory; it is for GPU arrays")


def workspace_size(call: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    """Bytes that ``workspace`` must have for ``call(*arguments, **options)``, where ``call`` is ``ptxgen.gemm``,
    ``ptxgen.conv2d`` or another convolution, and the arrays are on a GPU. 0: the call needs none.

    The kernel is selected and loaded as for the call; nothing is launched. Errors are those of the call.
    """
    found: int = call(*arguments, **options, workspace=SIZE)
    return found


def stream_of(x: Any) -> int:
    """The raw handle of the stream that the array's library queues on; its default stream, 0, is 1 to the driver."""
    if hasattr(x, "new_empty"):
        import torch

        return int(torch._C._cuda_getCurrentRawStream(x.device.index)) or 1
    if type(x).__module__.startswith("cupy"):
        import cupy

        return int(cupy.cuda.get_current_stream().ptr) or 1
    return int(x.__cuda_array_interface__.get("stream") or 1)
