"""The operations of epilogues: expressions of a sum and of elements of arrays, evaluated before C is stored.

An epilogue is a text: names of operations, separated by commas. An activation is a name in the table, a name with
numbers as ``clamp(-1,1)``, or an expression in the task language as ``x*sigmoid(2*x)``, where ``x`` is the sum and
``aux`` an array element. A gated activation, as ``silu(x)*up``, makes one element of C from the sums ``x`` and ``up``
of two adjacent columns of B.
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

#: places of operations, in the order of execution; an epilogue has at most one operation per place
SCALE, BIAS, RESIDUAL, STORE, ACTIVATION, SUM = "scale", "bias", "residual", "store", "activation", "sum"
OPERAND = "operand"
PLACES = (SCALE, BIAS, RESIDUAL, STORE, ACTIVATION, SUM, OPERAND)
WRITING = (STORE, SUM, OPERAND)  #: the places of operations that also write another array than C
#: how an array broadcasts to C: one number, one number per row of C, one per column of C, or an array of C's shape
ONE, ROW, COLUMN, ELEMENT = "one", "row", "column", "element"
STORED = "stored"  #: value of ``spans`` if the step stores the sum to the array, which has an element for each sum
SUMMED = "summed"  #: value of ``spans`` if the array has the sum of the results of each column of C
OVER_K = "over_k"  #: value of ``spans`` if the array has the sum over K of each row of A
NEIGHBOUR = "neighbour"  #: value of ``spans`` if the operand is not an array element but the sum of the next column
#: the variables of expressions: the sum, the element of the array ``aux``, and the sum of the next column
VARIABLES = ("x", "aux", "up")


@dataclass(frozen=True)
class EpilogueStep:
    """One step of an epilogue operation. ``value(x, operand)``: the expression of the result. ``x`` is the sum and
    ``operand`` an element of ``array``. ``spans``: how the array broadcasts, ONE, ROW, COLUMN or ELEMENT, or STORED,
    SUMMED or OVER_K. Without an array, ``operand`` is the sum of the next column if ``spans`` is NEIGHBOUR, else
    ``x``."""

    value: Callable[[Node, Node], Node]
    array: str = ""
    spans: str = ""

    def expression(self, type: str) -> Node:
        """The result as an expression of variables ``x`` and ``operand`` of type ``type``."""
        return _expression(self, type)


@functools.cache
def _expression(step: EpilogueStep, type: str) -> Node:
    return step.value(variable("x", type), variable("operand" if step.spans else "x", type))


@dataclass(frozen=True)
class EpilogueOp:
    """An epilogue operation. ``place``: one of PLACES; ``steps``: its steps in order; ``meaning``: a text for
    documentation. ``stands_for``: names of the kernel problem's operations that implement this operation of a user's
    problem.

    Three fields bound errors in checks. ``slope``: the largest absolute slope of an activation; None: the bound follows
    from the instructions of its expression. ``relative``: the error of approximations relative to the magnitude of the
    sum; ``absolute``: a further absolute error.
    """

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
        """The names of the arrays that the operation reads, in order."""
        return tuple(step.array for step in self.steps if step.array)

    @property
    def gated(self) -> bool:
        """True if the operation makes one element of C from the sums of two adjacent columns."""
        return any(step.spans == NEIGHBOUR for step in self.steps)

    @property
    def stores(self) -> bool:
        """True if the operation stores the sums to an array."""
        return any(step.spans == STORED for step in self.steps)

    @property
    def writes(self) -> bool:
        """True if the operation writes another array than C."""
        return self.stores or self.sums or self.sums_a

    @property
    def sums(self) -> bool:
        """True if the operation adds the results to sums of their columns."""
        return any(step.spans == SUMMED for step in self.steps)

    @property
    def sums_a(self) -> bool:
        """True if the operation adds the elements of A along K."""
        return any(step.spans == OVER_K for step in self.steps)

    @property
    def exact(self) -> bool:
        """True if the result is exact whenever sums and array elements are small integers."""
        return self.slope is not None and not (self.relative or self.absolute)

    @functools.cached_property
    def long(self) -> bool:
        """True if the operation evaluates special functions, so that several evaluations at once need many
        registers."""
        return any(instructions_by_pipe([s.expression("f32")], OLDEST, fast=True)["xu"] for s in self.steps)

    def computes(self, type: str) -> bool:
        """True if there are instructions for sums of type ``type``."""
        return not self.refusal(type)

    def refusal(self, type: str) -> str:
        """The rule that an operator breaks for which sums of type ``type`` have no instructions; empty if all have
        some."""
        try:
            check([step.expression(type) for step in self.steps], OLDEST)
        except DtypeError as error:
            return str(error)
        return ""


def activation(
    name: str,
    value: Callable[[Node], Node],
    *,
    meaning: str = "",
    slope: float = 1.0,
    relative: float = 0.0,
    absolute: float = 0.0,
) -> EpilogueOp:
    """An activation that depends on the sum alone. ``value(x)``: its expression."""
    step = EpilogueStep(lambda x, _: value(x))
    return EpilogueOp(name, ACTIVATION, (step,), meaning, slope, relative, absolute)


@dataclass(frozen=True)
class NumberedOp:
    """An activation with numbers, as ``clamp(-1,1)``. ``numbers``: the names of the numbers; ``make(name, *numbers)``:
    returns the operation, or raises InputError if the numbers break a rule."""

    name: str
    numbers: tuple[str, ...]
    make: Callable[..., EpilogueOp]
    meaning: str = ""

    @property
    def form(self) -> str:
        return f"{self.name}({','.join(self.numbers)})"


#: activations with numbers, by name
NUMBERED_OPS: dict[str, NumberedOp] = {}
#: operations by name. Those of the package come first and keep their order: each has a bit in the C interface
EPILOGUE_OPS: dict[str, EpilogueOp] = {}
_OWN: list[str] = []  #: the names of the package's own operations


def register(op: EpilogueOp) -> None:
    """Adds an activation. InputError: its name is not an identifier or already used, it is not an activation, or it
    reads another array than ``aux``."""
    if op.name in EPILOGUE_OPS or not is_name(op.name):
        raise InputError(
            f"epilogue operation is {op.name!r}; it must be an identifier that no other operation has, and none of"
            f" {', '.join(VARIABLES)}"
        )
    if op.place != ACTIVATION or set(op.arrays) - {"aux"} or any(s.array and s.spans != ELEMENT for s in op.steps):
        raise InputError(
            f"epilogue operation {op.name!r} is in place {op.place} and reads {', '.join(op.arrays) or 'no array'};"
            " it must be an activation, and read aux, of the shape of C, or no array"
        )
    if not op.computes("f32"):
        check([step.expression("f32") for step in op.steps], OLDEST)
    EPILOGUE_OPS[op.name] = op


def unregister(name: str) -> None:
    """Removes an operation that ``register`` added. InputError: the operation is the package's own."""
    if name in _OWN:
        raise InputError(f"epilogue operation is {name!r}; it must be one that was registered")
    del EPILOGUE_OPS[name]


