"""Assembles a program from its parts, by the rules that both forms of the language, texts and Python functions, have in
common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, substituted, variables, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    AXES,
    EXTENTS,
    MEAN,
    MOST_TOP,
    POSITIONS,
    Aggregate,
    Distinct,
    Input,
    Output,
    Program,
    Scatter,
    Select,
    Top,
)
from ptxgen.operations.task.typed import (
    ACCUMULATOR_TYPES,
    CAST_TYPES,
    FUNCTIONS,
    INPUT_TYPES,
    NARROW,
    Number,
    Scalar,
    Value,
    adapted,
    cast,
    fixed,
    holds,
    is_identity,
    narrowed,
    shown,
    widened,
)

#: reductions over k
REDUCTIONS = ("+", "*", "max", "min", "fmax", "fmin", "&", "|", "^", *POSITIONS, MEAN)
AGGREGATES = ("+", "*", "max", "min", "&", "|", "^")
ROW_REDUCTIONS = ("+", "*", "max", "min", "&", "|", "^", *POSITIONS, "logsumexp", MEAN)
WORDS = ("where", "when", "reduce", "in", "and", "or", "not", "inf", "nan", "true", "false")
#: names that no input may have
RESERVED = frozenset((*WORDS, *AXES, *EXTENTS, ACCUMULATOR, *FUNCTIONS, *CAST_TYPES, *POSITIONS, MEAN, "logsumexp"))
_BIT_OPERATORS = ("&", "|", "^")
_NESTING = 100
_WHEN_OPERATORS = 200


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of the variable with this name; empty for a scalar."""
    return tuple(name.partition("[")[2].rstrip("]").split(",")) if "[" in name else ()


def array_of(name: str) -> str:
    """The name of the array or scalar of a variable."""
    return name.partition("[")[0]


def depends_on(axis: str, root: Node) -> bool:
    """True if a value may change along an axis; ``accum`` changes along i and j."""
    return any(
        axis in axes_of(name) or name == axis or (name == ACCUMULATOR and axis != "k") for name in variables(root)
    )


def number_type(number: str, wanted: Iterable[str]) -> str:
    """The type of a Python number. ``number``: "float" or "int"; ``wanted``: the types of the values with which the
    number is combined."""
    types = set(wanted)
    if "f64" in types:
        return "f64"
    if number == "float" or any(type_of(t).floating for t in types):
        return "f32"
    return "u32" if types and all(type_of(t).group == "unsigned" for t in types) else "s32"


def check_nesting(root: Node) -> Node:
    """The expression itself. TaskError: it nests too many operators."""
    depth: dict[Node, int] = {}
    for x in walk(root):
        depth[x] = 1 + max((depth[y] for y in x.arguments), default=0)
        if depth[x] > _NESTING:
            raise TaskError(f"the expression nests more than {_NESTING} operators; it must nest fewer")
    return root


def step_of(reduction: str, step: Value, declared: str | None) -> tuple[Node, str]:
    """The step in the type in which it is reduced, and the type of the accumulator. ``declared``: the declared type of
    the accumulator; None: it follows from the step. TaskError: the types do not fit the reduction."""
    x = fixed(step)
    if x.type == PRED:
        x = cast(x, "s32")
    wide = widened(x.type, reduction)
    type = wide if declared is None or reduction in POSITIONS else declared
    if reduction in POSITIONS and declared not in (None, "s32"):
        raise TaskError(f"the accumulator of {reduction} is a position, of type s32; it is declared {declared}")
    if type not in ACCUMULATOR_TYPES:
        known = f"the accumulator is {type}; it must be one of {', '.join(ACCUMULATOR_TYPES)}"
        raise TaskError(known if declared else f"{known}: write f64({shown(x)})")
    if type in NARROW:
        x = narrowed(x, type)
    if not holds(type, x.type):
        raise TaskError(f"the step is {x.type}, which the accumulator of {type} cannot hold; write {type}({shown(x)})")
    x = cast(x, type)
    _check_group(reduction, x)
    return check_nesting(x), "s32" if reduction in POSITIONS else type


def _check_group(reduction: str, x: Node) -> None:
    value = type_of(x.type)
    if reduction == MEAN and not value.floating:
        raise TaskError(f"the mean is of {x.type}; it must be of a float: write f32({shown(x)})")
    if reduction == "logsumexp" and not value.floating:
        raise TaskError(f"logsumexp is of {x.type}; it must be of a float: write f32({shown(x)})")
    if reduction in OPERATORS and value.group not in OPERATORS[reduction].groups:
        other = "an integer: write s32" if reduction in _BIT_OPERATORS else "a float: write f32"
        raise TaskError(f"the reduction {reduction} is of {x.type}; it must be of {other}({shown(x)})")


def initial_of(reduction: str, initial: Value, accumulator: str) -> Node | None:
    """The initial value that is combined once with the reduction; None: it is the identity of the reduction. TaskError:
    the reduction permits no such value."""
    if reduction in POSITIONS:
        raise TaskError(f"the accumulator of {reduction} is a position and has no initial value; remove it")
    try:
        x = adapted(initial, accumulator)
    except TaskError:
        # -inf is below every integer
        value = fixed(initial)
        infinite = value.op == "constant" and type_of(value.type).floating and not type_of(accumulator).floating
        bound = {"max": "least", "min": "greatest"}.get(reduction)
        if not infinite or bound is None or value.value != getattr(type_of("f64"), bound):
            raise
        return None
    if is_identity(x, "+" if reduction == MEAN else reduction):
        return None
    if reduction == MEAN:
        raise TaskError(f"the initial value of a mean is {shown(x)}; it must be 0")
    return check_nesting(x)


