"""The driver of the emulated device. Results are exact; times come from the performance model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.emulator import Machine, Module, Stats, tensormap
from ptxgen.errors import AssembleError, EmulatorError, InputError, LaunchError, UnavailableError
from ptxgen.families.common import perf_model
from ptxgen.problem.device import DEVICES, Device
from ptxgen.runtime.driver import Capture, Kernel, NoLock, Timing
from ptxgen.runtime.sensors import Sensors

#: floating-point operations per second of the emulated device, in order of magnitude: 6 million (f64) to 230 million
#: (large products on wgmma) were measured on two cores of an AMD EPYC
FLOPS = 3e7
SUSTAINED = 8  #: launches that ``sustain`` repeats
STARTUP_SECONDS = 0.5  #: seconds that each problem takes before its launches: selection, rendering and parsing


def estimated_seconds(flops: Iterable[float], launches: int = 1) -> float:
    """An estimate, in order of magnitude, of the seconds that the emulated device takes for ``launches`` launches of
    each problem. ``flops``: the floating-point operations of each problem."""
    return sum(STARTUP_SECONDS + launches * float(n) / FLOPS for n in flops)


def estimate_text(seconds: float) -> str:
    """The text of an estimate for a warning, as ``for roughly 76 minutes``."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "minutes"), (2 * 86400, 3600, "hours")):
        if seconds < limit:
            return f"for roughly {max(seconds / unit, 1):.0f} {name}"
    return f"for roughly {seconds / 86400:.0f} days"


def model_counts(stats: Stats, kernel: EmulatedKernel, step: Step) -> perf_model.Counts:
    """The counts from which the performance model computes the time of a launch. ``stats``: what the emulator
    counted."""
    fma_type = "f64" if stats.lane_instructions["fp64"] else "f16" if stats.lane_instructions["fp16"] else "f32"
    lanes = stats.lane_instructions[{"f64": "fp64", "f32": "fp32", "f16": "fp16"}[fma_type]] * (
        2 if fma_type == "f16" else 1
    )
    x, y, z = step.block
    return perf_model.Counts(
        warp_instructions=sum(stats.warp_instructions.values()),
        fma_lanes=lanes,
        shared_wavefronts=int(stats.shared.wavefronts),
        global_sectors=int(stats.global_load.sectors + stats.global_store.sectors),
        atomics=stats.atomics,
        barriers=stats.barriers * 32 // max(x * y * z, 32),
        blocks=stats.blocks,
        threads=x * y * z,
        registers=max(kernel.registers, 16),
        shared=step.shared,
        fma_type=fma_type,
    )


@dataclass(eq=False)
class EmulatedKernel:
    """A parsed module of the emulated device."""

    source: Source
    module: Module
    registers: int = -1
    spills: int = -1


class EmulatedDriver:
    """The driver that runs PTX on the emulator. ``launch`` raises the faults of a kernel.

    ``options``: options of the emulated machine (seed, completion, checks).
    """

    name = selector = "emulated"
    index = 0
    clock = "model"
    version = "1"
    assembler = ""

    def __init__(self, device: Device = DEVICES["emulated"], **options: Any) -> None:
        self.device = device
        self.machine = Machine(**options)
        self.lock = NoLock()
        self.modelled_us: list[float] = []  #: modelled microseconds of each launch since the last call of ``time``
        self._launched_us = 0.0  # of all launches
        self._parts: dict[int, list[int]] = {}  # first part of an allocation -> the others

    def allocate(self, size: int) -> int:
        return self.machine.alloc(size)

    def allocate_parts(self, sizes: Sequence[int]) -> list[int]:
        """The addresses of separate allocations, so that an access between two arrays is a fault."""
        first = self.allocate(sizes[0])
        self._parts[first] = [self.machine.alloc(n) for n in sizes[1:]]
        return [first, *self._parts[first]]

    def release(self, address: int) -> None:
        for each in (address, *self._parts.pop(address, ())):
            self.machine.free(each)

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        self.machine.write(address, np.ascontiguousarray(array))

    def download(self, address: int, array: np.ndarray[Any, Any]) -> None:
        data = self.machine.read(address, array.nbytes)
        array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        self.machine.fill(address, size, byte)

    def host_memory(self, size: int) -> np.ndarray[Any, Any]:
        return np.zeros(size, np.uint8)

    def queue_upload(self, address: int, array: np.ndarray[Any, Any], stream: int = 0) -> None:
        self.upload(address, array)

    def load(self, source: Source) -> EmulatedKernel:
        try:
            return EmulatedKernel(source, self.machine.load(source.text), source.registers)
        except EmulatorError as error:
            raise AssembleError(f"the emulated device cannot read the kernel: {error}") from error

    def tensor_map(self, description: TensorMap, address: int) -> bytes:
        d = description
        swizzle = 0 if d.swizzle == 16 else d.swizzle
        shape: dict[str, Any] = {"box": d.box}
        if d.pixel_box is not None:
            shape = {
                "lower": d.pixel_box.lower,
                "upper": d.pixel_box.upper,
                "element_strides": (1, *d.pixel_box.strides, 1),
                "channels": d.box[0],
                "pixels": d.box[1],
            }
        try:
            return tensormap(address, d.extents, d.pitches, type=d.dtype, swizzle=swizzle, **shape).encode()
        except InputError as error:
            raise LaunchError(f"no tensor map can describe {d} at {address:#x}: {error}") from error

    def launch(self, kernel: Kernel, step: Step, parameters: bytes, stream: int = 0) -> None:
        if not step.entry:
            self.fill(int.from_bytes(parameters[:8], sys.byteorder), step.grid[0])
            return
        assert isinstance(kernel, EmulatedKernel)
        stats = self.machine.launch(
            kernel.module,
            step.entry,
            step.grid,
            step.block,
            parameters,
            step.shared,
            dependent=step.entry in kernel.source.pdl_entries,
        )
        self.modelled_us.append(perf_model.from_stats(model_counts(stats, kernel, step), self.device))
        self._launched_us += self.modelled_us[-1]

    def order(self, before: int, after: int) -> None:
        """Does nothing. Launches are synchronous."""

    def wait(self, stream: int) -> None:
        """Does nothing. Launches are synchronous."""

    def synchronize(self) -> None:
        """Does nothing. Launches are synchronous."""

    def capturing(self, stream: int) -> bool:
        """False. The emulated device has no graphs."""
        return False

    def capture(self, stream: int) -> Capture:
        raise LaunchError("the emulated device has no graphs")

    def now_us(self) -> float:
        """The modelled microseconds of all launches so far."""
        return self._launched_us

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        """One sample: the modelled time of one call. The model has no noise."""
        with self.lock:
            self.modelled_us.clear()
            launches[0]()
            return [sum(self.modelled_us)]

    def sensors(self) -> Sensors:
        raise UnavailableError("energy, power and clock are observed on an NVIDIA GPU; the emulated device has none")

    def sustain(self, launches: Sequence[Callable[[], None]], seconds: float, read: Callable[[], None]) -> float:
        """Calls ``SUSTAINED`` launches, whatever ``seconds`` is, because the model has no noise; returns microseconds
        per launch."""
        with self.lock:
            before = self.now_us()
            for i in range(SUSTAINED):
                launches[i % len(launches)]()
                read()
            return (self.now_us() - before) / SUSTAINED
