"""What cuda-bindings is for: CUDA graphs, and launches on streams that PyCUDA did not make.

PyCUDA has no graphs, its streams cannot wrap a foreign handle, and its functions do not show theirs. A captured launch
shows it: the node of a graph carries the function.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ptxgen.cuda_abi import MAP_ALIGNMENT, MAP_BYTES
from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.source import TensorMap

# CUtensorMapDataType by our names, and CUtensorMapSwizzle by the bytes that its pattern spans
_MAP_TYPES = {"u8": 0, "s32": 3, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11}
_MAP_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
_NO_INTERLEAVE, _PROMOTE_128_BYTES, _FILL_ZERO = 0, 2, 0


class DriverError(LaunchError):
    """A call of the CUDA driver failed. ``code``: its CUresult as an integer."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def load() -> Any:
    """The driver's calls as cuda-bindings has them. UnavailableError: it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError as e:
        raise UnavailableError(f'cuda-bindings cannot be imported ({e}); pip install "ptxgen[cuda]"') from e
    return driver


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function`` returns beside its status: None, a value, or a list of them. DriverError: it failed."""
    code, *values = function(*arguments)
    if code:
        raise failure(function.__name__, code)
    return values if len(values) > 1 else values[0] if values else None


def failure(name: str, code: Any) -> DriverError:
    """The error that says which call failed and what the driver calls it."""
    text = load().cuGetErrorString(code)[1]
    words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return DriverError(f"{name} failed: {words} ({getattr(code, 'name', code)})", int(code))


def current_context() -> int:
    """The handle of the calling thread's CUDA context; 0: none."""
    return int(call(load().cuCtxGetCurrent))


def set_context(handle: int) -> None:
    """Makes a context the calling thread's, as the CUDA runtime does: it stays."""
    call(load().cuCtxSetCurrent, load().CUcontext(handle))


def drop_context() -> None:
    """Takes the topmost context off the calling thread's stack."""
    load().cuCtxPopCurrent()


class Graph:
    """What ``record`` queues on ``stream`` (a raw handle), ready to be replayed there. Close it, or use ``with``."""

    def __init__(self, stream: int, record: Callable[[], object]) -> None:
        self._driver = load()
        self._stream = self._driver.CUstream(stream)
        graph = _capture(stream, record)
        try:
            self._exec = call(self._driver.cuGraphInstantiate, graph, 0)
        finally:
            self._driver.cuGraphDestroy(graph)
        self._driver.cuGraphUpload(self._exec, self._stream)  # now, so that the first replay costs what the others do

    def launch(self) -> None:
        """Queues one replay."""
        (code,) = self._driver.cuGraphLaunch(self._exec, self._stream)
        if code:
            raise failure("cuGraphLaunch", code)

    def close(self) -> None:
        if self._exec is not None:
            self._driver.cuGraphExecDestroy(self._exec)
            self._exec = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def function_of(stream: int, launch: Callable[[], object]) -> int:
    """The handle of the one kernel that ``launch`` queues on ``stream``. It is captured, so it does not run."""
    driver = load()
    graph = _capture(stream, launch)
    try:
        listed, _ = call(driver.cuGraphGetNodes, graph, 2)
        nodes = [n for n in listed if int(n)]
        if len(nodes) != 1:
            raise LaunchError(f"{len(nodes)} operations were queued where one kernel was expected")
        found = call(driver.cuGraphKernelNodeGetParams, nodes[0])
        return int(found.func) or int(found.kern)
    finally:
        driver.cuGraphDestroy(graph)


def fill(address: int, size: int, stream: int) -> None:
    """Queues the clearing of ``size`` bytes on ``stream``, a raw handle."""
    driver = load()
    if (address | size) % 4:
        call(driver.cuMemsetD8Async, address, 0, size, stream)
    elif size:
        call(driver.cuMemsetD32Async, address, 0, size // 4, stream)


def capturing(stream: int) -> bool:
    """Whether what is queued on ``stream``, a raw handle, goes into a graph."""
    return bool(int(call(load().cuStreamIsCapturing, stream)))


@functools.lru_cache(maxsize=4096)
def tensor_map(description: TensorMap, address: int) -> bytes:
    """A tensor map as the driver encodes it. DriverError: it breaks a limit of the TMA unit."""
    memory = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT))()
    at = -(-ctypes.addressof(memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    d, rank = description, len(description.extents)
    extents, pitches = (ctypes.c_uint64 * rank)(*d.extents), (ctypes.c_uint64 * (rank - 1))(*d.pitches)
    words, kind = ctypes.c_uint32 * rank, _MAP_TYPES[d.dtype]
    how = (_NO_INTERLEAVE, _MAP_SWIZZLES[d.swizzle], _PROMOTE_128_BYTES, _FILL_ZERO)
    if d.walk is None:
        name, ones = "cuTensorMapEncodeTiled", words(*[1] * rank)
        code = _encoder(name)(at, kind, rank, address, extents, pitches, words(*d.box), ones, *how)
    else:
        name, corner = "cuTensorMapEncodeIm2col", ctypes.c_int * (rank - 2)
        steps = words(1, *d.walk.steps, 1)
        code = _encoder(name)(at, kind, rank, address, extents, pitches, corner(*d.walk.lower), corner(*d.walk.upper),
                              *d.box, steps, *how)  # fmt: skip
    if code:
        raise failure(f"{name} of {description} at {address:#x}", load().CUresult(code))
    return ctypes.string_at(at, MAP_BYTES)


#: the types of what the encoders take, after the map and the element type: p a pointer, u a number
_ENCODERS = {"cuTensorMapEncodeTiled": "uppppp", "cuTensorMapEncodeIm2col": "upppppuup"}


@functools.cache
def _encoder(name: str) -> Any:
    """An encoder itself: the map must be aligned in memory, which cuda-bindings' own object is not."""
    pointer, _ = call(load().cuGetProcAddress, name.encode(), 12000, 0)
    number, where = ctypes.c_int, ctypes.c_void_p
    takes = [where if letter == "p" else ctypes.c_uint32 for letter in _ENCODERS[name]]
    kind = ctypes.CFUNCTYPE(number, where, number, *takes, *[number] * 4)
    return kind(int(pointer))


def _capture(stream: int, record: Callable[[], object]) -> Any:
    """The graph of what ``record`` queues on ``stream``."""
    driver = load()
    handle = driver.CUstream(stream)
    # Relaxed: what is recorded may be a library that asks the driver this and that. But nothing must be freed
    # meanwhile, for that waits for the GPU, so the garbage collector rests.
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
