"""The features of a task that the model reads: the instructions of its step, the arrays it reads, the class of its
output."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from ptxgen.expr.instructions import PIPES
from ptxgen.lowering import step_rate
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.operations.task.lowering import algebra_of, in_loop
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Aggregate, Distinct, RowReduce, Scatter, Select, Store, Top
from ptxgen.operations.task.roles import Roles
from ptxgen.problem.device import device

TARGET = "sm_90"  #: the target whose instructions are counted
#: class of an output -> its number as a feature
SINKS = {Store: 0, Scatter: 0, Aggregate: 1, RowReduce: 2, Select: 3, Top: 3, Distinct: 1}


@lru_cache(maxsize=256)
def _numbers(roles: Roles, rewrite: bool) -> dict[str, float]:
    """The features of a program. ``rewrite``: as in ``inner_of``."""
    algebra = algebra_of(in_loop(roles, rewrite)[0], rewrite)
    counted = step_rate.PRODUCT
    if isinstance(algebra, InnerExpression):
        counted = step_rate.of_expression(algebra, device(TARGET))
    of_pipes = dict(counted.by_pipe)
    return {
        **{f"step_{pipe}": float(of_pipes.get(pipe, 0)) for pipe in PIPES},
        "step_vectors": float(len(algebra.vectors)),
        "task_inputs": float(len(roles.others)),
        "task_sink": float(SINKS[type(roles.program.outputs[0])]),
    }


def _number(name: str, p: Task) -> float:
    return _numbers(p.roles, p.algebra)[name]


#: name of a feature -> its value for a task: instructions of a step by pipe; the number of arrays along an axis that a
#: step reads; the number of arrays besides A and B; the class of the first output
FEATURES: dict[str, Callable[[Task], float]] = {
    name: partial(_number, name)
    for name in (*(f"step_{pipe}" for pipe in PIPES), "step_vectors", "task_inputs", "task_sink")
}
