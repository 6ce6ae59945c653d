"""Records for inlining: labels, contexts of copied function bodies, recursive functions."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.emulator.ptx.syntax import Function, Instruction, Reg, Variable


@dataclass(eq=False)
class Subroutine:
    """The single copy of a recursive function.

    ``entry``: its first instruction; ``return_number``: the register that holds the number of the call to return to;
    ``frame_size``: bytes of its variables in local memory; ``offsets``: ``id`` of a variable -> its offset in the
    frame.
    """

    function: Function
    context: Context
    entry: Label
    return_number: Reg
    frame_size: int
    offsets: dict[int, int]


class Label:
    """A position in the flattened code; -1 until it is known."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = -1


@dataclass
class Context:
    """One copy of a function body.

    ``registers``: slot in the function -> register of the copy; ``variables``: ``id`` of a variable of the function ->
    that of the copy; ``return_label``: the target of ``ret`` (None in the kernel itself); ``subroutine``: the recursive
    function into which this body is copied; ``caller``: the call that this copy is for.
    """

    function: Function
    registers: dict[int, Reg]
    variables: dict[int, Variable]
    return_label: Label | None
    subroutine: Subroutine | None = None
    caller: Instruction | None = None