def has_registered() -> bool:
    """True if operations have been added to those of the package."""
    return len(EPILOGUE_OPS) > len(_OWN)


def epilogue_op(name: str) -> EpilogueOp:
    """The operation with this name, or the activation that this text describes; the latter's name is its canonical
    text. InputError: there is none."""
    if name not in EPILOGUE_OPS:
        plugins.load()
    if name in EPILOGUE_OPS:
        return EPILOGUE_OPS[name]
    if is_name(name):
        forms = ", ".join((*EPILOGUE_OPS, *(x.form for x in NUMBERED_OPS.values())))
        raise InputError(f"epilogue operation is {name!r}; it must be one of {forms}, or an expression of x")
    return _of_text(name)


def is_name(text: str) -> bool:
    """True if the text can be the name of an operation; a variable alone is an expression."""
    return text.isidentifier() and text not in VARIABLES


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
#: the reader of expressions: text -> (canonical text, expression in f64)
_READERS: list[Callable[[str], tuple[str, Node]]] = []


def read_expressions_with(reader: Callable[[str], tuple[str, Node]]) -> None:
    """Sets the function that reads activations. ``reader`` gets the text of an expression of ``x`` and ``aux``; it
    returns the canonical text and the expression in f64, or raises InputError if the text breaks a rule."""
    _READERS[:] = [reader]


