"""Arrays of truth values as arguments of tasks: kernels read them as bytes, 0 or 1."""

from __future__ import annotations

from typing import Any

from ptxgen.api import new_arrays
from ptxgen.api.arrays import View, tensor
from ptxgen.api.task_launches import NotRecorded


def view_of(x: Any, argument: str, recording: NotRecorded) -> View:
    """``x`` as a View; truth values of NumPy, PyTorch and CuPy as one of uint8 in the same memory. InputError,
    ShapeError, DtypeError: ``x`` is not a supported array."""
    return tensor(recording.part(new_arrays.as_bytes(x), x) if new_arrays.is_truth(x) else x, argument)
