"""The operations of epilogues: expressions of a sum and of arrays, applied before C is stored."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from ptxgen import plugins
from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.instructions import OLDEST
from ptxgen.expr.node import Node, constant, node, select, variable
from ptxgen.expr.ptx import check
from ptxgen.expr.value_types import PRED

#: places in the order of execution; an epilogue has at most one operation of each
SCALE, BIAS, RESIDUAL, ACTIVATION = "scale", "bias", "residual", "activation"
PLACES = (SCALE, BIAS, RESIDUAL, ACTIVATION)
#: how an array broadcasts to C: one number, one for each row or column of C, the shape of C
ONE, ROW, COLUMN, ELEMENT = "one", "row", "column", "element"


@dataclass(frozen=True)
class EpilogueStep:
    """``value(x, operand)``: the expression of a sum ``x`` and of an element of ``array``, which ``spans`` ONE, ROW,
    COLUMN or ELEMENT; without an array ``operand`` is x."""

    value: Callable[[Node, Node], Node]
    array: str = ""
    spans: str = ""

    def expression(self, type: str) -> Node:
        """The value, of variables x and operand of a type."""
        return _expression(self, type)


@functools.cache
def _expression(step: EpilogueStep, type: str) -> Node:
    return step.value(variable("x", type), variable("operand" if step.array else "x", type))


@dataclass(frozen=True)
class EpilogueOp:
    """``place``: of PLACES; ``steps``: in order; ``meaning``: for documentation. Of the error bound of checks:
    ``slope``: the largest absolute slope of an activation; ``relative``: the error of its approximations relative to
    the magnitude of the sum, ``absolute``: beside that. ``stands_for``: the operations of kernel problems that one of a
    problem becomes."""

    name: str
    place: str
    steps: tuple[EpilogueStep, ...]
    meaning: str = ""
    slope: float = 1.0
    relative: float = 0.0
    absolute: float = 0.0
    stands_for: tuple[str, ...] = ()

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it reads, in order."""
        return tuple(step.array for step in self.steps if step.array)

    @property
    def exact(self) -> bool:
        """True if the result is exact where sums and arrays are small integers."""
        return not (self.relative or self.absolute)

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
    """The operation with this name. InputError: there is none."""
    if name not in EPILOGUE_OPS:
        plugins.load()
    if name not in EPILOGUE_OPS:
        raise InputError(f"epilogue operation is {name!r}; it must be one of {', '.join(EPILOGUE_OPS)}")
    return EPILOGUE_OPS[name]


def epilogue_op_names(*places: str) -> tuple[str, ...]:
    """The names of the operations of these places, in the order of registration; without those that problems of one
    operation have instead of others."""
    plugins.load()
    return tuple(op.name for op in EPILOGUE_OPS.values() if op.place in places and not op.stands_for)


def epilogue_rows() -> tuple[tuple[str, ...], ...]:
    """The operations of a product of matrices, a row for each place; an epilogue has at most one of each row."""
    return tuple(epilogue_op_names(place) for place in PLACES)


def ordered_names() -> tuple[str, ...]:
    """All operations, those of the package first and in an order that stays: the bits of the C interface."""
    plugins.load()
    return tuple(EPILOGUE_OPS)


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
_own(
    EpilogueOp(
        "bias",
        BIAS,
        (EpilogueStep(_plus, "bias", COLUMN),),
        "of convolutions: plus a number for each channel",
        stands_for=("bias_row", "bias_column"),
    )
)
