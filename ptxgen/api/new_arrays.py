"""Result arrays that a call allocates, in the library of its operands."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ptxgen.api import dlpack, drivers
from ptxgen.api.arrays import is_cupy
from ptxgen.api.dlpack import DeviceArray
from ptxgen.errors import InputError
from ptxgen.problem.dtypes import Dtype


def empty_array(x: Any, shape: tuple[int, ...], element: Dtype) -> Any:
    """A new array of the library of ``x``, in the same memory. InputError: ptxgen cannot allocate arrays of that
    library."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, element.numpy)
    if (named := torch_dtype(x, element)) is not None:
        return x.new_empty(shape, dtype=named)
    if is_cupy(x):
        return importlib.import_module("cupy").empty(shape, element.numpy)
    if not hasattr(x, "__array_namespace__") or not dlpack.exports(x):
        raise InputError(f"out is None; with arrays of {type(x).__module__.partition('.')[0]} out is required")
    index = dlpack.on_gpu(x)  # result_of converts the result
    return np.empty(shape, element.numpy) if index is None else DeviceArray(drivers.gpu_driver(index), shape, element)


def is_truth(x: Any) -> bool:
    """True if ``x`` is a boolean array of a library that can view it as bytes."""
    return str(getattr(x, "dtype", "")) in ("bool", "torch.bool") and hasattr(x, "view")


def as_bytes(x: Any) -> Any:
    """A view of a boolean array as uint8."""
    return _viewed(x, "uint8")


def as_truth(x: Any) -> Any:
    """A view of an array of uint8, 0 and 1, as a boolean array; an array of a library without views is returned as it
    is."""
    return _viewed(x, "bool") if hasattr(x, "view") else x


def _viewed(x: Any, name: str) -> Any:
    """``x`` in the same memory, with another dtype of NumPy or PyTorch."""
    return x.view(getattr(importlib.import_module("torch"), name) if hasattr(x, "new_empty") else np.dtype(name))


def result_of(made: Any, x: Any) -> Any:
    """The result of a call as an array of the library of ``x``. ``made``: the array of the result, which
    ``empty_array`` has allocated."""
    if isinstance(made, DeviceArray):
        return x.__array_namespace__().from_dlpack(made)
    if isinstance(made, np.ndarray) and not isinstance(x, np.ndarray):
        return x.__array_namespace__().asarray(made)
    return made


def torch_dtype(x: Any, element: Dtype) -> Any:
    """PyTorch's dtype for ``element`` if ``x`` is one of its tensors; else None."""
    if not hasattr(x, "new_empty"):
        return None
    return getattr(importlib.import_module("torch"), element.numpy.name)
