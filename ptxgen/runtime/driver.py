"""What a driver is: it loads and launches a Source. Two exist: ``cuda`` (PyCUDA) and ``emulated``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Timing:
    """How a launch is timed: ``samples`` medians are taken, each over graph replays that last about ``target_ms``,
    over a ring of inputs that together exceed ``ring`` times the L2 (``most`` sets at the most)."""

    samples: int = 5
    target_ms: float = 4.0
    ring: float = 4.0
    most: int = 24

    def __str__(self) -> str:
        return f"graph samples={self.samples} target_ms={self.target_ms:g} ring={self.ring:g}"


class Kernel(Protocol):
    """A loaded module. ``registers`` and ``spills`` (bytes) of its first entry, -1 where unknown."""

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
    """A device that runs Sources. Addresses are integers, sizes bytes; copies and fills are ordered with launches on
    the driver's own stream, and done when the call returns.

    ``name``: ``cuda`` or ``emulated``; ``clock``: ``hardware`` or ``model``; ``version``: of driver and assembler.
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
        """The map of a matrix at ``address``, as a kernel takes it. LaunchError: there can be no such map."""
        ...

    def launch(self, kernel: Kernel, step: Step, parameters: bytes, stream: int = 0) -> None:
        """Queues one step on ``stream`` (a raw handle; 0: the driver's own). ``kernel``: not read for a step that
        clears memory. LaunchError: it was rejected."""
        ...

    def synchronize(self) -> None:
        """Waits for what was queued. LaunchError: something of it failed."""
        ...

    def capturing(self, stream: int) -> bool:
        """Whether ``stream``, a raw handle, is being captured into a graph."""
        ...

    def capture(self, stream: int) -> Capture:
        """The capture in progress on ``stream``. LaunchError: there is none."""
        ...

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        """Microseconds of one call, a sample each; ``launches`` are called in turn."""
        ...
