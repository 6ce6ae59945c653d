"""The objects that a traced function works with: expressions, parameters and axes, with the operators of Python."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, variable, variables
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import axes_of, check_nesting, number_type
from ptxgen.operations.task.program import ACCUMULATOR, Output
from ptxgen.operations.task.tracing.places import error, frame, placed, source, span
from ptxgen.operations.task.typed import Number, Scalar, Value, binary, call, unary

#: function of Python, NumPy or math -> the function of tasks to write instead
_FUNCTIONS = {
    **{
        name: name
        for name in ("exp", "exp2", "log", "log2", "erf", "tanh", "sqrt", "where", "minimum", "maximum", "fmin", "fmax")
    },
    **{name: name for name in ("sigmoid", "clamp", "pow")},
    **{name: name for name in ("sum", "prod", "argmin", "argmax", "mean", "any", "all", "logsumexp")},
    "fabs": "abs",
    "absolute": "abs",
    "abs": "abs",
    "min": "minimum",
    "max": "maximum",
    "select": "where",
    "clip": "clamp",
    "power": "pow",
    "float_power": "pow",
}


def _refused(name: str) -> str:
    """The message that says what to write in place of a call that needs a number."""
    called = re.match(r"[\w.]*?(\w+)\(", source())
    function = called[1] if called else ""
    what = f"{function or name} is of numbers, and {name} is none while the function is traced"
    if function in _FUNCTIONS:
        return f"{what}; write ptxgen.{_FUNCTIONS[function]}"
    if function in ("float", "int", "bool", "round", "float32", "float64", "int32"):
        type = "s32" if function.startswith(("int", "round")) else "f64" if function == "float64" else "f32"
        return f"{what}; write ptxgen.cast(…, {type!r})"
    if function and function != "range":
        return f"{what}; the language has no {function}"
    return f"{name} is no number while the function is traced; write its value in the function"


def _truth() -> str:
    """The message that says what to write in place of Python's conditions."""
    here = frame()
    text = linecache.getline(here.f_code.co_filename, span(here)[0]) if here is not None else ""
    forms = {
        r"\bif\b": "ptxgen.where(condition, a, b) for if",
        r"\bwhile\b": "ptxgen.sum(k, …) for a loop",
        r"\band\b": "& for and, with parentheses around comparisons",
        r"\bor\b": "| for or, with parentheses around comparisons",
        r"\bnot\b": "~ for not",
        r"(?<![\w.])min\(": "ptxgen.minimum",
        r"(?<![\w.])max\(": "ptxgen.maximum",
        r"<=?[^<>=]+<=?|>=?[^<>=]+>=?": "(a < b) & (b < c) for a < b < c",
    }
    advice = [form for pattern, form in forms.items() if re.search(pattern, text)]
    written = ", ".join(advice) or "ptxgen.where(condition, a, b)"
    return f"a condition is neither true nor false while the function is traced; write {written}"


