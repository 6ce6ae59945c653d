"""The launch cache, and state shared by all calls: driver, loaded kernels, workspaces, array libraries, streams."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from ptxgen import settings
from ptxgen.api import dlpack, recording
from ptxgen.api.arrays import View, device_memory, is_cupy, overlap, overlaps_itself, tensor
from ptxgen.api.dlpack import DeviceArray
from ptxgen.codegen.config import Config
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import (
    AssembleError,
    DatabaseError,
    DeviceError,
    DtypeError,
    InputError,
    LaunchError,
    OverlapError,
    ShapeError,
    UnavailableError,
)
from ptxgen.families.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.problem.dtypes import Dtype
from ptxgen.problem.registry import Problem
from ptxgen.runtime.cuda_graph import current_device
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, generate
from ptxgen.runtime.workspace import Workspaces
from ptxgen.tuning import selection
from ptxgen.tuning.database import Database, readable
from ptxgen.tuning.first_use import FirstUse

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

MAX_CALLS = 4096  #: entries of the launch cache
#: bytes of device tables of cached calls; ResNet-50 with 400 images in all three directions needs less
MAX_TABLE_BYTES = 1 << 30
MAX_KERNELS = 512  #: distinct kernels of cached calls that stay loaded
WORKSPACE_ALIGNMENT = 256  #: bytes; alignment of a caller's workspace

lock = threading.RLock()
#: key of a call -> (launch function, allocation of the result, runner)
launches: OrderedDict[Any, tuple[Callable[..., None], Any, Runner]] = OrderedDict()
runners: OrderedDict[tuple[Driver, Problem], Runner] = OrderedDict()
#: key of a call of ``gemm_grouped`` -> its launches
grouped_calls: OrderedDict[Any, Any] = OrderedDict()
QUERY_SIZE = (
    object()
)  #: value of ``workspace=`` with which a call returns the workspace size in bytes and launches nothing


@cache
def driver() -> Driver:
    """The driver that computes on host arrays: that of the GPU that the process used first, the current one at first;
    the emulated device if there is no GPU. PTXGEN_DRIVER sets another one."""
    return open_driver(settings.settings().driver, current_gpu() if _first_gpu is None else _first_gpu)


_first_gpu: int | None = None  #: the GPU of the first arrays that were not in host memory


def driver_of(v: View) -> Driver:
    """The driver of the device in whose memory an array is. UnavailableError: the array is on a GPU, and the driver is
    the emulated device."""
    return driver() if v.host else gpu_driver(v.device)


def gpu_driver(index: int | None) -> Driver:
    """The driver of a GPU; None: of the first one. UnavailableError: the driver is the emulated device, which takes
    arrays in host memory."""
    global _first_gpu
    if _first_gpu is None:
        _first_gpu = index
    on = driver()
    if on.name != "cuda":
        raise UnavailableError(
            f"the arrays are on a GPU, and the driver is the emulated device, which takes arrays in host memory:"
            f" {_why_emulated()}"
        )
    return on if index in (None, on.index) else _gpu(index)


def _why_emulated() -> str:
    """The reason why the driver is the emulated device, and the remedy."""
    if settings.settings().driver == "emulated":
        return "PTXGEN_DRIVER is emulated; unset it"
    try:
        open_driver("cuda")
    except UnavailableError as error:
        return str(error)
    return "start the process again"  # the GPU was not there when the driver was opened


@cache
def _gpu(index: int | None) -> Driver:
    """The driver of another GPU than that of ``driver()``."""
    return open_driver(f"cuda:{index}")


def current_gpu() -> int:
    """The index of the current GPU: that of PyTorch if it uses one, else that of the thread's CUDA context."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return current_device()


@cache
def database() -> Database | None:
    """The user's tuning database, opened for reading; None: there is none, or, with a warning, it cannot be used."""
    return readable(settings.settings().database)


class DriverState:
    """Objects that all calls on one driver use. ``workspaces``: device memory of launches; ``kernels``: loaded kernels,
    which are unloaded with the last runner, cached launch or captured graph that refers to them."""

    def __init__(self, on: Driver) -> None:
        self.driver = on
        self.workspaces = Workspaces(on)
        self.tables = self.workspaces.own.tables
        self.kernels: weakref.WeakValueDictionary[Source, Kernel] = weakref.WeakValueDictionary()

    def kernel(self, source: Source) -> Kernel:
        """The loaded kernel of ``source``. AssembleError: the driver rejected it."""
        key = replace(source, text=source.digest)
        found = self.kernels.get(key)
        if found is None:
            found = self.kernels[key] = self.driver.load(source)
        return found


