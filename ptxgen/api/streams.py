"""Streams of array libraries: the current stream, the order of work between streams, graph capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ptxgen.api.arrays import View, is_cupy
from ptxgen.runtime.driver import Driver


def current_stream(x: Any) -> int:
    """The handle of the current stream of the array's library. The default stream, 0, is returned as 1
    (CU_STREAM_LEGACY)."""
    if hasattr(x, "new_empty"):
        import torch

        return int(torch._C._cuda_getCurrentRawStream(x.device.index)) or 1
    if is_cupy(x):
        import cupy

        with x.device:  # CuPy has a current stream for each GPU
            return int(cupy.cuda.get_current_stream().ptr) or 1
    facts = getattr(x, "__cuda_array_interface__", None)  # of an array that DLPack shared, unchecked
    return int((facts.get("stream") if isinstance(facts, dict) else None) or 1)  # 1: dlpack.LEGACY_STREAM too


@contextmanager
def ordered(on: Driver, stream: int, views: Iterable[View]) -> Iterator[None]:
    """Kernels that the block queues on ``stream`` begin after the work on the streams of all arrays, and the later work
    of those streams begins after the kernels. If an array is shared through DLPack, the end of the block waits for the
    kernels, because its library cannot be told when they end."""
    views = list(views)
    # PyTorch has one current stream for all tensors on a GPU
    arrays = {type(x) if hasattr(x, "new_empty") else id(x): x for x in (v.origin for v in views)}
    others = {current_stream(x) for x in arrays.values()} - {stream}
    for other in others:
        on.order(other, stream)
    yield
    for other in others:
        on.order(stream, other)
    if any(v.owner is not None for v in views):
        on.wait(stream)


def is_captured(stream: int, on: Driver) -> bool:
    """True if a stream of a driver, given by its handle, is being captured into a graph. The legacy default stream, 1,
    is never captured."""
    return stream > 1 and on.capturing(stream)
