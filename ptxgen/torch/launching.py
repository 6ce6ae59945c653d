"""Cached launches of operators, checks of their operands, and the settings of PyTorch that choose the arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo import guards
from torch.overrides import is_tensor_like

from ptxgen.errors import DeviceError, DtypeError, InputError

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)  # a build for the CPU has none
_deterministic = torch._C._get_deterministic_algorithms
_fp32_precision = getattr(torch._C, "_get_fp32_precision_getter", None)
#: operation -> the setting of earlier versions of PyTorch that allows TF32
_ALLOW_TF32 = {"matmul": torch._C._get_cublas_allow_tf32, "conv": torch._C._get_cudnn_allow_tf32}


def key_of(
    operation: str, options: tuple[Any, ...], a: Tensor, b: Tensor, bias: Tensor | None = None
) -> tuple[Any, int, int, tuple[int, ...]]:
    """The key of a cached launch, then the addresses of ``a``, of ``b`` and of the bias.

    The key contains all on which the launch depends: ``operation``, ``options``, and the shape, strides, dtype,
    alignment, device and negative bit of each tensor. The key is None for tensors without strides or memory.
    """
    try:
        at_a, at_b = a.data_ptr(), b.data_ptr()
        operands = (
            operation,
            options,
            a.shape,
            a.stride(),
            a.dtype,
            at_a & 15,
            a.get_device(),
            a.is_neg(),
            b.shape,
            b.stride(),
            b.dtype,
            at_b & 15,
            b.get_device(),
            b.is_neg(),
        )
        if bias is None:
            return operands, at_a, at_b, ()
        at_bias = bias.data_ptr()
        about = bias.shape, bias.stride(), bias.dtype, at_bias & 15, bias.get_device(), bias.is_neg()
        return (operands, about), at_a, at_b, (at_bias,)
    except RuntimeError:
        return None, 0, 0, ()


def settings(x: Tensor, operation: str) -> tuple[bool, bool]:
    """Two settings of PyTorch: True if TF32 is allowed for ``x``, and True if results must be deterministic.
    ``operation``: matmul or conv."""
    if x.dtype is not torch.float32 or not x.is_cuda:
        return False, _deterministic()
    return _settings_of_f32(operation)


def _settings_of_f32(operation: str) -> tuple[bool, bool]:
    tf32 = _fp32_precision("cuda", operation) == "tf32" if _fp32_precision else _ALLOW_TF32[operation]()
    return tf32, _deterministic()


def settings_reader(x: Tensor, operation: str) -> Callable[[], Any]:
    """The function that reads the part of ``settings`` that can change between calls on tensors like ``x``."""
    if x.dtype is not torch.float32 or not x.is_cuda:
        reader: Callable[[], Any] = _deterministic
        return reader
    return functools.partial(_settings_of_f32, operation)


def compute(x: Tensor, tf32: bool) -> str:
    """The ``compute`` of a problem: "tf32", or "" for the default. GPUs before sm_80 multiply without TF32."""
    return "tf32" if tf32 and torch.cuda.get_device_capability(x.device) >= (8, 0) else ""


def launch(
    run: Callable[..., None], result: tuple[Any, ...], a: int, b: int, epilogue_args: tuple[int, ...] = ()
) -> Tensor:
    """Launches a cached kernel on the addresses ``a`` and ``b``, and returns its result, a new tensor. ``result``: what
    ``allocation`` returned."""
    empty, shape, strides, dtype, device = result
    out: Tensor = empty(shape, strides, dtype)
    run((a, b, out.data_ptr(), *epilogue_args), _current_stream(device) or 1)  # 1: CU_STREAM_LEGACY
    return out


def allocation(out: Tensor) -> tuple[Any, ...]:
    """The argument ``result`` of ``launch`` for results like ``out``."""
    return _allocator(out.device), tuple(out.shape), out.stride(), out.dtype, out.get_device()


@functools.cache
def _allocator(device: torch.device) -> Callable[..., Tensor]:
    """``torch.empty_strided`` on a device, as a function of shape, strides and dtype. On the current GPU it is the
    function that compiled code calls, which takes half of the time."""
    current: Callable[..., Tensor] | None = getattr(guards, f"_empty_strided_{device.type}", None)

    def allocate(shape: Any, strides: Any, dtype: torch.dtype) -> Tensor:
        if current is not None and torch._C._cuda_getDevice() == device.index:
            return current(shape, strides, dtype)
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    one = device.type == "cpu" or (device.type == "cuda" and torch.cuda.device_count() == 1)
    return current if one and current is not None else allocate


def in_place(*pairs: tuple[Tensor | None, Tensor | None]) -> bool:
    """True if in each pair (operand of a kernel, argument of a user) both tensors have the same address: then later
    calls with such arguments can use the cached launch."""
    return all(x is None or y is None or x.data_ptr() == y.data_ptr() for x, y in pairs)


def vector(bias: Tensor | None) -> Tensor | None:
    """The bias in the form that kernels read: contiguous, without a negative bit."""
    return None if bias is None else bias.resolve_neg().contiguous()


def check_dense(name: str, x: Any) -> None:
    """Raises InputError if ``x`` is not a dense tensor."""
    if not is_tensor_like(x):
        raise InputError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor")
    if isinstance(x, Tensor) and (x.is_nested or x.layout is not torch.strided):
        layout = "nested" if x.is_nested else str(x.layout)
        raise InputError(f"{name} is a {layout} tensor; it must be a dense one")


def check_operands(**named: Tensor | None) -> None:
    """Checks operands, which have their names in errors. DtypeError: a tensor has a dtype that the operators do not
    compute, or the dtypes differ. DeviceError: the devices differ. InputError: an operand is not a dense tensor."""
    first = None
    for name, x in named.items():
        if x is None:
            continue
        check_dense(name, x)
        if x.is_complex():
            raise DtypeError(
                f"{name} is {x.dtype}; complex tensors are not supported: multiply real and imaginary parts"
                " (torch.view_as_real), or use PyTorch's own operator"
            )
        if x.dtype not in DTYPES:
            raise DtypeError(f"{name} is {x.dtype}; it must be float16, bfloat16, float32 or float64")
        if first is not None and x.dtype is not first[1].dtype:
            raise DtypeError(f"{first[0]} is {first[1].dtype} and {name} is {x.dtype}; they must be the same")
        if first is not None and x.device != first[1].device:
            raise DeviceError(
                f"{first[0]} is on {first[1].device} and {name} on {x.device}; they must be on one device"
            )
        first = first or (name, x)
