"""Reductions and outputs of a traced function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.arguments import shown
from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, constant, variable, variables
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import axes_of, check_nesting, initial_of, reduced, step_of, stored, top_count
from ptxgen.operations.task.program import ACCUMULATOR, Aggregate, Distinct, RowReduce, Select, Top
from ptxgen.operations.task.tracing.operands import Axis, Operand, Reduced, Traced, current, lifted
from ptxgen.operations.task.tracing.places import error, placed
from ptxgen.operations.task.typed import binary, cast, condition, fixed


def reduce(op: str, axis: Any, x: Any, accum: str | None, initial: Any) -> Any:
    """The reduction of ``x`` over an axis: an expression if it is the reduced axis, an output if it is a spatial
    axis."""
    trace = current()
    if not isinstance(axis, Axis):
        raise error("the first argument of a reduction is an axis: write ptxgen.sum(k, …)")
    name, value = trace.key(axis), lifted(x)
    with placed():
        node = fixed(value)
        complete = ACCUMULATOR in variables(node)
        if trace.axis is not None and axis is not trace.axis:
            if accum is not None or initial is not None:
                raise TaskError("accum and initial are of the reduction over the reduced axis; remove them")
            return _row(op, axis, node)
        if complete:
            raise TaskError(
                f"the reduction over {name} is read in itself, before it is complete; it must be read after it"
            )
        step, type = step_of(op, value, accum)
        start = None if initial is None else initial_of(op, lifted(initial), type)
        reduction = (op, step, type, start)
        if trace.reduction not in (None, reduction):
            raise TaskError(f"the task has a second reduction over {name}; it must have one")
        trace.axis, trace.reduction = axis, reduction
    return Traced(variable(ACCUMULATOR, type))


def _condition(test: Any) -> Node:
    """The condition ``test``, which may be True or False."""
    if isinstance(test, bool | np.bool_):
        return constant(bool(test), PRED)
    return check_nesting(condition(lifted(test)))


def reduce_conditions(op: str, axis: Any, x: Any) -> Any:
    """The condition that holds if any (``op`` |) or all (``op`` &) of the conditions along an axis hold."""
    with placed():
        test = condition(lifted(x), "the operand of any or all")
    reduction = reduce(op, axis, Traced(cast(test, "s32")), None, None)
    return reduction if isinstance(reduction, Reduced) else reduction != 0


def reduce_rows(op: str, axis: Any, x: Any) -> Reduced:
    """The output of a reduction that is possible only over a spatial axis."""
    trace = current()
    if not isinstance(axis, Axis):
        raise error(f"the first argument of a reduction is an axis: write ptxgen.{op}(j, …)")
    if trace.axis is None or axis is trace.axis:
        raise error(f"{op} is over {axis.name}, which is no spatial axis; it must be of a reduction: ptxgen.sum(k, …)")
    trace.key(axis)
    with placed():
        return _row(op, axis, fixed(lifted(x)))


def _row(op: str, axis: Axis, node: Node) -> Reduced:
    value = reduced(op, node)
    name = {"+": "sum"}.get(op, op)
    return Reduced(f"the {name} over {axis.name}", lambda output: RowReduce(output, value, axis.name, op))


def grouped(op: str, row: Any, column: Any, x: Any) -> Reduced:
    """The output that reduces the pairs with equal keys."""
    keys = _keys(row, column)
    with placed():
        value = reduced(op, lifted(x))
    return Reduced("a reduction of groups", lambda output: Aggregate(output, value, keys[0], keys[1], op))


def distinct(row: Any, column: Any, test: Any) -> Reduced:
    """The output that lists distinct pairs of keys."""
    keys = _keys(row, column)
    with placed():
        holds = constant(True, PRED) if test is None else _condition(test)
    return Reduced("distinct keys", lambda output: Distinct(output, holds, keys[0], keys[1]))


def _keys(row: Any, column: Any) -> list[Node]:
    """The expressions of the keys of rows and columns. Raises TaskError if they are not keys."""
    keys = []
    for key in (row, column):
        value = lifted(key) if isinstance(key, Operand) else None
        if (
            not isinstance(value, Node)
            or value.op != "variable"
            or len(axes_of(value.value)) > 1
            or value.value == ACCUMULATOR
        ):
            raise error("a key is no element of an array with one axis; write g[i]")
        if not isinstance(key, Axis) and not axes_of(value.value):
            raise error("a key is a scalar; it must be an element of an array with one axis: write g[i]")
        if not type_of(value.type).integer:
            raise error(f"a key is {value.type}; it must be an integer: convert the array before the call")
        keys.append(value)
    first, second = (
        x.name if isinstance(x, Axis) else axes_of(y.value)[0] for x, y in zip((row, column), keys, strict=True)
    )
    if first == second:
        raise error(f"both keys are of the axis {first}; they must be of the two spatial axes")
    if isinstance(row, Axis) and isinstance(column, Axis):
        raise error("both keys are axes, so that each group has one pair; return the expression")
    return keys


def tested(test: Any) -> Any:
    """The result ``test`` of a test function. Raises TaskError if it is a number in place of a condition."""
    if not isinstance(test, bool):
        with placed():
            condition(lifted(test), "the result of the test")
    return test


def selected(test: Any, values: tuple[Any, ...]) -> Reduced:
    """The output that lists the values of the pairs for which ``test`` holds."""
    if not values:
        raise error("the list has no values; write ptxgen.select(condition, c, i, j)")
    with placed():
        holds = _condition(test)
        nodes = tuple(stored(lifted(x)) for x in values)
    return Reduced("a list", lambda output: Select(output, nodes[0], holds, nodes))


def best(greatest: bool, arguments: tuple[Any, ...], test: Any) -> Reduced:
    """The output of the greatest or least values. ``arguments``: as for ``functions.top``; ``test``: the condition of
    the pairs to consider."""
    trace, word = current(), "top" if greatest else "bottom"
    axis, rest = (arguments[0], arguments[1:]) if arguments and isinstance(arguments[0], Axis) else (None, arguments)
    if axis is not None and (trace.axis is None or axis is trace.axis):
        raise error(f"{word} is over {axis.name}, which is no spatial axis; write ptxgen.{word}(j, n, e)")
    indices = rest[2:]
    whole = len(rest) == 4 and all(isinstance(x, Axis) for x in indices) and indices[0].order < indices[1].order
    if not whole and (axis is None or len(rest) != 2):
        raise error(f"{word} takes ptxgen.{word}(n, e, i, j), of all pairs, or ptxgen.{word}(j, n, e), of each row i")
    for each in (*indices, *([] if axis is None else [axis])):
        trace.key(each)
    if isinstance(rest[0], str):
        raise error(f"the number of values is {shown(rest[0])}; it must be an integer, or a scalar")
    with placed():
        count, value = top_count(lifted(rest[0])), stored(lifted(rest[1]))
        holds = constant(True, PRED) if test is None else _condition(test)
    along = "" if axis is None else axis.name
    return Reduced(f"the {word} n", lambda output: Top(output, value, holds, count, along, greatest))


def restricted(test: Any) -> None:
    """Restricts the task to the pairs for which ``test`` holds."""
    trace = current()
    with placed():
        holds = _condition(test)
        if ACCUMULATOR in variables(holds):
            raise TaskError("when reads the reduction, which is for the pairs that it selects; write ptxgen.select")
        trace.when = holds if trace.when is None else check_nesting(binary("&", trace.when, holds))  # type: ignore[arg-type]
