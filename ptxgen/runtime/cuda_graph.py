"""Calls of cuda-bindings: CUDA graphs, tensor maps, contexts and stream capture.

PyCUDA has no graphs, cannot wrap foreign stream handles, and does not expose function handles. The handle of a PyCUDA
function is read from the kernel node of a captured launch.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ptxgen.codegen.source import TensorMap
from ptxgen.cuda_abi import MAP_ALIGNMENT, MAP_BYTES, MAP_SWIZZLES, MAP_TYPES
from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.install_advice import install_extra

_DISABLE_TIMING = 2  #: CU_EVENT_DISABLE_TIMING
_NO_INTERLEAVE, _PROMOTE_128_BYTES, _FILL_ZERO = 0, 2, 0


class DriverError(LaunchError):
    """A CUDA driver call failed. ``code``: its CUresult as an integer."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def load() -> Any:
    """The driver module of cuda-bindings. UnavailableError: it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError as e:
        raise UnavailableError(f"cuda-bindings cannot be imported ({e}); {install_extra('cuda')}") from e
    return driver


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of cuda-bindings and returns its results without the status: None, a value, or a list.
    DriverError: the status is an error."""
    code, *values = function(*arguments)
    if code:
        raise driver_error(function.__name__, code)
    return values if len(values) > 1 else values[0] if values else None


def driver_error(name: str, code: Any) -> DriverError:
    """The DriverError of a failed call. ``name``: the called function; ``code``: its CUresult."""
    text = load().cuGetErrorString(code)[1]
    words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return DriverError(f"{name} failed: {words} ({getattr(code, 'name', code)})", int(code))


def current_context() -> int:
    """The handle of the calling thread's CUDA context; 0 if it has none. DriverError: the query failed."""
    context = ctypes.c_void_p()
    if code := _get_context()(ctypes.byref(context)):
        raise driver_error("cuCtxGetCurrent", load().CUresult(code))
    return context.value or 0


@functools.cache
def _get_context() -> Any:
    """The function cuCtxGetCurrent through ctypes, for speed: machines with several GPUs call it before each launch."""
    pointer, _ = call(load().cuGetProcAddress, b"cuCtxGetCurrent", 12000, 0)
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(int(pointer))


def current_device() -> int:
    """The index of the GPU of the calling thread's context; 0 if it has none."""
    try:
        return int(call(load().cuCtxGetDevice)) if current_context() else 0
    except (DriverError, UnavailableError, RuntimeError):  # not initialised, or not installed
        return 0


def device_of(address: int) -> int | None:
    """The index of the GPU whose memory contains ``address``; None: ``address`` is in no GPU's memory."""
    try:
        driver = load()
        which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(call(driver.cuPointerGetAttribute, which, address))
    except (DriverError, UnavailableError, RuntimeError):
        return None


def set_context(handle: int) -> None:
    """Makes a context current in the calling thread, permanently, as the CUDA runtime does."""
    call(load().cuCtxSetCurrent, load().CUcontext(handle))


def drop_context() -> None:
    """Pops the top of the calling thread's context stack."""
    load().cuCtxPopCurrent()


class Graph:
    """A CUDA graph captured from ``stream`` (a raw handle) while ``record`` runs. It is a context manager, which
    destroys the graph at its end."""

    def __init__(self, stream: int, record: Callable[[], object]) -> None:
        self._driver = load()
        self._stream = self._driver.CUstream(stream)
        graph = _capture(stream, record)
        try:
            self._exec = call(self._driver.cuGraphInstantiate, graph, 0)
        finally:
            self._driver.cuGraphDestroy(graph)
        self._driver.cuGraphUpload(self._exec, self._stream)  # otherwise the first replay would take longer

    def launch(self) -> None:
        """Queues one replay."""
        (code,) = self._driver.cuGraphLaunch(self._exec, self._stream)
        if code:
            raise driver_error("cuGraphLaunch", code)

    def close(self) -> None:
        if self._exec is not None:
            self._driver.cuGraphExecDestroy(self._exec)
            self._exec = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, exception_class: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def captured_function(stream: int, launch: Callable[[], object]) -> int:
    """The function handle of the single kernel that ``launch`` queues on ``stream``. The launch is captured, not
    run."""
    driver = load()
    graph = _capture(stream, launch)
    try:
        listed, _ = call(driver.cuGraphGetNodes, graph, 2)
        nodes = [n for n in listed if int(n)]
        if len(nodes) != 1:
            raise LaunchError(f"{len(nodes)} graph nodes were captured; expected one kernel")
        parameters = call(driver.cuGraphKernelNodeGetParams, nodes[0])
        return int(parameters.func) or int(parameters.kern)
    finally:
        driver.cuGraphDestroy(graph)


