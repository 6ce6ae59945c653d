"""The operations of epilogues: expressions of a sum and of arrays, applied before C is stored.

An epilogue is a text: names of operations, separated by commas. An activation is a name of the table, one with numbers,
``clamp(-1,1)``, or an expression of the task language of the sum ``x`` and of an element ``aux``, ``x*sigmoid(2*x)``.
A gated activation, ``silu(x)*up``, makes one element of C of two sums: those of adjacent columns of B.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from ptxgen import plugins
from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.instructions import OLDEST
from ptxgen.expr.node import Node, constant, node, rewritten, select, substituted, variable, walk
from ptxgen.expr.ptx import check
from ptxgen.expr.value_types import PRED

#: places in the order of execution; an epilogue has at most one operation of each
SCALE, BIAS, RESIDUAL, ACTIVATION = "scale", "bias", "residual", "activation"
PLACES = (SCALE, BIAS, RESIDUAL, ACTIVATION)
#: how an array broadcasts to C: one number, one for each row or column of C, the shape of C
ONE, ROW, COLUMN, ELEMENT = "one", "row", "column", "element"
NEIGHBOUR = "neighbour"  #: the operand is no element of an array, but the sum of the next column


@dataclass(frozen=True)
class EpilogueStep:
    """One step of an epilogue operation. ``value(x, operand)``: the expression of a sum ``x`` and of an element of
    ``array``, which ``spans`` ONE, ROW, COLUMN or ELEMENT; without an array ``operand`` is x, or, if ``spans`` is
    NEIGHBOUR, the sum of the next column."""

    value: Callable[[Node, Node], Node]
    array: str = ""
    spans: str = ""

    def expression(self, type: str) -> Node:
        """The value, of variables x and operand of a type."""
        return _expression(self, type)


@functools.cache
def _expression(step: EpilogueStep, type: str) -> Node:
    return step.value(variable("x", type), variable("operand" if step.spans else "x", type))


@dataclass(frozen=True)
class EpilogueOp:
    """An epilogue operation. ``place``: of PLACES; ``steps``: in order; ``meaning``: for documentation. Of the error
    bound of checks: ``slope``: the largest absolute slope of an activation, None: the bound follows from the
    instructions of its expression; ``relative``: the error of its approximations relative to the magnitude of the sum,
    ``absolute``: beside that. ``stands_for``: the operations of kernel problems that one of a problem becomes."""

    name: str
    place: str
    steps: tuple[EpilogueStep, ...]
    meaning: str = ""
    slope: float | None = 1.0
    relative: float = 0.0
    absolute: float = 0.0
    stands_for: tuple[str, ...] = ()

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it reads, in order."""
        return tuple(step.array for step in self.steps if step.array)

    @property
    def gated(self) -> bool:
        """True if it makes one element of C of the sums of two adjacent columns."""
        return any(step.spans == NEIGHBOUR for step in self.steps)

    @property
    def exact(self) -> bool:
        """True if the result is exact where sums and arrays are small integers."""
        return self.slope is not None and not (self.relative or self.absolute)

    @functools.cached_property
    def long(self) -> bool:
        """True if it computes special functions, so that several at once need many registers."""
        return any(instructions_by_pipe([s.expression("f32")], OLDEST, fast=True)["xu"] for s in self.steps)

    def computes(self, type: str) -> bool:
        """True if there are instructions for sums of this type."""
        try:
            check([step.expression(type) for step in self.steps], OLDEST)
        except DtypeError:
            return False
        return True


def activation(
    name: str,
    value: Callable[[Node], Node],
    *,
    meaning: str = "",
    slope: float = 1.0,
    relative: float = 0.0,
    absolute: float = 0.0,
) -> EpilogueOp:
    """An operation on each sum alone."""
    step = EpilogueStep(lambda x, _: value(x))
    return EpilogueOp(name, ACTIVATION, (step,), meaning, slope, relative, absolute)


@dataclass(frozen=True)
class NumberedOp:
    """Activations with numbers, as ``clamp(-1,1)``. ``numbers``: their names; ``make(name, *numbers)``: the operation.
    InputError of ``make``: the numbers break a rule."""

    name: str
    numbers: tuple[str, ...]
    make: Callable[..., EpilogueOp]
    meaning: str = ""

    @property
    def form(self) -> str:
        return f"{self.name}({','.join(self.numbers)})"


