"""Kernels that may begin while the one before them in their stream ends: launches with an attribute.

The attribute is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, which PyCUDA cannot give.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ptxgen.drivers import graph

Sizes = tuple[int, int, int]


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint), ("value", ctypes.c_uint * 17))


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),  # grid, block, bytes of dynamic shared memory
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class Function(graph.Function):
    """A kernel that waits for the one before it in its stream itself, so that it may begin before that has ended."""

    def __init__(self, handle: int, size: int) -> None:
        super().__init__(handle, size)
        self._handle = ctypes.c_void_p(handle)
        allowed = _Attribute(6)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        allowed.value[1] = 1  # a union of 64 bytes at offset 8
        self._configuration = _Configuration(attributes=ctypes.pointer(allowed), count=1)
        self._at = ctypes.byref(self._configuration)
        self._known: object = None
        self._extended = _launcher()

    def launch(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: bytes, shared: int, stream: int
    ) -> None:
        with self._lock:
            self._bytes[:] = parameters
            wanted = (grid, block, shared, stream)
            if wanted != self._known:
                self._configuration.sizes[:] = (*grid, *block, shared)
                self._configuration.stream = stream
                self._known = wanted
            code = self._extended(self._at, self._handle, None, self._address)
        if code:
            raise graph.failure("cuLaunchKernelEx", graph.load().CUresult(code))


@functools.cache
def _launcher() -> Any:
    """cuLaunchKernelEx itself: as cuda-bindings has it, a launch would build its arguments anew."""
    pointer, _ = graph.call(graph.load().cuGetProcAddress, b"cuLaunchKernelEx", 12000, 0)
    where = ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int, where, where, where, where)(int(pointer))


class InPlace:
    """Stands where PyCUDA's function would, so that the launches of all other kernels need not ask which they are.

    ``plain``: PyCUDA's; ``handled``: makes a launch by handle of it.
    """

    __slots__ = ("_handled", "_ready", "plain")

    def __init__(self, handled: Callable[..., graph.Function], plain: Any) -> None:
        self._handled, self.plain = handled, plain
        self._ready: graph.Function | None = None

    def _launch_kernel(self, grid: Sizes, block: Sizes, parameters: bytes, shared: int, stream: Any) -> None:
        if self._ready is None or self._ready.size != len(parameters):
            self._ready = self._handled(self.plain, grid, block, parameters, shared, Function)
        self._ready.launch(grid, block, parameters, shared, stream.handle)
