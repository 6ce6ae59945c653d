"""The driver interface: a driver loads and launches a Source. There are two: ``cuda`` (PyCUDA) and ``emulated``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Timing:
    """The timing policy: ``samples`` times are taken, each from graph replays that last about ``target_ms``, over a
    ring of input sets that together exceed ``ring`` times the L2 cache (at most ``most`` sets). A kernel that takes
    more than ``limit_us`` has one sample, of fewer replays."""

    samples: int = 5
    target_ms: float = 4.0
    ring: float = 4.0
    most: int = 24
    limit_us: float = math.inf

    def __str__(self) -> str:
        return f"graph samples={self.samples} target_ms={self.target_ms:g} ring={self.ring:g}"


class Kernel(Protocol):
    """A loaded module. ``registers`` per thread and ``spills`` (bytes): of its first entry, -1 if unknown."""

    source: Source
    registers: int
    spills: int


class Capture(Protocol):
    """A capture of a stream's work into a graph. ``id``: unique in the process."""

    id: int

    def watch(self) -> Callable[[], bool]:
        """A function that tells whether the graph, or anything instantiated from it, still exists."""
        ...


class Driver(Protocol):
    """A device that runs Sources. Addresses are integers, sizes are bytes. Copies and fills are ordered with launches
    on the driver's own stream, and complete when the call returns.

    ``name``: ``cuda`` or ``emulated``; ``clock``: ``hardware`` or ``model``; ``version``: of the driver; ``assembler``:
    name and version of the assembler.
    """

    name: str
    clock: str
    device: Device
    version: str
    assembler: str

    def __hash__(self) -> int: ...
    def allocate(self, size: int) -> int: ...
    def release(self, address: int) -> None: ...
    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None: ...
    def download(self, address: int, array: np.ndarray[Any, Any]) -> None: ...
    def fill(self, address: int, size: int, byte: int = 0) -> None: ...
    def load(self, source: Source) -> Kernel:
        """Assembles and loads. AssembleError: the assembler or the driver rejected it."""
        ...

    def tensor_map(self, description: TensorMap, address: int) -> bytes:
        """The encoded tensor map of ``description`` at ``address``. LaunchError: it breaks a limit of TMA."""
        ...

    def launch(self, kernel: Kernel, step: Step, parameters: bytes, stream: int = 0) -> None:
        """Queues one step on ``stream`` (a raw handle; 0: the driver's own). ``kernel`` is not read for a step that
        clears memory. LaunchError: the driver rejected the launch."""
        ...

    def synchronize(self) -> None:
        """Waits for all queued work. LaunchError: part of it failed."""
        ...

    def capturing(self, stream: int) -> bool:
        """Whether ``stream``, a raw handle, is being captured into a graph."""
        ...

    def capture(self, stream: int) -> Capture:
        """The capture in progress on ``stream``. LaunchError: there is none."""
        ...

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        """Microseconds per call, one value per sample; ``launches`` are called in turn."""
        ...