#: by name
NUMBERED_OPS: dict[str, NumberedOp] = {}
#: by name, in an order that stays for those of the package, first: the bits of the C interface
EPILOGUE_OPS: dict[str, EpilogueOp] = {}
_OWN: list[str] = []  #: the names of those of the package


def register(op: EpilogueOp) -> None:
    """Adds an activation. InputError: its name is no word or is used already, it is no activation, or it reads another
    array than ``aux``."""
    if op.name in EPILOGUE_OPS or not op.name.isidentifier():
        raise InputError(f"epilogue operation is {op.name!r}; it must be an identifier that no other operation has")
    if op.place != ACTIVATION or set(op.arrays) - {"aux"} or any(s.array and s.spans != ELEMENT for s in op.steps):
        raise InputError(
            f"epilogue operation {op.name!r} is in place {op.place} and reads {', '.join(op.arrays) or 'no array'};"
            " it must be an activation, and read aux, of the shape of C, or no array"
        )
    if not op.computes("f32"):
        check([step.expression("f32") for step in op.steps], OLDEST)
    EPILOGUE_OPS[op.name] = op


def unregister(name: str) -> None:
    """Removes an operation that ``register`` added."""
    if name in _OWN:
        raise InputError(f"epilogue operation is {name!r}; it must be one that was registered")
    del EPILOGUE_OPS[name]


def has_registered() -> bool:
    """True if the process has an operation that is not of the package."""
    return len(EPILOGUE_OPS) > len(_OWN)


def epilogue_op(name: str) -> EpilogueOp:
    """The operation with this name, or the activation of a text; its name is the canonical text. InputError: there is
    none."""
    if name not in EPILOGUE_OPS:
        plugins.load()
    if name in EPILOGUE_OPS:
        return EPILOGUE_OPS[name]
    if name.isidentifier():
        forms = ", ".join((*EPILOGUE_OPS, *(x.form for x in NUMBERED_OPS.values())))
        raise InputError(f"epilogue operation is {name!r}; it must be one of {forms}, or an expression of x")
    return _of_text(name)


@functools.lru_cache(maxsize=1024)
def _of_text(text: str) -> EpilogueOp:
    word, numbers = _CALL.fullmatch(text), None
    if word is not None and word[1] in NUMBERED_OPS:
        numbers = [_number(x) for x in word[2].split(",")]
    if word is not None and numbers is not None and None not in numbers:
        op = NUMBERED_OPS[word[1]]
        if len(numbers) != len(op.numbers):
            raise InputError(f"epilogue operation is {text!r}; it must have the form {op.form}")
        given = [float(x) for x in numbers if x is not None]
        return op.make(f"{op.name}({','.join(map(_shortest, given))})", *given)
    return expression_op(*_READERS[0](text))


_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*")
#: reads the text of an expression: its canonical text, and its expression in f64
_READERS: list[Callable[[str], tuple[str, Node]]] = []


def read_expressions_with(reader: Callable[[str], tuple[str, Node]]) -> None:
    """Sets what reads texts of expressions, of the variables ``x`` and ``aux`` in f64: it returns the canonical text
    and the expression. InputError of ``reader``: the text breaks a rule."""
    _READERS[:] = [reader]


def expression_op(text: str, root: Node) -> EpilogueOp:
    """The activation of an expression in f64 of ``x``, and of ``aux`` or ``up``, whose canonical text is ``text``.
    InputError: it reads both of these."""
    reads = {x.value for x in walk(root) if x.op == "variable"} - {"x"}
    if len(reads) > 1:
        raise InputError(f"epilogue operation is {text!r}; it must not read both aux and up")

    def value(x: Node, operand: Node) -> Node:
        return substituted(in_type(root, x.type), {"x": x, "aux": operand, "up": operand})

    spans = {"aux": ELEMENT, "up": NEIGHBOUR}
    step = EpilogueStep(value, "aux" if "aux" in reads else "", *(spans[name] for name in reads))
    return EpilogueOp(text, ACTIVATION, (step,), f"the expression {text}", slope=None)


def in_type(root: Node, type: str) -> Node:
    """An expression in f64 with arithmetic in another float type."""

    def changed(x: Node) -> Node:
        if x.op == "cast" and x.type == "f64" and x.arguments[0].type == type:
            return x.arguments[0]
        return node(x.op, type, *x.arguments, value=x.value) if x.type == "f64" else x

    return rewritten(root, changed)


