"""Cached launches of products with an epilogue, on PyTorch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxgen.api import launches, streams
from ptxgen.api.arrays import View, records_gradient
from ptxgen.runtime.runner import Runner

#: the arguments that kernels write
WRITTEN = ("out", "sums", "bias_grad")


@dataclass(frozen=True)
class Call:
    """A call that is not cached yet. ``key``: that of its launch; ``addresses``: those of the arguments that are
    arrays, by name; ``made``: the arrays for results that it allocated, by name."""

    key: Any
    addresses: dict[str, int]
    made: Mapping[str, Any]


@dataclass(frozen=True)
class Prepared:
    """What a later call with the same key needs besides the launch function. ``order``: the names of the arguments in
    the order of the kernel's arrays; ``sizes``: bytes of each; ``made``: shape and dtype of the results that the call
    allocates."""

    order: tuple[str, ...]
    sizes: Mapping[str, int]
    made: Mapping[str, tuple[tuple[int, ...], Any]]


def call_of(arrays: Mapping[str, Any], options: tuple[Any, ...]) -> Call | None:
    """The call with ``arrays``, the arguments that are arrays or None, and other ``options``. None: arrays of other
    libraries, and tensors that need checks not covered by a key."""
    about: list[Any] = []
    addresses: dict[str, int] = {}
    try:
        for name, x in arrays.items():
            if x is None:
                continue
            at = x.data_ptr()
            if not at or x.is_neg() or x.is_conj() or (x.requires_grad and records_gradient(x)):
                return None
            addresses[name] = at
            about.append((name, type(x), x.shape, x.stride(), x.dtype, at & 15, x.get_device()))
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None
    return Call((tuple(about), options), addresses, {})


def launched(call: Call | None, a: Any) -> Mapping[str, Any] | None:
    """Launches a call whose launch is cached. The results that it allocates, by name; None if no launch is cached, or
    if arguments overlap. ``a``: an array in whose memory results are."""
    ready = launches.cached(call.key) if call is not None else None
    if call is None or ready is None:
        return None
    launch, prepared, _ = ready
    made = {name: a.new_empty(shape, dtype=dtype) for name, (shape, dtype) in prepared.made.items()}
    addresses = call.addresses | {name: x.data_ptr() for name, x in made.items()}
    if overlap(addresses, prepared.sizes):
        return None
    launch(tuple(map(addresses.__getitem__, prepared.order)), streams.current_stream(a))
    return made


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
    call: Call, launch: Any, used: tuple[View, ...], order: tuple[int, ...], made: Mapping[str, Any], runner: Runner
) -> None:
    """Caches the launch function of a call. ``used``: the arguments and results as the launch uses them; ``order``: the
    addresses of the kernel's arrays; ``made``: further results that were allocated. A call that copied an argument, or
    whose arguments share an address, is not cached."""
    results = {name: (tuple(x.shape), x.dtype) for name, x in (*call.made.items(), *made.items())}
    at = call.addresses | {name: x.data_ptr() for name, x in (*call.made.items(), *made.items())}
    names = {address: name for name, address in at.items()}
    sizes = {v.address: v.span[1] - v.address for v in used}  # strides of PyTorch are not negative
    if len(names) == len(at) == len(used) and names.keys() == sizes.keys() and names.keys() >= {*order}:
        by_name = {name: sizes[address] for name, address in at.items()}
        launches.store(call.key, launch, Prepared(tuple(names[x] for x in order), by_name, results), runner)
