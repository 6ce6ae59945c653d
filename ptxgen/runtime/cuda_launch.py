"""Launches kernels through cuLaunchKernelEx, for what PyCUDA cannot do: foreign streams and launch attributes.

The calls go through ctypes with argument structures that are built once; cuda-bindings would convert the arguments at
each launch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ptxgen.runtime import cuda_graph

Sizes = tuple[int, int, int]
MAX_CONFIGURATIONS = 256  #: cached launch configurations of a kernel


class _Attribute(ctypes.Structure):
    """The C structure CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint), ("value", ctypes.c_uint * 17))


class _Configuration(ctypes.Structure):
    """The C structure CUlaunchConfig."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),  # grid, block, bytes of dynamic shared memory
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class KernelHandle:
    """A kernel that can be launched on any stream. ``size``: bytes of its parameter buffer; ``dependent``: launches use
    programmatic stream serialization: the kernel may start before its predecessor in the stream ends, and waits for the
    predecessor with griddepcontrol.wait."""

    def __init__(self, handle: int, size: int, dependent: bool = False) -> None:
        self.size = size
        self._handle = ctypes.c_void_p(handle)
        self._size = ctypes.c_size_t(size)
        #: parameter buffers that no thread uses; the driver copies a buffer during the launch call
        self._buffers: list[tuple[memoryview, Any]] = []
        allowed = _Attribute(6)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        allowed.value[1] = 1  # a union of 64 bytes at offset 8
        self._attributes, self._count = ctypes.pointer(allowed), int(dependent)
        self._configurations: dict[object, Any] = {}
        self._launch = _launcher()

    def launch(self, grid: Sizes, block: Sizes, parameters: bytes, shared: int, stream: int) -> None:
        """Queues the kernel on ``stream``, a raw handle. DriverError: the driver rejected the launch."""
        requested = (grid, block, shared, stream)
        configuration = self._configurations.get(requested) or self._configure(requested)
        try:
            buffer = self._buffers.pop()  # faster than a lock
        except IndexError:
            buffer = self._new_buffer()
        data, extra = buffer
        data[:] = parameters
        code = self._launch(configuration, self._handle, None, extra)
        self._buffers.append(buffer)
        if code:
            raise cuda_graph.driver_error("cuLaunchKernelEx", cuda_graph.load().CUresult(code))

    def _new_buffer(self) -> tuple[memoryview, Any]:
        """The bytes of a new parameter buffer, and a reference to the launch options that contain its address."""
        memory = (ctypes.c_char * max(self.size, 1))()
        pointer, length, end = 1, 2, None  # CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END
        addresses = ctypes.addressof(memory), ctypes.addressof(self._size)
        extra = (ctypes.c_void_p * 5)(pointer, addresses[0], length, addresses[1], end)
        return memoryview(memory).cast("B")[: self.size], ctypes.byref(extra)  # they keep both valid

    def _configure(self, requested: tuple[Sizes, Sizes, int, int]) -> Any:
        """A reference to the structure for a launch. Structures are cached, because launches of several shapes
        alternate."""
        grid, block, shared, stream = requested
        made = _Configuration((*grid, *block, shared), stream=stream, attributes=self._attributes, count=self._count)
        if len(self._configurations) >= MAX_CONFIGURATIONS:
            self._configurations.clear()
        self._configurations[requested] = at = ctypes.byref(made)  # it keeps the structure valid
        return at


@functools.cache
def _launcher() -> Any:
    """The function cuLaunchKernelEx. Its arguments must be objects of ctypes or None: no argument types are declared,
    because checking them takes a third of the call."""
    pointer, _ = cuda_graph.call(cuda_graph.load().cuGetProcAddress, b"cuLaunchKernelEx", 12000, 0)
    return ctypes.CFUNCTYPE(ctypes.c_int)(int(pointer))


class DependentFunction:
    """A function object that replaces the library's for kernels with programmatic dependent launch.

    ``plain``: the library's function object; ``make_handle``: creates the KernelHandle of ``plain``.
    """

    __slots__ = ("_make_handle", "_ready", "plain")

    def __init__(self, make_handle: Callable[..., KernelHandle], plain: Any) -> None:
        self._make_handle, self.plain = make_handle, plain
        self._ready: KernelHandle | None = None

    def _launch_kernel(self, grid: Sizes, block: Sizes, parameters: bytes, shared: int, stream: Any) -> None:
        if self._ready is None or self._ready.size != len(parameters):
            self._ready = self._make_handle(self.plain, grid, block, parameters, shared, True)
        self._ready.launch(grid, block, parameters, shared, stream.handle)