def split_epilogue(epilogue: str) -> tuple[str, ...]:
    """The operations of an epilogue, which commas separate; those in parentheses and brackets separate none."""
    parts, depth = [""], 0
    for letter in epilogue:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(x for x in parts if x)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shortest(value: float) -> str:
    """The shortest text of a number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)


def epilogue_op_names(*places: str) -> tuple[str, ...]:
    """The names of the operations of these places, in the order of registration; without those that problems of one
    operation have instead of others."""
    plugins.load()
    return tuple(op.name for op in EPILOGUE_OPS.values() if op.place in places and not op.stands_for)


def epilogue_rows(gated: bool = False) -> tuple[tuple[str, ...], ...]:
    """The operations of a product of matrices, a row for each place; an epilogue has at most one of each row.
    ``gated``: with gated activations."""
    rows = (epilogue_op_names(place) for place in PLACES)
    return tuple(tuple(name for name in row if gated or not EPILOGUE_OPS[name].gated) for row in rows)


def ordered_names() -> tuple[str, ...]:
    """All operations but gated ones, those of the package first and in an order that stays: the bits of the C
    interface."""
    plugins.load()
    return tuple(name for name, op in EPILOGUE_OPS.items() if not op.gated)


def arrays_of(name: str) -> tuple[str, ...]:
    """The arrays that an operation reads."""
    return epilogue_op(name).arrays


# ---- the operations of the package


def _plus(x: Node, operand: Node) -> Node:
    return node("+", x.type, x, operand)


def _times(x: Node, operand: Node) -> Node:
    return node("*", x.type, x, operand)


def _masked(x: Node, operand: Node) -> Node:
    """x where the operand is above 0 or NaN, else 0."""
    zero = constant(0.0, x.type)
    return select(node("<=", PRED, operand, zero), zero, x)


def _logistic(x: Node, exponent: Node) -> Node:
    """x / (1 + 2^exponent)."""
    power = node("exp2", x.type, exponent)
    return _times(x, node("rcp", x.type, node("+", x.type, power, constant(1.0, x.type))))


def _silu(x: Node) -> Node:
    return _logistic(x, _times(x, constant(-math.log2(math.e), x.type)))


def _gelu(x: Node) -> Node:
    """x·σ(√(8/π)(x + 0.044715x³)): GELU in its tanh form."""
    linear = -math.sqrt(8 / math.pi) * math.log2(math.e)
    cubic = node("fma", x.type, _times(x, x), constant(linear * 0.044715, x.type), constant(linear, x.type))
    return _logistic(x, _times(cubic, x))


def _sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x))."""
    power = node("exp2", x.type, _times(x, constant(-math.log2(math.e), x.type)))
    return node("rcp", x.type, node("+", x.type, power, constant(1.0, x.type)))


def _gelu_erf(x: Node) -> Node:
    """x (1 + erf(x / √2)) / 2."""
    error = node("erf", x.type, _times(x, constant(math.sqrt(0.5), x.type)))
    half = constant(0.5, x.type)
    return _times(x, node("fma", x.type, error, half, half))


def _clamp(name: str, low: float, high: float) -> EpilogueOp:
    """min(max(x, low), high). InputError: the numbers are not in order."""
    if not low <= high:
        raise InputError(f"epilogue operation is {name!r}; its first number must be at most the second")

    def value(x: Node) -> Node:
        raised = node("max", x.type, x, constant(low, x.type))
        return node("min", x.type, raised, constant(high, x.type))

    # the numbers are rounded to the type of the epilogue
    return activation(name, value, absolute=max(abs(low), abs(high)) * 2.0**-23)


def _own(op: EpilogueOp) -> None:
    EPILOGUE_OPS[op.name] = op
    _OWN.append(op.name)


