"""The instruction table: a row is a function that compiles one instruction to a step.

A step is called with a warp batch and a mask (None: every live lane of the warp batch). Three kinds:

plain      any lanes may execute it together
warp       the lanes of one warp that it names must have met; the scheduler sees to that
blocking   as warp, but the step takes the lanes away and hands them back when they may go on:
           it is called with the position after it as a third argument
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.warp_batch import Step

#: called with a builder and an instruction
Maker = Callable[..., Step]
M = TypeVar("M", bound=Maker)


@dataclass(frozen=True)
class Row:
    make: Maker
    kind: str = "plain"
    polls: bool = False


TABLE: dict[str, Row] = {}


def instruction(*names: str, kind: str = "plain", polls: bool = False) -> Callable[[M], M]:
    """Registers the maker of the instructions whose first word is one of `names`."""

    def register(make: M) -> M:
        for name in names:
            TABLE[name] = Row(make, kind, polls)
        return make

    return register


def find(ins: Instruction) -> Row | None:
    """The row of an instruction: the one it names, or the longest of its dotted prefixes that is in the table."""
    if ins.row:
        return TABLE[ins.row]
    parts: tuple[Any, ...] = (ins.op, *ins.mods)
    for n in range(min(len(parts), 5), 0, -1):
        row = TABLE.get(".".join(parts[:n]))
        if row is not None:
            return row
    return None