class Operand:
    """An object to which the operators of Python apply: an expression, a parameter or an axis."""

    __hash__ = object.__hash__

    def _value(self) -> Value:
        raise NotImplementedError

    @property
    def _name(self) -> str:
        return "the expression"

    def __add__(self, other: Any) -> Traced:
        return applied("+", self, other)

    def __radd__(self, other: Any) -> Traced:
        return applied("+", other, self)

    def __sub__(self, other: Any) -> Traced:
        return applied("-", self, other)

    def __rsub__(self, other: Any) -> Traced:
        return applied("-", other, self)

    def __mul__(self, other: Any) -> Traced:
        return applied("*", self, other)

    def __rmul__(self, other: Any) -> Traced:
        return applied("*", other, self)

    def __truediv__(self, other: Any) -> Traced:
        return applied("/", self, other)

    def __rtruediv__(self, other: Any) -> Traced:
        return applied("/", other, self)

    def __and__(self, other: Any) -> Traced:
        return applied("&", self, other)

    def __rand__(self, other: Any) -> Traced:
        return applied("&", other, self)

    def __or__(self, other: Any) -> Traced:
        return applied("|", self, other)

    def __ror__(self, other: Any) -> Traced:
        return applied("|", other, self)

    def __xor__(self, other: Any) -> Traced:
        return applied("^", self, other)

    def __rxor__(self, other: Any) -> Traced:
        return applied("^", other, self)

    def __lshift__(self, other: Any) -> Traced:
        return applied("<<", self, other)

    def __rlshift__(self, other: Any) -> Traced:
        return applied("<<", other, self)

    def __rshift__(self, other: Any) -> Traced:
        return applied(">>", self, other)

    def __rrshift__(self, other: Any) -> Traced:
        return applied(">>", other, self)

    def __lt__(self, other: Any) -> Traced:
        return applied("<", self, other)

    def __le__(self, other: Any) -> Traced:
        return applied("<=", self, other)

    def __gt__(self, other: Any) -> Traced:
        return applied(">", self, other)

    def __ge__(self, other: Any) -> Traced:
        return applied(">=", self, other)

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return applied("==", self, other)

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return applied("!=", self, other)

    def __neg__(self) -> Traced:
        return computed(lambda x: unary("neg", x), self)

    def __pos__(self) -> Traced:
        return computed(lambda x: x, self)

    def __abs__(self) -> Traced:
        return computed(lambda x: unary("abs", x), self)

    def __invert__(self) -> Traced:
        return computed(lambda x: unary("not" if isinstance(x, Node) and x.type == PRED else "~", x), self)

    def __pow__(self, other: Any) -> Traced:
        return computed(lambda x, y: call("pow", (x, y)), self, other)

    def __rpow__(self, other: Any) -> Traced:
        return computed(lambda x, y: call("pow", (x, y)), other, self)

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        raise error(_refused(self._name))

    __float__ = __int__ = __index__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = _fail
    __array__ = _fail

    def __bool__(self) -> bool:
        raise error(_truth())

    def __iter__(self) -> Iterator[Any]:
        raise error(f"{self._name} is not iterated; write ptxgen.sum(k, …)")

    def __len__(self) -> int:
        raise error(f"{self._name} has no length while the function is traced; an axis has one: write k.extent")

    def __contains__(self, other: Any) -> bool:
        raise error(f"{self._name} is no set; write comparisons, and | between them")

    def _no_operator(self, other: Any) -> NoReturn:
        raise error("the language has neither //, % nor @; write ptxgen.cast(x / y, 's32'), or ptxgen.sum(k, …)")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __matmul__ = __rmatmul__ = (
        _no_operator
    )

    def __getitem__(self, index: Any) -> Traced:
        raise error(f"{self._name} has no elements; an array has all of its axes in one index: write P[i, k]")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise error("an array is not assigned; return the result")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **_: Any) -> Traced:
        operators = {
            "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "less": "<", "less_equal": "<=",
            "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=", "bitwise_and": "&",
            "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
        }  # fmt: skip
        if method == "__call__" and ufunc.__name__ in operators:
            return applied(operators[ufunc.__name__], *operands)
        raise error(_refused(self._name))

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise error(_refused(self._name))


