"""The fused operations of the epilogue and their operands in global memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.expr.node import variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.epilogue_ops import COLUMN, ROW, SCALE, EpilogueOp, EpilogueStep

#: in printed instructions, the places of a sum, of an element of an array, and of the guard
_X, _OPERAND, _GUARD = "\x01", "\x02", "\x03 "


@functools.cache
def _printed(step: EpilogueStep, type: str, sm: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instructions of a step, and the declarations of the registers that they need besides %elem and
    %is_negative. %elem may hold the element of the array."""
    own = {PRED: ["%is_negative"]} if step.array else {type: ["%elem"], PRED: ["%is_negative"]}
    temporaries = Temporaries("fused", own)
    names = {variable("x", type): _X, variable("operand", type): _OPERAND}
    made = statements(
        [step.expression(type)], names, [_X], sm=sm, temporaries=temporaries, guard=_GUARD, guards_all=True, fast=True
    )
    return tuple(made.lines), tuple(temporaries.declarations)


@dataclass(frozen=True)
class FusedOps(Part):
    """``template``: their slot; ``operands``: by name, the PTX type of a load and the bytes of an element;
    ``operations``: in order; ``type``: of their arithmetic; ``sm``: the target; ``scalar_bias``: all elements of C add
    the same bias; ``batched_bias``: each batch item has a bias of its own, stored consecutively; ``grouped``: an item's
    operands begin at offsets that its descriptor holds."""

    template: str
    operands: dict[str, tuple[str, int]]
    operations: tuple[EpilogueOp, ...]
    type: str
    sm: int
    scalar_bias: bool
    batched_bias: bool
    grouped: bool = False

    @classmethod
    def of(cls, p: KernelProblem, batched: bool, sm: int, template: str = "epilogue/fused_ops.mako") -> FusedOps:
        """The fused operations of ``p``. ``template``: the slot, if there are any."""
        types = {name: p.sink.array_dtype(name) for name in p.sink.arrays}
        operands = {name: ("b16" if kind.bytes == 2 else kind.name, kind.bytes) for name, kind in types.items()}
        return cls(
            template if p.sink.epilogue else "epilogue/identity.mako",
            operands,
            p.sink.operations,
            p.sink.arithmetic,
            sm,
            p.sink.scalar_bias and "bias" in operands,
            batched and p.sink.batched_bias and "bias" in operands,
            grouped(p),
        )

    @property
    def scales(self) -> tuple[EpilogueOp, ...]:
        """The operations before beta C is added."""
        return tuple(op for op in self.operations if op.place == SCALE)

    @property
    def others(self) -> tuple[EpilogueOp, ...]:
        """The operations after beta C is added."""
        return tuple(op for op in self.operations if op.place != SCALE)

    @property
    def steps(self) -> tuple[EpilogueStep, ...]:
        return tuple(step for op in self.operations for step in op.steps)

    def step_of(self, array: str) -> EpilogueStep:
        """The step that reads an array."""
        return next(step for step in self.steps if step.array == array)

    @property
    def vectors(self) -> tuple[EpilogueStep, ...]:
        """The steps after beta C is added that read an element for each row or column of C."""
        return tuple(step for op in self.others for step in op.steps if step.spans in (ROW, COLUMN))

    @property
    def activations(self) -> tuple[EpilogueOp, ...]:
        """The operations on each sum alone, and those that read aux."""
        return tuple(op for op in self.others if all(step.array in ("", "aux") for step in op.steps))

    def lines(self, step: EpilogueStep, x: str, operand: str = "", guard: str = "") -> list[str]:
        """The instructions of a step on the register of a sum. ``operand``: the register of the element."""
        return [
            line.replace(_X, x).replace(_OPERAND, operand).replace(_GUARD, guard)
            for line in _printed(step, self.type, self.sm)[0]
        ]

    @property
    def declarations(self) -> list[str]:
        """Registers that the instructions need, besides %elem and %is_negative, of all steps."""
        found: dict[str, int] = {}
        for step in self.steps:
            for line in _printed(step, self.type, self.sm)[1]:
                head, _, count = line.rpartition("<")
                found[head] = max(found.get(head, 0), int(count.rstrip(">;")))
        return [f"{head}<{n}>;" for head, n in found.items()]