@lru_cache(maxsize=64)  # more than the GPUs of a machine
def state_of(on: Driver) -> DriverState:
    """The shared state of a driver."""
    return DriverState(on)


def _before_fork() -> None:
    """Holds the lock during a fork, so that no other thread selects, generates or loads a kernel or computes on host
    arrays. The state in the child is then consistent."""
    lock.acquire()


def _after_fork(child: bool) -> None:
    """Creates a new lock and database connection in the child. SQLite connections must not be used after a fork."""
    global lock
    if not child:
        lock.release()
        return
    lock = threading.RLock()
    first_use.cache_clear()  # its measuring process and thread belong to the parent
    _background.cache_clear()
    if _database.cache_info().currsize:
        _parent_databases.append(_database())
        _database.cache_clear()


_database = database
_parent_databases: list[Database | None] = []  #: databases of the parent, which a child must not close
os.register_at_fork(
    before=_before_fork, after_in_parent=lambda: _after_fork(False), after_in_child=lambda: _after_fork(True)
)


def store(key: Any, launch: Callable[..., None], kind: Any, bound: Runner) -> None:
    """Caches the launch function of a call under ``key``."""
    global _tracks_use
    while len(launches) >= MAX_CALLS:
        launches.popitem(last=False)
    launches[key] = launch, kind, bound
    _tracks_use = _tracks_use or 2 * len(launches) > MAX_CALLS


#: whether hits move entries to the end of ``launches``, which hashes the key again: it is of use only if entries
#: are soon removed, least recently used first
_tracks_use = False


def cached(key: Any) -> tuple[Callable[..., None], Any, Runner] | None:
    """The cache entry of ``key``: (launch function, allocation of the result, runner), or None."""
    try:
        found = launches.get(key)
    except TypeError:  # an argument is not hashable: the slow path reports it
        return None
    if found is not None and _tracks_use:
        try:  # noqa: SIM105 suppress() costs 0.25 µs per call
            launches.move_to_end(key)
        except KeyError:  # another thread evicted it
            pass
    return found


def require_device(on: Driver, **named: View) -> None:
    """DeviceError: an array is not on the GPU of the driver, which is that of the first operand."""
    for name, v in named.items():
        if v.device not in (None, on.index):
            raise DeviceError(
                f"{name} is on GPU {v.device} and the first operand on GPU {on.index}; they must be on one GPU"
            )


def require_disjoint(out: View, **operands: View) -> None:
    """OverlapError: ``out`` shares memory with an operand. InputError: it is read-only. ShapeError: its own elements
    share memory."""
    for name, x in operands.items():
        if overlap(out, x):
            raise OverlapError(f"out shares memory with {name}; they must not overlap")
    if out.readonly:
        raise InputError("out is read-only")
    if overlaps_itself(out):
        raise ShapeError(f"out has shape {out.shape} and strides {out.strides}; its elements must not share memory")


def empty_array(x: Any, shape: tuple[int, ...], kind: Dtype) -> Any:
    """A new array of the library of ``x``, in the same memory. InputError: ptxgen cannot allocate arrays of that
    library."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, kind.numpy)
    if (named := torch_dtype(x, kind)) is not None:
        return x.new_empty(shape, dtype=named)
    if is_cupy(x):
        return importlib.import_module("cupy").empty(shape, kind.numpy)
    if not hasattr(x, "__array_namespace__") or not dlpack.exports(x):
        raise InputError(f"out is None; with arrays of {type(x).__module__.partition('.')[0]} out is required")
    index = dlpack.on_gpu(x)  # result_of converts the result
    return np.empty(shape, kind.numpy) if index is None else DeviceArray(gpu_driver(index), shape, kind)


def result_of(made: Any, x: Any) -> Any:
    """The result of a call that allocated it with ``empty_array``, as an array of the library of ``x``."""
    if isinstance(made, DeviceArray):
        return x.__array_namespace__().from_dlpack(made)
    if isinstance(made, np.ndarray) and not isinstance(x, np.ndarray):
        return x.__array_namespace__().asarray(made)
    return made


def torch_dtype(x: Any, kind: Dtype) -> Any:
    """PyTorch's dtype for ``kind`` if ``x`` is one of its tensors; else None."""
    if not hasattr(x, "new_empty"):
        return None
    return getattr(importlib.import_module("torch"), kind.numpy.name)


