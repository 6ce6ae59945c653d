"""The errors that ptxgen raises.

PtxgenError
├── InputError(ValueError)        an argument breaks a rule; the message names both
│   ├── ShapeError                incompatible rank, extents or strides
│   ├── DtypeError                an unknown or unsupported combination of types
│   ├── OverlapError              the output shares memory with an input
│   ├── ConfigError               a configuration breaks a row of the rule table
│   ├── CapacityError             a list has no room for all selected results
│   ├── TaskError                 the text or the function of a task breaks a rule of the language
│   └── DeviceError               an unknown device, or one without a required feature
├── RenderError                   a template failed; the message has its traceback
├── AssembleError                 ptxas or the driver rejected a kernel
├── LaunchError                   a launch failed
├── DatabaseError                 the tuning database cannot be used
│   ├── SchemaError               written by a newer ptxgen
│   └── CorruptError              not a database, or a damaged one
├── UnavailableError              an optional dependency is missing; the message names it
└── EmulatorError                 raised by the emulated device
    ├── ParseError                invalid PTX; the message gives line and token
    ├── UnsupportedError          valid PTX that the emulator does not support
    └── Fault                     undefined behaviour of a kernel
        ├── OutOfBoundsFault      an access outside every allocation
        ├── MisalignedFault       an address that is not a multiple of the access size
        ├── UninitialisedFault    a read of a register or shared byte before it is written
        ├── RaceFault             unordered accesses of two threads to the same memory
        ├── AsyncFault            use of data of an asynchronous operation before the wait
        ├── DivergenceFault       an .aligned instruction reached by part of a warp
        ├── BarrierFault          different thread counts for one barrier
        └── DeadlockFault         no warp can continue; lists the wait of each warp
"""

from __future__ import annotations


class PtxgenError(Exception):
    """Base of all errors of ptxgen."""


class InputError(PtxgenError, ValueError):
    """An argument breaks a rule; the message names the argument and the rule."""


class ShapeError(InputError):
    """Rank, extents or strides are incompatible."""


class DtypeError(InputError):
    """A type is unknown, or no kernel family supports the combination of types."""


class OverlapError(InputError):
    """The output shares memory with an input."""


class ConfigError(InputError):
    """A configuration breaks a row of the rule table.

    ``rule`` is the row's name.
    """

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class TaskError(InputError):
    """The text or the function of a task breaks a rule of the language; the message has the place and what to write.

    ``line``, ``column``: of the place, from 1; 0: the error has none.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class CapacityError(InputError):
    """The lists of a task have no room for all selected results. ``count``: of these; ``capacity``: of each list."""

    def __init__(self, message: str, count: int = 0, capacity: int = 0) -> None:
        super().__init__(message)
        self.count, self.capacity = count, capacity


class DeviceError(InputError):
    """The device is unknown, or does not have a required feature."""


class RenderError(PtxgenError):
    """A template failed; the message ends with the template's traceback."""


class AssembleError(PtxgenError):
    """ptxas or the driver rejected a kernel; ``log`` has its output."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class LaunchError(PtxgenError):
    """The driver rejected a launch, or the launch failed."""


class DatabaseError(PtxgenError):
    """The tuning database cannot be used."""


class SchemaError(DatabaseError):
    """The database was written by a newer ptxgen."""


class CorruptError(DatabaseError):
    """The file is not a database of ptxgen, or it is damaged."""


class UnavailableError(PtxgenError):
    """A package, tool or device is missing; the message has the command that installs it."""


class EmulatorError(PtxgenError):
    """Base of the errors of the emulated device."""


class ParseError(EmulatorError):
    """The text is not valid PTX; the message gives the line and the token."""


class UnsupportedError(EmulatorError):
    """Valid PTX that the emulated device does not support; the message names the instruction."""


class Fault(EmulatorError):  # noqa: N818 a fault of the kernel, not an error of the caller
    """A kernel has undefined behaviour in PTX.

    ``entry``: kernel; ``line``: 1-based line of the PTX text; ``instruction``: its text; ``block``: (x, y, z) of the
    block; ``thread``: (x, y, z) of the first faulting thread; ``address``: byte address within its state space, or
    None; ``source``: file and line of the source program, as "kernel.cu:12", if the PTX has .file and .loc.
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
    """The address is not a multiple of the access size."""


class UninitialisedFault(Fault):
    """A register or a byte of shared memory is read before it is written."""


class RaceFault(Fault):
    """Two threads access the same shared or global memory, at least one writes, and nothing orders the accesses."""


class AsyncFault(Fault):
    """Data of an asynchronous copy or matrix product is used before the wait for it."""


class DivergenceFault(Fault):
    """Part of a warp reaches an instruction that all of its threads must execute together."""


class BarrierFault(Fault):
    """Threads at one barrier disagree on the number of participants."""


class DeadlockFault(Fault):
    """No warp can continue; the message lists the wait of each warp."""
