"""Hardware facts of GPUs as plain data. No GPU is needed to use them.

Limits of one multiprocessor are from the CUDA C++ Programming Guide (compute capabilities). Clocks in MHz and
bandwidths in GB/s are from the vendor's data sheets.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.errors import DeviceError


@dataclass(frozen=True)
class Device:
    """Hardware facts of one GPU.

    ``sm``: compute capability as an integer (90); ``sms``: number of multiprocessors; ``fma``, ``fma16``, ``fma64``:
    scalar multiply-adds in f32, f16 (packed) and f64 per clock and multiprocessor; ``clock``: MHz; ``bandwidth``: GB/s.
    Sizes are in bytes.
    """

    name: str
    sm: int
    sms: int
    clock: int
    bandwidth: int
    l2: int
    shared_block: int
    shared_sm: int
    fma: int = 128
    fma16: int = 256
    fma64: int = 2
    threads_sm: int = 2048
    blocks_sm: int = 32
    registers_sm: int = 65536
    registers_thread: int = 255
    shared_reserved: int = 1024

    @property
    def target(self) -> str:
        return f"sm_{self.sm}"

    @property
    def ptx_version(self) -> str:
        """The lowest PTX version that supports the target and the instructions that templates use on it."""
        late = {88: "9.0", 103: "8.8", 110: "9.0", 121: "8.8"}
        return late.get(self.sm, "8.7" if self.sm >= 120 else "8.6" if self.sm >= 100 else "8.1")

    @property
    def has_async_copy(self) -> bool:
        return self.sm >= 80

    @property
    def has_vector_red(self) -> bool:
        return self.sm >= 90

    def block_limits(self, threads: Any, registers: Any, shared: Any) -> dict[str, Any]:
        """The blocks per multiprocessor that each resource allows; 0 if a block does not fit. Arguments are integers or
        NumPy columns; ``registers`` is per thread, ``shared`` bytes per block."""
        warps = (threads + 31) // 32
        rounded = (registers + 7) // 8 * 8 * 32
        return {
            "registers": self.registers_sm // rounded // np.maximum(warps, 1),
            "shared memory": self.shared_sm // np.maximum(shared + self.shared_reserved, 1),
            "warps": self.threads_sm // (warps * 32),
            "blocks": self.blocks_sm,
        }

    def most_shared(self, blocks: Any) -> Any:
        """The most bytes of shared memory that a block can have if ``blocks`` blocks must fit on a multiprocessor."""
        each = self.shared_sm // np.maximum(blocks, 1) - self.shared_reserved
        return np.minimum(each, self.shared_block)

    def blocks_per_sm(self, threads: Any, registers: Any, shared: Any) -> Any:
        """The number of resident blocks per multiprocessor; 0 if a block does not fit. Arguments are those of
        ``block_limits``."""
        return reduce(np.minimum, self.block_limits(threads, registers, shared).values())


KB = 1 << 10
DEVICES = {
    d.name: d
    for d in (
        Device(
            "t4",
            75,
            40,
            1590,
            320,
            4096 * KB,
            64 * KB,
            64 * KB,
            fma=64,
            fma16=128,
            threads_sm=1024,
            blocks_sm=16,
            shared_reserved=0,
        ),
        Device("a100", 80, 108, 1410, 1555, 40960 * KB, 163 * KB, 164 * KB, fma=64, fma64=32),
        Device("rtx3090", 86, 82, 1695, 936, 6144 * KB, 99 * KB, 100 * KB, fma16=128, threads_sm=1536, blocks_sm=16),
        Device("rtx4090", 89, 128, 2520, 1008, 73728 * KB, 99 * KB, 100 * KB, fma16=128, threads_sm=1536, blocks_sm=24),
        Device("h100", 90, 132, 1980, 3350, 51200 * KB, 227 * KB, 228 * KB, fma64=64),
        Device("h200", 90, 132, 1980, 4800, 61440 * KB, 227 * KB, 228 * KB, fma64=64),
        Device("b200", 100, 148, 1965, 8000, 129024 * KB, 227 * KB, 228 * KB, fma64=64),
        Device(
            "rtx5090", 120, 170, 2407, 1792, 98304 * KB, 99 * KB, 100 * KB, fma16=128, threads_sm=1536, blocks_sm=24
        ),
        Device("emulated", 90, 4, 1000, 100, 4096 * KB, 227 * KB, 228 * KB, fma64=64),
    )
}

_BY_ARCHITECTURE = {75: "t4", 80: "a100", 86: "rtx3090", 89: "rtx4090", 90: "h200", 100: "b200", 120: "rtx5090"}


#: allowed names of devices, which are also names of folders of tuning files
DEVICE_NAME = re.compile(r"[a-z0-9_][a-z0-9_.+]*")
_REQUIRED = ("name", "sm")  #: facts that a device file must have


def device(name: str) -> Device:
    """Looks up a device by name: a row of DEVICES (``h200``), a target (``sm_86``, ``sm_90a``; see ``assumed_for``), or
    the path of a JSON file (see ``from_file``). DeviceError: the name is unknown."""
    key = str(name).lower().strip()
    if key in DEVICES:
        return DEVICES[key]
    if key.endswith(".json"):
        return from_file(Path(str(name).strip()))
    if (assumed := assumed_for(key)) is not None:
        return assumed
    targets = ", ".join(f"sm_{sm}" for sm in _BY_ARCHITECTURE)
    raise DeviceError(
        f"device is {name!r}; it must be one of {', '.join(DEVICES)}, a target: {targets}, or a file NAME.json"
    )


def assumed_for(name: str) -> Device | None:
    """The device whose facts are assumed for a PTX target. None: ``name`` is not a known target. The target suffixes
    ``a`` (from sm_90 on) and ``f`` (from sm_100 on) do not change the result."""
    target = re.fullmatch(r"sm_(\d{2,3})([af]?)", name.lower().strip())
    if (
        target is None
        or int(target[1]) not in _BY_ARCHITECTURE
        or int(target[1]) < {"": 0, "a": 90, "f": 100}[target[2]]
    ):
        return None
    return DEVICES[_BY_ARCHITECTURE[int(target[1])]]


def from_file(path: Path) -> Device:
    """Reads a device from a JSON object with ``name``, ``sm`` and any other field of ``Device``. Missing facts are
    those of the listed device with the nearest target below. DeviceError: the file breaks a rule."""
    if not path.is_file():
        raise DeviceError(f"device is {str(path)!r}; it must be a file with a JSON object, or the name of a device")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeviceError(f"device file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"device file {path} is not JSON: {error}") from error
    known = [f.name for f in fields(Device)]
    if not isinstance(values, dict) or not set(_REQUIRED) <= values.keys() <= set(known):
        rule = f"an object with {' and '.join(_REQUIRED)}, and any of {', '.join(known[len(_REQUIRED) :])}"
        raise DeviceError(f"device file {path} must have {rule}")
    name = values["name"]
    if not isinstance(name, str) or not DEVICE_NAME.fullmatch(name) or name in DEVICES:
        rule = "small letters, digits, . _ +, and no name of a listed device"
        raise DeviceError(f"device file {path}: name is {name!r}; it must be {rule}")
    for fact in values.keys() - {"name"}:
        least = 75 if fact == "sm" else 0 if fact == "shared_reserved" else 1
        if type(values[fact]) is not int or not least <= values[fact] < 1 << 31:
            raise DeviceError(f"device file {path}: {fact} is {values[fact]!r}; it must be an integer from {least} on")
    described = replace(_nearest_row(values["sm"]), **values)
    if described.shared_block > described.shared_sm:
        raise DeviceError(
            f"device file {path}: shared_block is {described.shared_block}; it must be at most shared_sm,"
            f" {described.shared_sm}"
        )
    return described


def _nearest_row(sm: int) -> Device:
    """The listed device with target ``sm``, or with the nearest target below."""
    return DEVICES[_BY_ARCHITECTURE[max((s for s in _BY_ARCHITECTURE if s <= sm), default=75)]]


def describe(name: str, sm: int, **facts: Any) -> Device:
    """The device that a driver reports: the row of DEVICES that matches its name, or else the row of its architecture.

    ``facts``: values that the driver reports (sms, clock, l2, ...); they replace the values of the row. DeviceError:
    the device is below sm_75.
    """
    if sm < 75:
        raise DeviceError(f"{name} is sm_{sm}; ptxgen generates for sm_75 and up")
    for row in DEVICES.values():
        words = re.sub(
            r"(?<=[a-z])(?=\d)", "[ -]?", row.name
        )  # rtx4090 matches "RTX 4090"; a100 does not match "RTX A1000"
        if row.sm == sm and row.name != "emulated" and re.search(rf"{words}(?!\d)", name.lower()):
            return replace(row, sm=sm, **facts)
    return replace(_nearest_row(sm), name=re.sub("[ -]|nvidia", "", name.lower()), sm=sm, **facts)
