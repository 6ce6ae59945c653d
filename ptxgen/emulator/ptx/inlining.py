"""The data of inlining: labels, the context of a copied function body, recursive functions."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.emulator.ptx.syntax import Function, Reg, Variable


@dataclass(eq=False)
class Subroutine:
    """The copy of a recursive function.

    `back`: the number of the call to return to; `frame`: bytes of its variables in local memory, and `offsets` of each.
    """

    function: Function
    context: Context
    begin: Label
    back: Reg
    frame: int
    offsets: dict[int, int]


class Label:
    """A position in the code that is being made."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1


@dataclass
class Context:
    """The body that is copied: its function, what its names stand for, and where `ret` leads.

    `inside`: the recursive function of which this is the body, or a part.
    """

    function: Function
    registers: dict[int, Reg]
    variables: dict[int, Variable]
    leave: Label | None
    inside: Subroutine | None = None
