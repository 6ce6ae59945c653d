"""The part of PyCUDA's interface that ``CudaDriver`` uses, on cuda-bindings alone: for machines without PyCUDA.

Names and arguments are those of ``pycuda.driver``; its documentation describes them. Unlike PyCUDA's, these objects
do not make their context current: the caller must.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections import Counter
from typing import Any

import numpy as np

from ptxgen.runtime import cuda_graph
from ptxgen.runtime.cuda_graph import DriverError as Error
from ptxgen.runtime.cuda_graph import call, load
from ptxgen.runtime.cuda_launch import KernelHandle, Sizes

LOG_BYTES = 1 << 14  #: bytes of the buffer for the log of the driver's assembler
NAME_BYTES, PCI_BYTES = 256, 32  #: buffer bytes for a device's name, and for its PCI address
ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6  #: CUjit_option

NO_DEVICE = 100  #: CUDA_ERROR_NO_DEVICE
#: handle of a primary context -> the number of times it is retained; 0: its objects no longer exist
_retained: Counter[int] = Counter()


class _Names:
    """The members of an enumeration of cuda-bindings, without their prefix."""

    def __init__(self, enumeration: str, prefix: str) -> None:
        self._enumeration, self._prefix = enumeration, prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(load(), self._enumeration), self._prefix + name)


device_attribute = _Names("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_")
function_attribute = _Names("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_")


def init() -> None:
    """Initialises the driver. DriverError: NVIDIA's driver is missing, or it finds no GPU."""
    try:
        call(load().cuInit, 0)
    except RuntimeError as e:  # cuda-bindings finds no libcuda
        raise Error(str(e), NO_DEVICE) from e


def get_driver_version() -> int:
    return int(call(load().cuDriverGetVersion))


class Context:
    """A retained primary context. ``handle``: its raw handle."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._context = call(load().cuDevicePrimaryCtxRetain, device)
        self.handle = int(self._context)
        _retained[self.handle] += 1

    def push(self) -> None:
        call(load().cuCtxPushCurrent, self._context)

    @staticmethod
    def pop() -> None:
        call(load().cuCtxPopCurrent)

    @staticmethod
    def synchronize() -> None:
        call(load().cuCtxSynchronize)

    def detach(self) -> None:
        """Releases the context."""
        _retained[self.handle] -= 1
        call(load().cuDevicePrimaryCtxRelease, self._device)


class Device:
    def __init__(self, index: int) -> None:
        self._device = call(load().cuDeviceGet, index)

    @staticmethod
    def count() -> int:
        return int(call(load().cuDeviceGetCount))

    def name(self) -> str:
        name: bytes = call(load().cuDeviceGetName, NAME_BYTES, self._device)
        return name.rstrip(b"\0").decode(errors="replace")

    def get_attribute(self, which: Any) -> int:
        return int(call(load().cuDeviceGetAttribute, which, self._device))

    def compute_capability(self) -> tuple[int, int]:
        return (
            self.get_attribute(device_attribute.COMPUTE_CAPABILITY_MAJOR),
            self.get_attribute(device_attribute.COMPUTE_CAPABILITY_MINOR),
        )

    def pci_bus_id(self) -> str:
        """The PCI address of the GPU, for example ``0000:1b:00.0``."""
        address: bytes = call(load().cuDeviceGetPCIBusId, PCI_BYTES, self._device)
        return address.rstrip(b"\0").decode()

    def retain_primary_context(self) -> Context:
        return Context(self._device)


class Stream:
    """A stream, destroyed with its context. ``handle``: the raw handle."""

    def __init__(self, flags: int = 0) -> None:
        self._stream = call(load().cuStreamCreate, flags)
        self.handle = int(self._stream)

    def synchronize(self) -> None:
        call(load().cuStreamSynchronize, self._stream)


class Event:
    """A CUDA event that records a time. The caller's context must be current when the last reference ends."""

    def __init__(self) -> None:
        self._event = call(load().cuEventCreate, 0)

    def record(self, stream: Stream) -> None:
        call(load().cuEventRecord, self._event, stream.handle)

    def synchronize(self) -> None:
        call(load().cuEventSynchronize, self._event)

    def time_since(self, begin: Event) -> float:
        """The milliseconds since ``begin``."""
        return float(call(load().cuEventElapsedTime, begin._event, self._event))

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            load().cuEventDestroy(self._event)