MOST_NODES = 64  #: limit of nodes of a graph whose kernels are listed


@dataclass(frozen=True)
class CapturedKernel:
    """A kernel of a captured launch. ``name``: the mangled name; ``registers``: registers per thread; ``shared``: bytes
    of static and dynamic shared memory per block; ``blocks_sm``: the most resident blocks per multiprocessor."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared: int
    blocks_sm: int

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)


def captured_kernels(stream: int, launch: Callable[[], object]) -> list[CapturedKernel]:
    """The kernels that ``launch``, by any library, queues on ``stream``. The kernels are captured, not run."""
    driver = load()
    kernel_node = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    facts = driver.CUfunction_attribute
    graph, kernels = _capture(stream, launch), []
    try:
        nodes, count = call(driver.cuGraphGetNodes, graph, MOST_NODES)
        for node in nodes[:count]:
            if call(driver.cuGraphNodeGetType, node) != kernel_node:
                continue
            p = call(driver.cuGraphKernelNodeGetParams, node)
            function = p.func if int(p.func) else call(driver.cuKernelGetFunction, p.kern)
            grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
            static = call(driver.cuFuncGetAttribute, facts.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
            resident = call(
                driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, math.prod(block), p.sharedMemBytes
            )
            kernels.append(
                CapturedKernel(
                    call(driver.cuFuncGetName, function).decode(),
                    grid,
                    block,
                    call(driver.cuFuncGetAttribute, facts.CU_FUNC_ATTRIBUTE_NUM_REGS, function),
                    static + p.sharedMemBytes,
                    resident,
                )
            )
        return kernels
    finally:
        driver.cuGraphDestroy(graph)


def fill(address: int, size: int, stream: int) -> None:
    """Queues on ``stream``, a raw handle, a memset of ``size`` bytes to zero."""
    driver = load()
    if (address | size) % 4:
        call(driver.cuMemsetD8Async, address, 0, size, stream)
    elif size:
        call(driver.cuMemsetD32Async, address, 0, size // 4, stream)


def upload(address: int, data: Any, stream: int) -> None:
    """Queues a copy of an array of bytes in host memory to ``address`` on ``stream``, a raw handle."""
    call(load().cuMemcpyHtoDAsync, address, data.ctypes.data, data.nbytes, stream)


def order(before: int, after: int) -> None:
    """Work that is queued on the stream ``after`` from now on begins after the work that ``before`` now holds."""
    driver = load()
    event = call(driver.cuEventCreate, _DISABLE_TIMING)
    try:
        call(driver.cuEventRecord, event, before)
        call(driver.cuStreamWaitEvent, after, event, 0)
    finally:
        driver.cuEventDestroy(event)  # once it has occurred


def capturing(stream: int) -> bool:
    """True if ``stream``, a raw handle, is being captured into a graph. DriverError: the query failed."""
    status = ctypes.c_int()
    if code := _is_capturing()(stream, ctypes.byref(status)):
        raise driver_error("cuStreamIsCapturing", load().CUresult(code))
    return status.value != 0


@functools.cache
def _is_capturing() -> Any:
    """The function cuStreamIsCapturing through ctypes, for speed: each launch on a foreign stream calls it before."""
    pointer, _ = call(load().cuGetProcAddress, b"cuStreamIsCapturing", 12000, 0)
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(int(pointer))


class Capture:
    """The capture in progress on ``stream``, a raw handle. ``id``: unique in the process. LaunchError: an earlier
    error invalidated the capture."""

    def __init__(self, stream: int) -> None:
        driver = load()
        status, number, self._graph, *_ = call(driver.cuStreamGetCaptureInfo, driver.CUstream(stream))
        if status != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            raise LaunchError("the capture of the stream was invalidated by an earlier error")
        self.id = int(number)

    def watch(self) -> Callable[[], bool]:
        """A function that returns True while the graph, or an instance or a clone of the graph, exists.

        CUDA releases a user object of the graph with the last of these. The destructor of the user object runs in a
        thread of the driver, where it must not call CUDA or block (for example on Python's interpreter lock). The
        destructor posts a semaphore, which is never freed.
        """
        if sys.platform != "linux":
            return lambda: True
        driver, libc = load(), ctypes.CDLL(None)
        libc.calloc.restype = ctypes.c_void_p
        semaphore = ctypes.c_void_p(libc.calloc(1, _SEMAPHORE_BYTES))
        libc.sem_init(semaphore, 0, 0)
        post = driver.CUhostFn(ctypes.cast(libc.sem_post, ctypes.c_void_p).value)
        no_sync = int(driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        move = int(driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE)
        user = call(driver.cuUserObjectCreate, semaphore.value, post, 1, no_sync)
        try:
            call(driver.cuGraphRetainUserObject, self._graph, user, 1, move)
        except DriverError:
            driver.cuUserObjectRelease(user, 1)
            raise
        return lambda: libc.sem_trywait(semaphore) != 0


_SEMAPHORE_BYTES = 64  #: at least sizeof(sem_t)


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Within the ``with`` block, the thread may allocate, copy and load while streams are being captured. These calls
    are not captured."""
    driver = load()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call(driver.cuThreadExchangeStreamCaptureMode, mode)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


@functools.lru_cache(maxsize=4096)
def tensor_map(description: TensorMap, address: int) -> bytes:
    """A tensor map encoded by the driver. DriverError: it exceeds a limit of TMA."""
    memory = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT))()
    at = -(-ctypes.addressof(memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    d, rank = description, len(description.extents)
    extents, pitches = (ctypes.c_uint64 * rank)(*d.extents), (ctypes.c_uint64 * (rank - 1))(*d.pitches)
    words, type_code = ctypes.c_uint32 * rank, MAP_TYPES[d.dtype]
    options = (_NO_INTERLEAVE, MAP_SWIZZLES[d.swizzle], _PROMOTE_128_BYTES, _FILL_ZERO)
    if d.pixel_box is None:
        name, ones = "cuTensorMapEncodeTiled", words(*[1] * rank)
        code = _encoder(name)(at, type_code, rank, address, extents, pitches, words(*d.box), ones, *options)
    else:
        name, corner, pixels = "cuTensorMapEncodeIm2col", ctypes.c_int * (rank - 2), d.pixel_box
        lower, upper, steps = corner(*pixels.lower), corner(*pixels.upper), words(1, *pixels.strides, 1)
        code = _encoder(name)(at, type_code, rank, address, extents, pitches, lower, upper, *d.box, steps, *options)
    if code:
        raise driver_error(f"{name} of {description} at {address:#x}", load().CUresult(code))
    return ctypes.string_at(at, MAP_BYTES)


#: encoder -> the types of its arguments after the map and the element type; p: pointer, u: 32-bit integer
_ENCODERS = {"cuTensorMapEncodeTiled": "uppppp", "cuTensorMapEncodeIm2col": "upppppuup"}


@functools.cache
def _encoder(name: str) -> Any:
    """A function that encodes tensor maps, through ctypes: a map must be aligned in memory, and objects of
    cuda-bindings are not."""
    pointer, _ = call(load().cuGetProcAddress, name.encode(), 12000, 0)
    integer, pointer_type = ctypes.c_int, ctypes.c_void_p
    arguments = [pointer_type if letter == "p" else ctypes.c_uint32 for letter in _ENCODERS[name]]
    function_type = ctypes.CFUNCTYPE(integer, pointer_type, integer, *arguments, *[integer] * 4)
    return function_type(int(pointer))


def _capture(stream: int, record: Callable[[], object]) -> Any:
    """Captures ``stream`` into a graph while ``record`` runs."""
    driver = load()
    handle = driver.CUstream(stream)
    # Relaxed mode: a captured library may query the driver. Freeing memory would synchronise with the GPU, so the
    # garbage collector is disabled during the capture.
    call(driver.cuStreamBeginCapture, handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    collecting = gc.isenabled()
    gc.disable()
    try:
        record()
    except BaseException:
        code, graph = driver.cuStreamEndCapture(handle)
        if not code and int(graph):
            driver.cuGraphDestroy(graph)
        raise
    finally:
        if collecting:
            gc.enable()
    return call(driver.cuStreamEndCapture, handle)
