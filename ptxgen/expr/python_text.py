"""Prints expressions as Python code for an array library such as PyTorch or Triton, each common subexpression once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ptxgen.errors import DtypeError
from ptxgen.expr.node import Node, walk
from ptxgen.expr.value_types import PRED, type_of

_INFIX = {"+", "-", "*", "/", "<", "<=", "==", "!=", "&", "|", "^", "<<", ">>"}


@dataclass(frozen=True)
class Library:
    """The names by which Python code calls a library. ``functions``: by operator, for operators that Python does not
    have; ``types``: the library's names of value types; ``select``: the function that chooses between two values;
    ``bounded(operator, value, number)``: the text of the minimum or maximum of a value and a number; None: the same as
    for two values."""

    functions: Mapping[str, str]
    types: Mapping[str, str]
    select: str
    bounded: Callable[[str, str, str], str] | None = None


def _types(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    return {type: f"{prefix}.{name}" for type, name in names.items()}


_SIGNED = {f"s{bits}": f"int{bits}" for bits in (64, 32, 16, 8)}
_FLOATS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_EXTREMES = {"minimum": ("min", "fmin"), "maximum": ("max", "fmax")}
_UNARY = ("abs", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "erf")

TORCH = Library(
    functions={
        **{name: f"torch.{name}" for name in (*_UNARY, "tanh", "pow", "fmin", "fmax")},
        "min": "torch.minimum",
        "max": "torch.maximum",
    },
    types=_types("torch", {**_FLOATS, **_SIGNED, "u8": "uint8", PRED: "bool"}),
    select="torch.where",
    bounded=lambda op, value, number: f"{value}.clamp({'min' if op.endswith('max') else 'max'}={number})",
)


def _of_tiles(prefix: str) -> Library:
    """The library of a language of kernels, Triton or Gluon, whose ``minimum`` and ``maximum`` ignore NaN."""
    unsigned = {f"u{bits}": f"uint{bits}" for bits in (64, 32, 16, 8)}
    extremes = {op: f"{prefix}.{name}" for name, ops in _EXTREMES.items() for op in ops}
    return Library(
        functions={**{name: f"{prefix}.{name}" for name in _UNARY}, **extremes},
        types=_types(prefix, {**_FLOATS, **_SIGNED, **unsigned, PRED: "int1"}),
        select=f"{prefix}.where",
    )


TRITON, GLUON = _of_tiles("tl"), _of_tiles("gl")


class PythonText:
    """The Python text of nodes. Nodes with several uses are variables, which ``definitions`` defines in order."""

    def __init__(self, roots: Iterable[Node], names: Mapping[Node, str], library: Library, prefix: str = "t") -> None:
        """``names``: the Python names of variables, and of other nodes that the surrounding text defines; ``prefix``:
        the first letters of the names in ``definitions``. DtypeError: the library lacks an operator or a type."""
        self.definitions: list[str] = []
        self._names = dict(names)
        self._library = library
        roots = tuple(roots)
        uses = Counter(y for x in walk(*roots) if x not in self._names for y in x.arguments)
        uses.update(roots)
        for x in walk(*roots):
            if x.arguments and x not in self._names and uses[x] > 1:
                name = f"{prefix}{len(self.definitions)}"
                self.definitions.append(f"{name} = {self._text(x)}")
                self._names[x] = name

    def __call__(self, x: Node) -> str:
        """The Python expression that has the value of a node."""
        return self._names.get(x) or self._text(x)

    def _text(self, x: Node) -> str:
        if x.op == "constant":
            return number(x)
        if x.op == "variable":
            raise DtypeError(f"variable {x.value} has no text; it must be one of {', '.join(self._names.values())}")
        a = [self(y) for y in x.arguments]
        if x.op == "select":
            return f"{self._library.select}({', '.join(a)})"
        if x.op == "cast":
            return f"({a[0]} != 0)" if x.type == PRED else f"{a[0]}.to({self.type(x.type)})"
        if x.op in ("neg", "~", "not"):
            return f"({'-' if x.op == 'neg' else '~'}{a[0]})"
        if x.op in _INFIX:
            return f"({a[0]} {x.op} {a[1]})"
        if x.op == "fma":
            return f"({a[0]} * {a[1]} + {a[2]})"
        if x.op == "rcp":
            return f"(1.0 / {a[0]})"
        if x.op not in self._library.functions:
            raise DtypeError(f"operator is {x.op!r}; it must be one of {', '.join(self._library.functions)}")
        numbers = [y for y in x.arguments if y.op == "constant"]
        bounds = x.op in ("min", "max", "fmin", "fmax")
        if self._library.bounded is not None and len(numbers) == 1 and bounds:
            value = next(y for y in x.arguments if y.op != "constant")
            return self._library.bounded(x.op, self(value), number(numbers[0]))
        return f"{self._library.functions[x.op]}({', '.join(a)})"

    def type(self, name: str) -> str:
        """The library's name of a value type."""
        return type_in(self._library, name)


def type_in(library: Library, name: str) -> str:
    """The library's name of a value type. DtypeError: the library does not have the type."""
    if name not in library.types:
        raise DtypeError(f"type is {name}; it must be one of {', '.join(library.types)}")
    return library.types[name]


def number(x: Node) -> str:
    """The Python text of a constant."""
    if not type_of(x.type).floating:
        return repr(bool(x.value) if x.type == PRED else int(x.value))
    value = float(x.value)
    return repr(value) if math.isfinite(value) else f'float("{value}")'