class DeviceAllocation:
    def __init__(self, size: int) -> None:
        self._address = int(call(load().cuMemAlloc, size))

    def __int__(self) -> int:
        return self._address

    def free(self) -> None:
        call(load().cuMemFree, self._address)


mem_alloc = DeviceAllocation


def memcpy_htod_async(address: int, data: np.ndarray[Any, Any], stream: Stream) -> None:
    call(load().cuMemcpyHtoDAsync, address, data.ctypes.data, data.nbytes, stream.handle)


def memcpy_dtoh_async(data: np.ndarray[Any, Any], address: int, stream: Stream) -> None:
    call(load().cuMemcpyDtoHAsync, data.ctypes.data, address, data.nbytes, stream.handle)


def memset_d8_async(address: int, value: int, count: int, stream: Stream) -> None:
    call(load().cuMemsetD8Async, address, value, count, stream.handle)


def memset_d32_async(address: int, value: int, count: int, stream: Stream) -> None:
    call(load().cuMemsetD32Async, address, value, count, stream.handle)


def pagelocked_zeros(size: int, dtype: Any) -> np.ndarray[Any, Any]:
    """An array of ``size`` zeros in page-locked memory, which is freed with the last array that views it."""
    count = max(size * np.dtype(dtype).itemsize, 1)
    address = int(call(load().cuMemHostAlloc, count, 0))
    memory = (ctypes.c_ubyte * count).from_address(address)
    weakref.finalize(memory, _free_host, address, cuda_graph.current_context(), os.getpid()).atexit = False
    array: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)
    array[:] = 0
    return array[: size * np.dtype(dtype).itemsize].view(dtype)


def _free_host(address: int, context: int, process: int) -> None:
    """Frees page-locked memory of ``process``, unless its context is released, or this is a forked child process."""
    if not _retained[context] or process != os.getpid():
        return
    driver = load()
    driver.cuCtxPushCurrent(driver.CUcontext(context))
    try:
        with cuda_graph.relaxed_capture():
            driver.cuMemFreeHost(address)
    finally:
        driver.cuCtxPopCurrent()


class Module:
    """A module loaded from ``code``: a cubin, or PTX text that ends with a zero byte. The module is unloaded with its
    last reference, when its context must be current. DriverError: the driver rejected ``code``; the message has the
    assembler's log."""

    def __init__(self, code: bytes) -> None:
        self._context = cuda_graph.current_context()
        handle, log = ctypes.c_void_p(), ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        if failed := _loader()(ctypes.byref(handle), code, 2, options, values):
            error = cuda_graph.driver_error("cuModuleLoadDataEx", load().CUresult(failed))
            text = log.value.decode(errors="replace").strip()
            raise Error(f"{error}: {text}" if text else str(error), failed)
        self.handle = load().CUmodule(handle.value)
        weakref.finalize(self, _unload, self.handle, self._context).atexit = False

    def get_function(self, name: str) -> Function:
        return Function(self, name)


def _unload(handle: Any, context: int) -> None:
    """Unloads a module, unless its context is released."""
    if _retained[context]:
        load().cuModuleUnload(handle)


module_from_buffer = Module


@functools.cache
def _loader() -> Any:
    """The function cuModuleLoadDataEx, through ctypes. In cuda-bindings the form of the log buffer depends on the
    version."""
    pointer, _ = call(load().cuGetProcAddress, b"cuModuleLoadDataEx", 12000, 0)
    where = ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int, where, ctypes.c_char_p, ctypes.c_uint, where, where)(int(pointer))


class Function:
    """A kernel of a module. ``handle``: its raw handle."""

    def __init__(self, module: Module, name: str) -> None:
        self._module = module  # unloaded with the last function
        self._function = call(load().cuModuleGetFunction, module.handle, name.encode())
        self.handle = int(self._function)
        self._launcher: KernelHandle | None = None

    def get_attribute(self, which: Any) -> int:
        return int(call(load().cuFuncGetAttribute, which, self._function))

    def set_attribute(self, which: Any, value: int) -> None:
        call(load().cuFuncSetAttribute, self._function, which, value)

    def _launch_kernel(self, grid: Sizes, block: Sizes, parameters: bytes, shared: int, stream: Stream) -> None:
        launcher = self._launcher
        if launcher is None or launcher.size != len(parameters):
            launcher = self._launcher = KernelHandle(self.handle, len(parameters))
        launcher.launch(grid, block, parameters, shared, stream.handle)