def runner_for(problem: Problem, stream: int = 0, on: Driver | None = None) -> Runner:
    """The runner of ``problem`` on a driver (default: ``driver()``): selected, generated and loaded once. ``stream``:
    the stream of the call; if it is being captured, nothing is timed."""
    on = on or driver()
    found = runners.get((on, problem))
    if found is None:
        while len(runners) >= MAX_CALLS:
            runners.popitem(last=False)
        shared = state_of(on)
        if settings.settings().tune != "off" and not is_captured(stream, on):
            _tune_at_first_use(problem, on)
        found = runners[on, problem] = _make_runner(problem, shared)
        _evict(problem, shared)
    runners.move_to_end((on, problem))
    return found


def _evict(newest: Problem, shared: DriverState) -> None:
    """Removes cached calls of a driver, except the newest, while its device tables or kernels exceed their limits:
    first runners without a launch cache entry, then the least recently used."""
    global _tracks_use
    on = shared.driver
    half_full = 2 * shared.tables.bytes > MAX_TABLE_BYTES or 2 * len(shared.kernels) > MAX_KERNELS
    _tracks_use = _tracks_use or half_full
    _evict_while(
        (on, newest), lambda: shared.tables.bytes > MAX_TABLE_BYTES, lambda bound: bound.driver is on and bound.tables
    )
    _evict_while((on, newest), lambda: len(shared.kernels) > MAX_KERNELS, lambda bound: bound.driver is on)


def _evict_while(newest: tuple[Driver, Problem], over_limit: Callable[[], bool], counts: Callable[..., Any]) -> None:
    """Removes calls in that order while ``over_limit``. ``counts``: whether removing a runner helps."""
    if not over_limit():
        return
    cached_calls = [
        (key, (bound.driver, bound.problem)) for key, (_, _, bound) in list(launches.items()) if counts(bound)
    ]
    with_entry = {at for _, at in cached_calls}
    uncached = [at for at, bound in runners.items() if counts(bound) and at not in with_entry]
    for key, at in (*((None, at) for at in uncached), *cached_calls):
        if not over_limit():
            return
        if at != newest:
            launches.pop(key, None)
            runners.pop(at, None)


def is_captured(stream: int, on: Driver) -> bool:
    """Whether a stream of a driver, a raw handle, is being captured into a graph. The legacy default stream, 1, cannot
    be."""
    return stream > 1 and on.capturing(stream)


def _tune_at_first_use(problem: Problem, on: Driver) -> None:
    """Times the top-ranked configurations of a problem without a measured winner, now or in the background
    (``PTXGEN_TUNE``). Failures are logged as warnings, and the call uses the current selection."""
    found = selection.select(problem, on.device, database())
    if not found or (found[0].origin in ("winner", "shipped") and not found[0].predicted):
        return
    now = settings.settings()
    if now.tune == "background":
        _background(on, now.database).put(problem)
        return
    try:
        first_use(on.selector, now.database).choose(problem, on.device)
    except (DatabaseError, LaunchError) as error:
        _log.warning("PTXGEN_TUNE: %s is not tuned: %s", problem.key(), error)
    _reopen_database()


@cache
def first_use(selector: str, path: Path) -> FirstUse:
    """The object that times configurations for ``PTXGEN_TUNE``; ``selector``: of the driver."""
    return FirstUse(selector, path)


@cache
def _background(on: Driver, path: Path) -> Queue[Problem]:
    """The queue of a thread that tunes problems one after the other and reselects their kernels."""
    queue: Queue[Problem] = Queue()

    def work() -> None:
        while True:
            problem = queue.get()
            try:
                if first_use(on.selector, path).choose(problem, on.device) is not None:
                    reselect([problem], load=True)
            except (DatabaseError, LaunchError, AssembleError) as error:
                _log.warning("PTXGEN_TUNE: %s is not tuned: %s", problem.key(), error)
            finally:
                queue.task_done()

    threading.Thread(target=work, name="ptxgen-tune", daemon=True).start()
    return queue


def _reopen_database() -> None:
    """Opens the database if it was created after the first attempt."""
    if database() is None and hasattr(database, "cache_clear"):
        database.cache_clear()


def forget_launches() -> None:
    """Empties the launch cache; kernels stay loaded."""
    with lock:
        launches.clear()
        grouped_calls.clear()