_own(
    EpilogueOp(
        "scale",
        SCALE,
        tuple(EpilogueStep(_times, name, ONE) for name in ("scale_a", "scale_b")),
        "times a number for A and one for B",
    )
)
_own(
    EpilogueOp(
        "scale_rows",
        SCALE,
        (EpilogueStep(_times, "scale_a", ROW), EpilogueStep(_times, "scale_b", COLUMN)),
        "times a number for each row of A and one for each column of B",
    )
)
_own(EpilogueOp("bias_row", BIAS, (EpilogueStep(_plus, "bias", ROW),), "plus a number for each row of C"))
_own(EpilogueOp("bias_column", BIAS, (EpilogueStep(_plus, "bias", COLUMN),), "plus a number for each column of C"))
_own(EpilogueOp("residual", RESIDUAL, (EpilogueStep(_plus, "residual", ELEMENT),), "plus an array like C"))
_own(activation("relu", lambda x: _masked(x, x), meaning="0 where the sum is at most 0; NaN stays"))
_own(activation("gelu", _gelu, meaning="GELU in its tanh form", slope=1.2, relative=2.0**-20))
_own(activation("silu", _silu, meaning="the sum times its logistic function", slope=1.2, relative=2.0**-20))
_own(
    EpilogueOp(
        "relu_grad",
        ACTIVATION,
        (EpilogueStep(_masked, "aux", ELEMENT),),
        "0 where aux, an array like C, is at most 0",
    )
)
NUMBERED_OPS["clamp"] = NumberedOp(
    "clamp", ("low", "high"), _clamp, "the sum, at least the first number and at most the second; NaN stays"
)
_own(
    EpilogueOp(
        "bias",
        BIAS,
        (EpilogueStep(_plus, "bias", COLUMN),),
        "of convolutions: plus a number for each channel",
        stands_for=("bias_row", "bias_column"),
    )
)
_own(activation("sigmoid", _sigmoid, meaning="the logistic function", slope=0.25, absolute=2.0**-20))
_own(activation("gelu_erf", _gelu_erf, meaning="GELU, by the error function", slope=1.2, relative=2.0**-20))


def _slope_of_logistic(x: Node, exponent: Node, slope: Node) -> Node:
    """The derivative of x s, of s = 1 / (1 + 2^exponent) and the slope of its argument: s (1 + x slope (1 - s)), finite
    wherever x slope is."""
    one = constant(1.0, x.type)
    share = node("rcp", x.type, node("+", x.type, node("exp2", x.type, exponent), one))
    return _times(share, node("fma", x.type, _times(x, slope), node("-", x.type, one, share), one))


def _silu_slope(x: Node) -> Node:
    return _slope_of_logistic(x, _times(x, constant(-math.log2(math.e), x.type)), constant(1.0, x.type))


def _gelu_slope(x: Node) -> Node:
    scale = math.sqrt(8 / math.pi)

    def even(cubic: float, factor: float) -> Node:
        """factor (1 + cubic x²)."""
        return node("fma", x.type, _times(x, x), constant(factor * cubic, x.type), constant(factor, x.type))

    return _slope_of_logistic(x, _times(even(0.044715, -scale * math.log2(math.e)), x), even(3 * 0.044715, scale))


def _gelu_erf_slope(x: Node) -> Node:
    """Φ(x) + x φ(x)."""
    half = constant(0.5, x.type)
    normal = node("fma", x.type, node("erf", x.type, _times(x, constant(math.sqrt(0.5), x.type))), half, half)
    density = node("exp2", x.type, _times(_times(x, x), constant(-0.5 * math.log2(math.e), x.type)))
    return node("fma", x.type, _times(x, constant(1 / math.sqrt(2 * math.pi), x.type)), density, normal)


def _sigmoid_slope(x: Node) -> Node:
    share = _sigmoid(x)
    return _times(share, node("-", x.type, constant(1.0, x.type), share))


def _gradient(name: str, slope: Callable[[Node], Node]) -> EpilogueOp:
    """The sum, a gradient, times the slope of an activation at ``aux``, its argument in the forward pass."""
    step = EpilogueStep(lambda x, aux: _times(x, slope(aux)), "aux", ELEMENT)
    return EpilogueOp(f"{name}_grad", ACTIVATION, (step,), f"times the slope of {name} at aux, an array like C", None)


for _name, _slope in (
    ("gelu", _gelu_slope),
    ("gelu_erf", _gelu_erf_slope),
    ("silu", _silu_slope),
    ("sigmoid", _sigmoid_slope),
):
    _own(_gradient(_name, _slope))


def _gated(name: str, value: Callable[[Node], Node], meaning: str) -> EpilogueOp:
    """An activation of the sums of even columns, times those of odd columns."""
    step = EpilogueStep(lambda x, up: _times(value(x), up), "", NEIGHBOUR)
    return EpilogueOp(name, ACTIVATION, (step,), f"{meaning} of each even column of B, times the next column", None)


_own(_gated("swiglu", _silu, "SiLU"))
_own(_gated("geglu", _gelu, "GELU in its tanh form"))
