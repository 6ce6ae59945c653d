"""Arrays of truth values as arguments of tasks: kernels read them as bytes, 0 or 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import new_arrays
from ptxgen.api.arrays import View, is_cupy, is_torch, tensor
from ptxgen.api.task_launches import NotRecorded
from ptxgen.errors import DtypeError

#: NumPy's names of the element types of tasks
TYPES = ("float64", "float32", "float16", "bfloat16", "int32", "uint32", "int16", "uint16", "int8", "uint8", "bool")


def view_of(x: Any, argument: str, recording: NotRecorded) -> View:
    """``x`` as a View; truth values of NumPy, PyTorch and CuPy as one of uint8 in the same memory. InputError,
    ShapeError, DtypeError: ``x`` is not a supported array."""
    known = str(getattr(x, "dtype", "")).removeprefix("torch.")
    if known not in TYPES and (isinstance(x, np.ndarray) or is_torch(x) or is_cupy(x)):
        raise DtypeError(f"{argument} has dtype {known}; it must be one of {', '.join(TYPES)}")
    return tensor(recording.part(new_arrays.as_bytes(x), x) if new_arrays.is_truth(x) else x, argument)
