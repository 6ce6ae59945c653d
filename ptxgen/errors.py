"""The errors that ptxgen raises.

PtxgenError
├── InputError(ValueError)        an argument breaks a rule: the message names both
│   ├── ShapeError                rank, extents or strides that do not fit together
│   ├── DtypeError                an unknown or unsupported combination of types
│   ├── OverlapError              the output shares memory with an input
│   ├── ConfigError               a configuration breaks a row of the rule table
│   └── DeviceError               no such device, or one that lacks what is asked
├── RenderError                   a template failed: carries the template's own traceback
├── AssembleError                 ptxas or the driver rejected a kernel
├── LaunchError                   the driver rejected or lost a launch
├── DatabaseError                 the tuning database cannot be used
│   ├── SchemaError               written by a newer ptxgen
│   └── CorruptError              not a database, or a damaged one
├── UnavailableError              something optional is not installed: says what to install
└── EmulatorError                 raised by the emulated device
    ├── ParseError                text that is not PTX: line and token
    ├── UnsupportedError          valid PTX that the emulator does not know: names the instruction
    └── Fault                     the kernel did something undefined: instruction, line, lane, address
        ├── OutOfBoundsFault      an access outside every allocation
        ├── MisalignedFault       an address that is no multiple of the access size
        ├── UninitialisedFault    a register or shared byte read before it was written
        ├── RaceFault             two warps meet in shared memory with no barrier between
        ├── AsyncFault            data of an asynchronous copy or product used before its wait
        ├── DivergenceFault       an aligned instruction reached by part of a warp
        ├── BarrierFault          counts of one barrier that disagree
        └── DeadlockFault         no warp can go on: carries where each stands
"""

from __future__ import annotations


class PtxgenError(Exception):
    """Base of every error that ptxgen raises on purpose."""


class InputError(PtxgenError, ValueError):
    """An argument breaks a rule; the message names the argument and the rule."""


class ShapeError(InputError):
    """Rank, extents or strides that do not fit together."""


class DtypeError(InputError):
    """An unknown type, or a combination of types that no kernel family has."""


class OverlapError(InputError):
    """The output shares memory with an input."""


class ConfigError(InputError):
    """A configuration breaks a row of the rule table.

    ``rule`` is the row's name.
    """

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class DeviceError(InputError):
    """No such device, or one that lacks what is asked of it."""


class RenderError(PtxgenError):
    """A template failed; the message ends with the template's own traceback."""


class AssembleError(PtxgenError):
    """ptxas or the driver rejected a kernel; ``log`` is what it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class LaunchError(PtxgenError):
    """The driver rejected or lost a launch."""


class DatabaseError(PtxgenError):
    """The tuning database cannot be used."""


class SchemaError(DatabaseError):
    """The database was written by a newer ptxgen."""


class CorruptError(DatabaseError):
    """The file is not a database of ptxgen, or it is damaged."""


class UnavailableError(PtxgenError):
    """Something optional is not installed; the message says what to install."""


class EmulatorError(PtxgenError):
    """Base of what the emulated device raises."""


class ParseError(EmulatorError):
    """Text that is not PTX; the message gives the line and the token."""


class UnsupportedError(EmulatorError):
    """Valid PTX that the emulated device does not know; the message names the instruction."""


class Fault(EmulatorError):  # noqa: N818 it is the kernel's, not the caller's
    """A kernel did something that PTX leaves undefined.

    ``entry``: kernel; ``line``: 1-based line of the PTX text; ``instruction``: its text;
    ``block``: (x, y, z) of the block; ``thread``: (x, y, z) of the first lane at fault;
    ``address``: byte address within its state space, or None; ``source``: file and line of the program that the PTX
    was compiled from, as "kernel.cu:12", where the text has .file and .loc.
    """

    def __init__(
        self,
        message: str,
        *,
        entry: str = "",
        line: int = 0,
        instruction: str = "",
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        address: int | None = None,
        source: str = "",
    ) -> None:
        where = f"{entry}, line {line}: {instruction.strip()}"
        if block is not None:
            where += f"\n  block {block}"
        if thread is not None:
            where += f", thread {thread}"
        if address is not None:
            where += f", address {address:#x}"
        if source:
            where += f"\n  source {source}"
        super().__init__(f"{message}\n  {where}")
        self.entry, self.line, self.instruction = entry, line, instruction
        self.block, self.thread, self.address, self.source = block, thread, address, source


class OutOfBoundsFault(Fault):
    """An access outside every allocation of its state space."""


class MisalignedFault(Fault):
    """An address that is no multiple of the access size."""


class UninitialisedFault(Fault):
    """A register or a byte of shared memory was read before it was written."""


class RaceFault(Fault):
    """Two threads touched the same shared or global memory, one writing, with nothing between that orders them."""


class AsyncFault(Fault):
    """Data of an asynchronous copy or product was used before its wait."""


class DivergenceFault(Fault):
    """Part of a warp reached an instruction that the whole warp must execute together."""


class BarrierFault(Fault):
    """Threads that meet at one barrier disagree about how many are expected."""


class DeadlockFault(Fault):
    """No warp can go on; the message lists where each one stands."""
