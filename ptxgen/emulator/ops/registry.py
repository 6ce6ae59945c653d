"""The instruction table: each row has the function that compiles instructions of one name to steps.

A step is called with a warp batch and a mask of the executing lanes (None: all live lanes of the batch). Kinds of rows:

plain      executes for any set of lanes of the batch
warp       executes when all lanes of the warp that must converge are at the instruction; the scheduler waits for them
blocking   as warp; the step also receives the position after the instruction. It removes its lanes from the scheduler
           and adds them at that position when they may continue
branch     ends a basic block; the scheduler executes the branch
exit       ends a basic block; the scheduler removes the lanes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.warp_batch import Step

#: a function that compiles an instruction, called with a builder and the instruction
Compile = Callable[..., Step]
C = TypeVar("C", bound=Compile)


@dataclass(frozen=True)
class Row:
    """One row of the table of instructions.

    ``execution``: the kind of the row, one of those listed in the text of the module; ``polls``: the instruction may
    read a value that another warp will write, as in a spin loop.
    """

    compile: Compile
    execution: str = "plain"
    polls: bool = False


TABLE: dict[str, Row] = {}


def instruction(*names: str, execution: str = "plain", polls: bool = False) -> Callable[[C], C]:
    """Registers a function that compiles the instructions whose names begin with one of ``names``."""

    def register(compile: C) -> C:
        for name in names:
            TABLE[name] = Row(compile, execution, polls)
        return compile

    return register


def find(ins: Instruction) -> Row | None:
    """The row of an instruction: ``ins.row`` if set, else the row of the longest prefix of its dotted name."""
    if ins.row:
        return TABLE[ins.row]
    parts: tuple[Any, ...] = (ins.op, *ins.mods)
    for n in range(min(len(parts), 5), 0, -1):
        row = TABLE.get(".".join(parts[:n]))
        if row is not None:
            return row
    return None
