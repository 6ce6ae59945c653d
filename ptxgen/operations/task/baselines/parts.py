"""Divides a program into the parts that the texts of baselines are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ptxgen.errors import LaunchError
from ptxgen.expr.node import Node, constant, rewritten, variable, walk
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.operations.task.assembling import array_of, axes_of
from ptxgen.operations.task.lowering import inner_of, value_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import ACCUMULATOR, AXES, EXTENTS, POSITIONS, Store
from ptxgen.operations.task.roles import SIDES


@dataclass(frozen=True)
class Parts:
    """The expressions of a task that baselines print. Scalars are replaced by the values with which kernels are
    timed."""

    problem: Task

    @classmethod
    def of_matrix(cls, p: Task) -> Parts:
        """The parts of a task whose output is a matrix. LaunchError: the task has a batch, or another output or
        reduction."""
        program = p.program
        output = program.outputs[0]
        if p.batch > 1:
            raise LaunchError(f"batch is {p.batch}; the kernel has one item")
        if not isinstance(output, Store) or len(program.outputs) > 1 or program.when is not None:
            raise LaunchError("the kernel stores one matrix, all of its elements; the task has another output")
        if output.axes != ("i", "j"):
            raise LaunchError("the kernel stores C by rows; the task stores it by columns")
        if program.reduction in POSITIONS:
            raise LaunchError(f"the reduction is {program.reduction}; it must be an operator")
        return cls(p)

    def of_reduction(self, x: Node) -> Node:
        """An expression of the task's accumulator, rewritten for the reduction that the baseline computes."""
        return value_of(self.problem.program, x)

    def known(self, x: Node) -> Node:
        """The expression with the values of scalars."""
        values = {
            role: constant(self.problem.typical_scalars[role], element_type)
            for role, _, element_type in self.problem.roles.scalars
        }
        return rewritten(x, lambda y: values.get(y.value, y) if y.op == "variable" else y)

    @cached_property
    def algebra(self) -> InnerExpression:
        return inner_of(self.problem.roles)

    @cached_property
    def reduced(self) -> Node:
        """The accumulator after a step."""
        return self.known(self.algebra.reduced)

    @cached_property
    def step(self) -> Node:
        return self.known(self.algebra.step)

    @cached_property
    def value(self) -> Node:
        """The result of a pair, as an expression of the reduction over k."""
        return self.known(self.of_reduction(self.problem.program.outputs[0].value))

    @property
    def accumulator(self) -> Node:
        return variable(ACCUMULATOR, self.algebra.type)

    def reads(self, *roots: Node) -> list[Read]:
        """The elements, indices and extents that expressions read, without the accumulator."""
        variables = [x for x in walk(*roots) if x.op == "variable" and x.value != ACCUMULATOR]
        return [Read(x, array_of(x.value), axes_of(x.value)) for x in variables]

    def names(self, text: Callable[[Read], str], *roots: Node) -> dict[Node, str]:
        """Variable of the expressions -> its text. ``text``: returns the text of a read."""
        return {self.accumulator: ACCUMULATOR} | {r.node: text(r) for r in self.reads(*roots)}

    @property
    def others(self) -> list[Read]:
        """The arrays besides A and B that the step and the value read."""
        return self.arrays(self.reduced, self.value)

    def arrays(self, *roots: Node) -> list[Read]:
        """The arrays besides A and B that expressions read."""
        return [r for r in self.reads(*roots) if r.axes and r.name not in SIDES]


@dataclass(frozen=True)
class Read:
    """A variable of an expression. ``name``: the name of the array, index or extent; ``axes``: the axes of the array,
    empty for an index or an extent."""

    node: Node
    name: str
    axes: tuple[str, ...]

    @property
    def indexed(self) -> bool:
        """True if the variable is an index or an extent."""
        return self.name in (*AXES, *EXTENTS)


def order_of(axes: tuple[str, ...]) -> tuple[str, ...]:
    """The order in which kernels of tiles read an array with these axes."""
    return tuple(axis for axis in ("k", "i", "j") if axis in axes)


def identity_of(parts: Parts) -> Node:
    """The identity of the reduction over k, as a constant."""
    return constant(parts.algebra.identity, parts.algebra.type)
