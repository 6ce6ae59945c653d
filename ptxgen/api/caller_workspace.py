"""Workspaces that callers provide: their rules and their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxgen.api.arrays import device_memory, tensor
from ptxgen.errors import DeviceError, InputError, OverlapError
from ptxgen.runtime.runner import Runner

WORKSPACE_ALIGNMENT = 256  #: bytes; alignment of a caller's workspace
#: value of ``workspace=`` with which a call returns the workspace size in bytes and launches nothing
QUERY_SIZE = object()


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
