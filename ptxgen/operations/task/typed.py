"""Builds typed expressions: numbers take the type of the other operand, 8- and 16-bit values are cast to 32 bits where
arithmetic begins, and casts that lose values are never implied.

Both forms of the language (texts and Python functions) build their expressions here. Functions raise TaskError if an
operand breaks a rule; the message says which cast to write, but has no place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, constant, node, select
from ptxgen.expr.operators import OPERATORS, PREDICATE, result_type
from ptxgen.expr.value_types import PRED, VALUE_TYPES, type_of
from ptxgen.operations.task.printing import printed

#: types of arrays and scalars
INPUT_TYPES = ("f64", "f32", "f16", "bf16", "s32", "u32", "s16", "u16", "s8", "u8")
#: types of casts in expressions
CAST_TYPES = tuple(name for name in VALUE_TYPES if name != PRED)
ACCUMULATOR_TYPES = ("f64", "f32", "f16", "bf16", "s32", "u32", "s16", "u16")
#: declared type of a reduction -> the types in which arithmetic on values of this type happens elsewhere
NARROW = {"f16": ("f32",), "bf16": ("f32",), "s16": ("s32",), "u16": ("s32", "u32")}
#: float type -> the bits of its significand
_PRECISION = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
#: type of a narrow input -> the type in which arithmetic on it happens
_WIDENED = {"f16": "f32", "bf16": "f32", "s16": "s32", "u16": "s32", "s8": "s32", "u8": "s32", PRED: "s32"}
BITWISE = ("&", "|", "^", "~", "<<", ">>")
MOST_FACTORS = 64  #: the greatest power of which products are made
FLOAT_FUNCTIONS = ("sqrt", "rsqrt", "exp", "exp2", "log", "log2", "erf", "tanh")
#: function -> its number of arguments, -1: two or more
FUNCTIONS = {
    **dict.fromkeys((*FLOAT_FUNCTIONS, "sigmoid", "abs", "popcount"), 1),
    **dict.fromkeys(("min", "max", "fmin", "fmax"), -1),
    "pow": 2,
    **dict.fromkeys(("fma", "clamp", "where"), 3),
}


@dataclass(frozen=True)
class Number:
    """A number that was written without a type."""

    value: int | float


@dataclass(frozen=True)
class Choice:
    """The expression ``condition ? yes : no``, where both values are numbers without types."""

    condition: Node
    yes: Number | Choice
    no: Number | Choice


@dataclass(frozen=True)
class Scalar:
    """A Python number that is known when the task is called, and has no type yet. ``adapt``: the function that returns
    its variable of a given type; None stands for the default type."""

    name: str
    adapt: Callable[[str | None], Node]


Value = Node | Number | Choice | Scalar


def rounded(value: float, type: str) -> float:
    """The value of a float type that is nearest to a number, ties to even. Overflow gives infinity."""
    if type == "f64" or math.isnan(value) or math.isinf(value) or value == 0:
        return float(value)
    with np.errstate(over="ignore", under="ignore"):
        if type == "f32":
            return float(np.float32(value))
        if type == "f16":
            return float(np.float16(value))
    _, exponent = math.frexp(value)
    unit = math.ldexp(1.0, max(exponent - 8, -133))
    value_rounded = round(value / unit) * unit
    return value_rounded if abs(value_rounded) < 2.0**128 else math.copysign(math.inf, value)


def holds(wide: str, narrow: str) -> bool:
    """True if every value of type ``narrow`` is also a value of type ``wide``."""
    if wide == narrow or narrow == PRED:
        return True
    if wide == PRED:
        return False
    a, b = type_of(wide), type_of(narrow)
    if b.floating:
        return a.floating and {b.name, a.name} != {"f16", "bf16"} and a.bits > b.bits
    if a.floating:
        return b.bits - (b.group == "signed") <= _PRECISION[wide]
    return a.least <= b.least and a.greatest >= b.greatest


def widened(type: str, op: str = "") -> str:
    """The type in which arithmetic on values of ``type`` happens; for bitwise operators, unsigned values stay
    unsigned."""
    if op in (*BITWISE, "popcount") and type in ("u8", "u16"):
        return "u32"
    return _WIDENED.get(type, type)


def default_type(x: Number | Choice) -> str:
    if isinstance(x, Choice):
        return "f32" if "f32" in (default_type(x.yes), default_type(x.no)) else "s32"
    return "f32" if isinstance(x.value, float) else "s32"


def adapted(x: Value, type: str) -> Node:
    """The operand as a value of ``type``. Raises TaskError if the value may not be representable in ``type``."""
    if isinstance(x, Choice):
        return select(x.condition, adapted(x.yes, type), adapted(x.no, type))
    if isinstance(x, Scalar):
        return adapted(x.adapt(type), type)
    if isinstance(x, Node):
        if not holds(type, x.type):
            raise TaskError(f"{shown(x)} is {x.type}, which {type} cannot hold; write {type}({shown(x)})")
        return cast(x, type)
    t = type_of(type)
    if t.floating:
        if isinstance(x.value, int) and rounded(_as_float(x.value), type) != x.value:
            raise TaskError(f"{x.value} is no value of {type}; write {x.value}.0 for the nearest one")
        return constant(rounded(_as_float(x.value), type), type)
    if isinstance(x.value, float):
        if x.value == math.floor(x.value) if math.isfinite(x.value) else False:
            raise TaskError(f"{x.value} is a float, and the other operand is {type}; write {int(x.value)}")
        raise TaskError(f"{x.value} is no value of {type}; cast the other operand: write f32(…)")
    if not t.least <= x.value <= t.greatest:
        raise TaskError(f"{x.value} is no value of {type}; it must be from {t.least} to {t.greatest}")
    return constant(x.value, type)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise TaskError("the number is too large; it must be less than 1e308") from None


def fixed(x: Value) -> Node:
    """The operand as a typed expression: an integer without a type becomes s32, a number with a decimal point f32."""
    if isinstance(x, Node):
        return x
    if isinstance(x, Scalar):
        return x.adapt(None)
    return adapted(x, default_type(x))


def cast(x: Value, type: str) -> Node:
    """The value converted to ``type``, even if precision or range is lost. Numbers without a type become constants; if
    ``type`` is an integer type, they must be integers."""
    if isinstance(x, Number):
        if type_of(type).integer and isinstance(x.value, float):
            if not x.value.is_integer():
                raise TaskError(f"{x.value} is no value of {type}; write an integer")
            return adapted(Number(int(x.value)), type)
        return adapted(Number(_as_float(x.value)) if type_of(type).floating else x, type)
    if isinstance(x, Choice):
        return select(x.condition, cast(x.yes, type), cast(x.no, type))
    x = fixed(x)
    return x if x.type == type else node("cast", type, x)


def condition(x: Value, what: str = "the condition") -> Node:
    """The operand as a condition. Raises TaskError if it is a number. ``what``: the name of the operand in the
    message."""
    x = fixed(x)
    if x.type != PRED:
        raise TaskError(f"{what} is a number of {x.type}; it must be a comparison: write {shown(x)} != 0")
    return x


def joined(op: str, *operands: Value, exact: bool = False) -> tuple[Node, ...]:
    """The operands converted to one type. ``exact``: True: if all have the same type, they keep it, even if it is
    narrow."""
    typed = [x for x in operands if isinstance(x, Node)]
    if not typed:
        loose = [x for x in operands if not isinstance(x, Scalar)]
        if len(loose) < len(operands):
            typed = [fixed(x) for x in operands if isinstance(x, Scalar)]
        else:
            type = "f32" if any(default_type(x) == "f32" for x in loose) else "s32"  # type: ignore[arg-type]
            return tuple(adapted(x, type) for x in operands)
    types = list(dict.fromkeys(x.type for x in typed))
    if exact and len(types) == 1:
        try:
            return tuple(adapted(x, types[0]) for x in operands)
        except TaskError:
            if types[0] not in _WIDENED:
                raise
    if op in BITWISE and types == [PRED] and len(typed) == len(operands):
        return tuple(typed)
    if types == [PRED] and any(isinstance(x, Number | Choice) and default_type(x) == "f32" for x in operands):
        return tuple(adapted(x, "f32") for x in operands)
    unsigned = op if all(t in ("u8", "u16") for t in types) else ""
    for type in dict.fromkeys(widened(t, unsigned) for t in types):
        if all(holds(type, t) for t in types):
            return tuple(adapted(x, type) for x in operands)
    raise TaskError(_mixed(op, typed))


def _mixed(op: str, operands: list[Node]) -> str:
    """The message about operands none of whose types holds the values of all, with the casts to write."""
    a = operands[0]
    b = next(x for x in operands if not holds(widened(a.type), x.type) and not holds(widened(x.type), a.type))
    floats = [x for x in (a, b) if type_of(x.type).floating]
    what = f"`{op}` mixes {a.type} and {b.type}"
    if floats:
        other = b if floats[0] is a else a
        type = widened(floats[0].type)
        return f"{what}, and {type} cannot hold every {other.type}; write {type}({shown(other)})"
    unsigned = b if type_of(b.type).group == "unsigned" else a
    signed = a if unsigned is b else b
    return (
        f"{what}, which have different signs; write {widened(signed.type)}({shown(unsigned)}) or "
        f"{unsigned.type}({shown(signed)})"
    )


def shown(x: Value) -> str:
    """A short text of the operand for messages."""
    if isinstance(x, Number):
        return str(x.value)
    if isinstance(x, Scalar):
        return x.name
    text = printed(x, limit=60) if isinstance(x, Node) else "…"
    return text if len(text) <= 40 else "…"


def _folded(op: str, *numbers: Number) -> Number | None:
    """The result of an operator on numbers without types; None: the operator needs operands with types."""
    if op not in ("+", "-", "*", "/", "neg", "abs", "min", "max", *FLOAT_FUNCTIONS):
        return None
    values: list[Any] = [x.value for x in numbers]
    if op in ("/", *FLOAT_FUNCTIONS) or any(isinstance(v, float) for v in values):
        if op == "/" and all(isinstance(v, int) for v in values):
            raise TaskError(f"`/` has two integers; write {values[0]}.0 / {values[1]}")
        values = [_as_float(v) for v in values]
        with np.errstate(all="ignore"):
            return Number(float(OPERATORS[op].compute(*map(np.float64, values))))
    a = values[0]
    value = {
        "+": lambda: a + values[1],
        "-": lambda: a - values[1],
        "*": lambda: a * values[1],
        "neg": lambda: -a,
        "abs": lambda: abs(a),
        "min": lambda: min(values),
        "max": lambda: max(values),
    }[op]()
    if abs(value) >= 1 << 64:
        raise TaskError("the result of this integer arithmetic has more than 64 bits; write a float, with a point")
    return Number(value)


def binary(op: str, a: Value, b: Value) -> Value:
    """The expression of a binary operator: arithmetic, bitwise, shift, comparison, fmin, fmax, min or max."""
    if op in (">", ">="):
        return binary("<" if op == ">" else "<=", b, a)
    if isinstance(a, Number) and isinstance(b, Number) and (folded := _folded(op, a, b)) is not None:
        return folded
    if op in ("<<", ">>"):
        return _shift(op, a, b)
    x, y = joined(op, a, b)
    operator = OPERATORS[op]
    if PREDICATE not in operator.groups and x.type == PRED:
        x, y = cast(x, "s32"), cast(y, "s32")
    return _applied(op, x, y)


def _applied(op: str, *operands: Node) -> Node:
    """The node of an operator. Raises TaskError if the operator is not defined for the type of the operands."""
    operator, x = OPERATORS[op], operands[0]
    if type_of(x.type).group not in operator.groups:
        raise TaskError(_wrong_group(op, *operands))
    return node(op, result_type(operator, x.type), *operands)


def _wrong_group(op: str, *operands: Node) -> str:
    x = operands[0]
    texts = [shown(y) for y in operands]
    name = {"neg": "-"}.get(op, op)
    if op == "/":
        return f"`/` has operands of {x.type}; write f32({texts[0]}) / f32({texts[1]})"
    if op == "popcount":
        return f"popcount has an operand of {x.type}; write popcount(u32({texts[0]}))"
    if op in BITWISE:
        if x.type == PRED:
            return f"`{name}` has a condition as its operand; write not {texts[0]}"
        return f"`{name}` has an operand of {x.type}; it must be an integer: write s32({texts[0]})"
    if op in ("neg", "abs"):
        return f"`{name}` has an unsigned operand; write {name}(s32({texts[0]}))"
    return f"{name} has an operand of {x.type}; write {name}({', '.join(f'f32({t})' for t in texts)})"


def _shift(op: str, a: Value, b: Value) -> Node:
    x = fixed(a)
    x = cast(x, widened(x.type, op))
    if not type_of(x.type).integer:
        raise TaskError(_wrong_group(op, x))
    if isinstance(b, Node) and not type_of(widened(b.type)).integer:
        raise TaskError(f"`{op}` shifts by {shown(b)} of {b.type}; it must be an integer: write {x.type}({shown(b)})")
    return node(op, x.type, x, adapted(b, x.type))


def unary(op: str, a: Value) -> Value:
    """The expression of a unary operator (neg, ~, not) or of a function with one argument."""
    if op == "not":
        return node("not", PRED, condition(a, "the operand of not"))
    if isinstance(a, Number) and (folded := _folded(op, a)) is not None:
        return folded
    x = fixed(a)
    if op in ("neg", "abs", *FLOAT_FUNCTIONS, "popcount") or (op == "~" and x.type != PRED):
        x = cast(x, widened(x.type, op))
    return _applied(op, x)


def call(name: str, arguments: tuple[Value, ...]) -> Value:
    """The expression of a call of a function of ``FUNCTIONS``."""
    wanted = FUNCTIONS[name]
    if len(arguments) != wanted and (wanted > 0 or len(arguments) < 2):
        number = f"{wanted} argument{'s' * (wanted > 1)}" if wanted > 0 else "2 or more arguments"
        raise TaskError(f"{name} has {len(arguments)} argument{'s' * (len(arguments) != 1)}; it must have {number}")
    if name in _COMPOSED:
        return _COMPOSED[name](*arguments)
    if wanted == 1:
        return unary(name, arguments[0])
    if name == "fma":
        return _applied(name, *joined(name, *arguments))
    result = arguments[0]
    for other in arguments[1:]:
        result = binary(name, result, other)
    return result


def _sigmoid(x: Value) -> Value:
    """The logistic function, 1 / (1 + exp(-x))."""
    one = Number(1.0)
    return binary("/", one, binary("+", one, unary("exp", unary("neg", x))))


def _clamp(x: Value, low: Value, high: Value) -> Value:
    """``x``, at least ``low`` and at most ``high``; NaN if one is NaN."""
    return binary("min", binary("max", x, low), high)


def _power(x: Value, y: Value) -> Value:
    """``x`` to the power ``y``: products of ``x`` if ``y`` is an integer without a type up to ``MOST_FACTORS``, and one
    divided by them if it is negative; a root if it is 1/2 or -1/2."""
    if isinstance(y, Number) and not isinstance(x, Number):
        if y.value == int(y.value) and abs(y.value) <= MOST_FACTORS:
            return _whole_power(x, int(y.value))
        if abs(y.value) == 0.5:
            return unary("sqrt" if y.value > 0 else "rsqrt", x)
    if isinstance(x, Number) and isinstance(y, Number):
        with np.errstate(all="ignore"):
            return Number(float(np.power(_as_float(x.value), _as_float(y.value))))
    return _applied("pow", *joined("pow", x, y))


def _whole_power(x: Value, n: int) -> Value:
    """``x`` to the power of an integer, by squares."""
    if n < 0:
        return binary("/", Number(1.0), _whole_power(x, -n))
    result: Value | None = None
    square = x
    while n:
        if n & 1:
            result = square if result is None else binary("*", result, square)
        n >>= 1
        square = binary("*", square, square) if n else square
    return Number(1.0) if result is None else result


#: functions that are expressions of operators
_COMPOSED: dict[str, Callable[..., Value]] = {
    "sigmoid": _sigmoid,
    "clamp": _clamp,
    "pow": _power,
    "where": lambda *operands: choice(*operands),
}


def choice(test: Value, yes: Value, no: Value) -> Value:
    """The expression ``test ? yes : no``."""
    test = condition(test, "the condition of ?")
    if isinstance(yes, Number | Choice) and isinstance(no, Number | Choice):
        return yes if yes == no and not isinstance(yes, Choice) else Choice(test, yes, no)
    a, b = joined("?", yes, no, exact=True)
    if a.type == PRED:
        either = node("&", PRED, test, a)
        return node("|", PRED, either, node("&", PRED, node("not", PRED, test), b))
    return select(test, a, b)


def both(op: str, a: Value, b: Value) -> Node:
    """The expression ``a and b`` (``op`` &) or ``a or b`` (``op`` |)."""
    word = {"&": "and", "|": "or"}[op]
    return node(op, PRED, *(condition(x, f"an operand of {word}") for x in (a, b)))


def narrowed(root: Node, type: str) -> Node:
    """The expression in which arithmetic on values of ``type``, one of ``NARROW``, happens in ``type``. Integers wrap
    around. Parts that are cast to ``type`` keep their arithmetic. Raises TaskError if a number is not a value of
    ``type``."""
    wide, group = NARROW[type], type_of(type).group
    kept: dict[Node, Node] = {}

    def visit(x: Node) -> Node:
        if x not in kept:
            kept[x] = changed(x)
        return kept[x]

    def retyped(x: Node) -> Node:
        """The expression, which has only numbers and conditions, computed in ``type``."""
        if x.op == "constant":
            return constant(rounded(x.value, type), type) if group == "float" else adapted(Number(x.value), type)
        arguments = (retyped(y) if y.type in wide else visit(y) for y in x.arguments)
        return node(x.op, type, *arguments, value=x.value)

    def changed(x: Node) -> Node:
        if x.op == "cast" and x.arguments[0].type != PRED:
            (of,) = x.arguments
            if x.type in wide and of.type != type and group != "float" and holds(type, of.type):
                return node("cast", type, of)
            return visit(of) if x.type in wide and of.type == type else x
        made = {y: visit(y) for y in x.arguments}
        parts = [y for y in x.arguments if y.type in wide]
        of_type = x.op == "select" or (x.op in OPERATORS and group in OPERATORS[x.op].groups)
        narrow = any(made[y].type == type for y in parts)
        if of_type and narrow and all(made[y].type == type or _has_no_input(y) for y in parts):
            made |= {y: retyped(y) for y in parts if made[y].type != type}
            return node(x.op, type if x.type in wide else x.type, *(made[y] for y in x.arguments), value=x.value)
        made |= {y: cast(made[y], y.type) for y in parts}
        return node(x.op, x.type, *(made[y] for y in x.arguments), value=x.value)

    return retyped(root) if root.type in wide and _has_no_input(root) else visit(root)


def _has_no_input(x: Node) -> bool:
    """True if the expression has only numbers and conditions."""
    if x.op == "cast":
        return x.arguments[0].type == PRED
    return x.op == "constant" or (x.op != "variable" and all(_has_no_input(y) for y in x.arguments if y.type != PRED))


def is_identity(x: Node, op: str) -> bool:
    """True if the expression is the constant that changes nothing in a reduction with ``op``."""
    identity = OPERATORS[op].identity
    return x.op == "constant" and identity is not None and x.value == identity(type_of(x.type))