def reselect(problems: Iterable[Problem], load: bool = False) -> None:
    """Selects the configurations of problems again: at their next calls, or now if ``load``. Kernels are then loaded
    before a later call during a graph capture."""
    with lock:
        _reopen_database()
        _choose_typical.cache_clear()
        grouped_calls.clear()
        for problem in problems:
            for key in [key for key, (_, _, bound) in list(launches.items()) if bound.problem == problem]:
                launches.pop(key, None)
            for on, _ in [at for at in runners if at[1] == problem]:
                del runners[on, problem]
                if load:
                    runners[on, problem] = _make_runner(problem, state_of(on))


def selection_digest() -> str:
    """A digest of the selections of this process: the configuration and kernel of each computed problem whose kernel is
    loaded. Processes that computed the same problems (for example the ranks of a program) selected the same
    configurations if their digests are equal."""
    with lock:
        return selection.digest_of({(p, r.plan.config, r.kernel.source.digest) for (_, p), r in runners.items()})


def choose(problem: Problem, on: Driver) -> Config | None:
    """The configuration of a problem: its winner, or that of the typical problem that represents it. None: no
    configuration is legal."""
    typical = problem.typical()
    if typical != problem:
        found = selection.stored(problem, on.device, database())
        config = found.config if found is not None else _choose_typical(typical, on)
        if config is not None and first_violation(lower(problem), config, on.device) is None:
            return config
    chosen = selection.select(problem, on.device, database())
    return chosen[0].config if chosen else None


@lru_cache(maxsize=MAX_CALLS)
def _choose_typical(problem: Problem, on: Driver) -> Config | None:
    """The configuration of a typical problem."""
    chosen = selection.select(problem, on.device, database())
    return chosen[0].config if chosen else None


def _make_runner(problem: Problem, shared: DriverState) -> Runner:
    on = shared.driver
    chosen = choose(problem, on)
    if chosen is None:
        kind = f"{problem.dtype} summed in {problem.compute} into {problem.out}"
        names = "a and b" if problem.operation == "gemm" else "operands"
        raise DtypeError(
            f"{names} are {problem.dtype}; no kernel multiplies {kind} on {on.device.name}:"
            f" {selection.why_unsupported(problem, on.device)}"
        )
    plan, source = generate(problem, chosen, on)
    return Runner(on, plan, shared.kernel(source), problem, shared.workspaces.own)


def make_launch(
    bound: Runner, alpha: float = 1.0, beta: float = 0.0, swapped: bool = False, epilogue_args: tuple[int, ...] = ()
) -> Callable[..., None]:
    """A function that launches on addresses of A, B and C on a stream. ``swapped``: it receives B before A;
    ``epilogue_args``: addresses of the epilogue operands; its parameter ``own``: address of a caller's workspace."""
    steps = bound.prepare(alpha, beta)
    spec, kernel, on, needs = bound.launch, bound.kernel, bound.driver, bound.launch.workspace > 0
    workspaces = state_of(on).workspaces
    streams = workspaces.streams
    clear = Step("", (spec.workspace, 1, 1), arguments=(("u64", "W"),))

    def launch_one(
        a: int, b: int, c: int, stream: int, epilogue_args: tuple[int, ...] = epilogue_args, own: int | None = None
    ) -> None:
        if swapped:
            a, b = b, a
        if stream > 1 and on.capturing(stream):
            workspaces.for_capture(stream, bound)
        on.launch(kernel, only, pack(a, b, c, 0, epilogue_args), stream)

    def launch(
        a: int, b: int, c: int, stream: int, epilogue_args: tuple[int, ...] = epilogue_args, own: int | None = None
    ) -> None:
        if swapped:
            a, b = b, a
        workspace = allocation = None
        if stream > 1 and on.capturing(stream):  # the legacy default stream, 1, cannot be captured
            workspace = workspaces.for_capture(stream, bound)
        if needs and own is None:
            workspace = workspace or streams.get(stream) or workspaces.for_stream(stream)
            allocation = workspace.acquire(spec)
            w = allocation.address
        else:
            w = own or 0
            if needs and spec.zeroed:
                on.launch(kernel, clear, w.to_bytes(8, sys.byteorder), stream)
        for step in steps:
            on.launch(kernel, step.step, step.parameters(a, b, c, w, epilogue_args), stream)
        if allocation is not None and workspace is not None:
            workspace.put_back(spec, allocation)

    if len(steps) == 1 and not needs:
        only, pack = steps[0].step, steps[0].parameters
        return recording.observed(bound.problem, on, launch_one)
    return recording.observed(bound.problem, on, launch)


SLOW_SECONDS = 5.0  #: estimate of a call on the emulated device above which a process is warned


