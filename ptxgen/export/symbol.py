"""Symbols: numbers that follow from the extents of a shape, as expressions that C can compute.

Plans, rules and the performance model compute with integers or with NumPy columns. A symbol can replace an integer:
computing with the symbol gives the same number, of the same type, and also its expression. A decision on a symbol
(``if p.k > 0``) is recorded in the current ``Path``; ``explore`` computes the results for all outcomes of decisions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxgen.errors import InputError
from ptxgen.expr.node import Node, constant, node, select
from ptxgen.expr.value_types import PRED

#: types of expressions: 64-bit integer, floating point of 64 and of 32 bits, truth value
INTEGER, DOUBLE, FLOAT, BOOL = "s64", "f64", "f32", PRED


#: type of an expression -> the function that converts a number to the type
_TO: dict[str, Callable[[Any], Any]] = {INTEGER: int, DOUBLE: float, FLOAT: np.float32, BOOL: bool}


def type_of_number(value: Any) -> str:
    """The expression type of a Python or NumPy number."""
    if isinstance(value, bool | np.bool_):
        return BOOL
    if isinstance(value, int | np.integer):
        return INTEGER
    return FLOAT if isinstance(value, np.float32) else DOUBLE


def number(value: Any) -> Node:
    """The constant node of a Python or NumPy number."""
    return constant(value, type_of_number(value))


def cast(x: Node, type: str) -> Node:
    """``x`` as a number of another type."""
    if x.type == type:
        return x
    if x.op == "constant":
        return number(_TO[type](x.value))
    return node("cast", type, x)


_COMPARED = {"<": operator.lt, "<=": operator.le, "==": operator.eq}


def _bounds(x: Node) -> tuple[float, float]:
    """The least and the greatest value that ``x`` can have. Variables are at least 2."""
    if x.op == "constant":
        return x.value, x.value
    if x.op == "variable":
        return 2, math.inf
    if x.op == "cast" or x.op == "bit_length":
        return _bounds(x.arguments[0]) if x.op == "cast" else (0, 64)
    if x.op in ("+", "*", "max", "min", "|") and x.type in (INTEGER, DOUBLE):
        (a, b), (c, d) = (_bounds(y) for y in x.arguments)
        if x.op == "+":
            return a + c, b + d
        if x.op in ("max", "min"):
            choose = max if x.op == "max" else min
            return choose(a, c), choose(b, d)
        if a >= 0 and c >= 0:
            return (max(a, c), math.inf) if x.op == "|" else (a * c, math.inf)
    return -math.inf, math.inf


def _certain(condition: Node) -> bool | None:
    """The outcome of a comparison if it is the same for all shapes; None: it depends on the shape."""
    if condition.op in _COMPARED:
        (a, b), (c, d) = (_bounds(x) for x in condition.arguments)
        if condition.op == "==":
            return False if b < c or d < a else None
        before, after = (b < c, a >= d) if condition.op == "<" else (b <= c, a > d)
        return True if before else False if after else None
    return None


@dataclass
class Path:
    """The decisions on symbols during one computation. ``script``: the outcomes of the first decisions; all later
    decisions have the outcome True."""

    script: tuple[bool, ...] = ()
    taken: list[tuple[Node, bool]] = field(default_factory=list)
    known: dict[Node, bool] = field(default_factory=dict)

    def decide(self, condition: Node) -> bool:
        """The outcome of ``condition``."""
        if condition.op == "constant":
            return bool(condition.value)
        if condition.op == "not":
            return not self.decide(condition.arguments[0])
        if (certain := _certain(condition)) is not None:
            return certain
        if condition not in self.known:
            count = len(self.taken)
            decision = self.script[count] if count < len(self.script) else True
            self.taken.append((condition, decision))
            self.known[condition] = decision
        return self.known[condition]


_current: list[Path] = []


@contextmanager
def following(path: Path) -> Iterator[Path]:
    """Within the ``with`` block, ``path`` makes the decisions on symbols."""
    _current.append(path)
    try:
        yield path
    finally:
        _current.pop()


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "ceil_div": lambda a, b: -(-a // b),
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    ">>": operator.rshift,
    "<<": operator.lshift,
    "pow": operator.pow,
    "max": np.maximum,
    "min": np.minimum,
    "hypot": np.hypot,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "ceil": np.ceil,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "log2": np.log2,
    "bit_length": lambda x: int(x).bit_length(),
}
#: NumPy function -> operation of an expression; ``apply`` replaces ``>``, ``>=`` and ``!=`` by ``<``, ``<=`` and ``==``
_UFUNCS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "true_divide": "/",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "logical_and": "&",
    "logical_or": "|",
    "right_shift": ">>",
    "left_shift": "<<",
    "power": "pow",
    "maximum": "max",
    "minimum": "min",
    "hypot": "hypot",
    "negative": "neg",
    "ceil": "ceil",
    "floor": "floor",
    "sqrt": "sqrt",
    "log2": "log2",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "greater": ">",
    "greater_equal": ">=",
    "not_equal": "!=",
    "logical_not": "not",
    "invert": "not",
}
NumberOrSymbol = Any


def _plain(x: NumberOrSymbol) -> tuple[Any, Node]:
    """The example value and the node of ``x``. ValueError: ``x`` is a column with more than one row."""
    if isinstance(x, Symbol):
        return x.example, x.node
    if isinstance(x, np.ndarray):
        x = x.reshape(())[()]
    return x, number(x)


def _combined(op: str, number_type: str, arguments: tuple[Node, ...], example: Any) -> Node:
    """The node of an operation, simplified if its arguments are constant or the operation has no effect (x + 0)."""
    if all(x.op == "constant" for x in arguments):
        return number(example)
    if len(arguments) == 2 and any(x.op == "constant" for x in arguments):
        x, y = arguments
        left, right = (x.value if x.op == "constant" else None), (y.value if y.op == "constant" else None)
        integral = number_type in (INTEGER, BOOL)
        if number_type == BOOL and op in ("&", "|"):
            known, other = (left, y) if left is not None else (right, x)
            return other if known == (op == "&") else number(op == "|")
        if integral and ((op == "*" and left == 1) or (op == "+" and left == 0)):
            return y
        if integral and ((op in ("*", "//") and right == 1) or (op in ("+", "-") and right == 0)):
            return x
    if op == "not" and arguments[0].op == "not":
        return arguments[0].arguments[0]
    if op == "neg" and number_type == INTEGER and arguments[0].op == "//" and arguments[0].arguments[0].op == "neg":
        quotient = arguments[0].arguments
        return node("ceil_div", number_type, quotient[0].arguments[0], quotient[1])
    return node(op, number_type, *arguments)


def apply(op: str, *operands: NumberOrSymbol) -> Symbol:
    """The symbol of the result of an operation."""
    if op in (">", ">="):
        return apply({">": "<", ">=": "<="}[op], *reversed(operands))
    if op == "!=":
        return apply("not", apply("==", *operands))
    values, nodes = zip(*map(_plain, operands), strict=True)
    if op == "not":
        return Symbol(_combined("not", BOOL, nodes, not values[0]), not values[0])
    with np.errstate(all="ignore"):
        if op in _COMPARED:
            number_type = _common(values)
            holds = bool(_COMPARED[op](*values))
            return Symbol(_combined(op, BOOL, tuple(cast(x, number_type) for x in nodes), holds), holds)
        try:
            example = (_BINARY.get(op) or _UNARY[op])(*values)
        except ZeroDivisionError:  # of example values on a path that they do not take
            example = values[0]
    number_type = type_of_number(example)
    return Symbol(_combined(op, number_type, tuple(cast(x, number_type) for x in nodes), example), example)


def _common(values: tuple[Any, ...]) -> str:
    """The type in which NumPy compares numbers."""
    dtype = np.result_type(*values)
    return INTEGER if dtype.kind in "iub" else FLOAT if dtype == np.float32 else DOUBLE


def where(condition: Any, x: Any, y: Any) -> Symbol:
    """``np.where`` for single numbers and symbols."""
    (holds, test), (first, a), (second, b) = _plain(condition), _plain(x), _plain(y)
    number_type = BOOL if a.type == b.type == BOOL else _common((first, second))
    a, b, example = cast(a, number_type), cast(b, number_type), _TO[number_type](first if holds else second)
    return Symbol((a if holds else b) if test.op == "constant" else select(test, a, b), example)


class Symbol:
    """A number with its expression. ``node``: the expression; ``example``: the value for one shape."""

    __slots__ = ("example", "node")

    def __init__(self, node: Node, example: Any) -> None:
        self.node, self.example = node, example

    @classmethod
    def variable(cls, name: str, example: int) -> Symbol:
        return cls(node("variable", INTEGER, value=name), example)

    @classmethod
    def of(cls, x: NumberOrSymbol) -> Symbol:
        """The symbol of a number, or of a column of one row."""
        example, known = _plain(x)
        return cls(known, example)

    # ---- decisions, and uses as a plain number, which require its example value

    def __bool__(self) -> bool:
        return _current[-1].decide(self.node if self.node.type == BOOL else (self != 0).node)

    def __index__(self) -> int:
        value = int(self.example)
        if not _current[-1].decide((self == value).node):
            raise InputError(f"the number {value} is used where it differs")
        return value

    def __str__(self) -> str:
        return str(operator.index(self))

    def __hash__(self) -> int:
        raise InputError(f"the number {self.example} is part of a key; it must be of a computation that caches nothing")

    # ---- arithmetic

    def __add__(self, other: Any) -> Any:
        return apply("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return apply("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return apply("-", self, other)

    def __mul__(self, other: Any) -> Any:
        return apply("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return apply("*", other, self)

    def __truediv__(self, other: Any) -> Any:
        return apply("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return apply("/", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return apply("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return apply("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return apply("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return apply("%", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __pow__(self, other: Any) -> Any:
        return apply("pow", self, other)

    def __and__(self, other: Any) -> Any:
        return apply("&", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return apply("|", self, other)

    __ror__ = __or__

    def __rrshift__(self, other: Any) -> Any:
        return apply(">>", other, self)

    def __rlshift__(self, other: Any) -> Any:
        return apply("<<", other, self)

    def __neg__(self) -> Any:
        return apply("neg", self)

    def __lt__(self, other: Any) -> Any:
        return apply("<", self, other)

    def __le__(self, other: Any) -> Any:
        return apply("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return apply("<", other, self)

    def __ge__(self, other: Any) -> Any:
        return apply("<=", other, self)

    def __eq__(self, other: object) -> Any:
        return apply("==", self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return apply("!=", self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def bit_length(self) -> Any:
        return apply("bit_length", self)

    # ---- in place of a NumPy column of one row

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        to = FLOAT if np.dtype(dtype) == np.float32 else DOUBLE
        return Symbol(cast(self.node, to), np.dtype(dtype).type(self.example))

    def __getitem__(self, rows: Any) -> Symbol:
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        if method != "__call__" or ufunc.__name__ not in _UFUNCS or options:
            return NotImplemented
        return apply(_UFUNCS[ufunc.__name__], *operands)

    def __array_function__(self, function: Any, types: Any, operands: Any, options: Any) -> Any:
        return _FUNCTIONS[function](*operands) if function in _FUNCTIONS and not options else NotImplemented


def _chosen(conditions: list[Any], choices: list[Any], default: Any = 0) -> Any:
    """``np.select`` for single numbers and symbols."""
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        default = where(condition, choice, default)
    return default


#: NumPy's functions that are not ufuncs
_FUNCTIONS: dict[Any, Callable[..., Any]] = {np.where: where, np.select: _chosen, np.all: Symbol.of}
_NUMBERS = (Symbol, int, float, np.number, np.bool_, np.ndarray)

# ---- values


def value(x: Node, variables: Mapping[str, int], known: dict[Node, Any] | None = None) -> Any:
    """The value of an expression for the given ``variables``, as the exported C code computes it."""
    known = {} if known is None else known
    if x not in known:
        known[x] = _value(x, variables, known)
    return known[x]


def _value(x: Node, variables: Mapping[str, int], known: dict[Node, Any]) -> Any:
    if x.op == "constant":
        return _TO[x.type](x.value)
    if x.op == "variable":
        return variables[x.value]
    if x.op == "select":
        return value(x.arguments[1 if value(x.arguments[0], variables, known) else 2], variables, known)
    values = [value(y, variables, known) for y in x.arguments]
    if x.op == "cast":
        return _TO[x.type](values[0])
    if x.op == "not":
        return not values[0]
    if x.op in _COMPARED:
        return bool(_COMPARED[x.op](*values))
    if x.op in ("//", "%", "ceil_div") and not values[1]:
        return 0
    with np.errstate(all="ignore"):
        return _TO[x.type]((_BINARY.get(x.op) or _UNARY[x.op])(*values))


# ---- all paths


@dataclass(frozen=True)
class Leaf:
    """The result of a computation on some paths: a ``form``, which all shapes of the paths share, and ``numbers``.
    ``form`` None: the computation failed."""

    form: Any
    numbers: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Branch:
    """A result that depends on a condition: ``yes`` if ``condition`` holds, else ``no``."""

    condition: Node
    yes: Leaf | Branch
    no: Leaf | Branch


MOST_PATHS = 256  #: limit of paths of one computation with symbols


class TooManyPathsError(InputError):
    """A computation with symbols has more than MOST_PATHS paths."""


def explore(compute: Callable[[], Leaf], known: Mapping[Node, bool] | None = None) -> Leaf | Branch:
    """The results of ``compute`` for all outcomes of its decisions on symbols. Results of one form become one leaf,
    whose numbers depend on the decisions. ``known``: the outcomes of conditions that are already decided.
    TooManyPathsError: there are more than MOST_PATHS paths."""
    done: list[tuple[list[tuple[Node, bool]], Leaf]] = []
    script: list[bool] = []
    while True:
        path = Path(tuple(script), known=dict(known or {}))
        with following(path):
            try:
                leaf = compute()
            except (ArithmeticError, ValueError):  # rules and arguments raise ValueError
                leaf = Leaf(None)
        done.append((path.taken, leaf))
        if len(done) > MOST_PATHS:
            raise TooManyPathsError(f"a computation has more than {MOST_PATHS} paths")
        script = [decision for _, decision in path.taken]
        while script and not script[-1]:
            script.pop()
        if not script:
            return _tree(done, 0)
        script[-1] = False


def _tree(paths: list[tuple[list[tuple[Node, bool]], Leaf]], depth: int) -> Leaf | Branch:
    if len(paths[0][0]) == depth:
        return paths[0][1]
    condition = paths[0][0][depth][0]
    yes = _tree([p for p in paths if p[0][depth][1]], depth + 1)
    no = _tree([p for p in paths if not p[0][depth][1]], depth + 1)
    if isinstance(yes, Leaf) and isinstance(no, Leaf) and yes.form == no.form:
        return Leaf(yes.form, tuple(select(condition, a, b) for a, b in zip(yes.numbers, no.numbers, strict=True)))
    return yes if yes == no else Branch(condition, yes, no)


def outcomes(tree: Leaf | Branch) -> dict[Node, bool] | None:
    """The conditions that have the same outcome on the path to every leaf with a form; None: no leaf has a form."""
    if isinstance(tree, Leaf):
        return None if tree.form is None else {}
    sides = ((True, outcomes(tree.yes)), (False, outcomes(tree.no)))
    taken_on = [{tree.condition: taken, **known} for taken, known in sides if known is not None]
    if not taken_on:
        return None
    return {
        condition: taken for condition, taken in taken_on[0].items() if all(f.get(condition) is taken for f in taken_on)
    }
