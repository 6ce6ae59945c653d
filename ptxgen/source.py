"""Generated code and how to launch it."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from functools import cached_property

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_FORMAT = {"u64": "Q", "u32": "I", "s32": "i", "f32": "f", "f64": "d", "b16": "H"}

#: one argument of a launch: its PTX type, and an integer, or the name of what a caller supplies:
#: ``A B C W`` are addresses (W: workspace), ``alpha beta`` numbers
Argument = tuple[str, int | str]


def digest(text: str) -> str:
    """What a PTX text does, as 16 hexadecimal digits: comments and blank space do not count."""
    lines = (" ".join(line.split()) for line in _COMMENT.sub("", text).splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """A PTX module. ``entries``: its kernels; ``target``: as ``sm_90``; ``shared``: the most dynamic shared
    memory, in bytes, that a launch of it asks for; ``registers``: a thread's, as the generator estimates them."""

    text: str
    entries: tuple[str, ...]
    target: str
    shared: int = 0
    registers: int = 0

    @cached_property
    def digest(self) -> str:
        return digest(self.text)


@dataclass(frozen=True)
class Step:
    """One launch. ``entry``: a kernel, or ``""`` to set ``arguments[0]`` (an address) for ``grid[0]`` bytes to zero.

    ``grid``, ``block``: (x, y, z); ``shared``: dynamic bytes.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    arguments: tuple[Argument, ...] = ()

    @property
    def format(self) -> str:
        """The ``struct`` format of the parameter buffer: native order and alignment, as the driver lays it out."""
        return "@" + "".join(_FORMAT[kind] for kind, _ in self.arguments)

    def pack(self, values: dict[str, int | float]) -> bytes:
        """The parameter buffer; ``values`` supplies what the arguments name."""
        return struct.pack(self.format, *(values[v] if isinstance(v, str) else v for _, v in self.arguments))


@dataclass(frozen=True)
class Launch:
    """Everything that one problem needs of a Source. ``workspace``: bytes at W; ``zeroed``: whether W must be zero
    before the first launch (each launch leaves it zero again)."""

    steps: tuple[Step, ...]
    workspace: int = 0
    zeroed: bool = False
