"""Reads activations that are expressions of the task language: texts or Python functions of the sum ``x``, of ``aux``,
and of ``up``, the sum of the next column."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ptxgen.errors import InputError, TaskError
from ptxgen.expr.derivative import derivatives, times
from ptxgen.expr.node import Node, constant, node, rewritten, substituted, variable, variables
from ptxgen.operations.task.assembling import check_nesting
from ptxgen.operations.task.language.expressions import Expressions
from ptxgen.operations.task.language.grammar import tree
from ptxgen.operations.task.language.scope import Scope
from ptxgen.operations.task.printing import printed
from ptxgen.operations.task.tracing.operands import Trace, Traced, lifted, tracing
from ptxgen.operations.task.typed import Value, adapted
from ptxgen.problem.epilogue_ops import ACTIVATION, VARIABLES, EpilogueOp, epilogue_op, epilogue_op_names

#: the type of expressions while the type of the epilogue is not known
TYPE = "f64"
LONGEST = 4000  #: the most characters of a canonical text


def read(text: str) -> tuple[str, Node]:
    """The canonical text of an expression, and the expression. TaskError: the text breaks a rule."""
    [root] = tree(text, "activation").children
    scope = _Names(text)
    with scope.at(root):
        return _checked(_Functions(scope).value(root))


def traced(function: Callable[..., Any]) -> str:
    """The canonical text of a Python function of x, aux and up; other numbers that it reads become constants.
    InputError: the function breaks a rule."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"activation is {name}, whose parameters are not known; it must be a Python function"
        ) from error
    given = ("x", *parameters[1:])
    if not parameters or not set(given) <= set(VARIABLES):
        raise InputError(
            f"activation is {name} with {'parameters ' if parameters else 'no parameter'}{', '.join(parameters)}; it"
            " must have one, the sum, or a second one, aux or up"
        )
    with tracing(Trace()):
        try:
            result = function(*(Traced(variable(x, TYPE)) for x in given))
        except (TypeError, AttributeError) as error:
            raise InputError(
                f"activation is {name}, which fails on expressions ({error}); it must have operators and functions of"
                " ptxgen"
            ) from error
        return _checked(lifted(result))[0]


def gradient(op: EpilogueOp) -> str:
    """The text of the gradient of an activation of x: the sum x times the slope at aux. TaskError: an operator has no
    derivative."""
    x = root = variable("x", TYPE)
    for step in op.steps:
        root = substituted(step.expression(TYPE), {"x": root})
    slope = derivatives(root, ("x",)).get("x", constant(0, TYPE))
    return _checked(times(x, substituted(slope, {"x": variable("aux", TYPE)})))[0]


def _checked(value: Value) -> tuple[str, Node]:
    root = rewritten(check_nesting(adapted(value, TYPE)), _without_rcp)
    if "x" not in variables(root):
        raise TaskError("the activation does not read x, the sum; it must")
    text = printed(root)
    if len(text) > LONGEST:
        raise TaskError(f"the expression has {len(text)} characters; it must have at most {LONGEST}")
    return text, root


def _without_rcp(x: Node) -> Node:
    """The expression with 1 / y in place of a reciprocal, which the language does not have."""
    return node("/", x.type, constant(1, x.type), *x.arguments) if x.op == "rcp" else x


class _Names(Scope):
    """The names of an activation."""

    def __init__(self, text: str) -> None:
        super().__init__(text, {})
        self.definitions = {x: variable(x, TYPE) for x in VARIABLES}

    def axis(self, token: Any, others: Iterable[Any] = ()) -> str:
        raise self.fail(token, f"{token} is no index; an activation reads x, aux and up, without indices")

    def unknown(self, name: str, axes: tuple[str, ...]) -> str:
        return f"{name} is unknown; it must be x, the sum, aux, or up, the sum of the next column"


class _Functions(Expressions):
    """Reads expressions that may also call the named activations, such as gelu(x)."""

    def read_call(self, x: Any) -> Value:
        name, arguments = str(x.children[0]), [y for y in x.children[1].children if y is not None]
        if name in epilogue_op_names(ACTIVATION) and len(arguments) == 1 and not epilogue_op(name).steps[0].spans:
            argument = adapted(self.value(arguments[0]), TYPE)
            value = argument
            for step in epilogue_op(name).steps:
                value = substituted(step.expression(TYPE), {"x": value})
            return value
        return super().read_call(x)
