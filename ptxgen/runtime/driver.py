"""The interface of drivers. A driver loads and launches sources; there are two, ``cuda`` and ``emulated``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.problem.device import Device
from ptxgen.runtime.sensors import Sensors


@dataclass(frozen=True)
class Timing:
    """The timing policy. ``samples``: the number of samples, of which slow launches have fewer; ``target_ms``:
    milliseconds of graph replays per sample. Launches use operand sets in rotation, at most ``most`` sets, whose total
    size is at least ``l2_multiple`` times the L2 cache. A kernel slower than ``limit_us`` has one sample with fewer
    replays: the shorter of two times."""

    samples: int = 5
    target_ms: float = 4.0
    l2_multiple: float = 4.0
    most: int = 24
    limit_us: float = math.inf

    def __str__(self) -> str:
        return f"graph samples={self.samples} target_ms={self.target_ms:g} l2_multiple={self.l2_multiple:g}"


class NoLock:
    """The lock of a device that only one process uses, which does nothing. ``locked``: seconds during which a lock was
    held; ``queued``: seconds spent waiting for a lock."""

    locked = queued = 0.0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class Kernel(Protocol):
    """A loaded module. ``registers`` (per thread) and ``spills`` (bytes) are those of the first entry; -1: unknown."""

    source: Source
    registers: int
    spills: int


class Capture(Protocol):
    """The capture of a stream into a graph. ``id``: unique in the process."""

    id: int

    def watch(self) -> Callable[[], bool]:
        """A function that returns True while the graph, or an instance of the graph, exists."""
        ...


class Driver(Protocol):
    """A device that runs kernels. Addresses are integers, sizes are bytes. Copies and fills are ordered with launches
    on the driver's own stream, and complete when the call returns.

    ``name``: ``cuda`` or ``emulated``; ``index``: the index of the GPU, as PyTorch counts; ``selector``: the name with
    which ``open_driver`` opens the same device in another process; ``clock``: ``hardware`` or ``model``; ``version``:
    the version of the CUDA driver; ``assembler``: name and version of the assembler; ``lock``: held while ``time`` runs
    kernels.
    """

    name: str
    index: int
    selector: str
    clock: str
    device: Device
    version: str
    assembler: str
    lock: NoLock

    def __hash__(self) -> int: ...
    def allocate(self, size: int) -> int: ...
    def allocate_parts(self, sizes: Sequence[int]) -> list[int]:
        """The addresses of several arrays in one allocation, which ``release`` of the first address frees. LaunchError:
        out of memory."""
        ...

    def release(self, address: int) -> None: ...
    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None: ...
    def download(self, address: int, array: np.ndarray[Any, Any]) -> None: ...
    def fill(self, address: int, size: int, byte: int = 0) -> None: ...
    def host_memory(self, size: int) -> np.ndarray[Any, Any]:
        """An array of ``size`` bytes of host memory that the device can read while a stream runs."""
        ...

    def queue_upload(self, address: int, array: np.ndarray[Any, Any], stream: int = 0) -> None:
        """Queues a copy of ``array`` on ``stream``. While the stream is being captured, the graph reads the array at
        each launch: it must be in ``host_memory``. Otherwise the caller may change it at once."""
        ...

    def load(self, source: Source) -> Kernel:
        """Assembles and loads a source. AssembleError: the assembler or the driver rejected it."""
        ...

    def tensor_map(self, description: TensorMap, address: int) -> bytes:
        """The encoded tensor map of ``description`` at ``address``. LaunchError: it exceeds a limit of TMA."""
        ...

    def launch(self, kernel: Kernel, step: Step, parameters: bytes, stream: int = 0) -> None:
        """Queues one step on ``stream`` (a raw handle; 0: the driver's own). A step without an entry
        clears memory and does not use ``kernel``. LaunchError: the driver rejected the launch."""
        ...

    def order(self, before: int, after: int) -> None:
        """Work that is queued on the stream ``after`` from now on begins after the work that ``before`` now holds. Both
        are raw handles of streams of the device."""
        ...

    def wait(self, stream: int) -> None:
        """Waits for the work on ``stream``, a raw handle. LaunchError: part of it failed, or it is being captured."""
        ...

    def synchronize(self) -> None:
        """Waits for all queued work. LaunchError: part of it failed."""
        ...

    def capturing(self, stream: int) -> bool:
        """True if ``stream``, a raw handle, is being captured into a graph."""
        ...

    def capture(self, stream: int) -> Capture:
        """The capture in progress on ``stream``. LaunchError: there is none."""
        ...

    def now_us(self) -> float:
        """The microseconds since an arbitrary time, by the host's clock; on the emulated device, the sum of the
        modelled times of all launches. The call does not wait for queued work."""
        ...

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        """Microseconds per call, one value per sample; ``launches`` are called in rotation."""
        ...

    def sensors(self) -> Sensors:
        """The sensors of energy and clock of the device. UnavailableError: the device has none."""
        ...

    def sustain(self, launches: Sequence[Callable[[], None]], seconds: float, read: Callable[[], None]) -> float:
        """Repeats ``launches`` in rotation, without gaps, for about ``seconds``; returns microseconds per launch.
        ``read`` is called every few milliseconds meanwhile."""
        ...
