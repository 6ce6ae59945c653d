"""``unique_keys``: the distinct keys of an array of integers, and the position of each element's key among them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import call_lock, driver_state, drivers, new_arrays, streams
from ptxgen.api.arrays import View, as_numpy, is_cupy, is_torch, require_same_memory, tensor
from ptxgen.arguments import shown
from ptxgen.codegen.key_table import (
    COUNTS,
    DISTINCT,
    KEYS,
    MOST_KEYS,
    NUMBERS,
    SIGN,
    Inserted,
    KeyTable,
    Numbered,
)
from ptxgen.codegen.render import render_records
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.driver import Driver, Kernel

KEY_TYPES = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


class UniqueKeys(NamedTuple):
    """The distinct keys of an array. ``numbers``: for each element the position of its key in ``keys``, int32;
    ``keys``: the distinct keys in ascending order."""

    numbers: Any
    keys: Any


def unique_keys(x: Any) -> UniqueKeys:
    """The distinct keys of an array, and for each element the number (position) of its key among them, as arrays of the
    library of ``x``.

    ``x``: an array of NumPy, PyTorch or CuPy, of one dimension and any integers of 8 to 64 bits; on a GPU its elements
    must be consecutive. The numbers can be used as group keys of tasks. Host arrays are sorted by NumPy. On a GPU, a
    hash table finds the distinct keys and the host sorts them, so the call waits for the stream, and a CUDA graph
    cannot capture it. ShapeError, DtypeError, InputError: ``x`` breaks a rule.
    """
    with call_lock.lock:
        keys, [numbers] = numbered([x], ["x"])
    return UniqueKeys(numbers, keys)


def dtype_name(x: Any) -> str:
    """NumPy's name of an array's dtype."""
    return str(getattr(x, "dtype", "")).removeprefix("torch.")


def numbered(arrays: Sequence[Any], names: Sequence[str]) -> tuple[Any, list[Any]]:
    """The pair (the distinct keys of all arrays together, for each array the numbers of its keys). The arrays have one
    dtype. ``names``: their argument names."""
    views = [_view(x, name) for x, name in zip(arrays, names, strict=True)]
    first = arrays[0]
    for x, name in zip(arrays[1:], names[1:], strict=True):
        if dtype_name(x) != dtype_name(first):
            raise DtypeError(
                f"{names[0]} has dtype {dtype_name(first)} and {name} {dtype_name(x)}; keys that are compared must have"
                " one dtype"
            )
    for v, name in zip(views[1:], names[1:], strict=True):
        require_same_memory(names[0], views[0], name, v)
    return _on_host(arrays, views) if views[0].host else _on_device(arrays, views)


def _view(x: Any, name: str) -> View:
    """A View of the array; 64-bit elements are viewed as twice as many 32-bit elements."""
    key_type = dtype_name(x)
    if not key_type:
        raise InputError(f"{name} is {shown(x)}; it must be an array of NumPy, PyTorch or CuPy")
    if key_type not in KEY_TYPES:
        raise DtypeError(f"{name} has dtype {key_type}; it must be one of {', '.join(KEY_TYPES)}")
    if len(x.shape) != 1:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; it must have 1 dimension")
    if x.shape[0] >= MOST_KEYS:
        raise ShapeError(f"{name} has {x.shape[0]} keys; it must have less than {MOST_KEYS}")
    if isinstance(x, np.ndarray):
        return tensor(np.empty(0, np.int32), name)  # NumPy reads it
    bits = int(key_type.removeprefix("u").removeprefix("int"))
    words = f"int{min(bits, 32)}" if bits != 8 else "int8"
    try:
        made = x.view(getattr(importlib.import_module("torch"), words) if is_torch(x) else np.dtype(words))
        v = tensor(made, name)
    except (ValueError, RuntimeError, TypeError):
        raise ShapeError(f"{name} has strides; its elements must be consecutive") from None
    if v.shape[0] > 1 and v.strides != (1,):
        raise ShapeError(f"{name} has strides; its elements must be consecutive")
    return v


def _on_host(arrays: Sequence[Any], views: Sequence[View]) -> tuple[Any, list[Any]]:
    held = [x if isinstance(x, np.ndarray) else as_numpy(v) for x, v in zip(arrays, views, strict=True)]
    held = [y.view(dtype_name(x)) for x, y in zip(arrays, held, strict=True)]
    keys, places = np.unique(np.concatenate(held), return_inverse=True)
    numbers = np.split(places.reshape(-1).astype(np.int32), np.cumsum([x.size for x in held])[:-1])
    return _of_library(keys, arrays[0]), [_of_library(n, x) for n, x in zip(numbers, arrays, strict=True)]


def _of_library(made: np.ndarray[Any, Any], x: Any) -> Any:
    """A host array as an array of the library of ``x``."""
    return importlib.import_module("torch").from_numpy(made) if is_torch(x) else made


@lru_cache(maxsize=64)
def _kernel(plan: KeyTable, on: Driver) -> Kernel:
    """The loaded kernels of a hash table of keys; they stay loaded for later calls."""
    return driver_state.state_of(on).kernel(render_records(plan))


def _on_device(arrays: Sequence[Any], views: Sequence[View]) -> tuple[Any, list[Any]]:
    first, x = views[0], arrays[0]
    on, key_dtype = drivers.driver_of(first), np.dtype(dtype_name(x))
    drivers.require_device(on, **{f"keys{n}": v for n, v in enumerate(views)})
    stream = streams.current_stream(x)
    if streams.is_captured(stream, on):
        raise InputError("the stream is being captured into a CUDA graph; keys must be numbered outside of it")
    counts = [each.shape[0] for each in arrays]
    total = sum(counts)
    plan = KeyTable(8 * key_dtype.itemsize, key_dtype.kind == "i", on.device)
    kernel = _kernel(plan, on)
    scratch = {name: _bytes(x, size) for name, size in plan.scratch(total).items()}
    addresses = {name: tensor(made, name).address for name, made in scratch.items()}
    with streams.ordered(on, stream, views):
        for step in plan.clear(total):
            on.launch(kernel, step, step.pack(addresses), stream)
        for v, n in zip(views, counts, strict=True):
            if n:
                step = plan.insert(Inserted(n, plan.slots(total)))
                on.launch(kernel, step, step.pack({**addresses, KEYS: v.address}), stream)
        on.wait(stream)
        keys = _sorted(on, addresses, key_dtype)
        made = [new_arrays.empty_array(x, (n,), dtype("s32")) for n in counts]
        for v, n, numbers in zip(views, counts, made, strict=True):
            if n:
                step = plan.number(Numbered(n, len(keys)))
                at = {**addresses, KEYS: v.address, NUMBERS: tensor(numbers, NUMBERS).address}
                on.launch(kernel, step, step.pack(at), stream)
        on.wait(stream)
        return _uploaded(on, keys, x), made


def _bytes(x: Any, size: int) -> Any:
    """Device memory, aligned to 8 bytes, allocated by the library of ``x``."""
    return new_arrays.empty_array(x, (max(size, 8),), dtype("u8"))


def _sorted(on: Driver, addresses: dict[str, int], key_dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The distinct keys of the hash table in ascending order. The table in device memory is replaced by them."""
    counts = np.empty(2, np.uint32)
    on.download(addresses[COUNTS], counts)
    wide = np.empty(int(counts[0]), np.dtype(f"{key_dtype.kind}8"))
    if wide.size:
        on.download(addresses[DISTINCT], wide)
    if counts[1]:
        wide = np.append(wide, np.array([SIGN], np.uint64).view(wide.dtype))
    wide.sort()
    if wide.size:
        on.upload(addresses[DISTINCT], wide)
    return wide.astype(key_dtype)


def _uploaded(on: Driver, keys: np.ndarray[Any, Any], x: Any) -> Any:
    """The keys as an array on the device, of the library of ``x``."""
    if is_cupy(x):
        made = importlib.import_module("cupy").empty(keys.shape, keys.dtype)
    elif hasattr(x, "new_empty"):
        made = x.new_empty(keys.shape, dtype=x.dtype)
    else:
        raise InputError(
            f"the keys are an array of {type(x).__module__.partition('.')[0]}; they must be of NumPy, PyTorch or CuPy"
        )
    if keys.size:
        on.upload(replace(_view(made, "keys")).address, keys)
    return made
