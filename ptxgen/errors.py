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
│   ├── SchemaError               written by another version of ptxgen
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
        ├── DeadlockFault         no warp can continue; lists the wait of each warp
        └── Faults                several faults of one launch that went on after them
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple


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

    ``line``, ``column``: the place in the text, counted from 1; 0 if the error has no place.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class CapacityError(InputError):
    """The lists of a task have no room for all selected results. ``count``: the number of selected results;
    ``capacity``: the number of elements of each list."""

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
    """Another version of ptxgen wrote the file."""


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


class Frame(NamedTuple):
    """A source line, as "kernel.cu:12", and its function.

    ``entered``: how the line is reached from that of the next frame, "inlined" or "called"; empty in the last frame.
    """

    source: str
    function: str
    entered: str = ""


class Place(NamedTuple):
    """An instruction at which a fault has a cause, and the thread that executes it.

    ``name``: the part of the instruction in the fault, for example "write"; ``kernel``: its kernel, if that ran before
    the faulting one; ``line``: its 1-based line in the PTX text; ``frames``: its source lines, the innermost one first;
    ``block``, ``thread``: (x, y, z) of the thread.
    """

    name: str
    line: int
    instruction: str
    frames: tuple[Frame, ...] = ()
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    kernel: str = ""

    @property
    def source(self) -> str:
        """The source line, as "kernel.cu:12"; empty if the PTX has none."""
        return self.frames[0].source if self.frames else ""

    def rows(self, kernel: str, file: str) -> list[tuple[str, str]]:
        """The rows of a report, each a label and its text. ``kernel``: the kernel that the report already names;
        ``file``: the name of the PTX file."""
        line = (f"{file}:" if file else "") + str(self.line)
        out = [("line", line + (f" of {self.kernel}" if self.kernel else ""))]
        label = "source"
        for frame in self.frames:
            inside = f" in {shortened(frame.function)}" if frame.function != (self.kernel or kernel) else ""
            out.append((label, frame.source + inside))
            label = f"{frame.entered} from"
        out.append(("instruction", self.instruction))
        for name, value in (("block", self.block), ("thread", self.thread)):
            if value is not None:
                out.append((name, f"({', '.join(map(str, value))})"))
        return out


#: most characters of a C++ name in a report
MOST_CHARACTERS = 120
#: parts of C++ names whose brackets enclose no arguments
_NAMES = re.compile(r"\(anonymous namespace\)|operator(?:\(\)|<=>|<<=?|>>=?|->\*?|[<>]=?)")


def shortened(name: str) -> str:
    """A C++ name as reports show it: a long one has "..." in place of its template arguments and parameters."""
    if len(name) <= MOST_CHARACTERS:
        return name
    out, depth, at = "", 0, 0
    while at < len(name):
        whole = _NAMES.match(name, at)
        text = whole[0] if whole else name[at]
        at += len(text)
        if text in (">", ")"):
            depth -= 1
        if depth == 0:
            out += text
        if text in ("<", "("):
            out += "..." if depth == 0 and name[at] not in ">)" else ""
            depth += 1
    return out if len(out) <= 2 * MOST_CHARACTERS else out[: 2 * MOST_CHARACTERS - 4] + " ..."


class Fault(EmulatorError):  # noqa: N818 a fault of the kernel, not an error of the caller
    """A kernel has undefined behaviour in PTX.

    ``message``: the first sentence of the report. ``entry``: the name of the kernel in PTX; ``kernel``: its C++ name.
    ``line``: 1-based line of the PTX text; ``instruction``: the text of the instruction; ``frames``: its source lines,
    if the PTX has .file and .loc: the innermost line, then those from which its function is inlined or called;
    ``source``: the innermost line, as "kernel.cu:12". ``block``: (x, y, z) of the block; ``thread``: (x, y, z) of the
    first faulting thread; ``address``: byte address within its state space, or None; ``variable``: what is at that
    address. ``other``: the other access of a race, or None. ``mentioned``: the other lines of PTX that the message
    names and that have source lines. ``count``: how often a launch that went on had the fault.
    """

    #: the lanes of the warp batch that have the fault, for the emulated device
    lanes: Any = None
    count = 1

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
        frames: tuple[Frame, ...] = (),
        kernel: str = "",
        variable: str = "",
        other: Place | None = None,
        mentioned: tuple[Place, ...] = (),
    ) -> None:
        self.message, self.entry, self.kernel = message, entry, kernel or entry
        self.place = Place("", line, instruction.strip(), frames, block, thread)
        self.line, self.instruction, self.frames = line, self.place.instruction, frames
        self.block, self.thread, self.address, self.source = block, thread, address, self.place.source
        self.variable, self.other, self.mentioned = variable, other, mentioned
        super().__init__(self.report())

    def report(self, file: str = "") -> str:
        """The text of the fault; ``file``: the name of the PTX file."""
        rows = [("kernel", shortened(self.kernel))]
        if self.variable:
            rows.append(("variable", self.variable))
        rows += self.place.rows(self.kernel, file)
        if self.address is not None:
            rows.append(("address", f"{self.address:#x}"))
        if self.count > 1:
            rows.append(("occurred", f"{self.count} times"))
        lines = [self.message, *(f"  {label:<12} {text}" for label, text in rows)]
        for place in self.mentioned:
            lines.append(f"  {f'line {place.line}':<12} {place.source}: {place.instruction}")
            for inner, outer in pairwise(place.frames):
                lines.append(f"  {'':<12} {inner.entered} from {outer.source}")
        if self.other is not None:
            lines.append(f"  the {self.other.name}:")
            lines += [f"    {label:<12} {text}" for label, text in self.other.rows(self.kernel, file)]
        return "\n".join(lines)


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


class Faults(Fault):
    """The faults of a launch that went on after them (option ``faults``).

    ``faults``: the different faults in order, each with its ``count``; ``end``: why the launch was stopped early, or
    "". The other fields are those of the first fault.
    """

    def __init__(self, faults: tuple[Fault, ...], end: str = "") -> None:
        self.faults, self.end = faults, end
        super().__init__(faults[0].message)
        for name in ("entry", "kernel", "place", "line", "instruction", "frames", "block", "thread", "address"):
            setattr(self, name, getattr(faults[0], name))
        for name in ("source", "variable", "other", "mentioned", "count"):
            setattr(self, name, getattr(faults[0], name))

    def report(self, file: str = "") -> str:
        """The reports of all faults, and their number; ``file``: the name of the PTX file."""
        texts = [f"{type(fault).__name__}: {fault.report(file)}" for fault in self.faults]
        return "\n\n".join([*texts, self.summary()])

    def summary(self) -> str:
        """The number of faults, and why the launch ended."""
        number, times = len(self.faults), sum(fault.count for fault in self.faults)
        words = f"{number} different faults, which" if number > 1 else "1 fault, which"
        words += f" occurred {times} times" if times > 1 else " occurred once"
        return f"{words}; the launch ended early: {self.end}" if self.end else words
