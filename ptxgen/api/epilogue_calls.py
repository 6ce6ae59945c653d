"""Cached launches of products with an epilogue, on PyTorch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxgen.api import launches, streams
from ptxgen.api.arrays import View, records_gradient
from ptxgen.runtime.runner import Runner

#: the arguments that kernels write
WRITTEN = ("out", "sums", "column_sums", "a_sums")


@dataclass(frozen=True)
class Prepared:
    """What a later call with the same key needs besides the launch function. ``order``: the names of the arguments in
    the order of the kernel's arrays; ``sizes``: bytes of each; ``shape``, ``dtype``: those of the result."""

    order: tuple[str, ...]
    sizes: Mapping[str, int]
    shape: tuple[int, ...]
    dtype: Any


def key_of(arrays: Mapping[str, Any], options: tuple[Any, ...]) -> tuple[Any, dict[str, int]]:
    """The pair (launch cache key, addresses by name of the argument) of a call. ``arrays``: the arguments that are
    arrays or None. The key is None for arrays of other libraries, and for tensors that need checks not covered by the
    key."""
    about: list[Any] = []
    addresses: dict[str, int] = {}
    try:
        for name, x in arrays.items():
            if x is None:
                continue
            at = x.data_ptr()
            if not at or x.is_neg() or x.is_conj() or (x.requires_grad and records_gradient(x)):
                return None, {}
            addresses[name] = at
            about.append((name, type(x), x.shape, x.stride(), x.dtype, at & 15, x.get_device()))
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None, {}
    return (tuple(about), options), addresses


def launched(key: Any, addresses: dict[str, int], a: Any, out: Any) -> Any:
    """The result of a call whose launch is cached; None if none is, or if arguments overlap."""
    ready = launches.cached(key) if key is not None else None
    if ready is None:
        return None
    launch, prepared, _ = ready
    if out is None:
        out = a.new_empty(prepared.shape, dtype=prepared.dtype)
        addresses["out"] = out.data_ptr()
    if overlap(addresses, prepared.sizes):
        return None
    launch(tuple(map(addresses.__getitem__, prepared.order)), streams.current_stream(a))
    return out


def overlap(addresses: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """True if memory that a kernel writes overlaps that of another argument."""
    ranges = [(n, at, at + sizes[n]) for n, at in addresses.items()]
    return any(
        n != other and first < end and start < last
        for n, first, last in ranges
        if n in WRITTEN
        for other, start, end in ranges
    )


def store(
    key: Any,
    launch: Any,
    addresses: Mapping[str, int],
    used: Mapping[str, View],
    order: tuple[int, ...],
    dtype: Any,
    shape: tuple[int, ...],
    runner: Runner,
) -> None:
    """Caches the launch function of a call. ``addresses``: those of the arguments; ``used``: the arguments and the
    result as the call used them; ``order``: the addresses of the kernel's arrays; ``dtype``, ``shape``: those of the
    result. A call that copied an argument, or whose arguments share an address, is not cached."""
    by_address = {v.address: n for n, v in used.items()}
    given = dict(addresses) | {"out": used["out"].address}
    if len(by_address) < len(used) or any(by_address.get(at) != n for n, at in given.items()) or len(given) < len(used):
        return
    if not set(order) <= by_address.keys():
        return
    sizes = {n: v.span[1] - v.address for n, v in used.items()}  # strides of PyTorch are not negative
    launches.store(key, launch, Prepared(tuple(by_address[x] for x in order), sizes, shape, dtype), runner)