def expression_op(text: str, root: Node) -> EpilogueOp:
    """The activation with expression ``root``, in f64, of ``x`` and of either ``aux`` or ``up``. ``text``: its
    canonical text. InputError: the expression reads both ``aux`` and ``up``."""
    reads = {x.value for x in walk(root) if x.op == "variable"} - {"x"}
    if len(reads) > 1:
        raise InputError(f"epilogue operation is {text!r}; it must not read both aux and up")

    def value(x: Node, operand: Node) -> Node:
        return substituted(in_type(root, x.type), {"x": x, "aux": operand, "up": operand})

    spans = {"aux": ELEMENT, "up": NEIGHBOUR}
    step = EpilogueStep(value, "aux" if "aux" in reads else "", *(spans[name] for name in reads))
    return EpilogueOp(text, ACTIVATION, (step,), f"the expression {text}", slope=None)


def in_type(root: Node, type: str) -> Node:
    """An f64 expression converted to arithmetic in another float type."""

    def changed(x: Node) -> Node:
        if x.op == "cast" and x.type == "f64" and x.arguments[0].type == type:
            return x.arguments[0]
        return node(x.op, type, *x.arguments, value=x.value) if x.type == "f64" else x

    return rewritten(root, changed)


def split_epilogue(epilogue: str) -> tuple[str, ...]:
    """The operations of an epilogue, split at commas that are not inside parentheses or brackets."""
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
    """The names of the operations of these places, in the order of registration, without operations that stand for
    others."""
    plugins.load()
    return tuple(op.name for op in EPILOGUE_OPS.values() if op.place in places and not op.stands_for)


def epilogue_rows(gated: bool = False, writes: tuple[str, ...] = ()) -> tuple[tuple[str, ...], ...]:
    """The names of the operations of a matrix product, one row per place; an epilogue has at most one operation of each
    row. ``gated``: include gated activations; ``writes``: the places, of those of operations that also write another
    array, to include."""
    rows = (epilogue_op_names(place) for place in PLACES if place in writes or place not in WRITING)
    return tuple(tuple(name for name in row if gated or not EPILOGUE_OPS[name].gated) for row in rows)


def ordered_names() -> tuple[str, ...]:
    """The names of all operations but gated ones and those that also write another array. The position of a name is its
    bit in the C interface, so those of the package come first and keep their order."""
    plugins.load()
    return tuple(name for name, op in EPILOGUE_OPS.items() if not (op.gated or op.writes))


def arrays_of(name: str) -> tuple[str, ...]:
    """The names of the arrays that an operation reads."""
    return epilogue_op(name).arrays


# ---- the operations of the package


def _plus(x: Node, operand: Node) -> Node:
    return node("+", x.type, x, operand)


def _times(x: Node, operand: Node) -> Node:
    return node("*", x.type, x, operand)


def _masked(x: Node, operand: Node) -> Node:
    """``x`` where the operand is positive or NaN, else 0."""
    zero = constant(0.0, x.type)
    return select(node("<=", PRED, operand, zero), zero, x)


def _logistic(x: Node, exponent: Node) -> Node:
    """x / (1 + 2^exponent)."""
    power = node("exp2", x.type, exponent)
    return _times(x, node("rcp", x.type, node("+", x.type, power, constant(1.0, x.type))))


def _silu(x: Node) -> Node:
    return _logistic(x, _times(x, constant(-math.log2(math.e), x.type)))


def _gelu(x: Node) -> Node:
    """The tanh form of GELU: x·σ(√(8/π)(x + 0.044715x³))."""
    linear = -math.sqrt(8 / math.pi) * math.log2(math.e)
    cubic = node("fma", x.type, _times(x, x), constant(linear * 0.044715, x.type), constant(linear, x.type))
    return _logistic(x, _times(cubic, x))