def compute_on_host(problem: Problem, *arrays: Any) -> Any:
    """``Runner.compute`` for host arrays."""
    if driver().clock == "model":
        _warn_if_slow(problem)
    done = runner_for(problem).compute(*arrays)
    recording.notify(problem, driver())
    return done


_warned = False


def _warn_if_slow(problem: Problem) -> None:
    """Warns once per process if a call takes long on the emulated device, although no setting asks for that device."""
    global _warned
    from ptxgen.runtime.emulated import estimate_text, estimated_seconds

    seconds = estimated_seconds([problem.flops])
    if not _warned and seconds > SLOW_SECONDS and settings.settings().driver == "auto":
        _warned = True
        warnings.warn(
            f"there is no usable NVIDIA GPU: the emulated device computes {problem.key()}, {estimate_text(seconds)};"
            " PTXGEN_DRIVER=emulated hides this warning",
            RuntimeWarning,
            stacklevel=2,
        )


def workspace_address(x: Any, bound: Runner, **arrays: Any) -> int | None:
    """The address of a caller's workspace ``x``; None if ``x`` is None. InputError, OverlapError, DeviceError: ``x``
    breaks a rule."""
    if x is None:
        return None
    address, size, device = device_memory(x, "workspace")
    if device not in (None, bound.driver.index):
        raise DeviceError(f"workspace is on GPU {device}; it must be on GPU {bound.driver.index}, as the operands")
    if address % WORKSPACE_ALIGNMENT:
        raise InputError(f"workspace is at address {address:#x}; it must be a multiple of {WORKSPACE_ALIGNMENT}")
    if size < bound.launch.workspace:
        raise InputError(
            f"workspace has {size} bytes; it must have at least {bound.launch.workspace}"
            " (ptxgen.workspace_size returns this number)"
        )
    for name, array in arrays.items():
        first, end = tensor(array, name).span
        if address < end and first < address + size:
            raise OverlapError(f"workspace shares memory with {name}")
    return address


def refuse_host_workspace(x: Any) -> int | None:
    """The workspace size of a call on host arrays: 0 for a size query, None without ``workspace``. InputError: a
    workspace is given."""
    if x is None or x is QUERY_SIZE:
        return None if x is None else 0
    raise InputError("workspace is given and the operands are in host memory; workspace requires GPU arrays")


def workspace_size(call: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    """The bytes of workspace that ``call(*arguments, **options)`` needs; 0 if it needs none. ``call`` is
    ``ptxgen.gemm``, ``ptxgen.conv2d`` or another convolution, and the arrays are on a GPU.

    The kernel is selected and loaded, but not launched. Errors: as for the call. InputError: ``call`` is no function.
    """
    if not callable(call):
        rule = "the function that is called, before its arguments: workspace_size(ptxgen.gemm, a, b)"
        raise InputError(f"call is of type {type(call).__name__}; it must be {rule}")
    size: int = call(*arguments, **options, workspace=QUERY_SIZE)
    return size


@contextmanager
def ordered(on: Driver, stream: int, views: Iterable[View]) -> Iterator[None]:
    """Kernels that the block queues on ``stream`` begin after the work on the streams of all arrays, and the later work
    of those streams begins after the kernels. The block waits for the kernels if an array is shared through DLPack,
    which does not notify its library when they end."""
    views = list(views)
    # PyTorch has one current stream for all tensors on a GPU
    arrays = {type(x) if hasattr(x, "new_empty") else id(x): x for x in (v.origin for v in views)}
    others = {current_stream(x) for x in arrays.values()} - {stream}
    for other in others:
        on.order(other, stream)
    yield
    for other in others:
        on.order(stream, other)
    if any(v.owner is not None for v in views):
        on.wait(stream)


def current_stream(x: Any) -> int:
    """The raw handle of the current stream of the array's library. The default stream, 0, is returned as 1
    (CU_STREAM_LEGACY)."""
    if hasattr(x, "new_empty"):
        import torch

        return int(torch._C._cuda_getCurrentRawStream(x.device.index)) or 1
    if is_cupy(x):
        import cupy

        with x.device:  # CuPy has a current stream for each GPU
            return int(cupy.cuda.get_current_stream().ptr) or 1
    facts = getattr(x, "__cuda_array_interface__", None)  # of an array that DLPack shared, unchecked
    return int((facts.get("stream") if isinstance(facts, dict) else None) or 1)  # 1: dlpack.LEGACY_STREAM too
