"""Cached calls of ``gemm_grouped`` on PyTorch tensors: a later call repeats the launches of an earlier one at its own
addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.api import launches, recording, streams
from ptxgen.api.arrays import records_gradient
from ptxgen.operations.grouped.launch import GroupCall

Ints = NDArray[np.int64]

MAX_CALLS = 512  #: cached calls


@dataclass(frozen=True)
class CachedGroup:
    """One launch of a cached call. ``items``: the indices of its items; ``swapped``: B is the first operand; ``used``:
    the items whose C has elements; ``alignment``: the bytes to which the kernel expects A, B and C aligned."""

    call: GroupCall
    items: Ints
    swapped: bool
    used: Ints
    alignment: Ints


@dataclass(frozen=True)
class CachedCall:
    """A call of ``gemm_grouped`` that later calls repeat at other addresses. ``sizes``: bytes of A, B and C, one row
    per item; ``shapes``, ``dtype``: of the results; ``observers``: what is notified of each launch."""

    groups: tuple[CachedGroup, ...]
    sizes: Ints
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any
    observers: tuple[recording.Observer, ...] = ()

    def serves(self, at: Ints) -> bool:
        """True if the call can be repeated at these addresses: results share no memory with other arrays, and
        alignments are as the kernels expect."""
        for x in self.groups:
            if (np.bitwise_or.reduce(at[x.used], axis=0) & (x.alignment - 1)).any():
                return False
        low, high = at.ravel(), (at + self.sizes).ravel()
        full = self.sizes.ravel() > 0
        out = full & np.tile((False, False, True), len(at))
        order = np.argsort(low[out], kind="stable")
        first, last = low[out][order], high[out][order]
        if (first[1:] < last[:-1]).any():
            return False
        inputs = full & ~out
        before = np.searchsorted(first, high[inputs], "left") - 1  # the last result that begins before the input ends
        return not ((before >= 0) & (last[before] > low[inputs])).any()


def key_of(a: Sequence[Any], b: Sequence[Any], outs: Sequence[Any] | None, *rest: Any) -> tuple[Any, list[int]] | None:
    """The tuple (key of a call, addresses of A, B and the results, item by item). None: arrays of other libraries, and
    tensors that need checks that the key does not cover."""
    parts: list[Any] = []
    at = []
    try:
        for item in zip(a, b, strict=True) if outs is None else zip(a, b, outs, strict=True):
            for x in item:
                address = x.data_ptr()
                if x.is_neg() or (x.requires_grad and records_gradient(x)):
                    return None
                parts.append((type(x), x.shape, x.stride(), x.dtype, x.get_device()))
                at.append(address)
        key = (tuple(parts), outs is None, *(tuple(x) if isinstance(x, (list, np.ndarray)) else x for x in rest))
        hash(key)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # RuntimeError: a sparse tensor
        return None
    return key, at


def launch(call: CachedCall, a: Sequence[Any], outs: Sequence[Any] | None, at: list[int]) -> list[Any] | None:
    """The results of a cached call on these arrays. None: the call must be checked like a new one."""
    results = list(outs) if outs is not None else [a[0].new_empty(shape, dtype=call.dtype) for shape in call.shapes]
    addresses = np.array(at, np.int64).reshape(len(results), -1)
    if outs is None:
        made = np.array([x.data_ptr() for x in results], np.int64)
        addresses = np.column_stack([addresses, made])
    if not call.serves(addresses):
        return None
    stream = streams.current_stream(a[0])
    for x in call.groups:
        columns = (1, 0, 2) if x.swapped else (0, 1, 2)
        x.call(addresses[x.items][:, columns], stream)
        for observer in call.observers:
            observer(x.call.problem, 0, x.call.launch.driver)
    return results


def store(key: Any, call: CachedCall) -> None:
    """Caches a call."""
    calls = launches.grouped_calls
    while len(calls) >= MAX_CALLS:
        calls.popitem(last=False)
    calls[key] = call