def _require_array_type(x: Node) -> None:
    """Raises TaskError if arrays cannot have elements of the type of a value."""
    if x.type not in (*INPUT_TYPES, PRED):
        raise TaskError(f"the result is {x.type}; it must be one of {', '.join(INPUT_TYPES)}: write f64({shown(x)})")


def stored(value: Value) -> Node:
    """A value as an element of an output: conditions become u8. TaskError: the value is an integer of 64 bits."""
    x = fixed(value)
    _require_array_type(x)
    return check_nesting(cast(x, "u8") if x.type == PRED else x)


def reduced(op: str, value: Value) -> Node:
    """A value that an output reduces with ``op``, in 32 bits or more."""
    x = fixed(value)
    _require_array_type(x)
    x = cast(x, "s32" if x.type == PRED else widened(x.type, op))
    _check_group(op, x)
    return check_nesting(x)


def top_count(value: Value) -> Node:
    """The number of values of an output that lists the greatest or least ones. TaskError: it is not an integer, or out
    of range."""
    if isinstance(value, Number) and isinstance(value.value, float):
        raise TaskError(f"the number of values is {value.value}; it must be an integer, or a scalar")
    known = value.adapt("s32") if isinstance(value, Scalar) else value
    if isinstance(known, Node) and not type_of(known.type).integer:
        raise TaskError(f"the number of values, {shown(known)}, is {known.type}; it must be an integer")
    x = adapted(known, "s32")
    inner = x.arguments[0] if x.op == "cast" else x
    if inner.op not in ("constant", "variable") or axes_of(str(inner.value)) or inner.value in (*AXES, *EXTENTS):
        raise TaskError(f"the number of values is {shown(x)}; it must be an integer, or a scalar")
    if x.op == "constant" and not 0 <= x.value <= MOST_TOP:
        raise TaskError(f"the number of values is {x.value}; it must be from 0 to {MOST_TOP}")
    return x


def roots_of(output: Output) -> tuple[Node, ...]:
    """The expressions of an output."""
    if isinstance(output, Aggregate | Distinct | Scatter):
        return output.row, output.column, output.value
    if isinstance(output, Select):
        return output.condition, *output.values
    if isinstance(output, Top):
        return output.condition, output.value, output.count
    return (output.value,)


def roots(program: Program) -> tuple[Node, ...]:
    """The expressions of a program, in the order of the text."""
    first = [x for x in (program.when, program.initial, program.step) if x is not None]
    return *first, *(x for output in program.outputs for x in roots_of(output))


def inputs_of(expressions: Iterable[Node]) -> tuple[Input, ...]:
    """The arrays and scalars of expressions, in the order of first use."""
    uses: dict[str, dict[tuple[str, ...], None]] = {}
    types: dict[str, str] = {}
    for x in walk(*expressions):
        if x.op == "variable" and x.value not in (*AXES, *EXTENTS, ACCUMULATOR):
            axes, name = axes_of(x.value), array_of(x.value)
            types[name] = x.type
            uses_of_array = uses.setdefault(name, {})
            if axes:
                uses_of_array[axes] = None
    return tuple(Input(name, types[name], tuple(uses[name])) for name in types)


def program_of(
    step: Node,
    reduction: str,
    accumulator: str,
    outputs: tuple[Output, ...],
    initial: Node | None = None,
    when: Node | None = None,
) -> Program:
    """The program with these parts, which the functions above returned. TaskError: the condition of ``when`` is too
    long."""
    if when is not None:
        if when.op == "constant" and when.value:
            when = None
        elif sum(1 for _ in _tree(when, _WHEN_OPERATORS + 1)) > _WHEN_OPERATORS:
            raise TaskError(f"the condition of when has more than {_WHEN_OPERATORS} operators; it must have fewer")
    bare = Program((), step, reduction, accumulator, outputs, initial, when)
    return Program(inputs_of(roots(bare)), step, reduction, accumulator, outputs, initial, when)


def _tree(root: Node, limit: int) -> Iterator[Node]:
    """The first ``limit`` nodes of an expression; shared nodes occur as often as they are used."""
    stack = [root]
    while stack and limit:
        x = stack.pop()
        limit -= 1
        yield x
        stack.extend(x.arguments)


def renamed(program: Program, names: Mapping[str, str], outputs: Mapping[str, str]) -> Program:
    """The program with other names of arrays and scalars, and of outputs."""
    values = {}
    for x in walk(*roots(program)):
        if x.op == "variable" and array_of(x.value) in names:
            axes = axes_of(x.value)
            values[x.value] = Input(names[array_of(x.value)], x.type).variable(axes)
    return mapped(program, lambda x: substituted(x, values), outputs)


def mapped(program: Program, change: Callable[[Node], Node], outputs: Mapping[str, str] | None = None) -> Program:
    """The program with ``change`` applied to each expression. ``outputs``: old -> new names of outputs."""
    made: list[Output] = []
    for output in program.outputs:
        name = (outputs or {}).get(output.name, output.name)
        value = change(output.value)
        if isinstance(output, Aggregate | Distinct | Scatter):
            row, column = change(output.row), change(output.column)
            made.append(replace(output, name=name, value=value, row=row, column=column))
        elif isinstance(output, Select):
            values = tuple(change(x) for x in output.values)
            made.append(replace(output, name=name, value=value, condition=change(output.condition), values=values))
        elif isinstance(output, Top):
            condition, count = change(output.condition), change(output.count)
            made.append(replace(output, name=name, value=value, condition=condition, count=count))
        else:
            made.append(replace(output, name=name, value=value))
    initial, when = (None if x is None else change(x) for x in (program.initial, program.when))
    return program_of(change(program.step), program.reduction, program.accumulator, tuple(made), initial, when)