def _sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x))."""
    power = node("exp2", x.type, _times(x, constant(-math.log2(math.e), x.type)))
    return node("rcp", x.type, node("+", x.type, power, constant(1.0, x.type)))


def _gelu_erf(x: Node) -> Node:
    """The exact form of GELU: x (1 + erf(x / √2)) / 2."""
    error = node("erf", x.type, _times(x, constant(math.sqrt(0.5), x.type)))
    half = constant(0.5, x.type)
    return _times(x, node("fma", x.type, error, half, half))


def _clamp(name: str, low: float, high: float) -> EpilogueOp:
    """The operation min(max(x, low), high). InputError: ``low`` exceeds ``high``."""
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
    """The derivative of x·s for s = 1 / (1 + 2^exponent), where ``slope`` is the derivative of -exponent·ln 2. The form
    s (1 + x slope (1 - s)) is finite wherever x·slope is."""
    one = constant(1.0, x.type)
    share = node("rcp", x.type, node("+", x.type, node("exp2", x.type, exponent), one))
    return _times(share, node("fma", x.type, _times(x, slope), node("-", x.type, one, share), one))


def _silu_slope(x: Node) -> Node:
    return _slope_of_logistic(x, _times(x, constant(-math.log2(math.e), x.type)), constant(1.0, x.type))


def _gelu_slope(x: Node) -> Node:
    scale = math.sqrt(8 / math.pi)

    def even(cubic: float, factor: float) -> Node:
        """The polynomial factor·(1 + cubic·x²)."""
        return node("fma", x.type, _times(x, x), constant(factor * cubic, x.type), constant(factor, x.type))

    return _slope_of_logistic(x, _times(even(0.044715, -scale * math.log2(math.e)), x), even(3 * 0.044715, scale))


def _gelu_erf_slope(x: Node) -> Node:
    """The derivative of GELU: Φ(x) + x φ(x), where Φ is the normal distribution function and φ its density."""
    half = constant(0.5, x.type)
    normal = node("fma", x.type, node("erf", x.type, _times(x, constant(math.sqrt(0.5), x.type))), half, half)
    density = node("exp2", x.type, _times(_times(x, x), constant(-0.5 * math.log2(math.e), x.type)))
    return node("fma", x.type, _times(x, constant(1 / math.sqrt(2 * math.pi), x.type)), density, normal)


def _sigmoid_slope(x: Node) -> Node:
    share = _sigmoid(x)
    return _times(share, node("-", x.type, constant(1.0, x.type), share))


def _gradient(name: str, slope: Callable[[Node], Node]) -> EpilogueOp:
    """The gradient of an activation: the sum times the slope of the activation at ``aux``, its argument in the forward
    pass."""
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
    """A gated activation: ``value`` of every other sum, times the next sum."""
    step = EpilogueStep(lambda x, up: _times(value(x), up), "", NEIGHBOUR)
    meaning = f"{meaning} of the sum of every other column of B, or filter, times the sum of the next one"
    return EpilogueOp(name, ACTIVATION, (step,), meaning, None)


_own(_gated("swiglu", _silu, "SiLU"))
_own(_gated("geglu", _gelu, "GELU in its tanh form"))
_own(activation("tanh", lambda x: node("tanh", x.type, x), meaning="the hyperbolic tangent", absolute=2.0**-20))
_own(
    EpilogueOp(
        "store_sums",
        STORE,
        (EpilogueStep(lambda x, _: x, "sums", STORED),),
        "stores the sums to another array, of the type of C, before the activation",
    )
)
_own(
    EpilogueOp(
        "sum_columns",
        SUM,
        (EpilogueStep(lambda x, _: x, "column_sums", SUMMED),),
        "adds the elements of each column of C, before they are rounded, and stores the sums to another array",
    )
)
_own(
    EpilogueOp(
        "sum_a",
        OPERAND,
        (EpilogueStep(lambda x, _: x, "a_sums", OVER_K),),
        "adds the elements of each row of A along K, and stores the sums to another array",
    )
)
