"""A common view of arrays of NumPy, PyTorch, CuPy and any library with ``__cuda_array_interface__`` or DLPack."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.api import dlpack
from ptxgen.api.dlpack import DeviceArray
from ptxgen.arguments import is_integer, shown
from ptxgen.errors import DtypeError, InputError, OverlapError, ShapeError
from ptxgen.problem.dtypes import ALLOWED, DTYPES, Dtype, from_numpy
from ptxgen.runtime.cuda_graph import device_of

#: ``max_work`` of np.shares_memory; arrays for which it is exceeded count as overlapping
OVERLAP_WORK = 1 << 20
ADDRESS_MOST, STRIDE_MOST = 2**64 - 1, 2**63 - 1
#: packages whose arrays never change although DLPack exports them without the read-only flag
IMMUTABLE = ("jax", "jaxlib")


@dataclass(frozen=True)
class View:
    """An array in memory. ``strides``: in elements; ``address``: of the first element; ``host``: whether it is in host
    memory; ``conjugated``: whether its values are the conjugates of those in memory, as PyTorch's ``x.H`` has them;
    ``origin``: the user's array object; ``device``: the index of its GPU, None if unknown; ``owner``: the
    object that keeps the memory valid, if its library shared it through DLPack."""

    origin: Any
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype
    host: bool
    readonly: bool = False
    device: int | None = None
    owner: Any = None
    conjugated: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of the first byte and of the byte after the last."""
        if 0 in self.shape:
            return self.address, self.address
        ends = [(n - 1) * s * self.dtype.bytes for n, s in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
        return self.address + low, self.address + high + self.dtype.bytes


#: name of a PyTorch dtype -> row of DTYPES
_TORCH = {element.torch: element for element in DTYPES.values()}


def _numpy(x: Any, argument: str) -> View:
    if isinstance(x, np.ma.MaskedArray):
        raise _masked_array_error(argument, f"{argument}.filled(value) or {argument}.data")
    element = from_numpy(x.dtype, argument)
    strides = _in_elements(x.strides, element, argument)
    return View(x, x.ctypes.data, x.shape, strides, element, True, not x.flags.writeable)


def _masked_array_error(argument: str, instead: str) -> InputError:
    return InputError(f"{argument} is a masked array; masks are not supported: pass {instead}")


def _own_hook(array_class: type) -> str:
    """The name of the hook by which a subclass of PyTorch's tensor redefines operations; empty if the subclass has
    none."""
    for parent in array_class.__mro__:
        if (parent.__module__, parent.__name__) == ("torch", "Tensor"):
            break
        for hook in ("__torch_function__", "__torch_dispatch__"):
            own = vars(parent).get(hook)
            if own is not None and getattr(own, "__name__", "") != "_disabled_torch_function_impl":  # Parameter's
                return hook
    return ""


def _torch(x: Any, argument: str) -> View:
    if hook := _own_hook(type(x)):
        raise InputError(
            f"{argument} is a {type(x).__name__}, a tensor subclass with its own {hook}, whose memory need not hold its"
            " values; it must be a plain tensor"
        )
    name = str(x.dtype)
    if name not in _TORCH:
        raise DtypeError(f"{argument} has dtype {name}; it must be one of {ALLOWED}")
    if x.device.type not in ("cpu", "cuda"):
        raise InputError(f"{argument} is on the device {x.device.type!r}; it must be on cpu or cuda")
    if x.is_neg():
        raise InputError(f"{argument} is a view with the negative bit; pass {argument}.resolve_neg()")
    require_no_gradient(x, argument)
    try:
        address = x.data_ptr()
    except RuntimeError:  # sparse tensors, tensors inside torch.vmap
        address = 0
    if not address and 0 not in x.shape:  # fake tensors have the address 0
        raise InputError(f"{argument} is a {type(x).__name__} without memory of its own; it must be a dense tensor")
    device = x.device.index if x.device.type == "cuda" else None
    shape, strides, conjugated = tuple(x.shape), tuple(x.stride()), x.is_conj()
    return View(x, address, shape, strides, _TORCH[name], device is None, device=device, conjugated=conjugated)


def is_torch(x: Any) -> bool:
    """True if ``x`` is a PyTorch tensor or an instance of a subclass."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(x).__mro__)


def records_gradient(x: Any) -> bool:
    """True if PyTorch records operations on ``x`` for automatic differentiation."""
    torch = sys.modules.get("torch")  # loaded if there is a tensor; an import statement would cost 0.3 µs per call
    return torch is not None and getattr(x, "requires_grad", False) and torch.is_grad_enabled()


def is_plain_tensor(x: Any) -> bool:
    """True if a PyTorch tensor's memory holds its values (no negative bit, not fake) and no gradient is recorded."""
    return bool(x.data_ptr()) and not x.is_neg() and not (x.requires_grad and records_gradient(x))


def require_no_gradient(x: Any, argument: str) -> None:
    """Raises InputError if PyTorch records gradients with respect to ``x``."""
    if records_gradient(x):
        raise InputError(
            f"{argument} requires a gradient, which functions on arrays do not compute; use ptxgen.torch, or call it"
            f" inside torch.no_grad(), or pass {argument}.detach()"
        )


@dataclass(frozen=True)
class _Interface:
    """The checked content of ``__cuda_array_interface__``. ``strides``: in bytes; None: the elements are packed."""

    address: int
    readonly: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype[Any]


def _read_interface(x: Any, argument: str) -> _Interface:
    """The checked entries of ``x.__cuda_array_interface__``. InputError, ShapeError, DtypeError: an entry breaks a
    rule, which the message names."""
    facts, name = x.__cuda_array_interface__, f"{argument}.__cuda_array_interface__"
    if not isinstance(facts, dict):
        raise InputError(f"{name} is {shown(facts)}; it must be a dict")
    if absent := [key for key in ("data", "shape", "typestr") if key not in facts]:
        raise InputError(f"{name} has no {', '.join(absent)}; it must have data, shape and typestr")
    if facts.get("mask") is not None:
        raise _masked_array_error(argument, "an array without a mask")
    try:
        dtype = np.dtype(str(facts["typestr"]))
    except (TypeError, ValueError, SyntaxError):  # NumPy parses the text as an expression
        raise DtypeError(
            f"{argument} has typestr {shown(facts['typestr'])}; it must be that of a NumPy dtype"
        ) from None
    data, shape, strides, stream = facts["data"], facts["shape"], facts.get("strides"), facts.get("stream")
    if not (isinstance(data, tuple | list) and len(data) == 2 and is_integer(data[0], 0, ADDRESS_MOST)):
        raise InputError(f"{argument} has data {shown(data)}; it must be a tuple of the address and a truth value")
    if not _are_integers(shape, 0):
        raise ShapeError(f"{argument} has shape {shown(shape)}; it must be a tuple of integers, 0 or greater")
    if strides is not None and not (_are_integers(strides, -STRIDE_MOST) and len(strides) == len(shape)):
        rule = f"they must be None, or {len(shape)} integers, one per axis"
        raise ShapeError(f"{argument} has strides {shown(strides)} bytes; {rule}")
    if stream is not None and not is_integer(stream, 0, ADDRESS_MOST):
        raise InputError(f"{argument} has stream {shown(stream)}; it must be None or an integer")
    steps = tuple(map(int, strides)) if strides else None
    return _Interface(int(data[0]), bool(data[1]), tuple(map(int, shape)), steps, dtype)


def _are_integers(values: Any, least: int) -> bool:
    return isinstance(values, tuple | list) and all(is_integer(n, least, STRIDE_MOST) for n in values)


def _interface(x: Any, argument: str) -> View:
    facts = _read_interface(x, argument)
    element = from_numpy(facts.dtype, argument)
    bytes_of = facts.strides if facts.strides is not None else _packed(facts.shape, element.bytes)
    return View(
        x,
        facts.address,
        facts.shape,
        _in_elements(bytes_of, element, argument),
        element,
        False,
        facts.readonly,
        _gpu_index(x, facts.address),
    )


def _packed(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The strides, in bytes, of packed elements of ``size`` bytes."""
    return tuple(size * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _in_elements(strides: tuple[int, ...], element: Dtype, argument: str) -> tuple[int, ...]:
    """Strides in elements, from strides in bytes. ShapeError: a stride is no multiple of the element size."""
    if any(s % element.bytes for s in strides):
        raise ShapeError(f"{argument} has strides {strides} bytes; they must be multiples of {element.bytes}")
    return tuple(s // element.bytes for s in strides)


def _gpu_index(x: Any, address: int) -> int | None:
    """The index of the GPU of an array that is not PyTorch's; None: unknown."""
    index = getattr(getattr(x, "device", None), "id", None)  # CuPy's
    return device_of(address) if index is None else int(index)


def as_numpy(v: View) -> np.ndarray[Any, Any]:
    """The values of ``v`` as a NumPy array on the same memory. A ``conjugated`` view gives the conjugates of the values
    in memory. Types that PyTorch cannot convert to NumPy are reinterpreted bitwise."""
    if isinstance(v.origin, np.ndarray):
        return v.origin
    if v.owner is not None:
        return _memory(v, v.readonly).view(v.dtype.numpy)
    x = v.origin.detach()
    if v.conjugated:  # that memory, without a mark of it
        x = x.conj()
    if not v.dtype.native_numpy:
        x = x.view(getattr(importlib.import_module("torch"), f"int{8 * v.dtype.bytes}"))
    array: np.ndarray[Any, Any] = x.numpy().view(v.dtype.numpy)
    return array


def view(x: Any, argument: str, batched: bool = False) -> View:
    """``x`` as a View of two dimensions, or also of three (batch first) if ``batched``. An axis of extent 1 gets the
    stride 0.

    InputError, DtypeError: ``x`` is not a supported array. ShapeError: its number of dimensions is not supported.
    """
    out = tensor(x, argument)
    if len(out.shape) not in ((2, 3) if batched else (2,)):
        allowed = "2, or with the batch first 3," if batched else "2"
        raise ShapeError(f"{argument} has shape {out.shape}; it must have {allowed} dimensions")
    return replace(out, strides=tuple(s if n != 1 else 0 for n, s in zip(out.shape, out.strides, strict=True)))


def tensor(x: Any, argument: str) -> View:
    """``x`` as a View of any number of dimensions. InputError, ShapeError, DtypeError: ``x`` is not a supported
    array."""
    reader: Callable[[Any, str], View]
    if isinstance(x, np.ndarray):
        reader = _numpy
    elif is_torch(x):
        reader = _torch
    elif dlpack.exports(x) and not _names_its_stream(x):
        reader = _dlpack
    elif hasattr(x, "__cuda_array_interface__"):
        reader = _interface
    else:
        raise InputError(
            f"{argument} is {type(x).__name__}; it must be an array of NumPy, PyTorch, CuPy or a library with DLPack"
        )
    return reader(x, argument)


def _names_its_stream(x: Any) -> bool:
    """True if the array interface of ``x`` names the stream on which the array's library works, so that a call can be
    ordered on that stream without a wait."""
    facts = getattr(x, "__cuda_array_interface__", None)
    return is_cupy(x) or (isinstance(facts, dict) and "stream" in facts)


def is_cupy(x: Any) -> bool:
    """True if ``x`` is an array of CuPy."""
    return type(x).__module__.partition(".")[0] == "cupy"


def _dlpack(x: Any, argument: str) -> View:
    if isinstance(x, DeviceArray):
        return View(x, x.memory.address, x.shape, x.strides, x.element, False, device=x.driver.index, owner=x.memory)
    e = dlpack.read(x, argument)
    readonly = e.readonly or type(x).__module__.partition(".")[0] in IMMUTABLE
    return View(x, e.address, e.shape, e.strides, e.dtype, e.device is None, readonly, e.device, e.capsule)


def device_memory(x: Any, argument: str) -> tuple[int, int, int | None]:
    """The triple (address, size in bytes, index of the GPU) of a contiguous, writable array of any type on a GPU.

    InputError: ``x`` is not such an array.
    """
    torch = type(x).__module__.startswith("torch")
    if torch and x.device.type == "cuda":
        if not x.is_contiguous():
            raise InputError(f"{argument} has strides {tuple(x.stride())}; its elements must be contiguous")
        return int(x.data_ptr()), int(x.nbytes), x.device.index
    if torch or not hasattr(x, "__cuda_array_interface__"):
        raise InputError(f"{argument} is {type(x).__name__}, not on a GPU; it must be a GPU array")
    facts = _read_interface(x, argument)
    packed = _packed(facts.shape, facts.dtype.itemsize)
    if facts.strides not in (None, packed):
        raise InputError(f"{argument} has strides {facts.strides} bytes; its elements must be contiguous")
    if facts.readonly:
        raise InputError(f"{argument} is read-only")
    return facts.address, facts.dtype.itemsize * math.prod(facts.shape), _gpu_index(x, facts.address)


def matrix_layout(v: View) -> tuple[str, int] | None:
    """The pair (``N`` if rows are contiguous, ``T`` if columns are; leading dimension) of a matrix, or of each matrix
    of a batch. None: neither rows nor columns are contiguous."""
    (rows, columns), (down, along) = v.shape[-2:], v.strides[-2:]
    if rows == 0 or columns == 0:
        return "N", 0
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return "N", down if rows > 1 else 0
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return "T", along if columns > 1 else 0
    return None


def emptied(v: View, axis: int) -> View:
    """``v`` with extent 0 along ``axis``, as the operand of a product with K = 0: kernels read nothing of it."""
    shape = list(v.shape)
    shape[axis] = 0
    origin = np.empty(shape, v.dtype.numpy) if v.host else v.origin
    return replace(v, origin=origin, owner=None if v.host else v.owner, shape=tuple(shape), strides=(0,) * len(shape))


def overlap(x: View, y: View) -> bool:
    """True if two arrays share a byte. Interleaved arrays without a common byte do not overlap."""
    if 0 in (*x.shape, *y.shape) or x.span[1] <= y.span[0] or y.span[1] <= x.span[0]:
        return False
    return _shares_memory(_addresses(x), _addresses(y))


def overlaps_itself(v: View) -> bool:
    """True if two elements of one array share a byte."""
    if 0 in v.shape:
        return False
    extent = 1
    for stride, n in sorted((abs(s), n) for s, n in zip(v.strides, v.shape, strict=True) if n > 1):
        if stride < extent:
            break
        extent += stride * (n - 1)
    else:
        return False  # each stride exceeds the extent of all shorter strides together
    # two elements at one address differ in an index: compare the first slice along each axis with the rest
    x = _addresses(v)
    axes = [np.moveaxis(x, axis, 0) for axis in range(x.ndim)]
    return any(_shares_memory(along[:1], along[1:]) for along in axes)


@dataclass(frozen=True)
class _Memory:
    """An object with NumPy's array interface."""

    __array_interface__: dict[str, Any]


def _addresses(v: View) -> np.ndarray[Any, Any]:
    """A NumPy array with the addresses of ``v``, which may be in GPU memory. Its elements must not be read."""
    return _memory(v, True)


def _memory(v: View, readonly: bool) -> np.ndarray[Any, Any]:
    """A NumPy array of untyped elements on the memory of ``v``. It does not keep the memory valid."""
    size = v.dtype.bytes
    interface = {
        "version": 3,
        "data": (v.address, readonly),
        "shape": v.shape,
        "strides": tuple(s * size for s in v.strides),
        "typestr": f"|V{size}",
    }
    return np.asarray(_Memory(interface))


def _shares_memory(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    try:
        return np.shares_memory(x, y, max_work=OVERLAP_WORK)  # type: ignore[arg-type] # NumPy accepts any int
    except np.exceptions.TooHardError:
        return True


def alignment_of(address: int) -> int:
    """The largest power of two, up to 16, that ``address`` is a multiple of."""
    return min(16, address & -address) if address else 16


def require_same_memory(name: str, v: View, other: str, w: View) -> None:
    """InputError: one of two arrays is in host memory, the other on a GPU. ``name``, ``other``: the names of the two
    arguments."""
    if v.host != w.host:
        places = [f"{x} is {'in host memory' if y.host else 'on a GPU'}" for x, y in ((name, v), (other, w))]
        raise InputError(f"{' and '.join(places)}; they must be in the same memory")


def require_disjoint(out: View, argument: str = "out", /, **operands: View) -> None:
    """OverlapError: ``out`` shares memory with an operand. InputError: it is read-only. ShapeError: its own elements
    share memory. ``argument``: the name of ``out`` in messages."""
    for name, x in operands.items():
        if overlap(out, x):
            raise OverlapError(f"{argument} shares memory with {name}; they must not overlap")
    if out.readonly:
        raise InputError(f"{argument} is read-only")
    if overlaps_itself(out):
        raise ShapeError(
            f"{argument} has shape {out.shape} and strides {out.strides}; its elements must not share memory"
        )
