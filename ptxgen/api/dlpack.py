"""DLPack: arrays of any library in host memory or on a GPU, and results that any library can take.

The structures are those of DLPack 1.1 (dmlc/dlpack, dlpack.h), and the protocol is that of the Python array API.
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import DtypeError, InputError
from ptxgen.problem.dtypes import ALLOWED, DTYPES, Dtype
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  #: DLDeviceType
LEGACY_STREAM = 1  #: the stream for which an array on a GPU is requested
NAME, VERSIONED = b"dltensor", b"dltensor_versioned"  #: names of capsules, which refer to these bytes
READ_ONLY = 1  #: a bit of the flags

_DTYPES = {(d.dlpack, d.bits): d for d in DTYPES.values()}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _capsule_function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _capsule_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new = _capsule_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Exported:
    """An array that its library exported. ``strides``: in elements; ``device``: the index of its GPU, None in host
    memory; ``capsule``: keeps the memory valid."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype
    device: int | None
    readonly: bool
    capsule: Any


def exports(x: Any) -> bool:
    """True if an array has the methods of the DLPack protocol."""
    return hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")


def on_gpu(x: Any) -> int | None:
    """The index of the GPU of an array; None: it is in host memory."""
    device_type, index = x.__dlpack_device__()
    return int(index) if int(device_type) in (CUDA, CUDA_MANAGED) else None


def read(x: Any, argument: str) -> Exported:
    """The memory of an array. Work that the array's library has queued is ordered before later work on the legacy
    default stream.

    InputError, DtypeError: the library does not export the array, or ptxgen does not support it.
    """
    try:
        device_type = int(x.__dlpack_device__()[0])
        if device_type not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
            raise InputError(
                f"{argument} is on a device of DLPack's type {device_type}; it must be in host memory or on a GPU"
            )
        options = {} if on_gpu(x) is None else {"stream": LEGACY_STREAM}
        try:
            capsule = x.__dlpack__(max_version=(1, 1), **options)
        except TypeError:  # a library of DLPack before 1.0
            capsule = x.__dlpack__(**options)
    except (BufferError, ValueError, RuntimeError, AttributeError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"{argument} is {type(x).__name__}, which its library does not export: {e}") from e
    readonly = False
    if _is_valid(capsule, VERSIONED):
        versioned = _Versioned.from_address(_pointer(capsule, VERSIONED))
        t, readonly = versioned.tensor, bool(versioned.flags & READ_ONLY)
    else:
        t = _Managed.from_address(_pointer(capsule, NAME)).tensor
    element = _DTYPES.get((t.code, t.bits))
    if element is None or t.lanes != 1:
        dtype = getattr(x, "dtype", f"of code {t.code}, {t.bits} bits and {t.lanes} lanes")
        raise DtypeError(f"{argument} has dtype {dtype}; it must be one of {ALLOWED}")
    shape = tuple(t.shape[: t.ndim])
    strides = tuple(t.strides[: t.ndim]) if t.strides else _packed(shape)
    device = t.device_index if t.device_type in (CUDA, CUDA_MANAGED) else None
    return Exported((t.data or 0) + t.byte_offset, shape, strides, element, device, readonly, capsule)


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


#: address of an exported structure -> the objects that it refers to
_exported: dict[int, tuple[Any, ...]] = {}


def _delete(managed: int) -> None:
    _exported.pop(managed, None)


#: the deleter, which the library that took an array calls
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)


def export(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], element: Dtype, device: tuple[int, int], owner: Any
) -> Any:
    """A DLPack capsule of an array. ``strides``: in elements; ``device``: DLDeviceType and index; ``owner``: the object
    that keeps the memory valid. ``owner`` is kept until the library that takes the array releases it, or until
    ``withdraw``."""
    sizes, steps = ((ctypes.c_int64 * max(len(shape), 1))(*numbers) for numbers in (shape, strides))
    tensor = _Tensor(address, *device, len(shape), element.dlpack, element.bits, 1, sizes, steps, 0)
    managed = _Managed(tensor, None, ctypes.cast(_DELETER, ctypes.c_void_p))
    at = ctypes.addressof(managed)
    _exported[at] = managed, sizes, steps, owner
    # The capsule has no destructor: one in Python would run while an exception ends the call, which Python does not
    # allow.
    return _new(at, NAME, None)


def withdraw(capsule: Any) -> None:
    """Releases the owner of a capsule that no library has taken. A library that takes the array renames the capsule."""
    if _is_valid(capsule, NAME):
        _exported.pop(_pointer(capsule, NAME), None)


class DeviceArray:
    """A result in GPU memory that the library of the operands has yet to take by DLPack. The call that computes it
    waits for its kernels, so the result is complete for every stream. LaunchError: out of memory."""

    def __init__(self, on: Driver, shape: tuple[int, ...], element: Dtype) -> None:
        self.driver, self.shape, self.strides, self.element = on, shape, _packed(shape), element
        self.capsules: list[Any] = []
        self.memory = Allocation(on, max(element.bytes * math.prod(shape), 1))

    def transpose(self, order: tuple[int, ...]) -> DeviceArray:
        """A view with its axes in another order."""
        view = object.__new__(DeviceArray)
        view.driver, view.element, view.memory, view.capsules = self.driver, self.element, self.memory, []
        view.shape, view.strides = tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order)
        return view

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.driver.index

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the array is exported on its own device, without a copy")
        made = export(
            self.memory.address, self.shape, self.strides, self.element, self.__dlpack_device__(), self.memory
        )
        self.capsules.append(made)
        return made

    def __del__(self) -> None:
        for capsule in self.__dict__.get("capsules", ()):
            if sys.getrefcount(capsule) <= 3:  # the list, the loop and the argument: no library can take it
                withdraw(capsule)