class Traced(Operand):
    """An expression of a traced function."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def _value(self) -> Value:
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name in _FUNCTIONS:
            raise error(f"an expression has no {name}; write ptxgen.{_FUNCTIONS[name]}(…)")
        raise AttributeError(f"an expression has no attribute {name}")


class Parameter(Operand):
    """A parameter of the function, or a number that the function reads from around it: an array that is read with axes,
    or a scalar."""

    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type

    @property
    def _name(self) -> str:
        return self.name

    def _value(self) -> Value:
        trace = current()
        trace.use(self.name, 0)
        if self.type in ("float", "int"):
            return Scalar(self.name, lambda wanted: trace.number(self.name, self.type, wanted))
        return variable(self.name, self.type)

    def __getitem__(self, index: Any) -> Traced:
        indices = index if isinstance(index, tuple) else (index,)
        trace = current()
        for x in indices:
            if not isinstance(x, Axis):
                what = "an expression" if isinstance(x, Operand) else repr(x)
                raise error(f"an index of {self.name} is {what}; it must be an axis: write {self.name}[i, k]")
        if len(indices) > 2 or len({id(x) for x in indices}) < len(indices):
            raise error(f"{self.name} is read with {len(indices)} axes; it must be with one or two different ones")
        if self.type in ("float", "int"):
            raise error(f"{self.name} is a number; it must be an array, or be read without axes")
        trace.use(self.name, len(indices))
        return Traced(variable(f"{self.name}[{','.join(trace.key(x) for x in indices)}]", self.type))

    def __getattr__(self, name: str) -> Any:
        if name in ("T", "mT", "shape", "size", "ndim", "dtype", "astype", *_FUNCTIONS):
            advice = {"T": f"write {self.name}[k, i]", "mT": f"write {self.name}[k, i]", "astype": "write ptxgen.cast"}
            advice |= {"shape": "write k.extent", "size": "write k.extent"}
            raise error(
                f"{self.name} has no {name} while the function is traced; {advice.get(name, 'write its elements')}"
            )
        raise AttributeError(f"{self.name} has no attribute {name}")


class Axis(Operand):
    """An axis of tasks. In expressions, it stands for the index along the axis; ``extent`` is the number of indices."""

    def __init__(self, name: str, order: int) -> None:
        self.name, self.order = name, order

    def __repr__(self) -> str:
        return f"axis {self.name}"

    @property
    def _name(self) -> str:
        return f"the axis {self.name}"

    @property
    def extent(self) -> Traced:
        return Traced(variable(f"{current().key(self)}.extent", "s32"))

    def _value(self) -> Value:
        return variable(current().key(self), "s32")


@dataclass(frozen=True, eq=False)
class Reduced:
    """An output that is not a matrix. ``what``: its name in errors; ``make``: the function that makes the output, given
    its name."""

    what: str
    make: Callable[[str], Output]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            raise error(f"{self.what} is an output of the task and no expression; it must be returned")
        raise AttributeError(name)

    def _fail(self, *_: Any) -> NoReturn:
        raise error(f"{self.what} is an output of the task and no expression; it must be returned")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _fail
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __bool__ = __float__ = __abs__ = _fail


@dataclass
class Trace:
    """The record of one call of a traced function. ``axes``: the axes in order of use; ``ranks``: name of an array or
    scalar -> the number of its axes; ``wanted``: name of a Python number -> the types with which it is combined;
    ``axis``: the reduced axis; ``reduction``: (operator, step, type, initial value); ``when``: the condition of the
    pairs that are computed."""

    axes: list[Axis] = field(default_factory=list)
    ranks: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, set[str]] = field(default_factory=dict)
    axis: Axis | None = None
    reduction: tuple[str, Node, str, Node | None] | None = None
    when: Node | None = None

    def key(self, axis: Axis) -> str:
        """The name that stands for an axis in variables until it is known which axis is i, j or k."""
        if all(x is not axis for x in self.axes):
            if len(self.axes) == 3:
                raise error(f"{axis.name} is a fourth axis; a task must have three")
            if any(x.name == axis.name for x in self.axes):
                raise error(f"{axis.name} is the name of another axis; each axis must have another name")
            self.axes.append(axis)
        return axis.name

    def use(self, name: str, rank: int) -> None:
        other = self.ranks.setdefault(name, rank)
        if other != rank:
            raise error(f"{name} is read with {other} axes before; it must not be read with {rank}")

    def number(self, name: str, number: str, wanted: str | None) -> Node:
        """The variable for a Python number, of the type ``wanted`` by the expression that it is combined with."""
        if wanted is not None:
            self.wanted.setdefault(name, set()).add(wanted)
        if wanted is None or (number == "float" and not type_of(wanted).floating):
            wanted = number_type(number, ())
        return variable(name, wanted)


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Records expressions in this trace within the context."""
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)


def current() -> Trace:
    """The trace of the function that is being called. Raises TaskError if no function is being traced."""
    trace = _current.get()
    if trace is None:
        raise error("expressions are those of the function of a task; write @ptxgen.task before the function")
    return trace


def lifted(x: Any) -> Value:
    """The value of an operand, or of a number."""
    if isinstance(x, Operand):
        return x._value()
    if isinstance(x, Reduced):
        x._fail()
    if isinstance(x, bool | np.bool_):
        return Number(int(x))
    if isinstance(x, int | np.integer):
        if abs(int(x)) >= 1 << 64:
            raise error("the integer has more than 64 bits; write a float")
        return Number(int(x))
    if isinstance(x, float | np.floating):
        return Number(float(x))
    raise error(f"an operand is {type(x).__name__}; it must be an expression or a number")


def computed(compute: Callable[..., Value], *operands: Any) -> Traced:
    """The expression that ``compute`` returns for the values of the operands. Its TaskErrors name the user's line."""
    trace = current()
    values = [lifted(x) for x in operands]
    with placed():
        result = compute(*values)
        if isinstance(result, Node):
            check_nesting(result)
            names = variables(result)
            if trace.axis is not None and ACCUMULATOR in names and any(depends(trace.axis.name, x) for x in names):
                raise TaskError(
                    f"the reduction is combined with what changes with its axis {trace.axis.name}; that must be in it"
                )
    return Traced(result)


def depends(axis: str, name: str) -> bool:
    """True if the value of the variable ``name`` depends on ``axis``."""
    return axis in axes_of(name) or name == axis


def applied(op: str, a: Any, b: Any) -> Traced:
    """The expression of a binary operator, applied to two operands."""
    return computed(lambda x, y: binary(op, x, y), a, b)
